"""Umask: what other users of the machine may do with files that processes of ours make.

Rows and positions are in most of them, and not all are written by our own code: Spark's Java machine, its Python
processes and the libraries of targets write with the rights that the system's defaults give. So a process of ours
begins with a umask that closes everything, which the processes that it starts inherit. Where the settings say that the
group may read, the umask lets it, and directories that are for nobody else are closed one by one. A process that is not
ours, as a notebook, keeps its own.
"""

from __future__ import annotations

import os

# For Python processes on other machines, which inherit nothing.
VARIABLE = "PENSTOCK_UMASK"
_CLOSED = 0o077
_GROUP_READS = 0o027
_chosen: int | None = None


def close() -> None:
    """Let nobody else at what this process makes from now on."""
    _choose(_CLOSED)


def open_to_group() -> None:
    """Let the group of this process's user read what it makes from now on. For processes that were closed before."""
    if _chosen is not None:
        _choose(_GROUP_READS)


def adopt() -> None:
    """Do as the process did that this one works for."""
    text = os.environ.get(VARIABLE)
    if text is not None and _chosen is None:
        _choose(int(text, 8))


def chosen() -> str | None:
    """What was chosen for this process, as three digits; None when nothing was."""
    return None if _chosen is None else f"{_chosen:03o}"


def _choose(mask: int) -> None:
    global _chosen
    _chosen = mask
    os.umask(mask)
