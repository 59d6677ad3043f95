"""Sink: what a target of the pipeline must be able to do.

A micro-batch is delivered in two steps. Writers run in Spark's tasks, one per bucket of keys, where the data is; what
they leave for the second step is small. The driver then calls `commit` once for the batch, keeps the pipeline's state,
and only then lets Spark go on. After a crash anywhere the same batch comes again with the same records, so a writer and
a commit must have the same effect when they are done twice for the same pipeline, batch and bucket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from penstock.deliver.batch_plan import BatchPlan
from penstock.deliver.outages import Waiting
from penstock.errors import PenstockError
from penstock.model.schema import TableId, TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType


@dataclass(frozen=True, slots=True)
class Task:
    """One bucket of one micro-batch. `now_us` is the same each time that the batch is done."""

    pipeline: str
    batch: int
    bucket: int
    now_us: int
    # Where the driver looks for tasks that wait for their target.
    outages: str | None = None
    # Which batch it is, beyond its number: as given to the sink's `begin_batch`.
    plan: BatchPlan | None = None

    def waiting(self, sink: str) -> Waiting:
        """Where to say that the target of this sink is away."""
        return Waiting(self.outages, sink, self.bucket)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that a target will never take: which one, and why. Nothing else of the batch waits for it."""

    sink: str
    table: str
    # The record's key as JSON text; what the target said; the record itself as an Avro row of `schema`.
    key: str
    reason: str
    schema: TableSchema
    row: bytes
    # Whether the row says all of the table's row and its version, not only what changed.
    whole: bool = False


@dataclass(slots=True)
class Delivered:
    """What became of one task's records. `payload` is handed to the sink's commit on the driver."""

    records: int = 0
    payload: bytes = b""
    dead: list[DeadLetter] = field(default_factory=list)
    bytes: int = 0


@contextmanager
def about(table: TableId) -> Iterator[None]:
    """Let errors that come up meanwhile name the table, which is not always what the target calls it."""
    try:
        yield
    except PenstockError as error:
        named = error.place.get("table")
        if str(named) != str(table):
            target = {} if named is None else {"target": named}
            error.place = {**error.place, **target, "table": table}
        raise


class Writer(ABC):
    """Takes the records of one task. Used as a context manager; leaving it by an error gives up what is unfinished."""

    @abstractmethod
    def write(self, records: Records) -> None:
        """Take records of one table. Memory is bounded: a writer that has taken much sends it on before it returns."""

    @abstractmethod
    def finish(self) -> Delivered:
        """Return when everything is where a crash cannot take it; raises when the batch must be tried again."""

    def abort(self) -> None:  # noqa: B027
        """Give up: an error came before `finish`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()


class Sink(ABC):
    """One target. It travels to the tasks by pickle, so it holds settings and no connections."""

    # The name of its section of settings, which is also its name in metrics and dead letters.
    name: ClassVar[str]
    # The least that its records must say, and whether it wants every change or only the last one of each row.
    record: RecordType = RecordType.CHANGE
    every: bool = True
    # Whether a writer that has finished has given its records for good, and gives none of them when it is done again.
    once: bool = False
    # Whether what a commit has added stays, and would be there twice if the same changes came again in another batch.
    final: bool = False

    def keep_in(self, directory: Path, pipeline: str) -> None:  # noqa: B027
        """On the driver, before anything else: where the sink may keep what it must know of its pipeline."""

    def divide(self, buckets: int) -> None:  # noqa: B027
        """On the driver, after `keep_in`: into how many buckets, and so tasks, each batch is divided."""

    def left_out(self) -> Mapping[str, Sequence[str]]:
        """On the driver: by table the columns that the target does not get, because the sink's policy is to ignore."""
        return {}

    def check(self) -> None:  # noqa: B027
        """On the driver, before the stream starts: raise when the target cannot be reached or does not fit."""

    def begin_batch(self, plan: BatchPlan) -> None:  # noqa: B027
        """On the driver, before all else of a batch: which one it is, beyond its number.

        A checkpoint that was restored from an older copy gives a number a second time, to other changes. A target that
        leaves out a batch because it has one of that number must compare their plans.
        """

    def prepare(self, schemas: Sequence[TableSchema]) -> None:  # noqa: B027
        """On the driver, before the tasks of a batch: tables or schema versions that this run has not seen yet.

        Older versions come first. One whose id is not that of the last one means a new table of the same name: what the
        target has is the old one's. It is called again after a crash, so it must do the same once more.
        """

    def end_eras(self, schemas: Sequence[TableSchema]) -> None:  # noqa: B027
        """On the driver, before the tasks of a batch with which an era of these tables ends.

        All that the target has of them is gone. The batch has a truncation of each, in one of its tasks, and rows of
        the new era may be in any. It is called again when the batch is done again.
        """

    def give_up(self) -> None:  # noqa: B027
        """On the driver, by another thread than the one that prepares or commits: the pipeline is to end.

        What waits for the target without end raises DeliveryFailed from now on.
        """

    @abstractmethod
    def writer(self, task: Task) -> Writer:
        """In a task: where its records go."""

    def commit(self, pipeline: str, batch: int, payloads: Sequence[bytes]) -> None:  # noqa: B027
        """On the driver, after all tasks: make the batch visible, as a whole where the target can."""
