"""StateFile: a small durable state of the agent, written so that no crash leaves it without one.

The state is kept in two files that are written in turn, each replaced as a whole (`log.sealed`) and each with a rising
number. The one with the higher number counts; if it is damaged, the one before it does. Only when files are there and
none can be read is that an error: to begin again in silence would repeat or lose changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog

from penstock.errors import CorruptCheckpoint, UnsupportedFormat
from penstock.log import sealed
from penstock.log.refusal import refused
from penstock.system.files import Files

log = structlog.get_logger()

# A state grows with the number of tables; a file larger than this is none of ours.
BYTES_MAX = 256 << 20
FORMAT = 1


class StateFile:
    """One state under two names, `<name>.0.json` and `<name>.1.json`."""

    def __init__(self, files: Files, directory: str, name: str) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._number = 0

    def load(self) -> dict[str, Any] | None:
        """The last state that was saved; None when none ever was."""
        best: dict[str, Any] | None = None
        problem: CorruptCheckpoint | None = None
        for slot in (0, 1):
            path = f"{self._directory}/{self._slot(slot)}"
            try:
                if not self._files.exists(path):
                    continue
                content = sealed.read(self._files, path, BYTES_MAX)
                number, kind = content.pop("number"), content.pop("format")
            except OSError as error:
                raise refused(error, "reading the agent's state", path) from error
            except (ValueError, KeyError) as error:
                problem = CorruptCheckpoint(f"the agent's state is damaged: {error}", file=path)
                continue
            if kind != FORMAT:
                raise UnsupportedFormat(f"agent state format {kind!r}; this version reads {FORMAT}", file=path)
            if isinstance(number, int) and number > self._number:
                best, self._number = content, number
        if best is None and problem is not None:
            raise problem
        if problem is not None:
            log.warning("state file damaged, the one before it is used", file=problem.place["file"])
        return best

    def save(self, content: Mapping[str, Any]) -> None:
        """Make this the durable state. The one before stays readable until the next is saved."""
        number = self._number + 1
        name = self._slot(number % 2)
        try:
            sealed.write(self._files, self._directory, name, {"format": FORMAT, "number": number, **content})
        except OSError as error:
            raise refused(error, "saving the agent's state", f"{self._directory}/{name}") from error
        self._number = number

    def _slot(self, slot: int) -> str:
        return f"{self._name}.{slot}.json"
