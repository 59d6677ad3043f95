"""Erasure: takes every change of given rows or partitions out of a log, for good, and looks that none is left.

Files are replaced one by one: the new one is written beside the old, synced and renamed over it, and then its index. A
kill at any moment leaves each file as it was or as it is to be, and the next run does what is left. Offsets and numbers
stay (`replacement`), so every position and checkpoint means what it meant. Readers that have the old file open read it
to its end. The newest file belongs to the writer: it is ended first, by the writer or, when there is none, by us.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ChangesLost, CorruptLog, LogLocked, PenstockError
from penstock.formats import avro, container
from penstock.log import checkpoint, erased, retention, segment
from penstock.log.block import SYNC_BYTES, Block, TornBlock, parse, seal
from penstock.log.forgotten import Target, Wanted
from penstock.log.index import Entry, Index
from penstock.log.lock import WriterLock
from penstock.log.names import DATA, INDEX, TEMPORARY
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.segment import Heading
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.model.schema import TableSchema
from penstock.settings import Codec, LogSettings
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import File, Files, OsFiles
from penstock.telemetry import Logger

log = Logger()

_COPY_BYTES = 1 << 20
_ENTRIES_AT_ONCE = 4096


@dataclass(slots=True)
class Found:
    """What a look at one log came to."""

    changes: int = 0
    # The last of them.
    last: Position = START
    files: list[int] = field(default_factory=list)
    erased: int = 0
    # Deletions of ranges that name the key's clustering values as a bound, but not only this row: they stay.
    ranges: int = 0
    # Blocks in which bytes as those of the partition key stand elsewhere than in a key.
    lookalikes: int = 0
    # Files whose key is another one, as of a table that was dropped and made anew.
    foreign: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What was done to one log, or, in a dry run, would be."""

    directory: str
    # Before and after; the same thing in a dry run.
    before: Found
    after: Found
    files: list[int] = field(default_factory=list)
    blocks: int = 0
    # Blocks that do not compress to their length without such changes, by file and offset: they stay as they are.
    unfit: list[tuple[int, int]] = field(default_factory=list)
    # The newest file has such changes, and a writer has it.
    writer: str = ""
    # Subscriptions that had not read all of them: they will never get them.
    behind: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.after.changes and not self.after.foreign

    def to_json(self) -> dict[str, Any]:
        return {
            "directory": self.directory,
            "changes": self.before.changes,
            "files": self.files,
            "blocks": self.blocks,
            "left": self.after.changes,
            "erased_in_all": self.after.erased,
            "ranges": self.after.ranges,
            "lookalikes": self.after.lookalikes,
            "foreign_files": self.after.foreign,
            "unfit_blocks": [{"file": number, "offset": offset} for number, offset in self.unfit],
            "writer": self.writer or None,
            "behind": self.behind,
            "complete": self.complete,
        }


def take_after(old: str, new: str) -> None:
    """Give a new file the owner, the rights and the times of the one that it replaces: retention goes by the times."""
    found = os.stat(old)
    if os.path.samestat(found, os.stat(new)):
        return
    os.chmod(new, found.st_mode & 0o777)
    if (os.stat(new).st_uid, os.stat(new).st_gid) != (found.st_uid, found.st_gid):
        os.chown(new, found.st_uid, found.st_gid)
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))


def erase(
    directory: str,
    targets: Callable[[TableSchema], Sequence[Target]],
    *,
    dry_run: bool = False,
    seal: Callable[[], bool] | None = None,
    settings: LogSettings | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    like: Callable[[str, str], None] = take_after,
) -> Report:
    """Take all changes of the targets out of one log. Running it again, also after a crash, finishes it.

    `targets` gives them by the newest schema. `seal` asks a writer that has the log to end its file, and tells whether
    it did. CorruptLog when a file cannot be read to its end: then nobody can say what is in it. LogLocked when
    retention does not come to its end.
    """
    run = _Run(files or OsFiles(), directory, like, settings or LogSettings(), seal, clock or SystemClock())
    try:
        return run.run(targets, dry_run=dry_run)
    except OSError as error:
        raise refused(error, "erasing changes", directory) from error


