"""Worker processes: how a process of Spark's stays quick with small tasks, its files closed and its log readable.

Spark lets Python collect garbage after every task. With all that is imported here each such pass looks at a few hundred
thousand objects, which costs more than the task itself. Objects that have outlived a pass are set apart, so that the
next one looks at new ones only.
"""

from __future__ import annotations

import gc

from penstock.system import umask
from penstock.telemetry import set_up_relayed_logging

_begun = 0


def task_begins() -> None:
    """Called at the beginning of each task.

    Things are set apart at the second task, when all modules are there, and then ever more seldom: what is set apart
    and no longer needed afterwards is not collected when it forms a cycle, so this must not go on for ever.
    """
    global _begun
    if not _begun:
        umask.adopt()
    _begun += 1
    set_up_relayed_logging()
    # The second task, the fourth, the eighth, and so on.
    if _begun > 1 and _begun & (_begun - 1) == 0:
        gc.freeze()
