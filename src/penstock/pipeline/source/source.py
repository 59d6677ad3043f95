"""The data source `penstock` for Spark: what Spark calls, in Spark's own words.

Everything that can be done without Spark is done in the modules beside this one. Readers travel to tasks by pickle, so
they hold options and schemas; what they open they open where they are. Spark's planner process lives as long as a
query, and tasks run in processes that are used again, so open files stay open between batches in both.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidSetting, PenstockError
from penstock.fold.eras import Header, prepared_as
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline.source.admission import Limits
from penstock.pipeline.source.held import NOTHING, Held, naming
from penstock.pipeline.source.options import RUNS, Retention, SourceOptions, parse
from penstock.pipeline.source.places import access, open_reader, places
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.source.portions import Piece, copied_tables
from penstock.pipeline.source.reach import from_offset, tick_of, to_offset
from penstock.pipeline.source.reach import parse as parse_reach
from penstock.pipeline.source.stretches import gather, read_runs
from penstock.pipeline.worker_process import task_begins
from penstock.records.runs import RUN_SCHEMA
from penstock.system.clock import SystemClock

# What only the flat shape needs is imported with it: a pipeline's query is ready sooner without.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.source.table_version import TableVersion
    from penstock.settings import Settings


NAME = "penstock"
_UTC = "UTC"
# Up to so many bytes of log are read when the batch is planned. Of a block that is not taken as a whole only the number
# of changes is known.
_AT_ONCE_BYTES = 32 << 10
_CHANGE_BYTES = 256


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to a session."""
    try:
        spark.dataSource.register(PenstockDataSource)
    except AnalysisException as error:
        # A client of Spark Connect sends a request again when the answer takes long, and then meets its own first try.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


def pipeline_options(settings: Settings, buckets: int) -> dict[str, str]:
    """The options with which a pipeline reads."""
    from penstock.settings import Copies

    pipeline = settings.pipeline
    out = {
        "shape": RUNS,
        "path": json.dumps(list(pipeline.logs)),
        "agents": json.dumps(list(pipeline.agents)),
        "include": json.dumps(list(pipeline.include)),
        "exclude": json.dumps(list(pipeline.exclude)),
        "buckets": str(buckets),
        "distinct": str(settings.merge.copies is Copies.ONE).lower(),
        "maxRowsPerTrigger": str(pipeline.rows_per_batch),
        "maxBytesPerTrigger": str(pipeline.bytes_per_batch),
        "linger_s": str(pipeline.linger_s),
        "subscription": pipeline.name,
        "retention": settings.retention.model_dump_json(include={field.name for field in fields(Retention)}),
        "onLoss": pipeline.on_loss.value,
    }
    if pipeline.agents_token_file is not None:
        out["token_file"] = str(pipeline.agents_token_file)
    if pipeline.agents_ca_file is not None:
        out["tls_ca_file"] = str(pipeline.agents_ca_file)
    return out


class Schemas(NamedTuple):
    """What the logs of a pipeline say of its tables."""

    # The newest version of every table in every log, each once.
    newest: list[TableSchema]
    # Those of tables that have changes, and all of them in this one version, on every node.
    settled: list[Header]


def schemas(settings: Settings, held: Held = NOTHING) -> Schemas:
    """Only headers of files are read: the first one's and the last one's of each log; of tables that are held, none."""
    planner = Planner(parse({**pipeline_options(settings, 1), "held": held.to_text()}), holds=False)
    newest: dict[tuple[TableId, str], TableSchema] = {}
    headers: list[Header] = []
    changed: set[TableId] = set()
    altered: set[TableId] = set()
    try:
        for seen in planner.look().values():
            if seen.address.table in held.tables:
                continue
            with naming(lambda seen=seen: (seen.address,)):  # type: ignore[misc]
                reader = seen.place.reader(seen.address)
                numbers = reader.numbers()
                oldest, schema = (reader.heading(number).schema for number in (numbers[0], numbers[-1]))
            newest[schema.table, schema.fingerprint] = schema
            if seen.mark.rows:
                changed.add(schema.table)
            headers.append(Header(seen.address.node, schema))
            if oldest != schema or schema.truncated_us:
                altered.add(schema.table)
    finally:
        planner.close()
    found = list(newest.values())
    several = Counter(table for table, _ in {(one.schema.table, prepared_as(one.schema)) for one in headers})
    settled = [one for one in headers if one.schema.table in changed - altered and several[one.schema.table] == 1]
    return Schemas(found, settled)


