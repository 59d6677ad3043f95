"""Upkeep: retention over all logs of a node, run again and again beside their writer.

Each log is given its own rules (`retention`); the caps over all of them together, by the disk that they are on, become
a cap for each: the oldest files of all logs go first. Whatever keeps one log from being looked after, the others are.
Near a cap it says so, and it counts what the caps took from whom, so that no change goes in silence.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from penstock.errors import LogLocked, PenstockError
from penstock.log import identity, names, retention
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.retention import Report
from penstock.settings import RetentionSettings
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles
from penstock.telemetry import Logger

log = Logger()

# From this part of a cap on it is told that files will go.
_NEAR = 0.8


class Disk(NamedTuple):
    """The size of a disk, and what this user may still write to it."""

    bytes: int
    free_bytes: int


def disk_of(path: str) -> Disk:
    """The disk that a directory is on."""
    found = os.statvfs(path)
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def logs_below(root: str, files: Files | None = None) -> list[str]:
    """The directories of a node's logs."""
    files = files or OsFiles()
    try:
        found = [f"{root}/{name}" for name in sorted(files.list(root))]
        return [directory for directory in found if files.exists(f"{directory}/{identity.NAME}")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refused(error, "listing the logs", root) from error


class _File(NamedTuple):
    """One file that may go when the disk says so."""

    modified_us: int
    directory: str
    number: int
    bytes: int


class Upkeep:
    """Looks after the logs that `find` lists. `run` is for one thread; `lost` may be read from any."""

    def __init__(
        self,
        root: str,
        settings: RetentionSettings,
        *,
        find: Callable[[], Sequence[str]] | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        disk: Callable[[str], Disk] = disk_of,
        modified: Callable[[str], int] = retention.modified_us,
    ) -> None:
        self._root = root
        self._settings = settings
        self._files = files or OsFiles()
        self._find = find or (lambda: logs_below(root, self._files))
        self._clock = clock or SystemClock()
        self._disk = disk
        self._modified = modified
        self._near = False
        self._mutex = threading.Lock()
        # Changes that caps took, by the log's directory and the subscription; the empty name: there was none.
        self._lost: dict[tuple[str, str], int] = {}

    @property
    def lost(self) -> Mapping[tuple[str, str], int]:
        """Changes that the caps took since this began, by the log's directory and the subscription's name.

        Those of a subscription or a log that was dropped go with it.
        """
        with self._mutex:
            return dict(self._lost)

    def run(self, stop: threading.Event) -> None:
        """Look after the logs now and again, until `stop` is set."""
        caps = {name: getattr(self._settings, name) for name in _CAPS if getattr(self._settings, name) is not None}
        log.info("retention begins", directory=self._root, keep_s=self._settings.keep_s, **caps)
        while True:
            try:
                self.run_once()
            except PenstockError as error:
                log.warning("retention failed", directory=self._root, error=str(error))
            except Exception:
                # A disk that nobody looks after fills up, so that a fault of one look must not be the last.
                log.exception("retention failed by a fault of its own", directory=self._root)
            if stop.wait(self._settings.every_s):
                return

    @contextmanager
    def running(self) -> Iterator[None]:
        """`run` in a thread of its own, which ends with the block."""
        stop = threading.Event()
        thread = threading.Thread(target=self.run, args=(stop,), name="penstock-retention", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def run_once(self, *, dry_run: bool = False) -> dict[str, Report]:
        """One look at every log; what was done, or with `dry_run` would be, by directory."""
        directories = self._find()
        caps = self._disk_caps(directories)
        reports: dict[str, Report] = {}
        for directory in directories:
            settings = self._with_cap(caps.get(directory))
            try:
                reports[directory] = retention.apply(
                    directory, settings, files=self._files, clock=self._clock, modified=self._modified, dry_run=dry_run
                )
            except LogLocked:
                # A subscription's own run, or one that begins; the next look is another chance.
                continue
            except PenstockError as error:
                log.warning("retention failed", directory=directory, error=str(error))
        if not dry_run:
            self._count(reports)
            self._forget_dropped(directories)
        return reports

    def _with_cap(self, bytes_max: int | None) -> RetentionSettings:
        own = self._settings.bytes_max
        if bytes_max is None or (own is not None and own <= bytes_max):
            return self._settings
        return self._settings.model_copy(update={"bytes_max": bytes_max})

    def _count(self, reports: Mapping[str, Report]) -> None:
        with self._mutex:
            for directory, report in reports.items():
                losses = [(loss.subscription, loss.changes) for loss in report.losses]
                for name, changes in [*losses, *([("", report.unread)] if report.unread else [])]:
                    key = os.path.basename(directory), name
                    self._lost[key] = self._lost.get(key, 0) + changes

    def _forget_dropped(self, directories: Sequence[str]) -> None:
        """An agent runs for years, and clients name their subscriptions: what is gone is not counted for ever."""
        logs = {os.path.basename(directory): directory for directory in directories}
        with self._mutex:
            for log_name, subscription in list(self._lost):
                directory = logs.get(log_name)
                checkpoint = f"{directory}/{names.checkpoint_name(subscription)}" if subscription else ""
                if directory is None or (checkpoint and not self._files.exists(checkpoint)):
                    del self._lost[log_name, subscription]

    # The caps by the disk.

    def _disk_caps(self, directories: Sequence[str]) -> dict[str, int]:
        """How large each log may be for all of them to fit; logs that may stay as they are are not named."""
        sizes: dict[str, int] = {}
        old: list[_File] = []
        for directory in directories:
            try:
                found = self._files_of(directory)
            except (PenstockError, OSError) as error:
                log.warning("log not measured", directory=directory, error=str(error))
                continue
            sizes[directory] = sum(file.bytes for file in found)
            old += found[:-1]
        excess = self._excess(sum(sizes.values()))
        caps: dict[str, int] = {}
        for file in sorted(old):
            if excess <= 0:
                break
            caps[file.directory] = sizes[file.directory] = sizes[file.directory] - file.bytes
            excess -= file.bytes
        return caps

    def _files_of(self, directory: str) -> list[_File]:
        with LogReader(directory, files=self._files) as reader:
            infos = reader.files()
        times: list[int] = []
        for info in infos:
            # Files of one log go in the order of their numbers, whatever a copy has done to their times.
            times.append(max(self._modified(info.path), times[-1] if times else 0))
        return [_File(time, directory, info.number, info.bytes) for time, info in zip(times, infos, strict=True)]

    def _excess(self, logs_bytes: int) -> int:
        """By how much the logs are too large for their disk."""
        settings = self._settings
        if not logs_bytes or (settings.disk_share_max is None and settings.free_bytes_min is None):
            return 0
        try:
            disk = self._disk(self._root)
        except OSError as error:
            raise refused(error, "measuring the disk", self._root) from error
        allowed = disk.bytes if settings.disk_share_max is None else int(disk.bytes * settings.disk_share_max)
        if settings.free_bytes_min is not None:
            allowed = min(allowed, max(0, logs_bytes + disk.free_bytes - settings.free_bytes_min))
        self._tell_when_near(logs_bytes, allowed)
        return logs_bytes - allowed

    def _tell_when_near(self, logs_bytes: int, allowed: int) -> None:
        near = logs_bytes > allowed * _NEAR
        if near and not self._near:
            log.warning(
                "logs near the room that they may take; then the oldest files go, read or not",
                directory=self._root,
                bytes=logs_bytes,
                bytes_max=allowed,
            )
        self._near = near


_CAPS = ("bytes_max", "age_s_max", "subscriber_expiry_s", "keep_bytes_max", "disk_share_max", "free_bytes_min")
