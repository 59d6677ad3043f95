"""CrashFiles: a file system in memory that can lose power, refuse calls and run full, for testing what must be durable.

It stands in for `system.files.OsFiles`. Content is volatile until its file is synced, and a name (created, renamed,
unlinked) until its directory is. `clone_after_crash` gives the disk as it may look after power loss now: what was
not durable is kept, dropped, torn, flipped or reordered, names, lengths and content each on their own, and what was
durable is always intact. `kill` is the death of the process only: the page cache survives, locks are released.

Every call that changes the disk is a numbered step, and `watch` is called before each: a harness that clones there
has crashed at every boundary. Every call, reading ones included, has a number too, at which a `Fault` can strike. A
failed sync leaves its pages clean, as Linux does: later syncs succeed without writing them, and reads show them until
the crash. All is deterministic: the same calls and the same `Crash` give the same disk.
"""

from __future__ import annotations

import errno
import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import TypeAlias

from testkit.power_loss import FATES, NAMES_KEPT, NAMES_LOST, Crash, Edit, Mode, apply, replay


class Killed(BaseException):
    """The process was killed. Not an `Exception`, because nothing in the program may handle its own death."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A refusal at one numbered call, or at that one and all later ones of the same name."""

    call: int
    code: int = errno.EIO
    # How much of a write is done before the error.
    written_bytes: int = 0
    # The call takes effect and reports an error all the same.
    done: bool = False
    lasting: bool = False

    def __str__(self) -> str:
        name = errno.errorcode[self.code]
        return f"{name}@{self.call}/{self.written_bytes}{'/done' * self.done}{'/lasting' * self.lasting}"


class _Inode:
    """A file's content: as read now, as durable, and what lies between."""

    __slots__ = ("base", "data", "edits", "frozen", "holder", "opened")

    def __init__(self, data: bytes = b"") -> None:
        # Both are shared with clones while they are `bytes`, and become a `bytearray` of their own when changed.
        self.data: bytes | bytearray = data
        self.base: bytes | bytearray = data
        self.edits: list[Edit] = []
        # From the first failed sync on, base stays as it was, and this is what came after: (may be lost, edit).
        self.frozen: list[tuple[bool, Edit]] = []
        self.holder: CrashFile | None = None
        self.opened = 0

    def edit(self, edit: Edit) -> None:
        if isinstance(self.data, bytes):
            self.data = bytearray(self.data)
        apply(self.data, edit)
        self.edits.append(edit)

    def sync(self) -> None:
        if self.frozen:
            self.frozen.extend((False, edit) for edit in self.edits)
        elif self.edits:
            if isinstance(self.base, bytes):
                self.base = bytearray(self.base)
            for edit in self.edits:
                apply(self.base, edit)
        self.edits = []

    def fail_sync(self) -> None:
        """The pages become clean without being written."""
        self.frozen.extend((True, edit) for edit in self.edits)
        self.edits = []

    def volatile(self) -> bool:
        return bool(self.edits or self.frozen)

    def after_crash(self, mode: Mode, rng: Random, cut: int) -> bytes:
        if not self.edits and not self.frozen:
            return self.base if type(self.base) is bytes else bytes(self.base)
        if not self.frozen and (mode is Mode.DROP or mode is Mode.NAMES):
            return bytes(self.base)
        if mode is Mode.KEEP or mode is Mode.CONTENT:
            return bytes(self.data)
        return replay(self.base, chain(self.frozen, ((True, edit) for edit in self.edits)), mode, rng, cut)


