"""The checkpoint directory: whose it is, and that a batch done again has the same time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.errors import CorruptCheckpoint, DeliveryFailed, InvalidSetting, StorageError
from penstock.log import sealed
from penstock.pipeline.checkpoint import Checkpoint
from penstock.system.files import OsFiles


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


def noted(directory: Path, batch: int, position: str = "1:2:3") -> Path:
    """Spark's directory, with its note of a batch."""
    (directory / "offsets").mkdir(parents=True, exist_ok=True)
    (directory / "offsets" / str(batch)).write_text(f'v1\n{{}}\n{{"log": "{position}"}}')
    return directory


def test_batch_that_is_done_again_has_the_time_of_the_first_try(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    query = noted(noted(tmp_path / "query", 7), 8)
    assert made.batch_time(7, 1000, query) == 1000
    assert Checkpoint.open(tmp_path / "c", "shop", None, 1).batch_time(7, 2000, query) == 1000
    assert made.batch_time(8, 2000, query) == 2000
    (tmp_path / "c" / "plans" / "8.json").write_text("{")
    with pytest.raises(CorruptCheckpoint, match="plan of a batch is damaged"):
        made.batch_time(8, 3000, query)


def test_batch_that_was_begun_with_other_positions_is_not_done_with_these(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    made.batch_time(0, 1000, noted(tmp_path / "one", 0, "1:2:3"))
    with pytest.raises(DeliveryFailed, match="other positions"):
        made.batch_time(0, 1000, noted(tmp_path / "other", 0, "1:2:4"))


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", 'v1\n{}\n{"log": "1:2', "v1\n\0\0\0\n\0\0", "v1\n{}\n{}\n{}"])
def test_note_of_sparks_that_is_not_whole_begins_no_batch(tmp_path: Path, text: str) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    query = noted(tmp_path / "query", 0)
    (query / "offsets" / "0").write_text(text)
    with pytest.raises(DeliveryFailed, match="Spark's note"):
        made.batch_time(0, 1000, query)
    assert list((tmp_path / "c" / "plans").iterdir()) == []


def test_plans_of_old_batches_go(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    for batch in range(50):
        made.batch_time(batch, batch, noted(tmp_path / "query", batch))
    assert len(list((tmp_path / "c" / "plans").iterdir())) == 20


def files(directory: Path) -> dict[str, str]:
    found = (file for file in directory.rglob("*") if file.is_file() and file.name != "metadata")
    return {str(file.relative_to(directory)): file.read_text() for file in found}


def test_each_query_is_given_what_is_true_whatever_spark_has_left(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    first = made.begin_query(-1, "first")
    assert files(first) == {}
    for batch in range(3):
        made.batch_time(batch, batch, noted(first, batch, str(batch)))
    # Batch 1 is the last whose state is committed; of Spark's own files nothing is left but rubbish.
    for file in ("commits/0", "offsets/0", "offsets/2", "metadata"):
        (first / file).write_text("")
    (first / "offsets" / "1").unlink()
    second = made.begin_query(1, "second")
    assert not first.exists()
    done = files(second).pop("commits/1")
    assert done.startswith("v1\n{")
    assert files(second) == {
        # Spark wants a file here, and does not go by it.
        "offsets/0": 'v1\n{}\n{"log": "1"}',
        "offsets/1": 'v1\n{}\n{"log": "1"}',
        "offsets/2": 'v1\n{}\n{"log": "2"}',
        "commits/1": done,
    }


def test_positions_of_a_batch_that_was_not_begun_are_dropped(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    first = made.begin_query(-1, "first")
    made.batch_time(0, 5, noted(first, 0))
    noted(first, 1)
    assert sorted(files(made.begin_query(0, "second"))) == ["commits/0", "offsets/0"]


def test_checkpoint_of_an_earlier_version_goes_on_with_sparks_own_notes(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    for batch in (0, 1):
        sealed.write(OsFiles(), str(tmp_path / "c" / "plans"), f"{batch}.json", {"now_us": 7})
        noted(tmp_path / "c" / "spark", batch, str(batch))
    made.check_whole(0)
    query = made.begin_query(0, "query")
    assert sorted(files(query)) == ["commits/0", "offsets/0", "offsets/1"]
    assert made.batch_time(1, 8, query) == 7
    # From now on Spark's files are not needed.
    shutil.rmtree(tmp_path / "c" / "spark")
    assert sorted(files(made.begin_query(0, "query"))) == ["commits/0", "offsets/0", "offsets/1"]


def test_checkpoint_of_an_earlier_version_that_has_lost_sparks_notes_says_so(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    sealed.write(OsFiles(), str(tmp_path / "c" / "plans"), "0.json", {"now_us": 7})
    with pytest.raises(CorruptCheckpoint, match="begun by an earlier version"):
        made.begin_query(0, "query")


def test_first_start_that_was_killed_halfway_does_not_stop_the_next_one(tmp_path: Path) -> None:
    for part in ("spark", "state"):
        (tmp_path / "c" / part).mkdir(parents=True)
    (tmp_path / "c" / "pipeline.json.tmp").write_text('{"name":"sh')
    assert Checkpoint.open(tmp_path / "c", "shop", None, 3).identity.buckets == 3


def test_second_at_which_something_expires_is_noted_and_taken_back(tmp_path: Path) -> None:
    made = Checkpoint.open(tmp_path / "c", "shop", None, 1)
    made.wake_at(1234)
    assert made.wake.read_text() == "1234"
    made.wake_at(None)
    assert made.wake.read_text() == ""
