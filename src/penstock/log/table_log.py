"""TableLog: the writer of one table's change log.

`append` returns when the changes are durable, and not before; `submit` does the same without waiting. What arrives
while a commit is under way is written together as the next block, with one sync (`group_commit`).

Always true: a block is written only when the one before it is durable; what failed is cut off again and never
acknowledged; after a failed sync nothing more is acknowledged until the log is opened anew; a writer that was fenced
acknowledges nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

import structlog

from penstock.errors import (
    CorruptLog,
    Exhausted,
    InvalidInput,
    InvalidValue,
    LogClosed,
    LogError,
    LogFailed,
    WriterFenced,
)
from penstock.log import identity, watermark
from penstock.log.active import ActiveSegment, Figures
from penstock.log.group_commit import GroupCommit, Ticket
from penstock.log.lock import Closing, WriterLock
from penstock.log.names import DATA, TEMPORARY, file_number
from penstock.log.recovery import Recovered, recover
from penstock.log.refusal import refused
from penstock.log.segment import Heading
from penstock.log.watermark import Watermark
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.model.schema import TableSchema
from penstock.settings import Acknowledge, LogSettings
from penstock.system.addresses import refusal
from penstock.system.files import File, Files, OsFiles, make_durable_directory
from penstock.system.timing import Timing

log = structlog.get_logger()


class TableLog:
    """One table's log, open for writing. Safe to use from many threads."""

    def __init__(
        self,
        directory: str,
        schema: TableSchema,
        *,
        settings: LogSettings | None = None,
        files: Files | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        node: str = "",
        data_centre: str = "",
        sync_timing: Timing | None = None,
    ) -> None:
        self.directory = directory
        self.settings = settings or LogSettings()
        # What was found damaged when the log was opened; it is still there, and readers will be told where.
        self.damage: tuple[CorruptLog, ...] = ()
        if (reason := refusal(directory)) is not None:
            raise InvalidInput(reason)
        self._files: Files = files or OsFiles(group_read=self.settings.group_read)
        self._entropy = entropy
        self._sync_timing = sync_timing
        self._node = node
        self._data_centre = data_centre
        # Attributes of settings cost more to look up than these, and every append needs them.
        self._block_bytes_max = self.settings.block_bytes_max
        self._file_bytes_max = self.settings.file_bytes_max
        self._synced = self.settings.acknowledge is Acknowledge.SYNCED
        self._commits = GroupCommit(self._write, self._block_bytes_max)
        self._closed = False
        self._accepted: TableSchema | None = None
        # The next commit ends the file.
        self._sealing = False
        self._failure: LogError | None = None
        try:
            self._open(schema)
        except OSError as error:
            raise refused(error, "opening the log", directory) from error

    @classmethod
    def open(
        cls,
        directory: str,
        schema: TableSchema,
        *,
        settings: LogSettings | None = None,
        files: Files | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
        node: str = "",
        data_centre: str = "",
        sync_timing: Timing | None = None,
    ) -> Self:
        """Open the log in `directory` for writing, create it when there is none, and bring its tail into order."""
        return cls(
            directory,
            schema,
            settings=settings,
            files=files,
            entropy=entropy,
            node=node,
            data_centre=data_centre,
            sync_timing=sync_timing,
        )

    @property
    def schema(self) -> TableSchema:
        """The schema of the current file."""
        return self._segment.heading.schema

    @property
    def end(self) -> Position:
        """The last durable change; START while there is none."""
        return self._end

    @property
    def rows(self) -> int:
        """How many changes this log has held in all."""
        return self._segment.figures.rows

    def append(self, batch: ChangeBatch) -> Position:
        """Append and wait until it is durable. The position of the batch's last change."""
        self._check(batch)
        return self._commits.append(batch)

    def submit(self, batch: ChangeBatch, done: Callable[[Ticket], None] | None = None) -> Ticket:
        """Append without waiting; the ticket tells when it is durable. Waits only when too much is queued.

        `done` is called with the ticket from the committing thread, once the outcome is known; it must not block.
        """
        self._check(batch)
        return self._commits.submit(batch, done)

    def begin(self, schema: TableSchema) -> None:
        """Let the log end in a file of this schema, also without a change of it. Durable when it returns.

        Readers learn from the header what the table is now. Nothing happens when the current file says so already.
        """
        if schema.table != self._identity.table:
            raise InvalidInput("the schema of another table", table=schema.table, directory=self.directory)
        self._commits.append(ChangeBatch(schema, 0, b""))

    def seal(self) -> None:
        """End the current file and go on in a new one, durably. Nothing happens when it has no changes."""
        self._sealing, self._accepted = True, None
        self._commits.append(ChangeBatch(self.schema, 0, b""))

    def close(self) -> None:
        """Wait for what is queued, sync the index, and let the next writer in."""
        if self._closed:
            return
        self._closed = True
        self._commits.refuse(LogClosed("the log is closed", directory=self.directory))
        self._commits.drain()
        try:
            if self._failure is None:
                self._segment.restore()
                self._segment.finish()
                self._segment.give_back()
                self._publish()
                self._lock.note(Closing(self._epoch, self._segment.heading.number, self._segment.end))
        except OSError as error:
            # Everything acknowledged is durable; the next writer will look at the tail, that is all.
            log.warning("log not closed in good order", directory=self.directory, errno=error.errno)
        finally:
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Opening.

    def _open(self, schema: TableSchema) -> None:
        files, directory = self._files, self.directory
        make_durable_directory(files, directory)
        self._lock = WriterLock.take(files, directory)
        opened: list[File | ActiveSegment] = []
        try:
            self._watermark_file = files.open(f"{directory}/{watermark.NAME}", write=True, create=True)
            opened.append(self._watermark_file)
            files.sync_directory(directory)
            numbers = self._survey(schema)
            seen = watermark.read(self._watermark_file)
            self._take_over(seen)
            recovered = None
            if numbers:
                self._check_missing(numbers, seen)
                recovered = recover(files, directory, schema.table, numbers[-1], self._lock.last, seen)
                opened.append(recovered.segment)
            self._begin(schema, seen, recovered)
        except BaseException:
            for file in opened:
                file.close()
            self._lock.release()
            raise

    def _take_over(self, seen: Watermark | None) -> None:
        """Fence whoever wrote before, and only then look at the files.

        A writer that lost its lock looks at the epoch between its sync and its acknowledgement. If it finds the old
        one, its block was durable before we began to read, so we take it over; if the new one, it acknowledges nothing.
        """
        self._epoch = max(self._lock.last.epoch, seen.epoch if seen else 0) + 1
        if seen is not None:
            self._watermark_file.pwrite(replace(seen, epoch=self._epoch).pack(), 0)

    def _survey(self, schema: TableSchema) -> list[int]:
        """The numbers of the files that are there, after the identity was checked and leftovers removed."""
        files, directory = self._files, self.directory
        names = files.list(directory)
        numbers = sorted(n for name in names if (n := file_number(schema.table, name, DATA)) is not None)
        if identity.NAME in names:
            self._identity = identity.load(files, directory)
        elif any(name.endswith(f".{DATA}") for name in names):
            raise CorruptLog(f"the directory has files but no {identity.NAME}", directory=directory)
        else:
            self._identity = identity.create(files, directory, schema.table, self._entropy)
        if self._identity.table != schema.table:
            raise InvalidInput(
                f"this is the log of table {self._identity.table}", directory=directory, table=schema.table
            )
        for name in names:
            if name.endswith(f".{DATA}{TEMPORARY}"):
                files.unlink(f"{directory}/{name}")
        return numbers

    def _check_missing(self, numbers: list[int], seen: Watermark | None) -> None:
        expected = range(numbers[0], max(numbers[-1], seen.file if seen else 0) + 1)
        missing = sorted(set(expected) - set(numbers))
        if missing:
            message = f"file number {missing[0]} is missing"
            self.damage += (CorruptLog(message, directory=self.directory, table=self._identity.table),)

    def _begin(self, schema: TableSchema, seen: Watermark | None, recovered: Recovered | None) -> None:
        """Go on in the last file, or begin the next one."""
        if recovered is not None:
            # Lock and watermark may both have been torn.
            self._epoch = max(self._epoch, recovered.epoch + 1)
        self._lock.note(Closing(self._epoch))
        if recovered is None:
            self._segment = self._create(1, schema, 0, Figures())
        else:
            last = recovered.segment
            if recovered.damage is not None:
                self.damage += (recovered.damage,)
            if last.heading.log != self._identity.log or last.heading.schema.table != schema.table:
                raise CorruptLog("the file belongs to another log", file=last.path)
            self._segment = last
            if not recovered.clean:
                # A fenced writer may still hold the old file open; a new one is out of its reach.
                # One without changes is made anew under its number, unless its header says what the next one will not.
                newer = self._newer(schema, last.heading)
                empty = last.end == last.heading.size and recovered.damage is None and newer is last.heading.schema
                number = last.heading.number + (0 if empty else 1)
                number = max(number, seen.file + 1 if seen and seen.file > last.heading.number else 0)
                end = last.heading.previous_end if empty else recovered.end
                self._segment = self._create(number, newer, end, last.figures)
                last.close()
        for damage in self.damage:
            log.error("damage found", error=str(damage))
        self._publish()
        self._end = self._segment.figures.last

    @staticmethod
    def _newer(schema: TableSchema, heading: Heading) -> TableSchema:
        """The schema to begin a file with: the given one, unless the log already has it under its number."""
        return heading.schema if schema.continues(heading.schema) else schema

    def _create(self, number: int, schema: TableSchema, previous_end: int, figures: Figures) -> ActiveSegment:
        heading = Heading(
            number=number,
            log=self._identity.log,
            schema=schema,
            codec=self.settings.codec,
            sync=self._entropy(16),
            previous_end=previous_end,
            unsynced_max=self.settings.index_bytes + 2 * self.settings.block_bytes_max,
            node=self._node,
            data_centre=self._data_centre,
        )
        return ActiveSegment.create(self._files, self.directory, heading, figures)

    def _check(self, batch: ChangeBatch) -> None:
        if batch.count < 1 or len(batch.rows) > self._block_bytes_max:
            raise InvalidValue(
                f"a batch of {batch.count} changes and {len(batch.rows)} bytes; a block takes at least one change "
                f"and at most {self.settings.block_bytes_max} bytes",
                table=batch.schema.table,
            )
        if batch.schema is not self._accepted and batch.schema.table != self._identity.table:
            raise InvalidInput("a batch of another table", table=batch.schema.table, directory=self.directory)

    # Committing. Only one thread at a time is here: the leader of the group whose turn it is.

    def _write(self, batches: list[ChangeBatch]) -> tuple[int, int]:
        """Make the batches durable as one block, and tell where it is."""
        if self._failure is not None:
            raise self._failure
        path = self._segment.path
        try:
            self._segment.restore()
            if batches[0].schema is not self._accepted or self._segment.end >= self._file_bytes_max:
                self._prepare_segment(batches[0].schema)
                path = self._segment.path
            if not any(batch.count for batch in batches):
                self._check_fence()
                return self._segment.heading.number, self._segment.end
            offset = self._segment.write(
                batches, self._epoch, self.settings, sync=self._synced, timing=self._sync_timing
            )
        except OSError as error:
            raise self._refuse(error, path) from error
        self._check_fence()
        self._end = self._segment.figures.last
        try:
            self._publish()
            self._segment.keep_index(self.settings)
        except OSError as error:
            # The changes are durable, so they are acknowledged. What ran out lets us try again at the next commit.
            if not isinstance(refused(error, "writing the index", path), Exhausted):
                self._fail(LogFailed(f"the index could not be kept: errno {error.errno}", file=path))
        return self._segment.heading.number, offset

    def _prepare_segment(self, schema: TableSchema) -> None:
        """Begin the next file when the schema changed, the table was truncated or the current one is full."""
        known = self._segment.heading.schema
        if schema.fingerprint != known.fingerprint:
            self._turn(replace(schema, version=max(schema.version, known.version + 1)))
        elif schema.era != known.era:
            self._turn(replace(schema, version=max(schema.version, known.version)))
        elif schema.version > known.version:
            self._turn(schema)
        elif self._segment.end >= self.settings.file_bytes_max or self._sealed_early():
            self._turn(known)
        self._accepted, self._sealing = schema, False

    def _sealed_early(self) -> bool:
        return self._sealing and self._segment.end > self._segment.heading.size

    def _turn(self, schema: TableSchema) -> None:
        """Close the current file for good and begin the next. An empty one stays: somebody may go by its header."""
        # To publish where it begins would hide that another writer has the log.
        self._check_fence()
        current = self._segment
        current.finish()
        self._segment = self._create(current.heading.number + 1, schema, current.end, current.figures)
        current.give_back()
        current.close()
        self._publish()

    def _refuse(self, error: OSError, path: str) -> LogError:
        """What a failed write or sync means. Only what ran out, as room or descriptors, leaves the log usable."""
        reason = refused(error, "appending", path)
        try:
            self._segment.restore()
        except OSError:
            # The next write tries again before anything else; until then nothing is acknowledged.
            log.warning("unacknowledged bytes not yet cut", file=path)
        if isinstance(reason, Exhausted):
            return reason
        message = f"no more acknowledgements on this file: {reason.message}"
        failure = LogFailed(message, file=path, offset=self._segment.end)
        self._fail(failure)
        return failure

    def _check_fence(self) -> None:
        """Nobody else may have published since we did; a higher epoch means that another writer has the log."""
        try:
            if self._watermark_file.pread(watermark.SIZE, 0) == self._published:
                return
            seen = watermark.read(self._watermark_file)
        except OSError as error:
            self._fail(LogFailed(f"the watermark cannot be read: errno {error.errno}", directory=self.directory))
            return
        if seen is not None and seen.epoch > self._epoch:
            fenced = WriterFenced(f"epoch {seen.epoch} has taken over from {self._epoch}", directory=self.directory)
            self._fail(fenced)
            raise fenced

    def _publish(self) -> None:
        """Tell readers how far the log is durable."""
        segment = self._segment
        self._published = segment.mark or watermark.pack(
            self._epoch, segment.heading.number, segment.end, segment.figures.last, segment.figures.rows
        )
        self._watermark_file.pwrite(self._published, 0)

    def _fail(self, failure: LogError) -> None:
        """Nothing is acknowledged any more; what is queued fails in its turn."""
        self._failure = failure
        self._commits.refuse(failure)

    def _release(self) -> None:
        for file in (self._segment, self._watermark_file):
            file.close()
        self._lock.release()
