"""Errors that come back through Spark: it hands on the text of what a Python process raised, and not the error.

The text ends with the line that Python prints for an error, so an error of Penstock's can be made again from it, with
its message and the place in it.
"""

from __future__ import annotations

import re

from penstock import errors
from penstock.errors import PenstockError

_LINE = re.compile(r"^(?:penstock\.\S+\.)(\w+): (.+)$", re.MULTILINE)


def penstock_error(error: BaseException) -> PenstockError | None:
    """The error of Penstock's that a Spark error tells of; None when it tells of something else."""
    if isinstance(error, PenstockError):
        return error
    for name, message in reversed(_LINE.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PenstockError):
            return kind(message)
    return None