def headers(settings: Settings, moved: Mapping[str, tuple[str | None, str]]) -> list[Header]:
    """What the files say that a batch comes to. `moved`: by log, from where to where the batch goes."""
    planner = Planner(parse(pipeline_options(settings, 1)), holds=False)
    out = []
    try:
        seen = planner.look()
        for log_id, (start, end) in moved.items():
            one = seen.get(log_id)
            if one is None:
                continue
            with naming(lambda one=one: (one.address,)):  # type: ignore[misc]
                reader = one.place.reader(one.address)
                first = 0 if start is None else parse_reach(start).last.file
                wanted = [number for number in reader.numbers() if first <= number <= parse_reach(end).file]
                out += [Header(one.address.node, reader.heading(number).schema) for number in wanted]
    finally:
        planner.close()
    return out


class Logs(NamedTuple):
    """The logs of a pipeline: of which table each is, and what is wrong with those that cannot be read."""

    tables: dict[str, TableId]
    unreadable: dict[TableId, PenstockError]


def logs(settings: Settings) -> Logs:
    """No log is read but for what it is."""
    tables: dict[str, TableId] = {}
    unreadable: dict[TableId, PenstockError] = {}
    for place in places(parse(pipeline_options(settings, 1))):
        try:
            found = place.tables()
            wrong = {table: error for log_id, table in found.items() if (error := place.unreadable(log_id)) is not None}
            tables, unreadable = tables | found, unreadable | wrong
        finally:
            place.close()
    return Logs(tables, unreadable)


class LogPartition(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)


