"""The demo's way through Spark: a pipeline from the logs of all nodes into Delta tables, and the proof that they agree.

Spark starts while the cluster is already being written to. When the load has ended, the pipeline delivers what is left,
and each table is compared, row by row, with what the sandbox's nodes hold in memory together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.compare.comparison import Report, compare
from penstock.compare.delta_rows import DeltaRows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.log_rows import as_images
from penstock.compare.sides import SourceRows
from penstock.errors import DeliveryFailed, PenstockError
from penstock.model.schema import TableSchema
from penstock.pipeline import scratch
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.session import kill_java, spark_session
from penstock.pipeline.status import PipelineStatus
from penstock.sandbox.cluster import Cluster
from penstock.settings import PipelineSettings, Settings
from penstock.settings.sinks import DeltaSettings

_NAME = "demo"
_END_S = 300.0
_LOOK_S = 0.25


@dataclass(slots=True)
class LakeOutcome:
    """What arrived in the tables, and how it compares with the cluster."""

    records: int = 0
    copies: int = 0
    batches: int = 0
    reports: dict[str, Report] = field(default_factory=dict)
    error: PenstockError | None = None

    @property
    def sound(self) -> bool:
        return self.error is None and all(report.same for report in self.reports.values())


class Lake:
    """A pipeline in a thread of its own, from the first write of the demo to the last."""

    def __init__(self, directory: str, nodes: Sequence[str]) -> None:
        home = Path(directory)
        self.directory = home / "lake"
        self._settings = Settings(
            pipeline=PipelineSettings(
                name=_NAME,
                checkpoint_directory=home / "pipeline",
                logs=tuple(str(home / node) for node in nodes),
                sinks=("delta",),
            ),
            delta=DeltaSettings(directory=self.directory),
        )
        self._stop = threading.Event()
        self._spark: Any = None
        self._pipeline: Pipeline | None = None
        # What an earlier pipeline of this run has done: the last one begins anew to count.
        self._before: PipelineStatus | None = None
        self._done = False
        self.stage = "Spark starts …"
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="demo-pipeline", daemon=True)
        self._thread.start()

    def status(self) -> PipelineStatus | None:
        """How far it is; None while Spark starts."""
        if self._pipeline is None:
            return None
        status = self._pipeline.status()
        if self._before is not None:
            status.batches += self._before.batches
            for name, table in self._before.tables.items():
                total = status.tables.setdefault(name, table)
                if total is not table:
                    total.records += table.records
                    total.copies += table.copies
        return status

    def finish(self, cluster: Cluster, refresh: Callable[[], None], tell: Callable[[str], None]) -> LakeOutcome:
        """Deliver what is left, stop Spark, and compare. `refresh` is called while it waits, `tell` with each step."""
        self._stop.set()
        if self._pipeline is not None:
            self._pipeline.stop()
        deadline = time.monotonic() + _END_S
        stopping = False
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._thread.join(_LOOK_S)
            if self._done and not stopping:
                stopping = True
                tell("Spark ends")
            refresh()
        outcome = LakeOutcome()
        if isinstance(self._error, PenstockError):
            outcome.error = self._error
            return outcome
        if self._error is not None:
            raise self._error
        status = self.status()
        if status is None or not self._done:
            outcome.error = DeliveryFailed(f"the pipeline did not end: {status and status.waiting}")
            return outcome
        outcome.records, outcome.copies, outcome.batches = status.records, status.copies, status.batches
        now_s = int(time.time())
        for schema in cluster.tables.values():
            tell(f"{schema.table} is compared with the cluster, row by row")
            rows = cluster.rows(schema.table, now_s)
            target = self.directory / schema.table.keyspace / schema.table.table
            report = compare(_ClusterRows(schema, rows), DeltaRows(target, schema))
            outcome.reports[str(schema.table)] = report
        return outcome

    def let_go(self) -> None:
        """End Spark without waiting for anything: what it writes is about to be removed."""
        self._stop.set()
        kill_java()

    def _run(self) -> None:
        try:
            settings = self._settings.pipeline
            place = scratch.prepare(settings.checkpoint_directory.with_name("spark-scratch"))
            self._spark = spark_session(f"penstock {_NAME}", settings.master, settings.spark, place)
            try:
                self._deliver()
            finally:
                self._spark.stop()
        except BaseException as error:  # noqa: BLE001
            # It is told where the demo can end with it.
            self._error = error

    def _deliver(self) -> None:
        self.stage = "no batch yet …"
        first = self._pipeline = Pipeline(self._settings, spark=self._spark)
        if not self._stop.is_set():
            first.run()
        # Whatever came after the last batch, and no more than that.
        last = Pipeline(self._settings, spark=self._spark)
        self._before, self._pipeline = first.status(), last
        last.run(available_now=True)
        self._done = True


class _ClusterRows(SourceRows):
    """What the sandbox itself would answer."""

    def __init__(self, schema: TableSchema, rows: list[dict[str, Any]]) -> None:
        self.name = "the cluster"
        self.schema = schema
        self.shape = LakeShape()
        self._rows = rows

    def images(self) -> Iterator[pa.StructArray]:
        return as_images(self.schema, self._rows)
