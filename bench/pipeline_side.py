"""Our side of the pipeline's benchmarks: a pipeline that runs in a thread of this process, and what is asked of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from bench.harness import CheckFailed
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.status import PipelineStatus
from penstock.settings import PipelineSettings, Settings
from penstock.settings.kafka import KafkaSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITHIN_S = 1800


class RunningPipeline:
    """A pipeline from log directories to Kafka, JSON without schemas; a context manager.

    All settings are the defaults, but for those that say what it reads, where it writes and where it keeps its place;
    a benchmark that gives another size of batch says so.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        logs: Sequence[Path],
        kafka: KafkaSettings,
        *,
        rows_per_batch: int | None = None,
    ) -> None:
        for log in logs:
            log.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            pipeline=PipelineSettings(
                name=directory.name,
                checkpoint_directory=directory / "checkpoint",
                logs=tuple(map(str, logs)),
                sinks=("kafka",),
                **({} if rows_per_batch is None else {"rows_per_batch": rows_per_batch}),
            ),
            kafka=kafka,
        )
        self._pipeline = Pipeline(settings, spark=spark)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pipeline", daemon=True)

    def _run(self) -> None:
        try:
            self._pipeline.run()
        # Whatever ended it is raised to whoever waits for it.
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipeline.stop()
        self._thread.join()

    def status(self) -> PipelineStatus:
        return self._pipeline.status()

    def wait(self, enough: Callable[[PipelineStatus], bool]) -> PipelineStatus:
        """Wait until the pipeline has done enough."""
        deadline = time.monotonic() + WITHIN_S
        while not enough(status := self.status()):
            if self._error is not None:
                raise CheckFailed(f"the pipeline ended: {self._error}") from self._error
            if time.monotonic() > deadline:
                raise CheckFailed(f"the pipeline took in {status.copies} changes and no more; {status.waiting}")
            time.sleep(0.02)
        return status