class _Run:
    """One run over one log. Retention, and any other run, wait while a file is replaced."""

    def __init__(
        self,
        files: Files,
        directory: str,
        like: Callable[[str, str], None],
        settings: LogSettings,
        seal: Callable[[], bool] | None,
        clock: Clock,
    ) -> None:
        self._files = files
        self._directory = directory
        self._like = like
        self._settings = settings
        self._seal = seal
        self._clock = clock

    def run(self, targets: Callable[[TableSchema], Sequence[Target]], *, dry_run: bool) -> Report:
        if not dry_run:
            self._bring_into_order()
        with LogReader(self._directory, files=self._files) as reader:
            numbers = reader.numbers()
            if not numbers:
                return Report(self._directory, Found(), Found())
            chosen = targets(reader.heading(numbers[-1]).schema)
            before = self._look(reader, chosen)
            report = Report(self._directory, before, before, behind=self._behind(before.last))
            if dry_run:
                report.files = before.files
                return report
            newest = before.files[-1] if before.files else 0
            if newest == numbers[-1]:
                report.writer = self._end_newest(reader.heading(newest).schema, reader.path(newest))
        # Another reader: the newest file may be another one now.
        with LogReader(self._directory, files=self._files) as reader:
            for number in reader.numbers()[:-1]:
                with retention.paused(self._files, self._directory, self._clock):
                    self._sweep(reader, number)
                    if self._files.exists(reader.path(number)):
                        self._erase_file(reader, number, chosen, report)
        with LogReader(self._directory, files=self._files) as reader:
            report.after = self._look(reader, chosen)
        log.info("changes erased", directory=self._directory, changes=before.changes, files=report.files)
        return report

    # Looking.

    def _look(self, reader: LogReader, targets: Sequence[Target]) -> Found:
        found = Found()
        for number in reader.numbers():
            try:
                self._look_into(reader, number, targets, found)
            except (ChangesLost, FileNotFoundError):
                # Retention has deleted it meanwhile.
                continue
        return found

    def _look_into(self, reader: LogReader, number: int, targets: Sequence[Target], found: Found) -> None:
        heading = reader.heading(number)
        wanted = self._wanted(heading.schema, targets)
        if wanted is None:
            found.foreign.append(number)
            return
        for block in self._blocks(reader, heading):
            hits, ranges, lookalike = wanted.look(block.rows, block.count)
            found.ranges += ranges
            found.lookalikes += lookalike
            if block.erased:
                found.erased += len(erased.ordinals(heading.schema, block.rows, block.count))
            if hits:
                found.changes += len(hits)
                found.last = Position(number, block.offset, hits[-1])
                if number not in found.files:
                    found.files.append(number)

    @staticmethod
    def _wanted(schema: TableSchema, targets: Sequence[Target]) -> Wanted | None:
        try:
            return Wanted(schema, targets)
        except PenstockError:
            # Its key is of other types: no such row is in it.
            return None

    def _blocks(self, reader: LogReader, heading: Heading) -> Iterator[Block]:
        """All blocks of a file; CorruptLog when one is damaged, for then nobody knows what it has."""
        path = reader.path(heading.number)
        file = self._files.open(path)
        try:
            yield from segment.blocks(file, heading, heading.size, self._limit(reader, heading.number), keep=False)
        except TornBlock as torn:
            raise CorruptLog(f"damage inside the log: {torn.reason}", file=path, table=reader.table) from torn
        finally:
            file.close()

    @staticmethod
    def _limit(reader: LogReader, number: int) -> int:
        mark = reader.watermark()
        if number > mark.file:
            # Nothing of it is durable but its header.
            return reader.heading(number).size
        return reader.file_end(number, mark, reader.numbers())

    def _behind(self, last: Position) -> list[str]:
        found = checkpoint.load_all(self._files, self._directory)
        marks = [one for one in found.values() if not isinstance(one, PenstockError)]
        unknown = [os.path.basename(path) for path, one in found.items() if isinstance(one, PenstockError)]
        return sorted([one.subscription for one in marks if one.position < last] + (unknown if last != START else []))

    # Erasing.

    def _end_newest(self, schema: TableSchema, path: str) -> str:
        """Have the newest file ended, so that it is nobody's; who has it instead, when that cannot be."""
        try:
            self._write(schema, path, seal=True)
        except LogLocked as error:
            return "" if self._seal is not None and self._seal() else error.message
        return ""

    def _bring_into_order(self) -> None:
        """Recover a log that was not closed: until then nobody can read, or erase, what was made durable last."""
        with LogReader(self._directory, files=self._files) as reader:
            numbers, mark = reader.numbers(), reader.watermark()
            if not numbers:
                return
            schema, path = reader.heading(numbers[-1]).schema, reader.path(numbers[-1])
        try:
            lock = WriterLock.take(self._files, self._directory)
        except LogLocked:
            # Its writer is at work, and tells how far it is.
            return
        last = lock.last
        lock.release()
        if (last.file, last.end) != (mark.file, mark.end):
            self._write(schema, path, seal=False)

    def _write(self, schema: TableSchema, path: str, *, seal: bool) -> None:
        """Be the writer for a moment. What another user makes must be the writer's all the same."""
        with TableLog.open(self._directory, schema, settings=self._settings, files=self._files) as writer:
            if seal:
                writer.seal()
        with LogReader(self._directory, files=self._files) as reader:
            newest = reader.numbers()[-1]
            for kind in (DATA, INDEX):
                self._like(path, reader.path(newest, kind))

    def _sweep(self, reader: LogReader, number: int) -> None:
        """Remove what a killed run left of a file. What a writer makes at this moment has a higher number."""
        for kind in (DATA, INDEX):
            if self._files.exists(path := reader.path(number, kind) + TEMPORARY):
                self._files.unlink(path)

    def _erase_file(self, reader: LogReader, number: int, targets: Sequence[Target], report: Report) -> None:
        heading = reader.heading(number)
        wanted = self._wanted(heading.schema, targets)
        if wanted is None:
            return
        hits: dict[int, list[int]] = {}
        sums: dict[int, int] = {}
        for block in self._blocks(reader, heading):
            found, _, _ = wanted.look(block.rows, block.count)
            if found:
                hits[block.offset] = found
            if block.erased:
                sums[block.offset] = block.crc
        if hits:
            made = self._replace(reader, heading, hits)
            sums |= made
            report.files += [number] if made else []
            report.blocks += len(made)
            report.unfit += [(number, offset) for offset in hits if offset not in made]
        self._mend_index(reader, heading, sums)

    def _replace(self, reader: LogReader, heading: Heading, hits: Mapping[int, Sequence[int]]) -> dict[int, int]:
        """Put a file without these changes in the place of the old one; the checksums of the new blocks.

        A block that does not fit in its place is not among them.
        """
        path, limit = reader.path(heading.number), self._limit(reader, heading.number)
        sums: dict[int, int] = {}
        old = self._files.open(path)
        try:
            new = self._files.open(path + TEMPORARY, write=True, create=True)
            try:
                new.truncate(0)
                # Bytes behind the file's end belong to nobody, and may hold anything: they stay behind.
                for at in range(0, limit, _COPY_BYTES):
                    new.pwrite(old.pread(min(_COPY_BYTES, limit - at), at), at)
                for offset, ordinals in hits.items():
                    block = next(segment.blocks(old, heading, offset, limit))
                    data = replacement(heading, block, ordinals)
                    if data is not None:
                        new.pwrite(data, offset)
                        sums[offset] = next(segment.blocks(new, heading, offset, limit)).crc
                new.sync()
            finally:
                new.close()
        finally:
            old.close()
        if not sums:
            self._files.unlink(path + TEMPORARY)
            return sums
        self._like(path, path + TEMPORARY)
        self._files.rename(path + TEMPORARY, path)
        self._files.sync_directory(self._directory)
        return sums

    def _mend_index(self, reader: LogReader, heading: Heading, sums: Mapping[int, int]) -> None:
        """Let the index have the checksums of these blocks; one that is missing or damaged stays so."""
        path = reader.path(heading.number, INDEX)
        if not sums or not self._files.exists(path):
            return
        file = self._files.open(path)
        try:
            index = Index(file, heading.number, heading.sync)
            entries = self._entries(index) if index.is_sound() else None
        finally:
            file.close()
        if entries is None or all(entry.crc == sums.get(entry.offset, entry.crc) for entry in entries):
            return
        for entry in entries:
            entry.crc = sums.get(entry.offset, entry.crc)
        made = self._files.open(path + TEMPORARY, write=True, create=True)
        try:
            self._write_index(made, heading, entries)
        finally:
            made.close()
        self._like(path, path + TEMPORARY)
        self._files.rename(path + TEMPORARY, path)
        self._files.sync_directory(self._directory)

    @staticmethod
    def _entries(index: Index) -> list[Entry] | None:
        out: list[Entry] = []
        count = index.count()
        while len(out) < count:
            some = index.read_many(len(out), min(_ENTRIES_AT_ONCE, count - len(out)))
            sound = [entry for entry in some if entry is not None]
            if not some or len(sound) < len(some):
                return None
            out += sound
        return out

    @staticmethod
    def _write_index(file: File, heading: Heading, entries: Sequence[Entry]) -> None:
        index = Index(file, heading.number, heading.sync)
        index.reset()
        index.write(0, entries)
        index.sync()


