"""Subscriptions and retention as a state machine: writers, subscribers and the machine itself crash at will.

The model is a list of numbered changes and, per subscription, how far it had committed. Whatever happens, each one
gets exactly the changes behind its checkpoint, in order and without a gap; its checkpoint never goes back; and no
change that a live subscription has not committed is deleted, unless a cap did it and said so exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.log import checkpoint, retention
from penstock.log.checkpoint import Checkpoint
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.model.position import START, Position
from penstock.settings import RetentionSettings
from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash, Mode
from tests.numbered import SCHEMA, SMALL_FILES, ManualClock, batch, numbers

NAMES = st.sampled_from(["a", "b/../c", "ü"])
DIRECTORY = "/log"


@dataclass
class Reader:
    """One subscription as the model knows it: counts of changes, from the log's first on."""

    committed: int
    # How far it was handed changes since it was opened; None while nobody has it open.
    handed: int | None = None
    subscription: Subscription | None = None
    files: CrashFiles | None = None


class Subscribers(RuleBasedStateMachine):
    @initialize()
    def open_log(self) -> None:
        self.files = CrashFiles()
        self.files.make_directory(DIRECTORY)
        self.clock = ManualClock()
        # Position of each change, and the count of changes that are gone.
        self.positions: list[Position] = []
        self.gone = 0
        self.readers: dict[str, Reader] = {}
        self.open_writer()

    def open_writer(self) -> None:
        self.writer_files = self.files.process()
        self.writer = TableLog.open(DIRECTORY, SCHEMA, settings=SMALL_FILES, files=self.writer_files)

    def count(self, position: Position) -> int:
        """How many changes a position stands for."""
        return 0 if position == START else self.positions.index(position) + 1

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6), pad=st.sampled_from([0, 900, 3000]))
    def append(self, counts: list[int], pad: int) -> None:
        for count in counts:
            last = self.writer.append(batch(len(self.positions), count, pad))
            self.positions += [last._replace(ordinal=i) for i in range(count)]

    @rule(name=NAMES, latest=st.booleans())
    def open_subscription(self, name: str, latest: bool) -> None:
        reader = self.readers.get(name)
        if reader is not None and reader.subscription is not None:
            return
        files = self.files.process()
        one = Subscription.open(
            DIRECTORY, name, files=files, clock=self.clock, start="latest" if latest else "earliest"
        )
        if reader is None:
            reader = self.readers[name] = Reader(len(self.positions) if latest else self.gone)
        assert self.count(one.position) == reader.committed
        lost = one.accept_loss()
        if reader.committed < self.gone:
            assert lost is not None
            assert (self.count(lost.after), self.count(lost.through)) == (reader.committed, self.gone)
            reader.committed = self.gone
        else:
            assert lost is None
        reader.handed, reader.subscription, reader.files = reader.committed, one, files

    def open_readers(self) -> list[Reader]:
        return [reader for reader in self.readers.values() if reader.subscription is not None]

    @precondition(lambda self: self.open_readers())
    @rule(data=st.data(), stop=st.integers(1, 30), done=st.floats(0, 1))
    def read_and_commit(self, data: st.DataObject, stop: int, done: float) -> None:
        reader = data.draw(st.sampled_from(self.open_readers()))
        assert reader.subscription is not None
        assert reader.handed is not None
        if reader.handed < self.gone:
            assert reader.subscription.accept_loss() is not None
            reader.handed = reader.committed = self.gone
        got: list[int] = []
        for one in reader.subscription.batches():
            got += numbers([one])
            if len(got) >= stop:
                break
        wanted = list(range(reader.handed, len(self.positions)))
        assert got == wanted[: len(got)]
        assert got == wanted or len(got) >= stop
        reader.handed += len(got)
        commit = reader.committed + round(done * (reader.handed - reader.committed))
        if commit > reader.committed:
            reader.subscription.commit(self.positions[commit - 1])
            reader.committed = commit

    @precondition(lambda self: self.open_readers())
    @rule(data=st.data(), politely=st.booleans())
    def stop_subscriber(self, data: st.DataObject, politely: bool) -> None:
        reader = data.draw(st.sampled_from(self.open_readers()))
        assert reader.subscription is not None
        assert reader.files is not None
        if politely:
            reader.subscription.close()
        else:
            reader.files.kill()
        reader.handed = reader.subscription = reader.files = None

    @precondition(lambda self: self.open_readers())
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([n for n, reader in self.readers.items() if reader.subscription is not None]))
        one = self.readers.pop(name).subscription
        assert one is not None
        one.drop()

    @rule()
    def delete_consumed(self) -> None:
        self.apply_retention(None)

    @rule(cap=st.sampled_from([0, 20_000, 40_000]))
    def delete_by_size(self, cap: int) -> None:
        self.apply_retention(cap)

    def apply_retention(self, cap: int | None) -> None:
        report = retention.apply(
            DIRECTORY, RetentionSettings(bytes_max=cap, keep_s=0), files=self.files.process(), clock=self.clock
        )
        assert not report.unreadable
        reader = LogReader(DIRECTORY, files=self.files)
        self.gone = self.count(reader.first())
        reader.close()
        lost = {loss.subscription: (self.count(loss.after), self.count(loss.through)) for loss in report.losses}
        behind = {name: one.committed for name, one in self.readers.items() if one.committed < self.gone}
        if report.removed:
            assert lost == {name: (committed, self.gone) for name, committed in behind.items()}
        if cap is None:
            assert not lost
            if not self.readers:
                assert not report.removed

    @rule(mode=st.sampled_from(Mode), seed=st.integers(0, 99))
    def lose_power(self, mode: Mode, seed: int) -> None:
        self.files = self.files.clone_after_crash(Crash(mode, seed))
        for reader in self.readers.values():
            reader.handed = reader.subscription = reader.files = None
        self.open_writer()

    @rule()
    def kill_writer(self) -> None:
        self.writer_files.kill()
        self.open_writer()

    @invariant()
    def checkpoints_are_what_was_committed(self) -> None:
        found = checkpoint.load_all(self.files, DIRECTORY)
        marks = {one.subscription: one.position for one in found.values() if isinstance(one, Checkpoint)}
        assert len(marks) == len(found)
        assert {name: self.count(at) for name, at in marks.items()} == {
            name: reader.committed for name, reader in self.readers.items()
        }

    def teardown(self) -> None:
        for reader in self.open_readers():
            assert reader.subscription is not None
            reader.subscription.close()
        if hasattr(self, "writer"):
            self.writer.close()


Subscribers.TestCase.settings = settings(
    max_examples=200, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSubscribers = Subscribers.TestCase
