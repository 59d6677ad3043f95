"""Checkpoint files: what is written, what is refused, and that a refused file stays as it is."""

from __future__ import annotations

import errno
import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.errors import (
    CorruptCheckpoint,
    DiskFull,
    PenstockError,
    PositionAhead,
    PositionBehind,
    StorageError,
    UnsupportedFormat,
)
from penstock.log import checkpoint, sealed
from penstock.log.checkpoint import Checkpoint, CheckpointFile
from penstock.log.reader import LogReader
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.system.files import OsFiles
from testkit.crash_files import CrashFiles, Fault

LOG = "0123456789abcdef0123456789abcdef"
TABLE = TableId("shop", "orders")
END = Position(9, 9, 9)
MARK = Checkpoint(LOG, TABLE, "billing", Position(1, 4096, 3), 1_700_000_000_000_000)


def saved(directory: Path, mark: Checkpoint = MARK) -> Path:
    file = CheckpointFile(OsFiles(), str(directory), mark.subscription)
    file.save(mark)
    return Path(file.path)


def load(directory: Path, subscription: str = "billing") -> Checkpoint | None:
    reader = SimpleNamespace(log_id=LOG, table=TABLE, end=lambda: END, files=list)
    return CheckpointFile(OsFiles(), str(directory), subscription).load(cast(LogReader, reader))


def test_file_is_the_documented_text(tmp_path: Path) -> None:
    text = saved(tmp_path).read_bytes()
    body = (
        b'{"format":1,"log":"0123456789abcdef0123456789abcdef","keyspace":"shop","table":"orders",'
        b'"subscription":"billing","position":"000001:4096:3","time":1700000000000000'
    )
    assert text == body + b',"crc32":"%08x"}\n' % zlib.crc32(body)
    assert load(tmp_path) == MARK


def test_new_subscription_has_no_checkpoint(tmp_path: Path) -> None:
    assert load(tmp_path) is None


def test_file_is_only_its_owners(tmp_path: Path) -> None:
    assert saved(tmp_path).stat().st_mode & 0o777 == 0o600


def test_name_of_a_client_cannot_leave_the_directory(tmp_path: Path) -> None:
    inside = tmp_path / "log"
    inside.mkdir()
    for name in ("../escaped", "/etc/passwd", "..", ".", "a/b", "x\0y", "é" * 400):
        path = saved(inside, Checkpoint(LOG, TABLE, name, Position(1, 1, 0), 0))
        assert path.parent == inside
        assert load(inside, name) is not None
    assert list(tmp_path.iterdir()) == [inside]


def test_commit_that_goes_back_is_refused(tmp_path: Path) -> None:
    file = CheckpointFile(OsFiles(), str(tmp_path), "billing")
    file.save(MARK)
    before = Path(file.path).read_bytes()
    with pytest.raises(PositionBehind, match=r"billing.*000001:4096:2.*000001:4096:3"):
        file.save(Checkpoint(LOG, TABLE, "billing", Position(1, 4096, 2), 0))
    assert Path(file.path).read_bytes() == before


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 200, "truncated"),
        (b"garbage", "truncated"),
        (sealed.seal({"format": 1}), "member log"),
        (sealed.seal({"format": "1"}), "member format"),
        (sealed.seal({**MARK.to_json(), "position": "1-2"}), "not a position"),
        (sealed.seal({**MARK.to_json(), "position": None}), "member position"),
        (sealed.seal({**MARK.to_json(), "time": True}), "member time"),
        (sealed.seal({**MARK.to_json(), "note": "x" * (65 << 10)}), "larger"),
        (b"[" * 60_000 + sealed.seal(MARK.to_json()), "checksum does not match"),
    ],
)
def test_foreign_content_is_refused_and_left(tmp_path: Path, content: bytes, reason: str) -> None:
    path = saved(tmp_path)
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match=reason) as caught:
        load(tmp_path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptCheckpoint):
            load(tmp_path)


