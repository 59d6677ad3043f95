"""A session: one log on one simulated disk, driven by a workload, with everything that happens written down.

The session is the only part of the crash tests that calls the log. It writes each attempt into the history before the
call and each acknowledgement after it, so that a copy of the history taken at any step says exactly what the log owes
at that moment. `inspect` opens what a crash left, as a reader and then as a writer, and gives the finding to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random

from penstock.errors import CorruptLog, PenstockError
from penstock.formats import avro
from penstock.log import read_times, retention, sealed
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.change import NO_ORIGIN, Change, Op, Origin, Set, Transaction
from penstock.model.position import START, Position
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import INT64, TEXT
from penstock.settings import LogSettings, RetentionSettings
from testkit.crash_files import CrashFiles
from tests.simulation.checker import Finding, History, Value, check, settle

DIRECTORY = "logs/ks.t"
TABLE = TableId("ks", "t")


def schema(version: int = 1) -> TableSchema:
    extra = tuple(Column(f"extra{number}", TEXT) for number in range(version - 1))
    return TableSchema(TABLE, (Column("id", INT64, Role.PARTITION), Column("v", TEXT), *extra), version)


def value_of(change: Change) -> Value:
    """A change as one comparable value: all of it, so that nothing can be altered unnoticed."""
    cells = tuple(sorted((name, repr(cell)) for name, cell in change.cells.items()))
    return change.op.value, change.key["id"], cells, change.time, change.origin.transaction


class StepClock:
    """A clock that goes on by one microsecond each time it is read."""

    def __init__(self, now: int = 1_000_000) -> None:
        self._now = now

    def later(self, pass_s: float = 0.0) -> StepClock:
        """A clock that goes on from here, after some time."""
        return StepClock(self._now + int(pass_s * 1e6))

    def now_us(self) -> int:
        self._now += 1
        return self._now

    def monotonic(self) -> float:
        return self.now_us() / 1e6


@dataclass
class Session:
    """One log under test."""

    files: CrashFiles
    rng: Random
    settings: LogSettings = field(default_factory=LogSettings)
    history: History = field(default_factory=History)
    version: int = 1
    next_id: int = 1
    transactions: bool = False
    # Power was lost although the log acknowledged what was only written: damage is then no surprise.
    lenient: bool = False
    # How long retention keeps what was read. Not 0: it notes since when that is.
    keep_s: int = 0
    clock: StepClock = field(default_factory=StepClock)
    log: TableLog | None = None

    def open(self) -> TableLog:
        if self.log is None:
            self.log = TableLog.open(
                DIRECTORY,
                schema(self.version),
                settings=self.settings,
                files=self.files,
                entropy=self.rng.randbytes,
            )
        return self.log

    def close(self) -> None:
        log, self.log = self.log, None
        if log is not None:
            log.close()

    def reopen(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """The process dies, the machine lives on."""
        self.files = self.files.kill()
        self.log = None
        self.open()

    def batch(self, sizes: Iterable[int]) -> tuple[int, ChangeBatch]:
        """The next batch, already written down as attempted: its number, and itself."""
        changes = []
        for size in sizes:
            number = self.next_id
            self.next_id += 1
            text = self.rng.choice("abcxyz") * size
            cells = {"v": Set(f"{number}:{text}")}
            origin = NO_ORIGIN
            if self.transactions:
                origin = Origin(transaction=Transaction("0", number // 2, f"0-1-{number // 2}"))
            changes.append(Change(Op.INSERT, {"id": number}, cells, time=number, origin=origin))
        encoded = avro.encode(schema(self.version), changes)
        self.history.attempted.append(tuple(value_of(change) for change in changes))
        return len(self.history.attempted) - 1, encoded

    def append(self, *sizes: int) -> None:
        number, encoded = self.batch(sizes)
        try:
            position = self.open().append(encoded)
        except PenstockError:
            self.history.failed.add(number)
            raise
        self.history.acknowledged[number] = tuple(position)

    def append_together(self, groups: Sequence[Sequence[int]]) -> None:
        """Several batches in flight at once, as appenders in several threads have them."""
        log = self.open()
        tickets = []
        for sizes in groups:
            number, encoded = self.batch(sizes)
            try:
                tickets.append((number, log.submit(encoded)))
            except PenstockError:
                self.history.failed.add(number)
        error: PenstockError | None = None
        for number, ticket in tickets:
            try:
                self.history.acknowledged[number] = tuple(ticket.wait(60))
            except PenstockError as raised:
                self.history.failed.add(number)
                error = raised
        if error is not None:
            raise error

    def commit(self, name: str, lag: int = 0) -> None:
        """Let a subscription read to the end but `lag` batches, and commit."""
        if name not in self.history.commits:
            self.history.commits[name] = self._beginning()
        with closing(Subscription.open(DIRECTORY, name, files=self.files, clock=self.clock)) as subscription:
            batches = list(subscription.batches())
            for batch in batches:
                self.saw(batch)
            if len(batches) > lag:
                position = batches[-1 - lag].last
                self.history.commits[name].append(tuple(position))
                subscription.commit(position)
                self.history.committed[name] = tuple(position)

    def _beginning(self) -> list[tuple[int, ...]]:
        """Where a new subscription stands before its first commit: behind what retention has taken, if anything."""
        with closing(LogReader(DIRECTORY, files=self.files)) as reader:
            first = reader.first()
        return [] if first == START else [tuple(first)]

    def retain(self, pass_s: float = 0.0) -> None:
        """Let time pass, and then retention run."""
        self.clock = self.clock.later(pass_s)
        keep = RetentionSettings(keep_s=self.keep_s)
        report = retention.apply(DIRECTORY, keep, files=self.files, clock=self.clock, modified=lambda path: 0)
        now = self.clock.now_us()
        for number, _ in report.removed if self.keep_s else ():
            if now - self.history.noted.get(number, now) < self.keep_s * 1_000_000:
                raise AssertionError(f"file {number} went before its time")
        if self.keep_s:
            # Without, nothing is noted; and a judge that reads what is refused would be refused himself.
            self.history.noted = self.noted()

    def noted(self) -> dict[int, int]:
        """By which time each file was read by all, as retention has noted it; ValueError when that is not readable."""
        path = f"{DIRECTORY}/{read_times.NAME}"
        if not self.files.exists(path):
            return {}
        entries = sorted(sealed.read(self.files, path)["read"])
        covering = {number: [time for last, time in entries if last >= number] for number in self.numbers()}
        return {number: times[0] for number, times in covering.items() if times}

    def numbers(self) -> list[int]:
        with closing(LogReader(DIRECTORY, files=self.files)) as reader:
            return reader.numbers()

    def saw(self, batch: ChangeBatch) -> list[tuple[tuple[int, ...], Value]]:
        """Write down what a reader was given."""
        found = []
        for number, change in enumerate(avro.decode(batch)):
            place = tuple(Position(batch.file, batch.offset, batch.skip + number))
            found.append((place, value_of(change)))
        self.history.seen.update(found)
        return found

    def read_all(self) -> list[tuple[tuple[int, ...], Value]]:
        with closing(LogReader(DIRECTORY, files=self.files)) as reader:
            batches = reader.read(reader.first(), skip_damage=self.lenient)
            return [one for batch in batches for one in self.saw(batch)]

    def damage_is_loud(self) -> bool:
        """Whether an ordinary reader is stopped by the damage, with its place, instead of being led past it."""
        try:
            with closing(LogReader(DIRECTORY, files=self.files)) as reader:
                for _ in reader.read(reader.first()):
                    pass
        except CorruptLog:
            return True
        return False

    def checkpoints(self) -> dict[str, tuple[int, ...] | None]:
        found: dict[str, tuple[int, ...] | None] = {}
        for name in self.history.commits:
            with closing(Subscription.open(DIRECTORY, name, files=self.files, clock=self.clock)) as subscription:
                found[name] = tuple(subscription.position) if subscription.position != START else None
        return found

    def inspect(self) -> list[str]:
        """Open what is there, first as a reader and then as a writer; the broken promises."""
        if self.files.exists(f"{DIRECTORY}/log.json"):
            # Readers of other processes do not wait for the writer to come back. What they see must stay.
            self.read_all()
            if self.history.committed:
                self.checkpoints()
        log = self.open()
        problems = [] if self.lenient else [f"damage: {error}" for error in log.damage]
        changes = self.read_all()
        finding = Finding(changes, self.checkpoints(), self.numbers())
        try:
            finding.noted = self.noted()
        except ValueError as error:
            return [*problems, f"note: what retention noted is not readable: {error}"]
        broken = check(self.history, finding)
        if self.lenient and self.damage_is_loud():
            # Reading past damage shows a gap. That is allowed only because whoever does not ask for it is told.
            broken = [problem for problem in broken if not problem.startswith("gap")]
        problems += broken
        settle(self.history, finding)
        end = tuple(log.end)
        if changes and end != changes[-1][0] and not self.lenient:
            problems.append(f"order: the log's end is {end}, its last change {changes[-1][0]}")
        return problems


def after(session: Session, files: CrashFiles, history: History, seed: int) -> Session:
    """A session that goes on with what a crash left."""
    return Session(
        files,
        Random(seed),
        session.settings,
        history,
        version=session.version,
        next_id=session.next_id,
        transactions=session.transactions,
        lenient=session.lenient,
        keep_s=session.keep_s,
        clock=session.clock.later(),
    )
