"""ParkedEntries: entries of the commit log that cannot be decoded yet, kept on disk until they can.

An entry is parked when its table, or a column of it, is not known. Each table has its own file, named after its id and
a number: a header, and records of the entry and a checksum, appended and synced before the agent's place may move past
the entries. A torn tail is cut when the file is opened, because nothing in it was relied upon yet. When the table's
definition has come, entries are taken out in order. The agent's place says how far each file was taken, so that a crash
decodes nothing twice; a file that was taken as a whole goes.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from penstock.capture.cassandra.decoding.decoder import ParkedEntry
from penstock.errors import CorruptCheckpoint, LogFailed
from penstock.log.names import TEMPORARY
from penstock.log.refusal import refused
from penstock.system import json_text
from penstock.system.checksum import crc32
from penstock.system.files import File, Files, make_durable_directory

log = structlog.get_logger()

DIRECTORY = "parked"
_NAME = re.compile(r"([0-9a-f]{32})\.(\d{1,12})\.parked", re.ASCII)
_MAGIC = b"PSTKPRK\x01"
# Length of what follows, its checksum.
_RECORD = struct.Struct("<II")
# Segment, position, format, length of the head (a JSON object with the file and the reason).
_ENTRY = struct.Struct("<qqiI")
# So much is handed out at once.
_TAKE_BYTES = 8 << 20
_ENTRY_BYTES_MAX = 1 << 30


class _Entries:
    """Which entries a file holds, in few bytes each: there may be millions, and they come nearly in order."""

    def __init__(self) -> None:
        self._positions: dict[int, array[int]] = {}

    def add(self, segment: int, position: int) -> bool:
        """Note an entry; False when it is noted already."""
        known = self._positions.setdefault(segment, array("q"))
        at = len(known) if not known or position > known[-1] else bisect_left(known, position)
        if at < len(known) and known[at] == position:
            return False
        known.insert(at, position)
        return True

    def holds(self, segment: int, position: int) -> bool:
        known = self._positions.get(segment, ())
        at = bisect_left(known, position)
        return at < len(known) and known[at] == position


@dataclass
class _Parked:
    """One table's file."""

    name: str
    table: uuid.UUID
    file: File | None = None
    end: int = len(_MAGIC)
    # Where the entries that were not taken yet begin.
    taken: int = len(_MAGIC)
    # What is in it, taken or not, so that reading again parks nothing twice.
    entries: _Entries = field(default_factory=_Entries)
    waiting: int = 0
    # Records that are not on disk yet.
    fresh: list[bytes] = field(default_factory=list)