# Replacement: a block that takes the place of another, byte for byte as long, with some changes erased.
#
# Positions name a block by its offset and a change by its number in the block, so neither may move: the new block has
# the same count and length, and ends with the same marker. Without compression each erased change is as long as the
# one that it replaces. Compressed, the block becomes shorter, and what is missing is made up for by what decoders
# skip; or, where a codec has no such thing, by text without meaning in an erased change.

_TRIES = 200
Make = Callable[[str, int], bytes]
# Letters, because the text stands in a string; of so many that no codec makes much less of them.
_LETTERS = bytes(range(48, 112)) * 4


def replacement(heading: Heading, old: Block, hits: Collection[int]) -> bytes | None:
    """The bytes of the block without the changes of these numbers; None when it does not compress to that length."""
    length = old.end - old.offset
    size = length - SYNC_BYTES - _head_bytes(old, length)
    make = _maker(heading, old, hits)
    payload = make("", 0) if heading.codec is Codec.NULL else _fitted(heading.codec, make, size)
    if payload is None:
        return None
    new = container.frame_block(old.count, payload, heading.sync)
    _check(heading, old, hits, new)
    return new


def _head_bytes(old: Block, length: int) -> int:
    """How long count and size are, which stand before the data."""
    counted = len(container.long_bytes(old.count))
    for sized in range(1, 11):
        if len(container.long_bytes(length - SYNC_BYTES - counted - sized)) == sized:
            return counted + sized
    raise AssertionError("every length has a size")


