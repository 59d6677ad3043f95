"""Refusals: every call of a workload to the file system refused once, and the log's conduct judged.

The driver behaves as a program should: a full disk means to try again, a failed log to open it anew. Checked are the
conduct (the right error, no acknowledgement, no more of them after a failed sync), and then, with and without power
loss, everything that the crash tests check.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from penstock.errors import DiskFull, LogError, LogFailed, PenstockError
from testkit.crash_files import CrashFiles, Fault, Killed
from testkit.power_loss import Crash, Mode
from tests.simulation.schedules import LARGE, SMALL
from tests.simulation.session import Session, after

# Each kind of refusal: the error, how much of a write is done before it, and whether the call takes effect.
KINDS = (
    (errno.EIO, 0, False),
    (errno.EIO, 700, False),
    (errno.EIO, 0, True),
    (errno.ENOSPC, 0, False),
    (errno.ENOSPC, 13, False),
    (errno.ENOSPC, 600, False),
)
CRASHES = (Crash(Mode.DROP), Crash(Mode.KEEP), Crash(Mode.PAGES, 3), Crash(Mode.MIX, 5), Crash(Mode.MIX, 6))


@dataclass
class Conduct:
    """A session whose calls may be refused."""

    session: Session
    problems: list[str] = field(default_factory=list)
    refusals: int = 0

    def run(self) -> None:
        """Appends with roll-over, a reopening, subscriptions and retention, each tried until it works."""
        for size in (300, 1500, 40, 900, 2500):
            self._append(size)
        self._do(self.session.reopen)
        self._append(1200, 30)
        self._do(lambda: self.session.commit("one"))
        self._append(2000)
        self._do(lambda: self.session.commit("one"))
        self._do(self.session.retain)
        self._do(self.session.close)

    def _append(self, *sizes: int) -> None:
        for _ in range(4):
            try:
                self.session.append(*sizes)
            except LogFailed:
                self.refusals += 1
                self._expect_failed()
                self._do(self.session.reopen)
            except DiskFull:
                self.refusals += 1
            except LogError:
                # Opening was refused: nothing is open.
                self.refusals += 1
                self.session.log = None
            else:
                return
        self.problems.append("conduct: four attempts to append were refused")

    def _expect_failed(self) -> None:
        """After a failed sync the log stays failed, until it is opened anew."""
        try:
            self.session.append(1)
        except LogFailed:
            return
        except PenstockError as error:
            self.problems.append(f"conduct: a failed log raised {error!r}")
            return
        self.problems.append("conduct: a failed log acknowledged a change")

    def _do(self, action: object) -> None:
        assert callable(action)
        for _ in range(4):
            try:
                action()
            except LogError:
                self.refusals += 1
            else:
                return
        self.problems.append("conduct: four attempts were refused")


def _conduct(seed: int, *, small: bool) -> Conduct:
    return Conduct(Session(CrashFiles(), Random(seed), SMALL if small else LARGE))


def count_calls(*, small: bool) -> int:
    conduct = _conduct(1, small=small)
    conduct.run()
    assert conduct.problems == []
    assert conduct.refusals == 0
    return conduct.session.files.disk.calls


def _crashes(files: CrashFiles) -> Iterator[tuple[Crash, CrashFiles]]:
    """The disks that power loss may leave now, each once: where all is synced, there is only one."""
    looks = set()
    for crash in CRASHES:
        clone = files.clone_after_crash(crash)
        look = tuple(sorted(clone.contents().items()))
        if look not in looks:
            looks.add(look)
            yield crash, clone


def refuse(fault: Fault, *, small: bool) -> tuple[int, list[str]]:
    """One run with one fault: the number of schedules, and what went wrong."""
    conduct = _conduct(1, small=small)
    disk = conduct.session.files.disk
    disk.fault = fault
    schedules = 0
    try:
        conduct.run()
        disk.fault = None
        problems = conduct.problems
        files = conduct.session.files
        for crash, clone in _crashes(files):
            if not problems:
                later = after(conduct.session, clone, conduct.session.history.copy(), 1)
                problems = [f"after {crash}: {problem}" for problem in later.inspect()]
                later.append(30)
                later.close()
                schedules += 1
        if not problems:
            problems = conduct.session.inspect()
            conduct.session.close()
            schedules += 1
    except (PenstockError, OSError, AssertionError) as error:
        problems = [f"raised: {error!r}"]
    return schedules, [f"refused {disk.struck} {fault}: {problem}" for problem in problems]


def refuse_and_kill(fault: Fault, *, small: bool) -> tuple[int, list[str]]:
    """One refused call, and the process dies before it can do anything about it; the machine loses power later.

    After a failed sync the page cache then shows a whole block that the disk does not have. Whoever recovers must not
    believe it: what readers were given must still be there after the power loss.
    """
    conduct = _conduct(1, small=small)
    session = conduct.session
    disk = session.files.disk
    disk.fault = fault

    def watch(now: CrashFiles) -> None:
        if disk.calls > fault.call:
            disk.watch = None
            now.kill()

    disk.watch = watch
    try:
        conduct.run()
        return 0, []
    except Killed:
        disk.fault = None
    schedules = 0
    try:
        for appends in (0, 2):
            session.files, session.log = session.files.process(), None
            problems = session.inspect()
            for _ in range(appends):
                session.append(30)
            for crash, clone in _crashes(session.files):
                later = after(session, clone, session.history.copy(), 1)
                problems += [f"after {crash}: {problem}" for problem in later.inspect()]
                later.close()
                schedules += 1
            session.close()
    except Exception as error:  # noqa: BLE001
        problems = [f"raised: {error!r}"]
    return schedules, [f"refused {disk.struck} {fault} and killed: {problem}" for problem in problems]


def fill(capacity: int) -> list[str]:
    """A disk that really is full: appends are refused until there is room, and nothing is damaged."""
    session = Session(CrashFiles(), Random(capacity), SMALL)
    session.append(100)
    disk = session.files.disk
    disk.capacity = disk.used + capacity
    refused = 0
    for size in (300, 1500, 40, 900, 2500, 10, 4000):
        try:
            session.append(size)
        except DiskFull:
            refused += 1
    problems = [] if refused else ["conduct: nothing was refused"]
    for crash in CRASHES:
        clone = session.files.clone_after_crash(crash)
        clone.disk.capacity = None
        problems += [
            f"after {crash}: {problem}" for problem in after(session, clone, session.history.copy(), 1).inspect()
        ]
    disk.capacity = None
    session.append(50)
    session.append(60, 700)
    problems += session.inspect()
    session.close()
    return problems
