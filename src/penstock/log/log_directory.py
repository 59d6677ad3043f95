"""LogDirectory: all the change logs of one node, as a directory that agents add to while it is read.

Looking again is cheap: the directory's own time of change says whether a log may have come or gone, and only then is it
listed. A log is seen once it has its identity and its first file; one that cannot be read is passed over with a warning
and looked at again, so that a damaged log does not hide the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from penstock.errors import PenstockError
from penstock.log import identity, names
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.watermark import Watermark
from penstock.model.schema import TableId
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles
from penstock.telemetry import Logger

log = Logger()

# A directory that changed this recently may change again without a new time: clocks of file systems are coarse.
_SETTLED_US = 2_000_000
# So many logs keep their watermark open between two looks; beyond that each look opens it, to spare descriptors.
_OPEN_MAX = 256


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One log. `name` is empty for a table's own log; `parked` is what the log's filter could not judge."""

    directory: str
    log_id: str
    table: TableId
    name: str
    parked: bool
    node: str
    data_centre: str


def changed_us(path: str) -> int:
    """When a directory last got or lost an entry."""
    return os.stat(path).st_mtime_ns // 1000


class LogDirectory:
    """The logs below `root`, or the one log that `root` is. For one thread."""

    def __init__(
        self,
        root: str,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        changed: Callable[[str], int] = changed_us,
    ) -> None:
        self.root = root.rstrip("/") or "/"
        self._files = files or OsFiles()
        self._clock = clock or SystemClock()
        self._changed = changed
        self._readers: dict[str, LogReader] = {}
        self._entries: dict[str, LogEntry] = {}
        # The directory's time when it was listed, None when it must be listed again.
        self._listed: int | None = None
        self._unreadable: dict[str, tuple[TableId, PenstockError]] = {}

    def look(self) -> dict[str, LogEntry]:
        """Every log by its id."""
        try:
            changed = self._changed(self.root)
            if self._listed != changed:
                before = self._clock.now_us()
                whole = self._list()
                self._listed = changed if whole and before - changed > _SETTLED_US else None
        except OSError as error:
            raise refused(error, "listing the logs", self.root) from error
        return self._entries

    def unreadable(self) -> dict[str, tuple[TableId, PenstockError]]:
        """The logs that the last look passed over, as far as their ids could be read, and what is wrong with each."""
        return self._unreadable

    def reader(self, log_id: str) -> LogReader:
        """The reader of a log that was seen."""
        return self._readers[log_id]

    def watermark(self, log_id: str) -> Watermark:
        """How far a log is durable."""
        reader = self._readers[log_id]
        try:
            return reader.watermark()
        finally:
            if len(self._readers) > _OPEN_MAX:
                reader.close()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers, self._entries, self._listed = {}, {}, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _list(self) -> bool:
        """List the directory; False when something in it has to be looked at again."""
        known = {entry.directory: entry for entry in self._entries.values()}
        if self._files.exists(f"{self.root}/{identity.NAME}"):
            directories = [self.root]
        else:
            directories = [f"{self.root}/{name}" for name in sorted(self._files.list(self.root)) if "." in name]
        found, whole = {}, True
        self._unreadable = {}
        for directory in directories:
            if not self._files.exists(f"{directory}/{identity.NAME}"):
                # A directory of something else, or of a log that is just being made.
                whole = whole and not os.path.isdir(directory)
                continue
            entry = self._entry(directory, known.get(directory))
            if entry is None:
                whole = False
            else:
                found[entry.log_id] = entry
        for gone in self._entries.keys() - found.keys():
            self._readers.pop(gone).close()
        self._entries = found
        return whole

    def _entry(self, directory: str, known: LogEntry | None) -> LogEntry | None:
        try:
            if known is not None and identity.load(self._files, directory).log == known.log_id:
                return known
            reader = LogReader(directory, files=self._files)
            numbers = reader.numbers()
            if not numbers:
                return None
            heading = reader.heading(numbers[0])
        except PenstockError as error:
            log.warning("log not readable", directory=directory, error=str(error))
            with suppress(PenstockError):
                known_as = identity.load(self._files, directory)
                place = {**error.place, "table": known_as.table}
                self._unreadable[known_as.log] = known_as.table, type(error)(error.message, **place)
            return None
        name, parked = log_name(directory, reader.table)
        self._readers[reader.log_id] = reader
        return LogEntry(directory, reader.log_id, reader.table, name, parked, heading.node, heading.data_centre)


def log_name(directory: str, table: TableId) -> tuple[str, bool]:
    """The name of the log in a directory, in its encoded form, and whether it is one of parked changes."""
    name = os.path.basename(directory.rstrip("/"))
    parked = name.endswith(names.PARKED)
    name = name.removesuffix(names.PARKED)
    plain = names.directory_name(table)
    return (name[len(plain) + 1 :] if name.startswith(f"{plain}@") else ""), parked
