"""Errors that come back through Spark: it hands on the text of what a Python process raised, and not the error.

The text ends with the line that Python prints for an error, so an error of Penstock's can be made again from it, with
its message and the place in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock import errors
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LINE = re.compile(r"^(?:penstock\.\S+\.)(\w+): (.+)$", re.MULTILINE)
# Where it happened, as an error says it at its end: names and values, which may have commas of their own.
_PLACE = re.compile(r"^(.*) \(([a-z_]+ .+)\)$")
_NAME = re.compile(r"(?:^|, )([a-z_]+) ")


def penstock_error(error: BaseException) -> PenstockError | None:
    """The error of Penstock's that a Spark error tells of; None when it tells of something else."""
    if isinstance(error, PenstockError):
        return error
    for name, message in reversed(_LINE.findall(str(error))):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PenstockError):
            return _with_place(kind, message)
    return None


def _with_place(kind: type[PenstockError], text: str) -> PenstockError:
    """An error that says what it said, with the place apart from the message."""
    found = _PLACE.match(text)
    if found is None:
        return kind(text)
    parts = _NAME.split(found[2])
    place = dict(zip(parts[1::2], parts[2::2], strict=True))
    made = kind(found[1], **place)
    # A text that only looks like one with a place stays as it is.
    return made if str(made) == text else kind(text)


def java_gone(spark: SparkSession) -> bool:
    """Whether a session's Java machine is not there any more, so that nothing can be asked of it again."""
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    try:
        # Unlike its version, this is asked for each time.
        spark.conf.get("spark.sql.session.timeZone", None)
    except (ConnectionRefusedError, Py4JNetworkError):
        return True
    # Whatever else it says, it is there.
    except Exception:  # noqa: BLE001
        return False
    return False
