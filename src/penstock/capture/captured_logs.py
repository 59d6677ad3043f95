"""CapturedLogs: the change logs of all captured tables, opened when needed, a bounded number of them at a time.

An append is durable in every log that wants the changes when it returns. The order of a table's changes is kept: a
log gets a batch only when the one before it is durable. A full disk, and a lack of
descriptors, are waited out, and nothing is written twice for it.
Safe to use from several threads; the tail and the snapshot both append here.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from penstock.capture.column_masks import ColumnMasks
from penstock.capture.repeats import ChangeKeys, Key, Repeats
from penstock.errors import Exhausted, InvalidStatement, LogError
from penstock.filters.functions import Functions
from penstock.log import identity, seal_requests
from penstock.log.lock import WriterLock
from penstock.log.names import directory_name
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.table_logs import LogSpec, Storage, TableLogs
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.model.schema import TableId, TableSchema
from penstock.system.files import Files, OsFiles
from penstock.system.timing import Timing

log = structlog.get_logger()

# The logs of a table; and what to do when something ran out: wait a while, or raise to give up.
Specs = Callable[[TableId], Sequence[LogSpec]]
Pause = Callable[[Exhausted], None]

_PARKED = "!parked"


class _Writer:
    """One log of one table, with the log of what its filter could not judge."""

    def __init__(self, storage: Storage, schema: TableSchema, spec: LogSpec, functions: Functions) -> None:
        self.spec = spec
        self.directory = directory_name(schema.table, spec.name or None)
        self.logs = TableLogs(storage, schema, [spec], functions)
        self._storage = storage
        self._parked = directory_name(schema.table, spec.name or None, parked=True)

    @property
    def directories(self) -> tuple[str, str]:
        """Of the log, and of what was parked of it."""
        return self.directory, self._parked

    @property
    def header(self) -> TableSchema:
        """What the log's last file says of the table."""
        return self.logs.log(self.spec.name).schema

    def ends(self) -> dict[str, Position]:
        """Where the logs end now, by directory."""
        found = {self.directory: self.logs.log(self.spec.name).end}
        if self.spec.predicate is not None and (reader := _open_reader(self._storage, self._parked)) is not None:
            with reader:
                found[self._parked] = reader.end()
        return found

    def since(self, ends: Mapping[str, Position], keys: ChangeKeys) -> Repeats:
        """What came into the logs behind these ends."""
        out = Repeats(keys)
        for directory in (self.directory, self._parked):
            reader = _open_reader(self._storage, directory)
            if reader is not None:
                with reader:
                    out.collect(reader, ends.get(directory, START))
        return out


class _Table:
    """The open logs of one table."""

    def __init__(self, writers: list[_Writer], specs: Sequence[LogSpec]) -> None:
        self.writers = writers
        self.specs = list(specs)
        # How many threads are appending; only a table that nobody uses may be closed.
        self.users = 0

    def close(self) -> None:
        for writer in self.writers:
            writer.logs.close()