class ParkedEntries:
    """All parked entries of one agent. One thread uses it."""

    def __init__(self, files: Files, state_directory: str, *, bytes_max: int = 1 << 30) -> None:
        self._files = files
        self._directory = f"{state_directory}/{DIRECTORY}"
        self._bytes_max = bytes_max
        self._tables: dict[uuid.UUID, _Parked] = {}
        # Files whose entries were all taken, and wait to be removed.
        self._taken: list[_Parked] = []
        self._number = 0
        # Called before entries are handed out: what was made of those before may have to make room.
        self.before_taking: Callable[[], None] = lambda: None

    def open(self, taken: Mapping[str, int]) -> None:
        """Find what was parked before, and go on where the place says that each file was taken to."""
        try:
            make_durable_directory(self._files, self._directory)
            names = self._files.list(self._directory)
            for name in names:
                if name.endswith(TEMPORARY):
                    self._files.unlink(f"{self._directory}/{name}")
            found = [match for name in names if (match := _NAME.fullmatch(name))]
            for match in sorted(found, key=lambda match: int(match[2])):
                self._number = max(self._number, int(match[2]))
                self._recover(match[0], uuid.UUID(match[1]), taken.get(match[0], len(_MAGIC)))
            # What was removed just now must not come back when the next place does not name it any more.
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise refused(error, "opening parked entries", self._directory) from error

    # What the decoder asks.

    def park(self, entry: ParkedEntry) -> None:
        """Keep an entry: in memory until the next `sync`, then on disk. One that is kept already is not kept twice."""
        parked = self._tables.get(entry.table)
        if parked is None:
            self._number += 1
            parked = _Parked(f"{entry.table.hex}.{self._number}.parked", entry.table)
            self._tables[entry.table] = parked
        if parked.entries.add(entry.segment, entry.position):
            parked.waiting += 1
            parked.fresh.append(_pack(entry))

    def holds(self, table: uuid.UUID) -> bool:
        """Whether entries of the table wait."""
        return table in self._tables

    def tables(self) -> Collection[uuid.UUID]:
        """The tables that entries wait for."""
        return self._tables.keys()

    def take(self, table: uuid.UUID) -> list[ParkedEntry]:
        """The next entries of a table, in their order; empty when there are none. Not all at once if they are many."""
        self.before_taking()
        self.sync()
        parked = self._tables.get(table)
        if parked is None:
            return []
        out: list[ParkedEntry] = []
        size = 0
        for entry, end in self._read(parked, parked.taken):
            out.append(entry)
            size += end - parked.taken
            parked.taken = end
            if size >= _TAKE_BYTES:
                break
        parked.waiting -= len(out)
        if parked.taken >= parked.end:
            # Later entries of this table, and those that still cannot be decoded, get a file of their own.
            self._taken.append(self._tables.pop(table))
        return out

    # What the agent asks.

    @property
    def has_taken(self) -> bool:
        """Whether entries were taken out that the saved place does not know of yet, or may still be on disk."""
        return bool(self._taken)

    @property
    def waiting(self) -> int:
        """How many entries wait."""
        return sum(parked.waiting for parked in tuple(self._tables.values()))

    @property
    def bytes(self) -> int:
        """What they take on disk."""
        return sum(parked.end for parked in (*self._tables.values(), *self._taken))

    def sync(self) -> None:
        """Make durable what was parked since the last time. After DiskFull it can be called again."""
        for parked in self._tables.values():
            if not parked.fresh:
                continue
            data = b"".join(parked.fresh)
            if self.bytes + len(data) > self._bytes_max:
                message = f"parked entries would take more than {self._bytes_max} bytes (agent.parked_bytes_max)"
                raise LogFailed(message, directory=self._directory, table_id=parked.table)
            try:
                if parked.file is None:
                    parked.file = self._create(parked.name)
                parked.file.pwrite(data, parked.end)
                parked.file.sync()
            except OSError as error:
                raise refused(error, "parking an entry", f"{self._directory}/{parked.name}") from error
            parked.end += len(data)
            parked.fresh.clear()

    def taken(self) -> dict[str, int]:
        """How far each file was taken, for a place before which the changes of what was taken are durable."""
        files = (*self._tables.values(), *self._taken)
        return {parked.name: parked.taken for parked in files if parked.taken > len(_MAGIC)}

    def tidy(self, saved: Mapping[str, int]) -> None:
        """Remove the files that a saved place says were taken as a whole.

        Until that is durable they go on being named by each place, so that no crash brings one back as new.
        """
        done = [parked for parked in self._taken if saved.get(parked.name) == parked.end]
        if not done:
            return
        try:
            for parked in done:
                if self._files.exists(f"{self._directory}/{parked.name}"):
                    self._files.unlink(f"{self._directory}/{parked.name}")
            self._files.sync_directory(self._directory)
        except OSError as error:
            log.warning("parked file not removed", directory=self._directory, errno=error.errno)
            return
        for parked in done:
            self._taken.remove(parked)
            if parked.file is not None:
                parked.file.close()

    def knows(self, segment: int, position: int) -> bool:
        """Whether this entry is, or was just, parked."""
        return any(parked.entries.holds(segment, position) for parked in (*self._tables.values(), *self._taken))

    def close(self) -> None:
        for parked in (*self._tables.values(), *self._taken):
            if parked.file is not None:
                parked.file.close()
        self._tables.clear()
        self._taken.clear()

    # Files.

    def _create(self, name: str) -> File:
        """A new file. It has its name only when its beginning is durable, so that a crash leaves none without."""
        path = f"{self._directory}/{name}"
        file = self._files.open(path + TEMPORARY, write=True, create=True)
        try:
            file.truncate(0)
            file.pwrite(_MAGIC, 0)
            file.sync()
            self._files.rename(path + TEMPORARY, path)
            self._files.sync_directory(self._directory)
        except BaseException:
            file.close()
            raise
        return file

    def _recover(self, name: str, table: uuid.UUID, taken: int) -> None:
        """Open a file of an earlier life, cut what was not finished, and note what is in it."""
        path = f"{self._directory}/{name}"
        file = self._files.open(path, write=True)
        parked = _Parked(name, table, file, file.size(), taken)
        if file.pread(len(_MAGIC), 0) != _MAGIC:
            file.close()
            if parked.end > len(_MAGIC):
                raise CorruptCheckpoint("not a file of parked entries", file=path)
            self._files.unlink(path)
            return
        end = len(_MAGIC)
        for entry, end in self._read(parked, len(_MAGIC)):
            parked.entries.add(entry.segment, entry.position)
            parked.waiting += end > taken
        if end < parked.end:
            # Nothing behind a bad record was synced, or the place would name it; damage inside looks the same.
            log.warning("end of parked entries cut", file=path, offset=end, bytes=parked.end - end)
            file.truncate(end)
            file.sync()
        parked.end = end
        known = self._tables.get(table)
        if not parked.waiting:
            file.close()
            self._files.unlink(path)
        elif known is None:
            self._tables[table] = parked
        else:
            self._join(known, parked)

    def _join(self, known: _Parked, other: _Parked) -> None:
        """Two files of one table wait: bring the entries of the later into the first."""
        for entry, _ in self._read(other, other.taken):
            if known.entries.add(entry.segment, entry.position):
                record = _pack(entry)
                assert known.file is not None
                known.file.pwrite(record, known.end)
                known.end += len(record)
                known.waiting += 1
        assert known.file is not None
        known.file.sync()
        if other.file is not None:
            other.file.close()
        self._files.unlink(f"{self._directory}/{other.name}")

    def _read(self, parked: _Parked, start: int) -> Iterator[tuple[ParkedEntry, int]]:
        assert parked.file is not None, "what is read was synced before"
        return _records(parked.file, parked.table, start, parked.end)


