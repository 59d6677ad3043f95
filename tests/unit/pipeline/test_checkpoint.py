"""The checkpoint directory: whose it is, and that a batch done again has the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CorruptCheckpoint, InvalidSetting, StorageError
from penstock.pipeline.checkpoint import Checkpoint


def test_buckets_are_fixed_when_the_checkpoint_is_made(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 4)
    assert made.identity.buckets == 4
    assert Checkpoint.open(tmp_path / "c", "shop", None, 8).identity.buckets == 4
    assert Checkpoint.open(tmp_path / "c", "shop", 4, 8).identity.buckets == 4
    with pytest.raises(InvalidSetting, match="began with 4 buckets and cannot go on with 8"):
        Checkpoint.open(tmp_path / "c", "shop", 8, 4)


def test_directory_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    Checkpoint.open(tmp_path / "c", "shop", None, 1)
    with pytest.raises(InvalidSetting, match="belongs to pipeline shop, not bank"):
        Checkpoint.open(tmp_path / "c", "bank", None, 1)


def test_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidSetting, match="holds something else"):
        Checkpoint.open(tmp_path, "shop", None, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["", "{}", '{"name":"shop","buckets":2,"version":1}\n'])
def test_damaged_description_is_not_guessed_at(tmp_path: Path, text: str) -> None:
    Checkpoint.open(tmp_path / "c", "shop", None, 1)
    (tmp_path / "c" / "pipeline.json").write_text(text)
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        Checkpoint.open(tmp_path / "c", "shop", None, 1)


def test_file_in_the_place_of_the_directory_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("")
    with pytest.raises(StorageError, match="checkpoint directory"):
        Checkpoint.open(tmp_path / "c", "shop", None, 1)


def test_batch_that_is_done_again_has_the_time_of_the_first_try(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    assert made.batch_time(7, 1000) == 1000
    assert Checkpoint.open(tmp_path / "c", "shop", None, 1).batch_time(7, 2000) == 1000
    assert made.batch_time(8, 2000) == 2000
    (tmp_path / "c" / "plans" / "8.json").write_text("{")
    with pytest.raises(CorruptCheckpoint, match="plan of a batch is damaged"):
        made.batch_time(8, 3000)


def test_plans_of_old_batches_go(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    for batch in range(50):
        made.batch_time(batch, batch)
    assert len(list((tmp_path / "c" / "plans").iterdir())) == 20


def test_second_at_which_something_expires_is_noted_and_taken_back(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    made.wake_at(1234)
    assert made.wake.read_text() == "1234"
    made.wake_at(None)
    assert made.wake.read_text() == ""
