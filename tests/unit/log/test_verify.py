"""Verify: a sound log is found sound, and each kind of damage is found with its place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from penstock.errors import CorruptCheckpoint, CorruptLog, PositionAhead, UnsupportedFormat
from penstock.log import verify
from penstock.log.names import INDEX
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from tests.numbered import fill

COUNT = 12


@pytest.fixture
def directory(tmp_path: Path) -> str:
    path = str(tmp_path / "shop.orders")
    fill(path, COUNT)
    return path


def verdict_on(directory: str) -> verify.Verdict:
    with LogReader(directory) as reader:
        return verify.verify(reader)


def path_of(directory: str, number: int, kind: str = "avro") -> str:
    with LogReader(directory) as reader:
        return reader.path(number, kind)


def flip(path: str, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x40]))


def test_sound_log_is_found_sound_and_counted(directory: str) -> None:
    with Subscription.open(directory, "billing"):
        pass
    seen: list[int] = []
    with LogReader(directory) as reader:
        total = sum(info.bytes for info in reader.files())
        verdict = verify.verify(reader, progress=seen.append)
    assert verdict.damage == []
    assert verdict.sound
    assert (verdict.changes, verdict.blocks, verdict.checkpoints) == (COUNT, COUNT, 1)
    assert verdict.files > 2
    assert sum(seen) == verdict.bytes
    assert verdict.bytes <= total


def test_flipped_bit_in_a_block_is_found_and_the_rest_still_counted(directory: str) -> None:
    with LogReader(directory) as reader:
        target = list(reader.read())[4]
        path = reader.path(target.file)
    flip(path, target.offset + 40)
    verdict = verdict_on(directory)
    (damage,) = verdict.damage
    assert isinstance(damage, CorruptLog)
    assert damage.place["file"] == path
    assert damage.place["offset"] == target.offset
    assert verdict.changes == COUNT - 1


def test_truncated_file_is_found(directory: str) -> None:
    path = path_of(directory, 2)
    os.truncate(path, os.path.getsize(path) - 5)
    places = [(type(damage), damage.place["file"]) for damage in verdict_on(directory).damage]
    assert (CorruptLog, path) in places


def test_missing_file_is_found(directory: str) -> None:
    path = path_of(directory, 2)
    os.unlink(path)
    damage = verdict_on(directory).damage
    assert [one.place["file"] for one in damage if one.message == "the file is missing"] == [path]


def test_empty_and_foreign_files_are_found(directory: str) -> None:
    empty, foreign = path_of(directory, 2), path_of(directory, 3)
    Path(empty).write_bytes(b"")
    Path(foreign).write_bytes(b"PK\x03\x04 something else entirely")
    named = {str(one.place.get("file")): type(one) for one in verdict_on(directory).damage}
    assert named[empty] is CorruptLog
    assert named[foreign] in (CorruptLog, UnsupportedFormat)


def test_file_of_another_log_is_found(directory: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    fill(other, COUNT)
    shutil.copy(path_of(other, 2), path_of(directory, 2))
    assert any("another log" in one.message for one in verdict_on(directory).damage)


@pytest.mark.parametrize("offset", [3, 100])
def test_damaged_index_is_found(directory: str, offset: int) -> None:
    path = path_of(directory, 1, INDEX)
    flip(path, offset)
    (damage,) = verdict_on(directory).damage
    assert damage.place["file"] == path


def test_missing_index_is_found(directory: str) -> None:
    path = path_of(directory, 1, INDEX)
    os.unlink(path)
    (damage, *_) = verdict_on(directory).damage
    assert damage.place["file"] == path


def test_checkpoints_are_checked_against_the_log(directory: str, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    fill(other, 1)
    for path in (directory, other):
        with Subscription.open(path, "billing") as subscription:
            subscription.commit(list(subscription.batches())[-1].last)
    Path(f"{directory}/empty.checkpoint").write_bytes(b"")
    shutil.copy(f"{other}/billing.checkpoint", f"{directory}/strange.checkpoint")
    found = {os.path.basename(str(one.place["file"])): type(one) for one in verdict_on(directory).damage}
    assert found == {"empty.checkpoint": CorruptCheckpoint, "strange.checkpoint": CorruptCheckpoint}


def test_checkpoint_ahead_of_the_log_is_found(tmp_path: Path) -> None:
    path, copy = str(tmp_path / "log"), str(tmp_path / "copy")
    fill(path, 3)
    shutil.copytree(path, copy)
    fill(path, 3, first=3)
    with Subscription.open(path, "billing") as subscription:
        subscription.commit(list(subscription.batches())[-1].last)
    shutil.copy(f"{path}/billing.checkpoint", copy)
    (damage,) = verdict_on(copy).damage
    assert isinstance(damage, PositionAhead)