def read_summary(files: Files, state_directory: str) -> list[dict[str, Any]]:
    """What waits, by table and reason, read beside a running agent: nothing is changed, and no lock is taken."""
    directory = f"{state_directory}/{DIRECTORY}"
    if not files.exists(directory):
        return []
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for match in sorted((m for name in files.list(directory) if (m := _NAME.fullmatch(name))), key=lambda m: int(m[2])):
        table = uuid.UUID(match[1])
        try:
            file = files.open(f"{directory}/{match[0]}")
        except OSError:
            # The agent has just decoded and removed it.
            continue
        try:
            for entry, _ in _records(file, table, len(_MAGIC), file.size()):
                first = {"first_file": entry.file, "first_position": entry.position, "entries": 0, "bytes": 0}
                row = rows.setdefault(
                    (str(table), entry.reason), {"table_id": str(table), "reason": entry.reason, **first}
                )
                row["entries"] += 1
                row["bytes"] += len(entry.data)
        finally:
            file.close()
    return list(rows.values())


def _records(file: File, table: uuid.UUID, start: int, end: int) -> Iterator[tuple[ParkedEntry, int]]:
    """The sound records from `start` on, each with its end."""
    while start + _RECORD.size <= end:
        size, crc = _RECORD.unpack(file.pread(_RECORD.size, start))
        if not _ENTRY.size <= size <= min(_ENTRY_BYTES_MAX, end - start - _RECORD.size):
            return
        body = file.pread(size, start + _RECORD.size)
        if len(body) != size or crc32(body) != crc:
            return
        start += _RECORD.size + size
        yield _unpack(body, table), start


def _pack(entry: ParkedEntry) -> bytes:
    head = json.dumps({"file": entry.file, "reason": entry.reason}).encode()
    body = _ENTRY.pack(entry.segment, entry.position, entry.format, len(head)) + head + entry.data
    return _RECORD.pack(len(body), crc32(body)) + body


def _unpack(body: bytes, table: uuid.UUID) -> ParkedEntry:
    segment, position, format_, length = _ENTRY.unpack_from(body)
    head = json_text.parse(body[_ENTRY.size : _ENTRY.size + length])
    data = body[_ENTRY.size + length :]
    return ParkedEntry(table, head["reason"], head["file"], segment, position, format_, data)
