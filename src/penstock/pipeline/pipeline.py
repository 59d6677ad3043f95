"""Pipeline: one streaming query that carries all tables from the change logs to the sinks.

The source gives runs of encoded changes, Spark brings those of one bucket of keys together, one task per bucket folds
them and hands them to the sinks (`task`). The driver then commits in this order: dead letters, the sinks, the fold's
state, and last of all Spark's own place. A crash anywhere repeats the batch from the same state at the same time, so
the sinks are given the same records again.
"""

from __future__ import annotations

import functools
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from penstock.deliver.batch_plan import BatchPlan
from penstock.deliver.choice import make_sinks
from penstock.errors import DeliveryFailed, PenstockError, Retry, ServerFailed, StorageError, ToolMissing
from penstock.filters.functions import Functions
from penstock.fold.eras import Eras, EraStore, Header, prepared_as
from penstock.fold.state import StateStore
from penstock.log.refusal import exhausted
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline import dead_letters, outcome, scratch
from penstock.pipeline.blame import blamed, prepare
from penstock.pipeline.checkpoint import SCRATCH, Checkpoint, usual_buckets
from penstock.pipeline.driver_lock import DriverLock
from penstock.pipeline.holding import Holding
from penstock.pipeline.outcome import Outcome
from penstock.pipeline.preflight import check_source
from penstock.pipeline.session import last_words, spark_session
from penstock.pipeline.source import source
from penstock.pipeline.source.options import parse
from penstock.pipeline.source.reach import parse as parse_reach
from penstock.pipeline.spark_errors import java_gone, penstock_error
from penstock.pipeline.status import RUNS, PipelineStatus, StatusBoard
from penstock.pipeline.task import TaskPlan, asked, run
from penstock.pipeline.worker_process import task_begins
from penstock.settings import OnTrouble, Settings
from penstock.system.clock import Clock, SystemClock
from penstock.transforms.transforms import Transforms, check_against

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = structlog.get_logger()

_LOOK_S = 0.2
_LOCK_LOOK_S = 5.0
_RETRY_S_MAX = 60.0
# How Python prints an error at the end of a traceback.
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt): .+$", re.MULTILINE)
# Where time may help, a batch is tried so often before the table that it fails at is left out.
_TRIES = 3
# A new schema version is prepared for and the batch begun again; more rounds than this would mean a loop.
_ROUNDS_MAX = 100


class _Stopped(Exception):
    """The pipeline was asked to stop before this batch began."""


