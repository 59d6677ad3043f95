"""What programs did to a directory, recorded by strace, and what a disk may hold of it after a power loss.

The programs run as they are: no file system of ours stands in their way, and what Java or a library writes is recorded
like all else. The recorded calls are then played on `CrashFiles`, which knows what is durable when; a crash at any of
them gives directories such as a machine may come up with.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash

_CALLS = (
    "openat,creat,write,pwrite64,writev,pwritev,pwritev2,ftruncate,fsync,fdatasync,rename,renameat,renameat2,link,"
    "linkat,unlink,unlinkat,mkdir,mkdirat,lseek,copy_file_range,sendfile"
)
_CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)(.*)", re.DOTALL)
_UNFINISHED = re.compile(r"(\d+) +(.*?) <unfinished \.\.\.>", re.DOTALL)
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)", re.DOTALL)
_OF_FILE = re.compile(r"(\d+)<([^>]*)>")
# A path, and for some calls the open directory before it.
_AT = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:\\x[0-9a-f]{2})*)"')
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


@dataclass(frozen=True, slots=True)
class Operation:
    """One call that changes the directory, or makes a change durable. Paths are below the directory."""

    kind: str
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""


def record(directory: Path, command: Sequence[str], trace: Path) -> list[Operation]:
    """Run a program and all that it starts; what they did to the directory."""
    strace = ["strace", "-f", "-qq", "-y", "-xx", "-s", str(64 << 20), "--seccomp-bpf", "-e", f"trace={_CALLS}"]
    # Spark's Python processes do not look into the working directory for what the tests bring.
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    subprocess.run([*strace, "-e", "signal=none", "-o", str(trace), "--", *command], check=True, env=variables)
    return list(_Reader(str(directory)).read(trace))


class _Reader:
    """Goes through a trace, and keeps what calls without an offset need: where each open file is."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._places: dict[tuple[str, str], int] = {}

    def read(self, trace: Path) -> Iterator[Operation]:
        waiting: dict[str, str] = {}
        with trace.open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                text = line.rstrip("\n")
                if match := _UNFINISHED.fullmatch(text):
                    waiting[match[1]] = match[2]
                    continue
                if match := _RESUMED.fullmatch(text):
                    text = f"{match[1]} {waiting.pop(match[1], '')}{match[2]}"
                match = _CALL.fullmatch(text)
                if match is not None and int(match[4]) >= 0:
                    yield from self._call(match[2], match[3], int(match[4]), match[5])

    def _call(self, name: str, given: str, result: int, rest: str) -> Iterator[Operation]:
        if name in ("openat", "creat"):
            yield from self._open(given, result, rest)
        elif name == "lseek":
            if opened := self._opened(given):
                self._places[opened] = result
        elif name in ("write", "writev", "pwrite64", "pwritev", "pwritev2"):
            yield from self._write(name, given, result)
        elif name in ("copy_file_range", "sendfile"):
            target = _OF_FILE.findall(given)[0 if name == "sendfile" else -1]
            assert self._below(_plain(target[1])) is None, f"{name} into the directory is not understood"
        elif name == "ftruncate":
            if opened := self._opened(given):
                yield Operation("truncate", opened[1], offset=int(given.rsplit(", ", 1)[1]))
        elif name in ("fsync", "fdatasync"):
            if opened := self._opened(given):
                yield Operation("sync", opened[1])
        else:
            yield from self._named(name, given)

    def _open(self, given: str, result: int, rest: str) -> Iterator[Operation]:
        match = _OF_FILE.match(f"{result}{rest}")
        path = None if match is None else self._below(_plain(match[2]))
        if path is None:
            return
        self._places[str(result), path] = 0
        if "O_CREAT" in given:
            yield Operation("create", path)
        if "O_TRUNC" in given:
            yield Operation("truncate", path)

    def _write(self, name: str, given: str, result: int) -> Iterator[Operation]:
        opened = self._opened(given)
        if opened is None:
            return
        texts = _TEXT.findall(given)
        assert not any(cut for _, cut in texts), "a write was recorded only in part"
        data = b"".join(_bytes(text) for text, _ in texts)[:result]
        if name in ("write", "writev"):
            offset = self._places.get(opened, 0)
            self._places[opened] = offset + result
        else:
            offset = int(given.rsplit(", ", 2 if name == "pwritev2" else 1)[1])
        yield Operation("write", opened[1], offset=offset, data=data)

    def _named(self, name: str, given: str) -> Iterator[Operation]:
        paths = [_whole(place, text) for place, text in _AT.findall(given)]
        below = [self._below(path) for path in paths]
        if not any(below):
            return
        assert all(path.startswith("/") for path in paths), f"{name} by a relative path"
        if name.startswith("mkdir"):
            yield Operation("mkdir", below[0] or "")
        elif name.startswith("unlink"):
            # Directories that are empty may as well stay.
            if "AT_REMOVEDIR" not in given:
                yield Operation("unlink", below[0] or "")
        else:
            # Whoever links a file to its name removes the other name next: that it may have both is left out.
            yield Operation("rename", below[0] or "", other=below[1] or "")

    def _opened(self, given: str) -> tuple[str, str] | None:
        """The file that a call is about, by its number and name; None when it is another one than ours."""
        match = _OF_FILE.match(given)
        path = None if match is None else self._below(_plain(match[2]))
        return None if match is None or path is None else (match[1], path)

    def _below(self, path: str) -> str | None:
        if path == self._root:
            return "."
        inside = path.startswith(f"{self._root}/") and not path.endswith(" (deleted)")
        return path[len(self._root) + 1 :] if inside else None


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _plain_bytes(text: str) -> str:
    return os.fsdecode(_bytes(text))


