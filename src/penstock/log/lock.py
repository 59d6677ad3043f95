"""The writer's lock: one writer per directory, and an epoch that fences one who lost it.

The lock is the operating system's (`flock`), so it goes with the process. The file also says who has it, for the error
message, and whether the last writer closed the log in good order: only then may its last file be continued without a
look at its tail.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass

from penstock.errors import LogLocked
from penstock.log.refusal import refused
from penstock.system import json_text
from penstock.system.checksum import crc32
from penstock.system.files import File, Files

NAME = "writer.lock"
_SIZE = 512


@dataclass(frozen=True, slots=True)
class Closing:
    """How the last writer left: its epoch, and, when it closed in good order, the file and its length."""

    epoch: int
    file: int = 0
    end: int = 0


class WriterLock:
    """The held lock of one log directory."""

    def __init__(self, file: File, path: str, last: Closing) -> None:
        self._file = file
        self._path = path
        self.last = last

    @classmethod
    def take(cls, files: Files, directory: str) -> WriterLock:
        """Lock the directory, or raise LogLocked naming the holder."""
        path = f"{directory}/{NAME}"
        try:
            file = files.open(path, write=True, create=True)
        except OSError as error:
            raise refused(error, "opening the writer's lock", path) from error
        try:
            content = _parse(file.pread(_SIZE, 0))
            if not file.lock():
                holder = f"process {content.get('pid', '?')} on {content.get('host', '?')}"
                raise LogLocked(f"another writer has this log: {holder}", directory=directory)
            # Read again: the holder may have closed between the two.
            content = _parse(file.pread(_SIZE, 0))
        except OSError as error:
            file.close()
            raise refused(error, "locking", path) from error
        except LogLocked:
            file.close()
            raise
        return cls(file, path, Closing(content.get("epoch", 0), content.get("file", 0), content.get("end", 0)))

    def note(self, closing: Closing) -> None:
        """Write down durably who holds the lock, or (with a file) that the log was closed in good order."""
        place = {"epoch": closing.epoch, "file": closing.file, "end": closing.end}
        text = json.dumps({**place, "pid": os.getpid(), "host": socket.gethostname()[:64]})
        line = f"{crc32(text.encode()):08x} {text}\n".encode()
        self._file.pwrite(line.ljust(_SIZE, b" "), 0)
        self._file.sync()

    def release(self) -> None:
        self._file.close()


def try_lock(files: Files, path: str, doing: str) -> File | None:
    """The lock file at `path`, locked until it is closed; None when another process has it."""
    try:
        file = files.open(path, write=True, create=True)
        if file.lock():
            return file
        file.close()
    except OSError as error:
        raise refused(error, doing, path) from error
    return None


def _parse(data: bytes) -> dict[str, int]:
    """What a sound lock file says, or nothing: a torn one only means that the log was not closed in good order."""
    crc, _, text = data.decode("ascii", "replace").strip().partition(" ")
    if f"{crc32(text.encode()):08x}" != crc:
        return {}
    try:
        content = json_text.parse(text)
    except ValueError:
        return {}
    sound = isinstance(content, dict) and all(type(content.get(name, 0)) is int for name in ("epoch", "file", "end"))
    return content if sound else {}
