"""A logger that is there at once: structlog is imported when something is logged.

With all that it can print, structlog takes longer to import than everything else that plans a batch, and most processes
of Spark never log anything. Modules that such a process imports take their logger from here; it is structlog's own in
every other respect.
"""

from __future__ import annotations

from typing import Any


class Logger:
    """Stands for `structlog.get_logger()`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(), name)