def _whole(place: str, text: str) -> str:
    """A path as it was given, in the directory that it may be relative to."""
    return os.path.join(_plain(place), _plain_bytes(text))


def _plain(text: str) -> str:
    """A name beside the number of a file, which some versions of strace spell like other texts."""
    return _plain_bytes(text) if text.startswith("\\x") else text


class RecordedDisk:
    """The directory as it was, and what was done to it since."""

    def __init__(self, before: Path, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self._before = before

    def crashes(self, wanted: Mapping[int, Collection[Crash]]) -> Iterator[tuple[int, Crash, CrashFiles]]:
        """The disk after a power loss before each of these operations, in each of these ways."""
        files = load(self._before)
        for number, operation in enumerate(self.operations):
            for crash in wanted.get(number, ()):
                yield number, crash, files.clone_after_crash(crash)
            play(files, operation)


def load(directory: Path) -> CrashFiles:
    """A disk that holds a directory, all of it durable."""
    files = CrashFiles()
    files.sync_directory("")
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_dir():
            files.make_directory(name)
            continue
        files.make_directory(os.path.dirname(name))
        file = files.open(name, write=True, create=True)
        file.pwrite(path.read_bytes(), 0)
        file.sync()
        file.close()
    for name in list(files.disk.directories):
        files.sync_directory(name)
    return files


def play(files: CrashFiles, operation: Operation) -> None:
    path = operation.path
    if operation.kind == "mkdir":
        files.make_directory(path)
    elif operation.kind == "unlink":
        # Of a file that a link gave its last name, the first one is gone already.
        if files.exists(path):
            files.unlink(path)
    elif operation.kind == "rename":
        files.rename(path, operation.other)
    elif operation.kind == "sync" and path.strip("./") in files.disk.directories:
        files.sync_directory(path.strip("./"))
    elif operation.kind == "sync" and path == ".":
        files.sync_directory("")
    else:
        _play_on_file(files, operation)


def _play_on_file(files: CrashFiles, operation: Operation) -> None:
    if operation.kind == "create":
        # Of two processes, one may be told of a directory before the other is told that it has made it.
        files.make_directory(os.path.dirname(operation.path))
    file = files.open(operation.path, write=True, create=operation.kind == "create")
    try:
        if operation.kind == "sync":
            file.sync()
        elif operation.kind == "truncate":
            file.truncate(operation.offset)
        elif operation.kind == "write":
            file.pwrite(operation.data, operation.offset)
    finally:
        file.close()


def restore(files: CrashFiles, directory: Path) -> None:
    """Write a disk into a new directory."""
    directory.mkdir(parents=True)
    for name in files.disk.directories:
        (directory / name.strip("/")).mkdir(parents=True, exist_ok=True)
    for name, content in files.contents().items():
        (directory / name).write_bytes(content)
