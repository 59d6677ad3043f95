"""Schedules: workloads of the log, crashed at every step in every way, and once more while it recovers and goes on.

One schedule is a run of a workload, a step at which the power fails, what survives, and a second step and crash in what
follows. It prints as one line, `workload:seed:step:crash:step:crash`, which `replay` runs again, and counts once:
a crash that leaves the disk of an earlier one, with the same promises made, is the earlier one. A schedule *can fail*
when the log owes something at one of its two crashes: an acknowledged change, one that a reader was given, or a
committed checkpoint. Others are run and judged too, for what they may invent, and counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from penstock.settings import Acknowledge, Codec, LogSettings
from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash, Mode
from tests.simulation.checker import History, promises
from tests.simulation.session import Session, after

# How many seeds each mode gets at one step; the first five have only one outcome each.
SEEDS = {
    Mode.DROP: 1,
    Mode.KEEP: 1,
    Mode.CONTENT: 1,
    Mode.NAMES: 1,
    Mode.HOLES: 1,
    Mode.GARBAGE: 1,
    Mode.PREFIX: 2,
    Mode.PAGES: 2,
    Mode.TORN: 3,
    Mode.FLIP: 2,
    Mode.MIX: 4,
}
# A second crash falls within this many steps of reopening; a recovery and two appends take about as many.
SECOND_STEPS = 24

SMALL = LogSettings(file_bytes_max=4096, index_bytes=4096, block_bytes_max=65536)
LARGE = LogSettings(block_bytes_max=65536)


def _single(session: Session) -> None:
    for size in (1, 30, 500, 2, 1100, 7):
        session.append(size)
    session.close()


def _batches(session: Session) -> None:
    for sizes in ((10, 20, 30), (600, 700), (5,) * 12, (1500, 3)):
        session.append(*sizes)
    session.close()


def _together(session: Session) -> None:
    for count in (2, 5, 3, 4):
        session.append_together([(20 * one + 1, 300) for one in range(count)])
    session.close()


def _rollover(session: Session) -> None:
    for size in (400, 900, 1500, 20, 2500, 700, 10, 2000):
        session.append(size)
    session.close()


def _schema_changes(session: Session) -> None:
    for version in (1, 2, 3):
        session.version = version
        session.append(40)
        session.append(600, 2)
    session.close()


def _reopen(session: Session) -> None:
    for size in (100, 700, 30):
        session.append(size)
        session.reopen()
        session.append(size + 1)
        session.kill()
    session.append(5)


def _reopen_small(session: Session) -> None:
    for size in (900, 1700):
        session.append(size)
        session.kill()
        session.append(size + 1)
        session.reopen()
    session.append(5)


def _transactions(session: Session) -> None:
    session.transactions = True
    for sizes in ((10, 20), (900, 1200), (30, 40, 50), (1500,)):
        session.append(*sizes)
    session.kill()
    session.append(60, 70)
    session.close()


def _subscriptions(session: Session) -> None:
    for turn in range(4):
        session.append(700)
        session.append(900, 30)
        session.commit("fast")
        session.commit("slow", lag=2)
        if turn % 2:
            session.retain()
    session.close()


def _kept(session: Session) -> None:
    """What was read stays for a while, counted from when retention noted it."""
    session.keep_s = 1
    for _ in range(2):
        session.append(1900)
        session.append(1700, 30)
        session.commit("fast")
        session.commit("slow", lag=1)
        session.retain(1.1)
    session.close()


def _random(session: Session) -> None:
    """What the seed says, for the long campaign and for what nobody thought of."""
    rng = session.rng
    for _ in range(rng.randint(4, 9)):
        choice = rng.random()
        sizes = [rng.choice((1, 30, 300, 505, 512, 1024, 2000)) for _ in range(rng.randint(1, 4))]
        if choice < 0.45:
            session.append(*sizes)
        elif choice < 0.6:
            session.append_together([sizes, sizes[:1], sizes[-1:]])
        elif choice < 0.7:
            session.version += 1
        elif choice < 0.78:
            session.reopen()
        elif choice < 0.86:
            session.kill()
        elif session.history.acknowledged:
            session.commit(rng.choice(("one", "two")), lag=rng.randint(0, 2))
            session.retain()
    session.append(3)


class Workload(NamedTuple):
    """What is done, and with which settings."""

    run: Callable[[Session], None]
    settings: LogSettings


def _with_codec(codec: Codec) -> LogSettings:
    return SMALL.model_copy(update={"codec": codec})


WORKLOADS = {
    "single": Workload(_single, LARGE),
    "batches": Workload(_batches, LARGE),
    "together": Workload(_together, SMALL),
    "rollover": Workload(_rollover, SMALL),
    "schema": Workload(_schema_changes, LARGE),
    "reopen": Workload(_reopen, LARGE),
    "reopen-small": Workload(_reopen_small, SMALL),
    "transactions": Workload(_transactions, SMALL),
    "subscriptions": Workload(_subscriptions, SMALL),
    "kept": Workload(_kept, SMALL),
    "deflate": Workload(_batches, _with_codec(Codec.DEFLATE)),
    "snappy": Workload(_rollover, _with_codec(Codec.SNAPPY)),
    "zstandard": Workload(_together, _with_codec(Codec.ZSTANDARD)),
    "written": Workload(_reopen, LARGE.model_copy(update={"acknowledge": Acknowledge.WRITTEN})),
    "random": Workload(_random, SMALL),
}


class Schedule(NamedTuple):
    """One line to replay."""

    workload: str
    seed: int
    step: int
    crash: Crash
    second_step: int
    second_crash: Crash

    def __str__(self) -> str:
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Schedule:
        workload, seed, step, crash, second_step, second_crash = text.split(":")
        return cls(workload, int(seed), int(step), Crash.parse(crash), int(second_step), Crash.parse(second_crash))


@dataclass
class Tally:
    """What an exploration came to."""

    # Schedules in which something could be lost.
    schedules: int = 0
    # Schedules in which the log owed nothing, so that it could only invent.
    owing_nothing: int = 0
    steps: int = 0
    failures: list[str] = field(default_factory=list)
    # In how many schedules each promise was broken, by the judge's word for it.
    broken: Counter[str] = field(default_factory=Counter)

    def count(self, schedule: Schedule, problems: list[str], *, at_stake: bool) -> None:
        if at_stake:
            self.schedules += 1
        else:
            self.owing_nothing += 1
        self.broken += promises(problems)
        self.failures += [f"{schedule}  {problem}" for problem in problems[:1]]

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.owing_nothing += other.owing_nothing
        self.failures += other.failures
        self.broken += other.broken


def schedules_at(workload: str, seed: int, step: int, files: CrashFiles) -> Iterator[Schedule]:
    """The ways to crash before one step."""
    rng = Random(f"{workload}:{seed}:{step}")
    sure = not files.volatile()
    for mode, seeds in SEEDS.items():
        for _ in range(seeds):
            second = Crash(rng.choice(list(Mode)), rng.randrange(1 << 20))
            yield Schedule(
                workload, seed, step, Crash(mode, rng.randrange(1 << 20)), rng.randint(1, SECOND_STEPS), second
            )
        if sure:
            return


class Explorer:
    """One run of one workload, with a crash of each kind before each of its steps.

    `spoil` stands in for a log that keeps nothing: it is given the disk of each crash and gives the one to go on with.
    """

    def __init__(
        self,
        workload: str,
        seed: int,
        *,
        only: Schedule | None = None,
        every: int = 1,
        limit: int | None = None,
        failures_max: int = 10,
        spoil: Callable[[CrashFiles], CrashFiles] = lambda files: files,
    ) -> None:
        self._workload = workload
        self._seed = seed
        self._only = only
        self._every = every
        self._limit = limit
        # A failing log fails at many places; a few are enough to see why.
        self._failures_max = failures_max
        self._spoil = spoil
        # What the disk looked like after each crash, and what had been promised by then.
        self._tried: set[Hashable] = set()
        self.tally = Tally()
        plan = WORKLOADS[workload]
        self.session = Session(CrashFiles(), Random(f"{workload}:{seed}"), plan.settings)
        self.durable = plan.settings.acknowledge is Acknowledge.SYNCED

    def run(self) -> Tally:
        disk = self.session.files.disk
        disk.watch = self._watch
        try:
            WORKLOADS[self._workload].run(self.session)
        except Exception as error:  # noqa: BLE001
            self.tally.failures.append(f"{self._workload}:{self._seed} does not run: {error!r}")
            self.tally.broken["does not run"] += 1
        disk.watch = None
        # The crash after the last step.
        disk.steps += 1
        self._watch(self.session.files)
        return self.tally

    def _watch(self, files: CrashFiles) -> None:
        step = files.disk.steps
        self.tally.steps = step
        if self._done():
            return
        if self._only is not None:
            if self._only.step == step:
                self._try(self._only, files.clone_after_crash(self._only.crash))
            return
        if step % self._every:
            return
        for schedule in schedules_at(self._workload, self._seed, step, files):
            clone = files.clone_after_crash(schedule.crash)
            look = (hash(tuple(sorted(clone.contents().items()))), self.session.history.extent())
            if look not in self._tried and not self._done():
                self._tried.add(look)
                self._try(schedule, clone)

    def _excuse(self, session: Session, crash: Crash) -> None:
        """Take back what does not hold: changes that were only written may be lost with the power.

        When all is kept, as by the death of the process alone, every promise holds; and what is there must be sound.
        """
        if not self.durable and crash.mode is not Mode.KEEP:
            session.lenient = True
            session.history.acknowledged.clear()
            session.history.seen.clear()

    def _done(self) -> bool:
        if len(self.tally.failures) >= self._failures_max:
            return True
        return self._limit is not None and self.tally.schedules >= self._limit

    def _try(self, schedule: Schedule, files: CrashFiles) -> None:
        files = self._spoil(files)
        seconds: list[tuple[CrashFiles, History]] = []
        later = after(self.session, files, self.session.history.copy(), schedule.step)
        self._excuse(later, schedule.crash)
        at_stake = later.history.owes()

        def watch(now: CrashFiles) -> None:
            if now.disk.steps == schedule.second_step:
                seconds.append((now.clone_after_crash(schedule.second_crash), later.history.copy()))

        files.disk.watch = watch
        try:
            problems = _go_on(later)
            if not problems:
                files.disk.watch = None
                if not seconds:
                    seconds.append((files.clone_after_crash(schedule.second_crash), later.history.copy()))
                clone, told = seconds[0]
                last = after(later, self._spoil(clone), told, schedule.step)
                self._excuse(last, schedule.second_crash)
                at_stake = at_stake or last.history.owes()
                problems += [f"second crash: {problem}" for problem in last.inspect()]
                last.close()
        except Exception as error:  # noqa: BLE001
            problems = [f"raised: {error!r}"]
        self.tally.count(schedule, problems, at_stake=at_stake)


def _go_on(later: Session) -> list[str]:
    """Recover, look, append, look again."""
    problems = later.inspect()
    if not problems:
        later.append(30)
        later.append(20, 700)
        later.close()
        if later.keep_s and later.history.committed:
            later.retain(0.9)
        problems = later.inspect()
        later.close()
    return problems


def explore(workload: str, seed: int, *, limit: int | None = None, failures_max: int = 10) -> Tally:
    return Explorer(workload, seed, limit=limit, failures_max=failures_max).run()


def replay(line: str) -> Tally:
    schedule = Schedule.parse(line)
    return Explorer(schedule.workload, schedule.seed, only=schedule).run()
