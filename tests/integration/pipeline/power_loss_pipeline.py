"""The pipeline of the power loss tests, in a process of its own whose calls are recorded.

It is stopped after some batches and started again: both a first start and a later one are in the record.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.pipeline.pipeline import Pipeline
from penstock.settings import PipelineSettings, RecordType, Settings
from penstock.settings.sinks import DeltaSettings, FileCompression, FileFormat, FilesSettings

NODES = ("n1", "n2", "n3")


def settings(home: Path, sinks: tuple[str, ...] = ("delta", "files", "picky")) -> Settings:
    return Settings(
        pipeline=PipelineSettings(
            name="test",
            checkpoint_directory=home / "checkpoint",
            logs=tuple(str(home / node) for node in NODES),
            sinks=sinks,
            own_sinks={"picky": "tests.query_stand_in:PickySink"},
            buckets=2,
            rows_per_batch=8,
            retries=3,
        ),
        delta=DeltaSettings(directory=home / "lake", history=True, checkpoint_every=3, optimize_every=4),
        files=FilesSettings(
            directory=home / "files",
            format=FileFormat.JSON,
            compression=FileCompression.NONE,
            record=RecordType.CHANGE,
        ),
    )


class Brief(Pipeline):
    """Stops in good order after some batches."""

    def __init__(self, made: Settings, batches: int, **more: Any) -> None:
        super().__init__(made, **more)
        self._left = batches

    def _do(self, frame: Any, batch: int) -> None:
        super()._do(frame, batch)
        self._left -= 1
        if not self._left:
            self.stop()


def main(home: Path, scratch: Path) -> None:
    from penstock.pipeline.session import spark_session

    spark = spark_session("power loss", "local[2]", {"spark.local.dir": str(scratch)})
    Brief(settings(home), 3, spark=spark).run()
    Pipeline(settings(home), spark=spark).run(available_now=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
