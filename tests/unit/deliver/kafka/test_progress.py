"""The marks of batches that were sent, without a broker: what they say, and what the checkpoint keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.deliver.kafka.progress import Mark, Progress, Proof, payload_of, read_note, write_note
from penstock.deliver.sink import Task
from penstock.errors import CorruptCheckpoint, DeliveryInDoubt, InvalidSetting

HERE = Mark("c1", 7, 700)


@pytest.mark.parametrize(
    "data", [None, b"", b"7", b"[]", b"{}", b'{"version":2,"checkpoint":"c","batch":1,"time_us":1}']
)
def test_what_is_no_mark_is_not_taken_for_one(data: bytes | None) -> None:
    with pytest.raises(ValueError, match=r".*"):
        Mark.decode(data)


def test_a_mark_is_read_as_it_was_written() -> None:
    assert Mark.decode(HERE.encode()) == HERE


@pytest.mark.parametrize("found", [HERE, Mark("c1", 6, 600), Mark("c1", -1, 0)])
def test_marks_of_this_batch_and_of_earlier_ones_are_proof(found: Mark) -> None:
    Proof("t", 0, HERE).check(found)


@pytest.mark.parametrize("found", [None, Mark("c2", 6, 600), Mark("c1", 8, 800), Mark("c1", 7, 701)])
def test_any_other_end_of_the_partition_is_refused(found: Mark | None) -> None:
    with pytest.raises(DeliveryInDoubt, match="batch 7"):
        Proof("t", 0, HERE).check(found)


def test_a_mark_older_than_the_one_that_is_known_is_refused() -> None:
    with pytest.raises(DeliveryInDoubt, match="gone"):
        Proof("t", 0, HERE, known=Mark("c1", 6, 600)).check(Mark("c1", 5, 500))


def test_the_driver_learns_the_last_mark_of_each_bucket_from_its_tasks() -> None:
    progress = Progress("t", "c1")
    assert progress.proof(Task("p", 7, 3, 700)).known is None
    progress.done(payload_of(progress.proof(Task("p", 7, 3, 700))))
    assert progress.proof(Task("p", 8, 3, 800)).known == HERE
    assert progress.proof(Task("p", 8, 4, 800)).known is None


def test_a_checkpoint_knows_its_topic_again(tmp_path: Path) -> None:
    directory = tmp_path / "sinks" / "kafka"
    assert read_note(directory, "t") is None
    write_note(directory, Progress("t", "c1"))
    assert read_note(directory, "t") == Progress("t", "c1")
    with pytest.raises(InvalidSetting, match="noted in the topic t"):
        read_note(directory, "other")


@pytest.mark.parametrize("damage", [b"", b"{}", b"x"])
def test_a_damaged_note_is_refused(tmp_path: Path, damage: bytes) -> None:
    write_note(tmp_path, Progress("t", "c1"))
    (tmp_path / "progress.json").write_bytes(damage)
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        read_note(tmp_path, "t")
