"""The driver's lock: one driver per checkpoint, and a token that keeps out one who lost it.

The lock is the operating system's (`flock`), so it goes with the process, and a driver that is only stopped for a while
keeps it. There are ways to lose it all the same: the file is deleted by hand, or the directory is on storage whose
locks do not reach other machines, or are given up when a machine does not answer. So each driver writes a token of its
own into the file, and looks for it before everything that it makes final: whoever finds another one has been replaced
and must not commit. What is final is written only where there is nothing yet (`written_once`), so that a driver which
is replaced between its look and its write cannot take the place of what the new one has written.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from penstock.errors import PipelineFenced, PipelineLocked
from penstock.log.refusal import refused
from penstock.system import json_text
from penstock.system.checksum import crc32
from penstock.system.files import OsFile, OsFiles

log = structlog.get_logger()

NAME = "driver.lock"
_SIZE = 512
_HELD = "another driver runs this pipeline: "
# What file systems say that have no locks; the token alone must do there.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


class DriverLock:
    """The held lock of one checkpoint directory."""

    def __init__(self, file: OsFile, path: str, token: str) -> None:
        self._file = file
        self._path = path
        # Different for each driver, so it can stand in names of files that no other may touch.
        self.token = token

    @classmethod
    def take(cls, directory: Path, now_us: int) -> DriverLock:
        """Lock the checkpoint, or raise PipelineLocked naming the holder."""
        path = f"{directory}/{NAME}"
        try:
            file = OsFiles().open(path, write=True, create=True)
        except OSError as error:
            raise refused(error, "opening the driver's lock", path) from error
        try:
            if not _locked(file, path):
                raise PipelineLocked(_HELD + _who(_parse(file.pread(_SIZE, 0))), file=path)
            lock = cls(file, path, uuid.uuid4().hex)
            lock._note(now_us)
            OsFiles().sync_directory(str(directory))
        except OSError as error:
            file.close()
            raise refused(error, "locking the checkpoint", path) from error
        except PipelineLocked:
            file.close()
            raise
        return lock

    @staticmethod
    def check_free(directory: Path) -> None:
        """Raise PipelineLocked when a driver has the checkpoint; nothing is taken or written."""
        path = f"{directory}/{NAME}"
        try:
            file = OsFiles().open(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise refused(error, "opening the driver's lock", path) from error
        try:
            if not _locked(file, path):
                raise PipelineLocked(_HELD + _who(_parse(file.pread(_SIZE, 0))), file=path)
        finally:
            file.close()

    def check(self) -> None:
        """Raise PipelineFenced when another driver has taken over."""
        try:
            # By its name: whoever deleted the file has made way for another one.
            file = OsFiles().open(self._path)
        except FileNotFoundError:
            raise PipelineFenced("the driver's lock was deleted while it ran", file=self._path) from None
        except OSError as error:
            raise refused(error, "looking at the driver's lock", self._path) from error
        try:
            found = _parse(file.pread(_SIZE, 0))
        except OSError as error:
            raise refused(error, "looking at the driver's lock", self._path) from error
        finally:
            file.close()
        if found.get("token") != self.token:
            raise PipelineFenced(f"another driver has taken this pipeline over: {_who(found)}", file=self._path)

    def release(self) -> None:
        """Let another driver begin. What stands in the file stays, for whoever asks who was the last."""
        self._file.close()

    def _note(self, now_us: int) -> None:
        content = {"token": self.token, "pid": os.getpid(), "host": socket.gethostname()[:64], "since_us": now_us}
        text = json.dumps(content)
        line = f"{crc32(text.encode()):08x} {text}\n".encode()
        self._file.pwrite(line.ljust(_SIZE, b" "), 0)
        self._file.sync()


def _locked(file: OsFile, path: str) -> bool:
    try:
        return file.lock()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        log.warning("file system without locks: start one driver only", file=path)
        return True


def _parse(data: bytes) -> dict[str, Any]:
    """What a sound file says, or nothing."""
    crc, _, text = data.decode("ascii", "replace").strip().partition(" ")
    if f"{crc32(text.encode()):08x}" != crc:
        return {}
    content: Any = json_text.parse(text)
    return content if isinstance(content, dict) else {}


def _who(holder: dict[str, Any]) -> str:
    if not holder:
        return "one that has not said who it is"
    since = datetime.fromtimestamp(int(holder["since_us"]) / 1_000_000, UTC)
    return f"process {holder['pid']} on {holder['host']}, since {since:%Y-%m-%d %H:%M:%S} UTC"