def _maker(heading: Heading, old: Block, hits: Collection[int]) -> Make:
    """What makes the block's data, sealed; the text goes into its first erased change."""
    schema = heading.schema
    starts, tails = avro.bounds(schema, old.rows, old.count)
    view = memoryview(old.rows)
    wanted = sorted(hits)
    blanks = {}
    for at in wanted:
        whole = bytes(view[starts[at] : tails[at]]) + b"\0"
        blanks[at] = tuple(erased.shorter(erased.blank(avro.decode(ChangeBatch(schema, 1, whole))[0])))

    def row(at: int, text: str, shape: int) -> bytes:
        change = blanks[at][shape]
        if heading.codec is Codec.NULL:
            return erased.row_of(schema, change, tails[at] - starts[at] + 1)
        return erased.encoded(schema, erased.padded(change, text) if text and at == wanted[0] else change)

    def make(text: str, shape: int) -> bytes:
        parts: list[bytes | memoryview] = []
        done = 0
        for at in wanted:
            parts += (view[starts[done] : starts[at]], row(at, text, shape))
            done = at + 1
        if done < old.count:
            parts += (view[starts[done] : tails[old.count - 1]], b"\0")
        return seal(b"".join(parts), old.count, ~old.epoch)

    return make


def _fitted(codec: Codec, make: Make, size: int) -> bytes | None:
    """The data, compressed to exactly `size` bytes; None when that cannot be done."""
    for shape in range(erased.SHAPES):
        for hard in (False, True):
            found = _reached(codec, lambda text, shape=shape: make(text, shape), size, hard=hard)  # type: ignore[misc]
            if found is not None:
                return found
    return None


def _reached(codec: Codec, make: Callable[[str], bytes], size: int, *, hard: bool) -> bytes | None:
    length = 0
    for attempt in range(_TRIES):
        payload = container.compress(codec, make(_text(length, attempt)), hard=hard)
        full = container.fill(codec, payload, size)
        if full is not None:
            return full
        gap = size - len(payload)
        if gap < 0 and length == 0:
            return None
        # Text takes at least as many bytes as it has letters, or nearly; the last few are found by trying.
        length = max(0, length + gap)
    return None


def _text(length: int, attempt: int) -> str:
    """Letters that do not repeat; other ones at each attempt."""
    return hashlib.shake_128(attempt.to_bytes(4, "big")).digest(length).translate(_LETTERS).decode("ascii")


def _check(heading: Heading, old: Block, hits: Collection[int], new: bytes) -> None:
    """Read the new block as any reader will: nothing but these changes may have changed."""
    found = parse(new, 0, old.offset, heading.codec, heading.sync, len(new) + len(old.rows) + (1 << 20))
    assert isinstance(found, Block), "a block that was just made is whole"
    assert (found.end, found.count, found.epoch, found.erased) == (old.end, old.count, old.epoch, True)
    olds, old_tails = avro.bounds(heading.schema, old.rows, old.count)
    news, new_tails = avro.bounds(heading.schema, found.rows, found.count)
    gone = set(hits)
    for at in range(old.count):
        same = old.rows[olds[at] : old_tails[at]] == found.rows[news[at] : new_tails[at]]
        assert same or at in gone, "another change would be touched"
    assert gone <= set(erased.ordinals(heading.schema, found.rows, found.count)), "an erased change is still one"
