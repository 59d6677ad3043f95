"""What becomes of a segment that is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.capture.cassandra.agent import transfer
from penstock.capture.cassandra.agent.transfer import ProcessedSegment
from penstock.errors import InvalidSetting, StorageError
from penstock.settings import AgentSettings
from tests.scripted_agent import Setup


def segment(directory: Path, *, index: bool = True, changes: int = 1, error: str | None = None) -> ProcessedSegment:
    name = "CommitLog-7-1.log"
    (directory / name).write_bytes(b"segment")
    path = directory / "CommitLog-7-1_cdc.idx"
    if index:
        path.write_text("9\nCOMPLETED")
    return ProcessedSegment(name, str(directory / name), str(path) if index else None, 9, changes, error)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


BOTH = ["CommitLog-7-1.log", "CommitLog-7-1_cdc.idx"]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    directory = tmp_path / "cdc_raw"
    directory.mkdir()
    return directory


def chosen(**settings: Any) -> transfer.SegmentTransfer:
    return transfer.choose(AgentSettings.model_validate(settings))


def test_delete_removes_segment_and_index_and_keeps_what_failed(raw: Path, tmp_path: Path) -> None:
    chosen().done(segment(raw))
    assert names(raw) == []
    chosen().done(ProcessedSegment("x", str(raw / "x"), None, 0, 0))
    chosen().failed(segment(raw, error="damage"))
    assert names(raw) == BOTH
    chosen(error_directory=tmp_path / "errors").failed(segment(raw, error="damage"))
    assert names(raw) == []
    assert names(tmp_path / "errors") == BOTH


def test_archive_moves_segment_and_index_and_drops_those_without_changes(raw: Path, tmp_path: Path) -> None:
    mover = chosen(transfer="archive", archive_directory=tmp_path / "a" / "b")
    mover.done(segment(raw))
    assert names(raw) == []
    assert names(tmp_path / "a" / "b") == BOTH
    mover.done(segment(raw, index=False, changes=0))
    assert names(raw) == []
    assert (tmp_path / "a" / "b" / BOTH[0]).read_bytes() == b"segment"


def test_keep_keeps(raw: Path) -> None:
    chosen(transfer="keep").done(segment(raw))
    chosen(transfer="keep").failed(segment(raw))
    assert names(raw) == BOTH


def test_move_to_another_file_system_copies(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno
    import os

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "rename", refuse)
    (tmp_path / "there").mkdir()
    one = segment(raw)
    transfer.move(one.path, str(tmp_path / "there"))
    assert names(tmp_path / "there") == [one.name]
    assert names(raw) == [BOTH[1]]


def test_directory_that_went_is_an_error(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such directory"):
        transfer.move(segment(raw).path, str(tmp_path / "gone"))


class Recorded:
    """An operator's own transfer."""

    calls: list[tuple[str, str]] = []  # noqa: RUF012
    refusals = 0

    def __init__(self, bucket: str = "") -> None:
        self.bucket = bucket

    def done(self, segment: ProcessedSegment) -> None:
        if Recorded.refusals:
            Recorded.refusals -= 1
            raise RuntimeError("the store is down")
        Recorded.calls.append((self.bucket, segment.name))
        for path in segment.paths:
            Path(path).unlink()

    def failed(self, segment: ProcessedSegment) -> None:
        Recorded.calls.append(("failed", segment.name))


def test_own_class_is_made_with_its_options(raw: Path) -> None:
    Recorded.calls = []
    mover = chosen(transfer=f"{__name__}:Recorded", transfer_options={"bucket": "b1"})
    mover.done(segment(raw))
    assert Recorded.calls == [("b1", BOTH[0])]


def test_own_class_that_refuses_is_asked_again(tmp_path: Path) -> None:
    Recorded.calls, Recorded.refusals = [], 2
    setup = Setup(tmp_path, settings={"agent": {"transfer": f"{__name__}:Recorded"}})
    setup.node.create()
    setup.node.write(1)
    first = Path(setup.node.log.segment).name
    setup.run(setup.node.log.roll, lambda: setup.node.write(2), setup.node.log.sync, lambda: None)
    assert Recorded.calls == [("", first)]
    assert setup.numbers() == [1, 2]
    assert first not in setup.node.segments()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("burn", "known are delete, archive, keep, or an own class"),
        ("no_such_module:Class", "cannot be made"),
        ("json:JSONDecoder", "has no methods done and failed"),
        ("archive", "needs agent.archive_directory"),
    ],
)
def test_wrong_transfer_is_refused(name: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        chosen(transfer=name)
