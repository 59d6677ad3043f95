"""Files of the operating system: reading into a buffer, with and without keeping what was read in memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.system.files import OsFile, OsFiles


def _open(path: Path, content: bytes) -> OsFile:
    path.write_bytes(content)
    return OsFiles().open(str(path))


@pytest.mark.parametrize("keep", [True, False])
def test_a_buffer_is_filled_up_to_the_end_of_the_file(tmp_path: Path, keep: bool) -> None:
    file = _open(tmp_path / "file", b"0123456789")
    into = bytearray(6)
    assert file.fetch(memoryview(into), 2, keep=keep) == 6
    assert into == b"234567"
    assert file.fetch(memoryview(into), 7, keep=keep) == 3
    assert into[:3] == b"789"
    assert file.fetch(memoryview(into), 10, keep=keep) == 0
    file.close()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_the_system_must_keep_what_is_read_it_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    preadv = os.preadv

    def old(fd: int, buffers: Sequence[memoryview], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(code, os.strerror(code))
        # A few bytes at a time, as the system may.
        return preadv(fd, [buffers[0][:4]], offset)

    monkeypatch.setattr(os, "preadv", old)
    file = _open(tmp_path / "file", b"0123456789")
    into = bytearray(12)
    assert file.fetch(memoryview(into), 0, keep=False) == 10
    assert into[:10] == b"0123456789"
    file.close()


def test_an_error_of_the_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "preadv", broken)
    file = _open(tmp_path / "file", b"0123456789")
    with pytest.raises(OSError, match="no"):
        file.fetch(memoryview(bytearray(4)), 0, keep=False)
    file.close()