class PenstockDataSource(DataSource):
    """`spark.read.format("penstock")` and `spark.readStream.format("penstock")`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = parse(options)
        self._version: TableVersion | None = None

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Spark asks for it once, before it copies this object to where readers are made."""
        if self._options.shape == RUNS:
            return from_arrow_schema(RUN_SCHEMA)
        from penstock.pipeline.source.table_version import TableVersion

        self._version = TableVersion.find(self._options)
        return from_arrow_schema(self._version.flat_schema(self._options.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _BatchReader(self._options, _Shape(self._options, schema, self._version))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _StreamReader(self._options, _Shape(self._options, schema, self._version))


class _Shape:
    """Which columns are read, and of which version of the table. Pickled with its reader."""

    def __init__(self, options: SourceOptions, schema: StructType, version: TableVersion | None) -> None:
        self.arrow: pa.Schema = to_arrow_schema(schema, timezone=_UTC)
        self.version = version
        if options.shape == RUNS:
            if not self.arrow.equals(RUN_SCHEMA):
                raise InvalidSetting("the shape runs has columns of its own; leave the schema to the source")
        elif version is None:
            from penstock.pipeline.source.table_version import TableVersion

            # The user chose the columns, so newer ones of the table are not missed.
            self.version = TableVersion.find(options).choosing(self.arrow)
        elif options.columns is not None:
            self.version = version.choosing(self.arrow)

    def read(self, options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one partition."""
        task_begins()
        # A partition of a batch without any data is Spark's own.
        pieces = partition.pieces if isinstance(partition, LogPartition) else ()
        how = access(options)
        opened = ((piece.address, open_reader(piece.address, how), piece.stretch) for piece in pieces)
        if self.version is None:
            copied = copied_tables(pieces) if options.distinct else frozenset()
            with naming(lambda: [piece.address for piece in pieces]):
                yield from read_runs(opened, options.buckets, copied)
            return
        from penstock.pipeline.source.flat import FlatBatches

        flat = FlatBatches(self.version.schema, self.arrow, options.operations)
        for address, reader, stretch in opened:
            for gathered in gather(reader, stretch):
                batch = flat.convert(gathered, address.node)
                if batch.num_rows:
                    yield batch

    def planner(self, options: SourceOptions, *, holds: bool) -> Planner:
        if self.version is None:
            return Planner(options, holds=holds)
        return Planner(options, check=self.version.check, holds=holds)


class _BatchReader(DataSourceReader):
    """Everything that the logs have now."""

    def __init__(self, options: SourceOptions, shape: _Shape) -> None:
        self._options = options
        self._shape = shape

    def partitions(self) -> list[InputPartition]:
        planner = self._shape.planner(self._options, holds=False)
        try:
            return [LogPartition(pieces) for pieces in planner.partitions(planner.initial(), planner.end())]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._shape.read(self._options, partition)


class _StreamReader(_SimpleStreamReaderWrapper, SupportsTriggerAvailableNow):
    """New changes, micro-batch by micro-batch.

    Spark takes rows along with the plan of a batch from one class of readers only, and then needs no Python process to
    run the task. This is of that class, so that batches of a few changes need not wait for one. The price is that Spark
    does not ask such a reader for the newest offset when it reports a query's progress.
    """

    def __init__(self, options: SourceOptions, shape: _Shape) -> None:
        self._options = options
        self._shape = shape
        self._opened: Planner | None = None
        self._wake = Wake(options.wake, SystemClock().now_us)
        self._planned: list[InputPartition] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_planned": []}

    @property
    def simple_reader(self) -> SimpleDataSourceStreamReader:  # type: ignore[override]
        """Who is asked to prepare for what is available now: the reader itself."""
        return self  # type: ignore[return-value]

    @property
    def _planner(self) -> Planner:
        if self._opened is None:
            self._opened = self._shape.planner(self._options, holds=True)
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_offset(self._planner.initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._planner.freeze()
        self._wake.freeze()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_rows_per_trigger is not None:
            return ReadMaxRows(options.max_rows_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.max_files_per_trigger is not None:
            return ReadMaxFiles(options.max_files_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        reaches = self._planner.latest(from_offset(start), self._limits(limit))
        return to_offset(reaches, self._wake.tick(tick_of(start)))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        found = self._planner.partitions(from_offset(start), from_offset(end))
        self._planned = [LogPartition(pieces) for pieces in found]
        return self._planned

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any] | None:  # noqa: N802, ARG002
        """The rows of the batch that was just planned, when they are few; else a task reads them."""
        if len(self._planned) != 1:
            return None
        [partition] = self._planned
        assert isinstance(partition, LogPartition)
        stretches = [piece.stretch for piece in partition.pieces]
        if sum(one.bytes + one.tail * _CHANGE_BYTES for one in stretches) > _AT_ONCE_BYTES:
            return None
        return self.read(partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._shape.read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._planner.commit(from_offset(end))

    def stop(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _limits(self, limit: ReadLimit) -> Limits:
        """Spark knows one limit at a time; the options may set several."""
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        options = self._options
        return Limits(options.max_rows_per_trigger, options.max_bytes_per_trigger, options.max_files_per_trigger)


# Waking a query at a given second although nothing new came, as a row needs whose time to live ends.
#
# The driver of the query writes the second into a small file. When it has come, the next offset differs from the last
# by its `tick`, and so Spark runs a batch. A file that is missing or holds no number wakes nobody.

_BYTES_MAX = 32


class Wake:
    """Watches the file of one query."""

    def __init__(self, file: str | None, now_us: Callable[[], int]) -> None:
        self._file = None if file is None else Path(file)
        self._now_us = now_us
        self._until: int | None = None

    def freeze(self) -> None:
        """From now on, only what is due by now counts: a query that ends when all is done must come to its end."""
        self._until = self._now_us() // 1_000_000

    def tick(self, last: int) -> int:
        """The second that has come and was not answered yet, else `last`."""
        wanted = self._wanted()
        now = self._now_us() // 1_000_000 if self._until is None else self._until
        return wanted if wanted is not None and last < wanted <= now else last

    def _wanted(self) -> int | None:
        if self._file is None:
            return None
        try:
            with self._file.open("rb") as opened:
                text = opened.read(_BYTES_MAX).strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else None