def test_every_flipped_bit_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            with pytest.raises(CorruptCheckpoint):
                load(tmp_path)


def test_edited_position_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"4096:3", b"4096:4"))
    with pytest.raises(CorruptCheckpoint, match="edited"):
        load(tmp_path)


def test_newer_format_is_told_from_damage(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = sealed.seal({"format": 2, "positions": ["new"]})
    path.write_bytes(content)
    with pytest.raises(UnsupportedFormat, match=r"format 2.*billing\.checkpoint"):
        load(tmp_path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("mark", "error", "reason"),
    [
        (Checkpoint(LOG, TableId("shop", "users"), "billing", Position(1, 1, 0), 0), CorruptCheckpoint, "shop.users"),
        (Checkpoint("f" * 32, TABLE, "billing", Position(1, 1, 0), 0), CorruptCheckpoint, "another log"),
        (Checkpoint(LOG, TABLE, "other", Position(1, 1, 0), 0), CorruptCheckpoint, "'other'"),
        (Checkpoint(LOG, TABLE, "billing", Position(9, 9, 10), 0), PositionAhead, "000009:9:10"),
    ],
)
def test_checkpoint_that_belongs_elsewhere_is_refused(
    tmp_path: Path, mark: Checkpoint, error: type[PenstockError], reason: str
) -> None:
    path = tmp_path / "billing.checkpoint"
    content = sealed.seal(mark.to_json())
    path.write_bytes(content)
    with pytest.raises(error, match=reason) as caught:
        load(tmp_path)
    assert caught.value.place["file"] == str(path)
    assert path.read_bytes() == content


def test_unreadable_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no such file or directory while writing the checkpoint"):
        saved(tmp_path / "missing")


def test_leftover_of_a_crash_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "billing.checkpoint.tmp").write_bytes(b"x" * 5000)
    saved(tmp_path)
    assert load(tmp_path) == MARK
    assert not (tmp_path / "billing.checkpoint.tmp").exists()


def test_listing_tells_the_good_from_the_bad(tmp_path: Path) -> None:
    good = saved(tmp_path)
    stranger = tmp_path / "renamed.checkpoint"
    stranger.write_bytes(good.read_bytes())
    empty = tmp_path / "empty.checkpoint"
    empty.touch()
    (tmp_path / "half.checkpoint.tmp").touch()
    found = checkpoint.load_all(OsFiles(), str(tmp_path))
    assert set(found) == {str(good), str(stranger), str(empty)}
    assert found[str(good)] == MARK
    assert isinstance(found[str(stranger)], CorruptCheckpoint)
    assert isinstance(found[str(empty)], CorruptCheckpoint)


@pytest.mark.parametrize(("code", "error"), [(errno.EIO, StorageError), (errno.ENOSPC, DiskFull)])
def test_refused_call_leaves_the_old_or_the_new_checkpoint(code: int, error: type[PenstockError]) -> None:
    newer = Checkpoint(LOG, TABLE, "billing", Position(2, 1, 0), 1)
    refusals = 0
    for call in range(100):
        files = CrashFiles()
        files.make_directory("/log")
        file = CheckpointFile(files, "/log", "billing")
        file.save(MARK)
        files.disk.fault = Fault(files.disk.calls + 1 + call, code)
        try:
            file.save(newer)
        except error:
            refusals += 1
        else:
            break
        files.disk.fault = None
        assert checkpoint.load(files, file.path) in (MARK, newer)
        file.save(newer)
        assert checkpoint.load(files, file.path) == newer
    assert refusals >= 5


def test_documented_example_is_what_we_write(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "formats" / "checkpoint.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith('{"format":1'))
    (tmp_path / "example.checkpoint").write_text(line + "\n", encoding="utf-8")
    found = checkpoint.load(OsFiles(), str(tmp_path / "example.checkpoint"))
    assert found is not None
    assert found.to_json() == {key: value for key, value in json.loads(line).items() if key != "crc32"}
