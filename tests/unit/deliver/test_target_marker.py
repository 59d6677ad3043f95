"""Begun: a target with batches of a checkpoint that is gone is refused, whatever number the batch has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.files.sink import FilesSink
from penstock.deliver.iceberg.sink import IcebergSink
from penstock.deliver.sink import Sink
from penstock.errors import CorruptCheckpoint
from penstock.settings.sinks import DeltaSettings, FilesSettings, IcebergSettings
from tests.lake_records import SCHEMA, deliver, records

Made = Callable[[Path], Sink]
SINKS: dict[str, Made] = {
    "deletion vectors": lambda lake: DeltaSink(DeltaSettings(directory=lake)),
    "copy on write": lambda lake: DeltaSink(DeltaSettings(directory=lake, deletion_vectors=False)),
    "history": lambda lake: DeltaSink(DeltaSettings(directory=lake, current=False, history=True)),
    "files": lambda lake: FilesSink(FilesSettings(directory=lake)),
    "iceberg": lambda lake: IcebergSink(IcebergSettings(warehouse=lake)),
}


@pytest.fixture(params=SINKS)
def make(request: pytest.FixtureRequest) -> Made:
    return SINKS[request.param]


def one_batch(make: Made, directory: Path, checkpoint: str, pipeline: str = "p") -> None:
    sink = make(directory / "lake")
    sink.keep_in(directory / checkpoint, pipeline)
    sink.check()
    sink.prepare([SCHEMA])
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), {"note": checkpoint, "amount": 1})])]})


def test_a_new_checkpoint_does_not_take_its_first_batch_for_the_targets_last_one(make: Made, tmp_path: Path) -> None:
    one_batch(make, tmp_path, "first")
    with pytest.raises(CorruptCheckpoint, match="the checkpoint knows of none"):
        one_batch(make, tmp_path, "second")


def test_the_same_checkpoint_does_a_batch_again(make: Made, tmp_path: Path) -> None:
    one_batch(make, tmp_path, "first")
    one_batch(make, tmp_path, "first")


def test_a_pipeline_of_another_name_may_write_to_the_target(make: Made, tmp_path: Path) -> None:
    one_batch(make, tmp_path, "first")
    one_batch(make, tmp_path, "second", "q")