class Pipeline:
    """A pipeline as its settings describe it. `run` returns when it is stopped, or when there is nothing left to do."""

    def __init__(self, settings: Settings, *, spark: SparkSession | None = None, clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock or SystemClock()
        self._spark = spark
        self._board = StatusBoard()
        self._stop = threading.Event()
        # Until when the batch that is under way may be finished, once it was asked to stop.
        self._stop_by = math.inf
        # Whoever waits for the query is to look at once: it has ended, or is to stop.
        self._look = threading.Event()
        self._error: BaseException | None = None
        self._prepared: set[str] = set()
        # The headers of runs that were met in batches that are done, and in those and the one under way.
        self._headers: dict[bytes, Header] = {}
        self._met: dict[bytes, Header] = {}
        # By log the last file whose header a batch that is done, and the one under way, has taken.
        self._files: dict[str, int] = {}
        self._reached: dict[str, int] = {}
        # Tables that are prepared for with the first batch: a task that has to ask for it lets all be read again.
        self._expected: list[Header] = []
        self._sinks = make_sinks(settings)
        functions = Functions.load(settings.functions)
        self._transforms = Transforms(settings.transform, functions)
        # Workers may not have the file, and need not.
        self._task_transform = self._transforms.settings_for_tasks()
        where = settings.pipeline
        usual = usual_buckets(where.master)
        self._checkpoint = Checkpoint.open(where.checkpoint_directory, where.name, where.buckets, usual)
        self._buckets = self._checkpoint.identity.buckets
        for sink in self._sinks:
            sink.keep_in(self._checkpoint.directory / "sinks" / sink.name, where.name)
            sink.divide(self._buckets)
        self._board.watch(self._checkpoint.outages)
        self._eras = EraStore(self._checkpoint.eras)
        self._state = StateStore(str(self._checkpoint.state), self._buckets)
        # While it runs: the driver's lock, and where Spark keeps its own checkpoint of this query.
        self._lock: DriverLock | None = None
        self._query = self._checkpoint.spark
        self._queries = 0
        self._holding = Holding(self._checkpoint, self._state, self._clock)
        self._board.in_trouble(self._holding.troubles.values())
        # Of which table each log is, as far as this process knows, and which tables become a target's.
        self._logs: dict[str, TableId] = {}
        self._sources: dict[str, set[TableId]] = {}
        # The batch under way, its buckets whose tasks have delivered, and whether a sink has it for good.
        self._batch = -1
        self._plan = BatchPlan(-1)
        self._done: set[int] = set()
        self._moving: frozenset[TableId] = frozenset()
        self._final = False
        # Whether the settings are looked at for the first time: wrong ones must not begin anything.
        self._checking = False
        # The query is to end between two batches, for another one to begin.
        self._pause = False
        self._dead = dead_letters.DeadLetterStore(
            where.dead_letter_directory or self._checkpoint.directory / "dead-letters"
        )

    def status(self) -> PipelineStatus:
        """What it has done so far."""
        return self._board.read()

    def stop(self) -> None:
        """Ask it to stop: the batch that is under way is finished, or given up after a while; no other is begun."""
        if not self._stop.is_set():
            self._stop_by = time.monotonic() + self._settings.pipeline.stop_s
        self._stop.set()
        self._look.set()

    def run(self, *, available_now: bool = False) -> None:
        """Deliver until `stop`, or with `available_now` until everything that is there now is delivered."""
        self._begin()
        try:
            self._run(available_now=available_now)
        finally:
            self._end()

    def _begin(self) -> None:
        """Become the only driver of the checkpoint, and see that it is whole."""
        self._lock = DriverLock.take(self._checkpoint.directory, self._clock.now_us())
        try:
            self._checkpoint.tidy()
            self._checkpoint.check_whole(self._state.committed)
            # A power loss may have taken the last note of it.
            self._checkpoint.wake_at(self._state.next_due_s())
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_driver(self) -> None:
        """Raise PipelineFenced when another driver has taken over: called before anything is made final."""
        assert self._lock is not None
        self._lock.check()

    def _begin_query(self) -> Path:
        """Where Spark's next query goes on."""
        self._check_driver()
        assert self._lock is not None
        self._queries += 1
        self._query = self._checkpoint.begin_query(self._state.committed, f"{self._lock.token}-{self._queries}")
        return self._query

    def _start_spark(self) -> SparkSession:
        settings = self._settings.pipeline
        self._board.does("Spark starts …")
        place = scratch.prepare(settings.scratch_directory or settings.checkpoint_directory / SCRATCH)
        return spark_session(f"penstock {settings.name}", settings.master, settings.spark, place)

    def _run(self, *, available_now: bool) -> None:
        settings = self._settings.pipeline
        self._board.does("logs and targets are looked at …")
        check_source(self._settings)
        self._check_sinks()
        spark = self._spark or self._start_spark()
        source.register(spark)
        self._board.does(RUNS)
        failures = 0
        try:
            while not self._stop.is_set():
                before = self._board.read().batches
                try:
                    self._board.began()
                    self._run_query(spark, available_now=available_now)
                    if self._ends(available_now=available_now):
                        return
                except _Stopped:
                    if self._ends(available_now=False):
                        return
                # Spark raises whatever its own parts do; what can be tried again is decided below.
                except Exception as error:
                    failures = 0 if self._board.read().batches > before else failures
                    failures += 1
                    if java_gone(spark):
                        raise ServerFailed(
                            f"Spark's Java machine has ended; start the pipeline again{last_words()}",
                            pipeline=settings.name,
                        ) from error
                    if not self._hold(error, failures):
                        self._consider(error, failures)
        finally:
            self._board.ended()
            if self._spark is None:
                self._board.does("Spark ends …")
                # One whose Java machine has died can only say that.
                with suppress(Exception):
                    spark.stop()

    def _ends(self, *, available_now: bool) -> bool:
        """Whether a query that has ended was the last one: another follows when a table is to be tried again."""
        if self._pause and not self._stop.is_set():
            return False
        if available_now and not self._stop.is_set():
            self._holding.ended()
            self._board.in_trouble(self._holding.troubles.values())
        return True

    def _check_sinks(self) -> None:
        """Refuse what cannot work. A target that was delivered to before is only down, and is waited for."""
        for sink in self._sinks:
            try:
                sink.check()
            except PenstockError as error:
                if error.retry is not Retry.TIMED or self._state.committed < 0:
                    raise
                log.warning("target down", pipeline=self._settings.pipeline.name, sink=sink.name, error=str(error))

    def _hold(self, error: Exception, failures: int) -> bool:
        """Leave a table out whose trouble this is, so that the others go on; False: it is everybody's."""
        settings = self._settings.pipeline
        self._check_driver()
        known = None if exhausted(error) else penstock_error(error)
        if known is None or settings.on_trouble is OnTrouble.FAIL or self._checking:
            return False
        tries = _TRIES if settings.retries is None else min(_TRIES, settings.retries + 1)
        if known.retry is Retry.TIMED and failures < tries:
            return False
        if self._final:
            # One target has the records of this batch for good. When the table returned, it would get them again.
            return False
        tables = blamed(known, self._logs.values(), self._sources)
        if not tables:
            return False
        with suppress(PenstockError):
            self._logs |= source.logs(self._read_settings()).tables
        # What such a bucket has given, it does not give again; so the table must be taken there.
        taken = frozenset(self._done if any(sink.once for sink in self._sinks) else ())
        if taken and tables & self._moving:
            # An era that ends does so in all buckets.
            return False
        held = self._holding.hold(known, tables, self._logs, taken)
        self._board.in_trouble(self._holding.troubles.values())
        return held

    def _consider(self, error: Exception, failures: int) -> None:
        """Wait before the next try, or raise when no retry can help."""
        settings = self._settings.pipeline
        # Whatever one suffers who has been replaced, that is the reason.
        self._check_driver()
        if isinstance(error, ImportError):
            raise ToolMissing(f"a library is missing: {_first_line(error)}") from error
        known = exhausted(error) or penstock_error(error)
        hopeless = known is not None and known.retry is not Retry.TIMED
        if hopeless or (settings.retries is not None and failures > settings.retries):
            if known is not None:
                raise known from (None if known is error else error)
            raise DeliveryFailed(f"Spark gave up: {_first_line(error)}", pipeline=settings.name) from error
        reason = _first_line(known or error)
        wait = min(_RETRY_S_MAX, settings.retry_s * 2 ** min(failures - 1, 16))
        self._board.failed(reason)
        log.warning("batch failed", pipeline=settings.name, error=reason, again_in_s=wait)
        self._stop.wait(wait)

    def _query_options(self) -> dict[str, str]:
        """Before a query: what it leaves out, which tables it will meet, and the options of its source."""
        self._error, self._pause = None, False
        options = source.pipeline_options(self._read_settings(), self._buckets)
        wants = parse(options).wants
        self._holding.begin(wants)
        self._hold_unreadable(wants)
        self._board.in_trouble(self._holding.troubles.values())
        held = self._holding.held()
        known = source.schemas(self._settings, held)
        self._checking = self._state.committed < 0
        check_against(self._transforms, known.newest)
        self._checking = False
        self._expected = known.settled
        self._note_targets(known.newest)
        return {**options, "wake": str(self._checkpoint.wake), "held": held.to_text()}

    def _hold_unreadable(self, wants: Callable[[TableId], bool]) -> None:
        """Leave tables out of which a log cannot even be opened: the source would pass it over.

        Time may help: a log that is just being made cannot be read either.
        """
        found = source.logs(self._read_settings())
        self._logs |= found.tables
        held = self._holding.held().tables
        for table, error in found.unreadable.items():
            if self._settings.pipeline.on_trouble is OnTrouble.TABLE and wants(table) and table not in held:
                self._holding.hold(error, (table,), self._logs, frozenset(), timed=True)

    def _run_query(self, spark: SparkSession, *, available_now: bool) -> None:
        settings = self._settings.pipeline
        options = self._query_options()
        reader = spark.readStream.format("penstock")
        for name, value in options.items():
            reader = reader.option(name, value)
        writer = reader.load().writeStream.foreachBatch(self._deliver).queryName(settings.name)
        writer = writer.option("checkpointLocation", str(self._begin_query()))
        if available_now:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(settings.trigger_s * 1000)} milliseconds")
        query = writer.start()
        try:
            self._wait(query)
        finally:
            if query.isActive:
                query.stop()

    def _read_settings(self) -> Settings:
        """The settings with all that is read.

        What is replayed from the dead letters, and what was repaired, comes as if from nodes of their own.
        """
        settings = self._settings.pipeline
        logs = (*settings.logs, str(self._checkpoint.replayed), str(self._checkpoint.repaired))
        return self._settings.model_copy(update={"pipeline": settings.model_copy(update={"logs": logs})})

    def _note_targets(self, schemas: Iterable[TableSchema]) -> None:
        for schema in schemas:
            self._sources.setdefault(str(self._transforms.target(schema).table), set()).add(schema.table)

    def _wait(self, query: StreamingQuery) -> None:
        look = time.monotonic() + _LOCK_LOOK_S
        threading.Thread(target=self._notice_end, args=(query,), name="penstock-query", daemon=True).start()
        while query.isActive:
            if time.monotonic() > look:
                # One that has nothing to do would not notice otherwise.
                self._check_driver()
                look = time.monotonic() + _LOCK_LOOK_S
            self._look.wait(_LOOK_S)
            self._look.clear()
            self._pause = self._pause or self._holding.asks()
            if self._stop.is_set() or self._pause:
                if not query.status["isTriggerActive"]:
                    return
                if self._stop.is_set() and time.monotonic() > self._stop_by:
                    self._give_up()
                    return
                time.sleep(_LOOK_S)
        if self._error is not None:
            raise self._error
        failure = query.exception()
        if failure is not None:
            raise failure

    def _give_up(self) -> None:
        """Let go of a batch that does not come to its end; the next start does it again, as after a crash.

        Its tasks end with the query. What waits for a target on the driver has to be told.
        """
        settings = self._settings.pipeline
        log.warning("batch given up", pipeline=settings.name, batch=self._batch, after_s=settings.stop_s)
        for sink in self._sinks:
            sink.give_up()

    def _notice_end(self, query: StreamingQuery) -> None:
        """Wait for a query's end in a thread of its own: a signal must not meet the main one in a call to Java."""
        # Why it has ended, whoever waits will ask.
        with suppress(Exception):
            query.awaitTermination()
        self._look.set()

    def _deliver(self, frame: DataFrame, batch: int) -> None:
        """Do one batch. Called by Spark; what it raises ends the query, so it is kept for whoever waits."""
        try:
            if self._stop.is_set() or self._pause:
                raise _Stopped
            if batch > self._state.committed:
                self._do(frame, batch)
        except BaseException as error:
            self._error = error
            # Spark's bridge to Python answers for ordinary errors only; for others its Java side would wait for ever.
            raise RuntimeError("the batch was not done") from error

    def _do(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        self._check_driver()
        now_us = self._checkpoint.batch_time(batch, self._clock.now_us(), self._query)
        if batch != self._batch:
            self._batch, self._done, self._final = batch, set(), False
        self._plan = self._checkpoint.plan(batch)
        for sink in self._sinks:
            sink.begin_batch(self._plan)
        outcomes = self._outcomes(frame, batch, now_us)
        tokens = {o.bucket: o.data for o in outcomes if o.kind == "state"}
        self._check_size(batch, tokens)
        self._check_driver()
        self._final = self._final or any(sink.once for sink in self._sinks)
        self._keep_dead_letters(batch, outcomes)
        for sink in sorted(self._sinks, key=lambda sink: sink.final):
            payloads = [o.data for o in outcomes if o.kind == "sink" and o.name == sink.name and o.data]
            sink.commit(self._settings.pipeline.name, batch, payloads)
            self._final = self._final or sink.final
        self._check_driver()
        self._state.commit(batch, tokens)
        self._headers = self._met
        self._files = self._reached
        self._done, self._final = set(), False
        self._holding.delivered(batch)
        self._board.in_trouble(self._holding.troubles.values())
        self._checkpoint.wake_at(self._state.next_due_s())
        self._board.holds(*self._state.size())
        self._board.delivered(batch, outcomes, time.monotonic() - began, self._clock.now_us())

    def _check_size(self, batch: int, tokens: dict[int, bytes]) -> None:
        """Stop before the batch is committed when the state would take more than it may."""
        limit = self._settings.merge.state_bytes_max
        if limit is None:
            return
        _, size = self._state.size_with(tokens)
        if size > limit:
            self._state.discard(batch)
            raise StorageError(
                f"the pipeline's state would take {size} bytes, more than merge.state_bytes_max = {limit}; the batch "
                "is not committed, and is done again when the limit is raised",
                batch=batch,
            )

    def _outcomes(self, frame: DataFrame, batch: int, now_us: int) -> list[Outcome]:
        expected, self._expected = self._expected, []
        aside = self._holding.aside(batch)
        before = self._eras.before(batch)
        # A batch that is done again meets the same headers again.
        self._met = dict(self._headers)
        # All that the batch may meet must be known before any task delivers: what one of them gives for good cannot be
        # taken back when another one finds that an era has ended.
        known = [*expected, *self._headers_of(batch)]
        eras = self._meet(before, [header for header in known if header.schema.table not in aside])
        for _ in range(_ROUNDS_MAX):
            moves = eras.moves(before) if eras is not before else {}
            self._end_eras(move.schema for move in moves.values() if move.began_us)
            plan = TaskPlan(
                pipeline=self._settings.pipeline.name,
                batch=batch,
                now_us=now_us,
                state_directory=str(self._checkpoint.state),
                merge=self._settings.merge,
                transform=self._task_transform,
                functions=dict(self._settings.functions),
                sinks=self._sinks,
                prepared=frozenset(self._prepared),
                headers=frozenset(self._met),
                stale=frozenset(digest for digest, header in self._met.items() if eras.is_stale(header)),
                moves=moves,
                eras=eras.numbers(),
                newest=eras.newer_than(self._met.values()),
                drops=eras.drops(),
                outages=str(self._checkpoint.outages),
                aside=aside,
                expired=self._holding.expired(batch),
                identity=self._plan,
            )
            self._moving = frozenset(plan.moves)
            outcomes = list(outcome.from_arrow(_tasks(frame, plan, self._buckets)))
            self._done |= {o.bucket for o in outcomes if o.kind == "state"}
            outcome.raise_failures(outcomes)
            new = {o.data: o for o in outcomes if o.kind == "schema"}
            if not new:
                # An earlier try may have noted the eras of a table that is left out now.
                if eras is not before or self._eras.noted(batch):
                    self._eras.write(batch, eras)
                return outcomes
            eras = self._meet(eras, [asked(new[data]) for data in sorted(new)])
        raise DeliveryFailed("the schemas of a batch change each time that it is read", batch=batch)

    def _headers_of(self, batch: int) -> list[Header]:
        """The headers of files that a batch begins to read."""
        after = self._checkpoint.positions(batch)
        self._reached = {log_id: parse_reach(reach).file for log_id, reach in after.items()}
        new = [log_id for log_id, file in self._reached.items() if file > self._files.get(log_id, -1)]
        before = self._checkpoint.positions(batch - 1) if batch and new else {}
        moved = {log_id: (before.get(log_id), after[log_id]) for log_id in new if before.get(log_id) != after[log_id]}
        return source.headers(self._read_settings(), moved) if moved else []

    def _meet(self, eras: Eras, headers: list[Header]) -> Eras:
        """The eras with what these headers say; the sinks are prepared for those that still count."""
        eras = eras.learn([header for header in headers if header.node])
        self._met |= {header.digest: header for header in headers if header.node}
        self._prepare([header.schema for header in headers if not header.node or not eras.is_stale(header)])
        return eras

    def _prepare(self, schemas: list[TableSchema]) -> None:
        """Let the sinks know of new versions of tables, older ones first."""
        found = {prepared_as(schema): schema for schema in schemas}
        schemas = [schema for name, schema in found.items() if name not in self._prepared]
        if not schemas:
            return
        schemas = sorted(schemas, key=lambda schema: (schema.table, schema.order))
        check_against(self._transforms, schemas)
        self._note_targets(schemas)
        targets = [self._transforms.target(schema) for schema in schemas]
        for sink in self._sinks:
            prepare(sink, targets)
            self._board.leaves_out(sink.name, sink.left_out())
        self._prepared |= found.keys()

    def _end_eras(self, schemas: Iterable[TableSchema]) -> None:
        """Let the sinks know of tables whose rows are gone, before tasks write new ones."""
        targets = [target for target in map(self._transforms.target, schemas) if target.id]
        for sink in self._sinks if targets else ():
            sink.end_eras(targets)

    def _keep_dead_letters(self, batch: int, outcomes: list[Outcome]) -> None:
        letters = [letter for o in outcomes if o.kind == "dead" for letter in dead_letters.decode(o.data)]
        if letters:
            self._dead.add(batch, letters)
            log.warning("records set aside", pipeline=self._settings.pipeline.name, batch=batch, count=len(letters))


def _tasks(frame: DataFrame, plan: TaskPlan, buckets: int) -> pa.Table:
    """One task per bucket; the rows they yield."""
    # A batch without any row, as one that only lets rows expire, has its tasks all the same.
    together = frame.repartitionById(buckets, "bucket")
    done = together.mapInArrow(functools.partial(_in_task, plan), outcome.spark_schema())
    # Rows as Spark pickles them need fewer questions to the Java machine than Arrow does, each of which takes time.
    return outcome.from_spark(done.collect())


def _in_task(plan: TaskPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    task_begins()
    context: Any = TaskContext.get()
    yield from run(plan, context.partitionId(), batches)


def _first_line(error: BaseException) -> str:
    """One line that says what it was. Of an error in a Python process it is the last one of its traceback."""
    text = str(error)
    raised = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    return (raised[-1:] or text.splitlines() or [type(error).__name__])[0][:300]
