"""The active segment: the file that is being written, its index, and the running figures of the log.

It knows how one block gets onto the disk and into the index, not who wants it there: waiting, grouping and what an
error means are `table_log`'s affair. After any exception from `write` the file still ends where it ended before, as
soon as `restore` has succeeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from penstock.log import block, segment, watermark
from penstock.log.index import NO_TIME, Entry, Index, Mark, Marks, domain_digest
from penstock.log.names import DATA, INDEX, TRANSACTIONS, file_name
from penstock.log.segment import Heading
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.settings import LogSettings
from penstock.system.files import File, Files
from penstock.system.timing import Timing

# The index is written (not synced) after this much data, so that a search has little to read beyond it.
_FLUSH_BYTES = 64 << 10
_FLUSH_ENTRIES = 8
_FLUSH_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class Figures:
    """What runs through the whole log: how many changes, the last of them, and the maxima that searches go by."""

    rows: int = 0
    last: Position = START
    when_max: int = NO_TIME
    sequences: dict[int, int] = field(default_factory=dict)

    def note_time(self, when: int | None) -> None:
        if when is not None and when > self.when_max:
            self.when_max = when


class ActiveSegment:
    """One segment open for writing."""

    def __init__(
        self,
        files: Files,
        directory: str,
        heading: Heading,
        file: File,
        index: Index,
        figures: Figures,
        *,
        end: int,
        entries: int = 0,
        marks: int = 0,
    ) -> None:
        self.heading = heading
        self.figures = figures
        self.end = end
        # The watermark to publish after the last block, packed; empty until this segment has written one.
        self.mark = b""
        self.path = f"{directory}/{file_name(heading.schema.table, heading.number, DATA)}"
        self._files = files
        self._directory = directory
        self._file = file
        self._index = index
        self._entries = entries
        self._pending: list[Entry] = []
        self._flushed = self._index_synced = self._data_synced = end
        self._marks: Marks | None = None
        self._mark_count = marks
        # Finished stretches of the file, and the one that is growing: sequences that rose in it, and where it began.
        self._stretches: list[Mark] = []
        self._risen: dict[int, int] = {}
        self._stretch = end
        self._overhang = False
        # Space was set aside up to here, if that can be done; whether some was.
        self._reserved = 0
        self._ahead = False

    @classmethod
    def create(cls, files: Files, directory: str, heading: Heading, figures: Figures) -> ActiveSegment:
        """Begin a new file. Index and data get their names with one directory sync."""
        table = heading.schema.table
        heading = replace(
            heading,
            rows_before=figures.rows,
            last=figures.last,
            when_max=figures.when_max,
            sequences=dict(figures.sequences),
        )
        opened = files.open(f"{directory}/{file_name(table, heading.number, INDEX)}", write=True, create=True)
        try:
            index = Index(opened, heading.number, heading.sync)
            index.reset()
            path = f"{directory}/{file_name(table, heading.number, DATA)}"
            file, heading = segment.create(files, path, directory, heading)
        except BaseException:
            opened.close()
            raise
        return cls(files, directory, heading, file, index, figures, end=heading.size)

    def write(
        self,
        batches: Sequence[ChangeBatch],
        epoch: int,
        settings: LogSettings,
        *,
        sync: bool,
        timing: Timing | None = None,
    ) -> int:
        """Put one block at the end of the file and return its offset; durable when `sync`, whose time `timing` counts.

        Nothing counts as written until this returns.
        """
        # All that can be is made ready before the sync: after it, caches are cold and each step costs far more.
        figures, number, offset = self.figures, self.heading.number, self.end
        count, when, parts = 0, figures.when_max, []
        for batch in batches:
            count += batch.count
            parts.append(batch.rows)
            if batch.when_max is not None and batch.when_max > when:
                when = batch.when_max
        draft = block.build(parts, count, epoch, settings.codec, self.heading.sync)
        end, rows = offset + draft.length, figures.rows + count
        last = Position(number, offset, count - 1)
        entry = Entry(offset, draft.length, count, figures.rows, when, epoch, draft.crc)
        mark = watermark.pack(epoch, number, end, last, rows)
        if end > self._reserved:
            self._reserve(offset, draft.length, settings)
        self._overhang = True
        self._file.pwritev(draft.parts, draft.length, offset)
        if sync:
            began = timing.now() if timing is not None else 0.0
            self._file.sync()
            if timing is not None:
                timing.end(began)
            self._data_synced = end
        self._overhang = False
        self._pending.append(entry)
        figures.rows, figures.last, figures.when_max = rows, last, when
        self.end, self.mark = end, mark
        for batch in batches:
            if batch.transactions:
                self._note_transactions(batch)
        if self._risen and end - self._stretch >= _FLUSH_BYTES:
            self._end_stretch()
        return offset

    def restore(self) -> None:
        """After a failed write: cut what it left behind. Free of cost when nothing failed."""
        if self._overhang:
            self._file.truncate(self.end)
            self._overhang = False

    def keep_index(self, settings: LogSettings) -> None:
        """Write, and now and then sync, the index. Only what is durable gets an entry."""
        unsynced = self.end - self._index_synced
        if unsynced >= settings.index_bytes:
            self.finish()
        elif self._data_synced == self.end and self.end - self._flushed >= self._flush_bytes():
            self._flush()

    def _flush_bytes(self) -> int:
        """Few large blocks may wait longer for their entries than many small ones."""
        return _FLUSH_BYTES if len(self._pending) >= _FLUSH_ENTRIES else _FLUSH_BYTES_MAX

    def finish(self) -> None:
        """Make data and index durable up to the end."""
        if self._data_synced != self.end:
            self._file.sync()
            self._data_synced = self.end
        self._flush()
        if self._index_synced != self.end:
            self._index.sync()
            if self._marks is not None:
                self._marks.sync()
            self._index_synced = self.end

    def give_back(self) -> None:
        """Return the space that was set aside and is not needed."""
        if self._ahead:
            self._file.truncate(self.end)
            self._ahead = False

    def close(self) -> None:
        self._file.close()
        self._index.close()
        if self._marks is not None:
            self._marks.close()

    def _reserve(self, offset: int, length: int, settings: LogSettings) -> None:
        """Set space aside ahead of the end: a sync that need not look for room is faster.

        Where that cannot be done, or there is no room, the write itself will tell.
        """
        length += min(settings.reserve_bytes, max(0, settings.file_bytes_max - offset - length))
        self._ahead |= settings.reserve_bytes > 0 and self._file.reserve(offset, length)
        self._reserved = offset + length

    def _note_transactions(self, batch: ChangeBatch) -> None:
        for mark in batch.transactions:
            domain = domain_digest(mark.domain)
            if mark.sequence > self.figures.sequences.get(domain, -1):
                self.figures.sequences[domain] = self._risen[domain] = mark.sequence

    def _end_stretch(self) -> None:
        self._stretches += [Mark(domain, sequence, self._stretch, self.end) for domain, sequence in self._risen.items()]
        self._risen.clear()
        self._stretch = self.end

    def _flush(self) -> None:
        self._end_stretch()
        if self._stretches:
            if self._marks is None:
                self._marks = self._open_marks()
            self._marks.write(self._mark_count, self._stretches)
            self._mark_count += len(self._stretches)
            self._stretches.clear()
        if self._pending:
            self._index.write(self._entries, self._pending)
            self._entries += len(self._pending)
            self._pending.clear()
        self._flushed = self.end

    def _open_marks(self) -> Marks:
        table, number = self.heading.schema.table, self.heading.number
        file = self._files.open(f"{self._directory}/{file_name(table, number, TRANSACTIONS)}", write=True, create=True)
        if self._mark_count == 0:
            file.truncate(0)
            self._files.sync_directory(self._directory)
        return Marks(file, self.heading.sync)