class CapturedLogs:
    """All change logs that the agent writes."""

    def __init__(
        self,
        storage: Storage,
        specs: Specs,
        ends: Mapping[str, str] | None,
        keys: ChangeKeys,
        *,
        functions: Functions | None = None,
        masks: ColumnMasks | None = None,
        open_max: int = 64,
    ) -> None:
        """`ends` are those of the saved place; None when there is none. `keys` is what the source knows changes by."""
        # None unless something is masked: then no batch is looked at.
        self._masks = masks or None
        self.changes: dict[TableId, int] = {}
        self.appended_bytes = 0
        # How long a batch took until it was durable in a log, and how long the disk took of that.
        self.append_timing = Timing()
        self.sync_timing = Timing()
        self._storage = replace(storage, sync_timing=self.sync_timing)
        self._files: Files = storage.files or OsFiles()
        self._specs = specs
        self._keys = keys
        self._noted = None if ends is None else {name: Position.parse(end) for name, end in ends.items()}
        self._ends: dict[str, Position] = {}
        # By directory what the header of the log's last file says.
        self._headers: dict[str, TableSchema] = {}
        self._functions = functions or Functions()
        self._open_max = open_max
        self._mutex = threading.Lock()
        self._tables: OrderedDict[TableId, _Table] = OrderedDict()
        # What each log holds that may come again, by the log's directory.
        self._repeats: dict[str, Repeats] = {}
        self._replaying = True
        self._recall()

    def append(self, batches: Iterable[ChangeBatch], pause: Pause, *, again: bool = False) -> None:
        """Make the batches durable. `again`: they may hold changes that were appended before the last crash."""
        queues: dict[TableId, list[ChangeBatch]] = {}
        for batch in batches if self._masks is None else map(self._masks.apply, batches):
            queues.setdefault(batch.schema.table, []).append(batch)
        names = list(queues)
        # Every log in use is open, so no more tables are in work at once than may be open.
        for first in range(0, len(names), self._open_max):
            some = names[first : first + self._open_max]
            tables: list[_Table] = []
            try:
                jobs = []
                for name in some:
                    tables.append(self._acquire_patiently(name, queues[name][0].schema, pause))
                    jobs += [(writer, queues[name]) for writer in tables[-1].writers]
                self._append_all(jobs, pause, again=again)
            finally:
                self._release(tables)
        with self._mutex:
            for name in names:
                self.changes[name] = self.changes.get(name, 0) + sum(len(batch) for batch in queues[name])

    def begin_files(self, schemas: Iterable[TableSchema], pause: Pause) -> None:
        """Let the logs of tables say what the tables are now, also when no change comes of it. Durable when it returns.

        What a log says already, or what is older than that, is not said again: after a crash it comes once more.
        """
        for schema in schemas if self._masks is None else map(self._masks.schema, schemas):
            if not self._is_news(schema):
                continue
            try:
                table = self._acquire_patiently(schema.table, schema, pause)
            except InvalidStatement as error:
                log.error("filter does not fit the schema", table=str(schema.table), reason=error.message)
                continue
            try:
                for writer in table.writers:
                    self._begin_file(writer, schema, pause)
            finally:
                self._release([table])

    def ends(self) -> dict[str, str] | None:
        """Where every log ends, for the place. None: the place was lost, and repeats may still come.

        While repeats may still come, the ends are those of the place before: another crash must find them again.
        """
        with self._mutex:
            ends = self._noted if self._replaying else self._ends
            return None if ends is None else {directory: str(end) for directory, end in ends.items()}

    def repeats(self) -> list[Key]:
        """The keys of changes that the logs hold and that may come again."""
        with self._mutex:
            return [key for repeats in self._repeats.values() for key in repeats]

    @property
    def has_repeats(self) -> bool:
        """Whether something that the logs hold may still come again."""
        with self._mutex:
            return any(self._repeats.values())

    def caught_up(self, keep: Callable[[Key], bool]) -> None:
        """All that was read before the last crash has been read again; only what `keep` names may come once more."""
        with self._mutex:
            self._replaying = False
            for repeats in self._repeats.values():
                repeats.forget(keep)
            self._repeats = {directory: repeats for directory, repeats in self._repeats.items() if repeats}

    def refresh(self) -> None:
        """Close tables whose logs were redefined; their next change opens them as they are now.

        Whoever erases changes asks for a file to be ended: that is done here, too.
        """
        with self._mutex:
            for name, table in list(self._tables.items()):
                if not table.users and table.specs != list(self._specs(name)):
                    self._tables.pop(name).close()
            asked = [table for table in self._tables.values() if any(map(self._is_asked, table.writers))]
            for table in asked:
                table.users += 1
        try:
            for writer in [writer for table in asked for writer in table.writers]:
                self._seal(writer)
        finally:
            self._release(asked)

    def _is_asked(self, writer: _Writer) -> bool:
        root = self._storage.root
        return any(seal_requests.waits(self._files, os.path.join(root, name)) for name in writer.directories)

    def _seal(self, writer: _Writer) -> None:
        try:
            writer.logs.seal()
        except Exhausted as full:
            # The request stays, and is met at one of the next looks.
            log.warning("file not ended", directory=writer.directory, error=str(full))
            return
        for directory in writer.directories:
            try:
                seal_requests.done(self._files, os.path.join(self._storage.root, directory))
            except LogError as error:
                log.warning("request to end a file not answered", directory=directory, error=str(error))

    def close(self) -> None:
        with self._mutex:
            tables, self._tables = self._tables, OrderedDict()
        for table in tables.values():
            table.close()

    # Appending.

    def _append_all(self, jobs: list[tuple[_Writer, list[ChangeBatch]]], pause: Pause, *, again: bool) -> None:
        """Give every log its batches, one at a time and all logs at once."""
        for turn in range(max((len(queue) for _, queue in jobs), default=0)):
            work: list[tuple[_Writer, ChangeBatch]] = []
            for writer, queue in jobs:
                if turn < len(queue):
                    repeats = self._repeats.get(writer.directory) if again else None
                    batch = queue[turn] if repeats is None else repeats.without(queue[turn])
                    if batch is not None:
                        work.append((writer, batch))
            while work:
                work, full = self._append_once(work)
                if full is not None:
                    pause(full)

    def _append_once(
        self, work: list[tuple[_Writer, ChangeBatch]]
    ) -> tuple[list[tuple[_Writer, ChangeBatch]], Exhausted | None]:
        """Append each batch; what did not go in comes back, with the reason."""
        before = [writer.ends() if writer.spec.predicate is not None else None for writer, _ in work]
        began = self.append_timing.now()
        waits = [writer.logs.submit(batch) if len(work) > 1 else None for writer, batch in work]
        left: list[tuple[_Writer, ChangeBatch]] = []
        full: Exhausted | None = None
        failure: BaseException | None = None
        for (writer, batch), wait, ends in zip(work, waits, before, strict=True):
            try:
                if wait is None:
                    writer.logs.append(batch)
                else:
                    wait()
            except Exhausted as error:
                full = error
                # With a filter, one of the two logs may have taken its part.
                rest = batch if ends is None else writer.since(ends, self._keys).without(batch)
                if rest is not None:
                    left.append((writer, rest))
            except BaseException as error:  # noqa: BLE001
                # The others are waited for first: nothing may be under way when this is raised.
                failure = failure or error
            else:
                self.append_timing.end(began)
                self._note(writer, batch)
        if failure is not None:
            raise failure
        return left, full

    def _note(self, writer: _Writer, batch: ChangeBatch) -> None:
        ends = writer.ends()
        with self._mutex:
            self.appended_bytes += len(batch.rows)
            self._ends.update(ends)
            self._headers[writer.directory] = writer.header

    def _is_news(self, schema: TableSchema) -> bool:
        """Whether a log of the table does not say this yet."""
        centre = self._storage.data_centre
        names = [spec.name for spec in self._specs(schema.table) if spec.includes(centre)]
        with self._mutex:
            known = [self._headers.get(directory_name(schema.table, name or None)) for name in names]
        return any(header is None or schema.supersedes(header) for header in known)

    def _begin_file(self, writer: _Writer, schema: TableSchema, pause: Pause) -> None:
        while schema.supersedes(writer.header):
            try:
                writer.logs.log(writer.spec.name).begin(schema)
            except Exhausted as full:
                pause(full)
        with self._mutex:
            self._headers[writer.directory] = writer.header

    # Opening and closing.

    def _recall(self) -> None:
        """Find out what the logs hold that may come again."""
        root = self._storage.root
        try:
            directories = self._files.list(root) if self._files.exists(root) else []
        except OSError as error:
            raise refused(error, "looking for logs", root) from error
        for directory in directories:
            reader = _open_reader(self._storage, directory)
            if reader is None:
                continue
            with reader:
                self._bring_into_order(reader)
                end = reader.end()
                self._ends[directory] = end
                if numbers := reader.numbers():
                    self._headers[directory] = reader.heading(numbers[-1]).schema
                noted = None if self._noted is None else self._noted.get(directory, START)
                if noted != end:
                    repeats = self._repeats.setdefault(directory.removesuffix(_PARKED), Repeats(self._keys))
                    repeats.collect(reader, noted)

    def _bring_into_order(self, reader: LogReader) -> None:
        """Let a writer recover a log that was not closed: what it had made durable last is not readable before.

        After power loss even one that was closed may have an old watermark, which is not synced.
        """
        lock = WriterLock.take(self._files, reader.directory)
        last = lock.last
        lock.release()
        numbers, mark = reader.numbers(), reader.watermark()
        if not numbers or (last.file, last.end) == (mark.file, mark.end):
            return
        self._storage.open_at(reader.directory, reader.heading(numbers[-1]).schema).close()

    def _acquire_patiently(self, name: TableId, schema: TableSchema, pause: Pause) -> _Table:
        while True:
            try:
                return self._acquire(name, schema)
            except Exhausted as full:
                pause(full)

    def _acquire(self, name: TableId, schema: TableSchema) -> _Table:
        with self._mutex:
            table = self._tables.get(name)
            if table is None:
                self._make_room()
                table = self._tables[name] = self._open(name, schema)
            self._tables.move_to_end(name)
            table.users += 1
            return table

    def _release(self, tables: list[_Table]) -> None:
        with self._mutex:
            for table in tables:
                table.users -= 1

    def _make_room(self) -> None:
        """Close the tables that were not written for longest. The mutex is held."""
        for name in list(self._tables):
            if len(self._tables) < self._open_max:
                return
            if not self._tables[name].users:
                self._tables.pop(name).close()

    def _open(self, name: TableId, schema: TableSchema) -> _Table:
        specs = self._specs(name)
        writers: list[_Writer] = []
        try:
            for spec in specs:
                if spec.includes(self._storage.data_centre):
                    writers.append(_Writer(self._storage, schema, spec, self._functions))  # noqa: PERF401
        except BaseException:
            for writer in writers:
                writer.logs.close()
            raise
        return _Table(writers, specs)


def _open_reader(storage: Storage, directory: str) -> LogReader | None:
    """A reader of the log in this directory; None when it is no log."""
    files: Files = storage.files or OsFiles()
    path = os.path.join(storage.root, directory)
    try:
        found = files.exists(f"{path}/{identity.NAME}")
    except OSError as error:
        raise refused(error, "looking for a log", path) from error
    return LogReader(path, files=files) if found else None