class _Directory:
    """A directory's names: as seen now, as durable, and the changes between."""

    __slots__ = ("durable", "edits", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        # (step, node, the name it has from now on, or None when it was unlinked)
        self.edits: list[tuple[int, _Node, str | None]] = []

    def sync(self) -> None:
        for _, node, name in self.edits:
            _place(self.durable, node, name)
        self.edits.clear()

    def after_crash(self, mode: Mode, rng: Random, cut: int) -> dict[str, _Node]:
        if not self.edits or mode in NAMES_LOST:
            return self.durable
        if mode in NAMES_KEPT:
            return self.names
        names = dict(self.durable)
        for step, node, name in self.edits:
            if step < cut if mode is Mode.PREFIX else rng.random() < 0.5:
                _place(names, node, name)
        return names


_Node: TypeAlias = _Inode | _Directory


def _place(names: dict[str, _Node], node: _Node, name: str | None) -> None:
    """Give the node this one name, or none; a name that another node had goes over in the same moment."""
    for old in [old for old, other in names.items() if other is node]:
        del names[old]
    if name is not None:
        names[name] = node


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class _Disk:
    """What all processes of one machine share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.root = _Directory()
        self.directories: dict[str, _Directory] = {"": self.root}
        self.used = 0
        self.capacity: int | None = None
        self.steps = 0
        self.calls = 0
        self.doing = ("", "")
        self.fault: Fault | None = None
        self.struck = ""
        self.watch: Callable[[CrashFiles], None] | None = None
        self.trace: list[tuple[str, str]] | None = None

    def directory(self, path: str) -> _Directory:
        found = self.directories.get(path)
        if found is None:
            clean = posixpath.normpath("/" + path).strip("/")
            found = self.directories.get(clean)
            if found is None:
                raise _error(errno.ENOENT, path)
            self.directories[path] = found
        return found

    def locate(self, path: str) -> tuple[_Directory, str]:
        head, _, name = path.rpartition("/")
        return self.directory(head), name

    def file(self, path: str) -> _Inode:
        directory, name = self.locate(path)
        node = directory.names.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, _Directory):
            raise _error(errno.EISDIR, path)
        return node

    def free(self, node: _Node | None) -> None:
        """Give the space of a file back once it has neither name nor handle."""
        if isinstance(node, _Inode) and not node.opened:
            self.used -= len(node.data)


class CrashFile:
    """An open file of one process."""

    __slots__ = ("_files", "_inode", "_path", "_write")

    def __init__(self, files: CrashFiles, inode: _Inode, path: str, write: bool) -> None:
        self._files = files
        self._inode: _Inode | None = inode
        self._path = path
        self._write = write
        inode.opened += 1

    def pread(self, size: int, offset: int) -> bytes:
        with self._files.disk.lock:
            self._files.enter("pread", self._path)
            return bytes(self._node().data[offset : offset + size])

    def fetch(self, into: memoryview, offset: int, *, keep: bool) -> int:  # noqa: ARG002
        data = self.pread(len(into), offset)
        into[: len(data)] = data
        return len(data)

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:
        disk = self._files.disk
        payload = bytes(data)
        with disk.lock:
            fault = self._files.enter("pwrite", self._path, step=True)
            node = self._node(write=True)
            code = 0
            if fault is not None:
                code = fault.code
                payload = payload if fault.done else payload[: fault.written_bytes]
            if disk.capacity is not None:
                room = len(node.data) + max(0, disk.capacity - disk.used)
                if offset + len(payload) > room:
                    payload, code = payload[: max(0, room - offset)], errno.ENOSPC
            if payload:
                before = len(node.data)
                node.edit((disk.steps, offset, payload))
                disk.used += len(node.data) - before
            if code:
                raise _error(code, self._path)

    def pwritev(self, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:
        data = b"".join(parts)
        assert len(data) == size, "the parts have the size that was said"
        self.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        disk = self._files.disk
        with disk.lock:
            fault = self._files.enter("truncate", self._path, step=True)
            node = self._node(write=True)
            if fault is None or fault.done:
                before = len(node.data)
                node.edit((disk.steps, size, None))
                disk.used += len(node.data) - before
            if fault is not None:
                raise _error(fault.code, self._path)

    def sync(self) -> None:
        with self._files.disk.lock:
            fault = self._files.enter("sync", self._path, step=True)
            node = self._node()
            if fault is not None:
                node.fail_sync()
                raise _error(fault.code, self._path)
            node.sync()

    def reserve(self, offset: int, size: int) -> bool:  # noqa: ARG002
        """Say that space was set aside, so that callers give it back; `capacity` alone says when the disk is full."""
        with self._files.disk.lock:
            try:
                self._files.enter("reserve", self._path)
            except OSError:
                return False
            self._node(write=True)
            return True

    def size(self) -> int:
        with self._files.disk.lock:
            self._files.enter("size", self._path)
            return len(self._node().data)

    def lock(self) -> bool:
        with self._files.disk.lock:
            self._files.enter("lock", self._path)
            node = self._node()
            if node.holder is None:
                node.holder = self
            return node.holder is self

    def close(self) -> None:
        disk = self._files.disk
        with disk.lock:
            node, self._inode = self._inode, None
            if node is None:
                return
            self._files.handles.discard(self)
            node.opened -= 1
            if node.holder is self:
                node.holder = None
            if not node.opened and not self._files.named(node, self._path):
                disk.free(node)

    def _node(self, *, write: bool = False) -> _Inode:
        node = self._inode
        if node is None or (write and not self._write):
            raise _error(errno.EBADF, self._path)
        return node


class CrashFiles:
    """One process's view of a disk in memory. `process` gives another process on the same disk."""

    def __init__(self, disk: _Disk | None = None) -> None:
        self.disk = _Disk() if disk is None else disk
        self.handles: set[CrashFile] = set()
        self._dead = False

    # The contract of `system.files.Files`.

    def open(self, path: str, *, write: bool = False, create: bool = False) -> CrashFile:
        disk = self.disk
        with disk.lock:
            directory, name = disk.locate(path)
            node = directory.names.get(name)
            new = node is None and create
            fault = self.enter("create" if new else "open", path, step=new)
            if new and (fault is None or fault.done):
                node = _Inode()
                directory.names[name] = node
                directory.edits.append((disk.steps, node, name))
            if fault is not None:
                raise _error(fault.code, path)
            if node is None:
                raise _error(errno.ENOENT, path)
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR, path)
            handle = CrashFile(self, node, path, write)
            self.handles.add(handle)
            return handle

    def rename(self, old: str, new: str) -> None:
        disk = self.disk
        with disk.lock:
            fault = self.enter("rename", new, step=True)
            node = disk.file(old)
            directory, _ = disk.locate(old)
            target, name = disk.locate(new)
            if target is not directory:
                raise _error(errno.EXDEV, new)
            if fault is None or fault.done:
                replaced = directory.names.get(name)
                _place(directory.names, node, name)
                directory.edits.append((disk.steps, node, name))
                if replaced is not node:
                    disk.free(replaced)
            if fault is not None:
                raise _error(fault.code, new)

    def unlink(self, path: str) -> None:
        disk = self.disk
        with disk.lock:
            fault = self.enter("unlink", path, step=True)
            node = disk.file(path)
            directory, _ = disk.locate(path)
            if fault is None or fault.done:
                _place(directory.names, node, None)
                directory.edits.append((disk.steps, node, None))
                disk.free(node)
            if fault is not None:
                raise _error(fault.code, path)

    def make_directory(self, path: str) -> None:
        disk = self.disk
        with disk.lock:
            clean = posixpath.normpath("/" + path).strip("/")
            parts = clean.split("/") if clean else []
            for depth, name in enumerate(parts):
                parent = disk.directories["/".join(parts[:depth])]
                node = parent.names.get(name)
                if isinstance(node, _Inode):
                    raise _error(errno.EEXIST, path)
                if node is None:
                    fault = self.enter("make_directory", path, step=True)
                    if fault is not None and not fault.done:
                        raise _error(fault.code, path)
                    node = _Directory()
                    parent.names[name] = node
                    parent.edits.append((disk.steps, node, name))
                    disk.directories["/".join(parts[: depth + 1])] = node
                    if fault is not None:
                        raise _error(fault.code, path)

    def list(self, path: str) -> list[str]:
        with self.disk.lock:
            self.enter("list", path)
            # Newest first, so that nobody comes to rely on an order that the real call does not promise.
            return list(reversed(self.disk.directory(path).names))

    def exists(self, path: str) -> bool:
        with self.disk.lock:
            self.enter("exists", path)
            try:
                directory, name = self.disk.locate(path)
            except OSError:
                return False
            return name in directory.names or posixpath.normpath("/" + path).strip("/") in self.disk.directories

    def sync_directory(self, path: str) -> None:
        with self.disk.lock:
            fault = self.enter("sync_directory", path, step=True)
            directory = self.disk.directory(path)
            if fault is None or fault.done:
                directory.sync()
            if fault is not None:
                raise _error(fault.code, path)

    # Crashes.

    def clone_after_crash(self, crash: Crash) -> CrashFiles:
        """The disk as it looks after power loss now. This one is left as it is."""
        mode, rng = crash.mode, Random(crash.seed)  # noqa: S311 - seeded, to be repeated
        source = self.disk
        with source.lock:
            cut = rng.choice(sorted(self._volatile_steps()) or [0]) if mode is Mode.PREFIX else 0
            disk = _Disk()
            disk.capacity = source.capacity
            pending = [("", source.root, disk.root)]
            while pending:
                path, old, new = pending.pop()
                for name, node in old.after_crash(mode, rng, cut).items():
                    if isinstance(node, _Directory):
                        place = f"{path}/{name}" if path else name
                        new.names[name] = disk.directories[place] = child = _Directory()
                        pending.append((place, node, child))
                        continue
                    fate, stop = (rng.choice(FATES), _middle(node, rng)) if mode is Mode.MIX else (mode, cut)
                    content = node.after_crash(fate, rng, stop)
                    new.names[name] = _Inode(content)
                    disk.used += len(content)
                new.durable = dict(new.names)
        return CrashFiles(disk)

    def kill(self) -> CrashFiles:
        """Let this process die: its calls raise `Killed`, its locks are free, the page cache stays for the next one."""
        with self.disk.lock:
            self._dead = True
            for handle in list(self.handles):
                handle.close()
            return self.process()

    def process(self) -> CrashFiles:
        """Another process on the same disk."""
        return CrashFiles(self.disk)

    def volatile(self) -> bool:
        """Whether a crash now has more than one possible outcome."""
        with self.disk.lock:
            return next(self._volatile_steps(), None) is not None

    def contents(self) -> dict[str, bytes]:
        """Every file by its path, as read now."""
        with self.disk.lock:
            found = {}
            for path, directory in self.disk.directories.items():
                for name, node in directory.names.items():
                    if isinstance(node, _Inode):
                        found[f"{path}/{name}".strip("/")] = bytes(node.data)
            return found

    # The machinery of calls, steps and faults.

    def enter(self, name: str, path: str, *, step: bool = False) -> Fault | None:
        """Count a call, let the watcher look before a step, and say which fault strikes it."""
        if self._dead:
            raise Killed(f"{name} by a killed process")
        disk = self.disk
        disk.calls += 1
        disk.doing = (name, path)
        if step:
            disk.steps += 1
            if disk.watch is not None:
                disk.watch(self)
                if self._dead:
                    raise Killed(f"killed at {name}")
        if disk.trace is not None:
            disk.trace.append((name, path))
        fault = disk.fault
        if fault is None or disk.calls < fault.call:
            return None
        if disk.calls == fault.call:
            disk.struck = name
        elif not (fault.lasting and name == disk.struck):
            return None
        if step:
            return fault
        raise _error(fault.code, path)

    def named(self, node: _Inode, path: str) -> bool:
        """Whether a file still has a name; usually the one that it was opened by."""
        try:
            directory, name = self.disk.locate(path)
        except OSError:
            return False
        return directory.names.get(name) is node or any(other is node for other in directory.names.values())

    def _volatile_steps(self) -> Iterator[int]:
        for directory in set(self.disk.directories.values()):
            for step, _, _ in directory.edits:
                yield step
            for node in chain(directory.names.values(), directory.durable.values()):
                if isinstance(node, _Inode) and node.volatile():
                    for step, _, _ in chain(node.edits, (edit for lossy, edit in node.frozen if lossy)):
                        yield step


def _middle(node: _Inode, rng: Random) -> int:
    """A step among a file's unsynced ones, where an ordered disk may have stopped."""
    steps = [step for step, _, _ in chain((edit for _, edit in node.frozen), node.edits)]
    return rng.choice(steps) if steps else 0
