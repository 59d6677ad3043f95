"""Following: each change once, in order, to everybody, as soon as it is durable."""

import multiprocessing
import threading
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from penstock.errors import ChangesLost
from penstock.log import retention
from penstock.log.follow import Cursor, Follower, Tail
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.position import START
from penstock.settings import LogSettings, RetentionSettings
from tests import sample


def test_a_tail_gets_what_was_there_and_what_comes(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA, settings=LogSettings(file_bytes_max=8192)) as log:
        log.append(sample.batch(0, 1))
        with Follower(directory) as follower, Tail(follower) as tail:
            found: list[int] = []
            for number in range(2, 60):
                log.append(sample.batch(number, note="n" * 500))
                while not found or found[-1] < number:
                    batch = tail.next(10)
                    assert batch is not None
                    found += sample.numbers([batch])
            assert found == list(range(60))
            assert tail.next(0) is None


def test_every_listener_gets_the_same_batch(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    seen: list[list[ChangeBatch]] = [[] for _ in range(100)]
    complete = threading.Semaphore(0)

    def listener(place: int) -> None:
        def take(batch: ChangeBatch) -> None:
            seen[place].append(batch)
            complete.release()

        follower.listen(take)

    with TableLog.open(directory, sample.SCHEMA) as log, Follower(directory) as follower:
        for place in range(100):
            listener(place)
        log.append(sample.batch(1))
        for _ in range(100):
            assert complete.acquire(timeout=30)
    assert all(batches[0] is seen[0][0] for batches in seen)
    assert [len(batches) for batches in seen] == [1] * 100


def test_a_listener_that_raises_is_dropped_and_the_others_go_on(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    got = threading.Semaphore(0)

    def fail(batch: ChangeBatch) -> None:
        raise RuntimeError("a listener's fault")

    with TableLog.open(directory, sample.SCHEMA) as log, Follower(directory) as follower:
        follower.listen(fail)
        follower.listen(lambda batch: got.release())
        for number in range(3):
            log.append(sample.batch(number))
            assert got.acquire(timeout=30)


def test_a_slow_tail_falls_back_to_the_files_without_gap_or_repeat(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with (
        TableLog.open(directory, sample.SCHEMA, settings=LogSettings(file_bytes_max=50_000)) as log,
        Follower(directory) as follower,
        Tail(follower, queue_bytes=5000) as tail,
    ):
        found = []
        for start in range(0, 400, 40):
            for number in range(start, start + 40):
                log.append(sample.batch(number, note="n" * 400))
            for _ in range(25):
                batch = tail.next(10)
                assert batch is not None
                found += sample.numbers([batch])
        while found[-1] < 399:
            batch = tail.next(10)
            assert batch is not None
            found += sample.numbers([batch])
        assert found == list(range(400))


def test_a_tail_in_another_process_is_woken(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA) as log:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=_follow, args=(directory, theirs))
        process.start()
        assert ours.recv() == "ready"
        for number in range(20):
            log.append(sample.batch(number))
            assert ours.poll(30)
            assert ours.recv() == [number]
        process.join(30)
        assert process.exitcode == 0


def _follow(directory: str, pipe: Connection) -> None:
    with Follower(directory) as follower, Tail(follower) as tail:
        pipe.send("ready")
        for _ in range(20):
            batch = tail.next(30)
            assert batch is not None
            pipe.send(sample.numbers([batch]))


class _Gate:
    """A watch that keeps the follower asleep until it is opened, as a busy machine would."""

    def __init__(self) -> None:
        self._open = threading.Event()

    def wait(self, timeout_s: float | None = None) -> bool:
        opened = self._open.wait(timeout_s)
        self._open.clear()
        return opened

    def wake(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.wake()


@pytest.mark.parametrize("begun", [0, 1])
def test_retention_that_outruns_the_follower_takes_nothing_from_who_is_further(tmp_path: Path, begun: int) -> None:
    """Who lost changes is told his own range, once, and goes on; who had read them is told nothing."""
    directory = str(tmp_path / "log")
    gate = _Gate()
    with TableLog.open(directory, sample.SCHEMA, settings=LogSettings(file_bytes_max=8192)) as log:
        positions = [log.append(sample.batch(number)) for number in range(begun)]
        before = positions[-1] if positions else START
        with (
            Follower(directory, watch=gate) as follower,
            Subscription.open(directory, "behind", follower=follower) as behind,
        ):
            if begun:
                assert behind.next(0) is not None
                behind.commit(before)
            # It waits for what the follower hands out, which now sleeps for too long.
            assert behind.next(0) is None
            positions += [log.append(sample.batch(number, note="n" * 500)) for number in range(begun, 40)]
            retention.apply(directory, RetentionSettings(bytes_max=0))
            with LogReader(directory) as reader:
                first = reader.first()
            done = Tail(follower, first)
            gate.wake()
            left = list(range(positions.index(first) + 1, 40))
            with done:
                assert sample.numbers(_take(done, len(left))) == left
            with pytest.raises(ChangesLost) as caught:
                behind.next(30)
            assert (caught.value.place["after"], caught.value.place["through"]) == (before, first)
            assert behind.accept_loss() is not None
            assert sample.numbers(_take(behind, len(left))) == left
            assert follower.failure is None


def _take(tail: Tail | Subscription, count: int) -> list[ChangeBatch]:
    out: list[ChangeBatch] = []
    while sum(map(len, out)) < count:
        batch = tail.next(30)
        assert batch is not None
        out.append(batch)
    return out


def test_closing_a_tail_ends_its_wait(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA), Follower(directory) as follower:
        tail = Tail(follower)
        results: list[object] = []
        thread = threading.Thread(target=lambda: results.append(tail.next()))
        thread.start()
        tail.close()
        thread.join(30)
        assert results == [None]


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_tail_begins_inside_a_block(tmp_path: Path, skip: int) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA) as log:
        log.append(sample.batch(0, 1, 2, 3))
        block = next(LogReader(directory).read(START))
        start = block.first._replace(ordinal=skip)
        with Follower(directory) as follower, Tail(follower, start) as tail:
            batch = tail.next(10)
            assert batch is not None
            assert sample.numbers([batch]) == list(range(skip + 1, 4))


def test_cursor_goes_on_when_an_empty_file_was_made_anew(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    log = TableLog.open(str(directory), sample.SCHEMA)
    log.append(sample.batch(1))
    log.begin(replace(sample.SCHEMA, truncated_us=5))
    with LogReader(str(directory)) as reader:
        cursor = Cursor(reader, START)
        assert sample.numbers(cursor.read()) == [1]
        # As if its writer had been killed: another one makes the empty file anew under its number.
        (directory / "writer.lock").unlink()
        with TableLog.open(str(directory), replace(sample.SCHEMA, truncated_us=5)) as other:
            other.append(sample.batch(2, schema=other.schema))
            assert reader.numbers() == [1, 2]
            assert sample.numbers(cursor.read()) == [2]
        cursor.close()
    log.close()


class _InterruptedLock:
    """A lock whose first wait, once somebody has decided to end it, ends with an interruption instead."""

    def __init__(self, tail: Tail, *, taken: bool) -> None:
        self._tail = tail
        self._taken = taken
        self._lock = threading.Lock()
        self._lock.acquire()
        self._interrupted = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._interrupted:
            return self._lock.acquire(blocking, timeout)
        self._interrupted = True
        if self._taken:
            self._lock.acquire()
        else:
            while self._tail._asleep:
                threading.Event().wait(0.001)
        raise KeyboardInterrupt

    def release(self) -> None:
        self._lock.release()


@pytest.mark.parametrize("taken", [False, True])
def test_owners_behind_one_that_is_interrupted_are_woken_all_the_same(tmp_path: Path, taken: bool) -> None:
    directory = str(tmp_path / "log")
    got: list[list[int]] = [[] for _ in range(5)]
    interrupted: list[int] = []

    def iterate(place: int, tail: Tail) -> None:
        while len(got[place]) < 2:
            try:
                batch = tail.next()
            except KeyboardInterrupt:
                interrupted.append(place)
                return
            assert batch is not None
            got[place] += sample.numbers([batch])

    with TableLog.open(directory, sample.SCHEMA) as log:
        log.append(sample.batch(0))
        with Follower(directory) as follower:
            tails = [Tail(follower, follower.position) for _ in got]
            tails[2]._wake = _InterruptedLock(tails[2], taken=taken)  # type: ignore[assignment]
            threads = [threading.Thread(target=iterate, args=one) for one in enumerate(tails)]
            for thread in threads:
                thread.start()
            while not all(tail._asleep for tail in tails):
                threading.Event().wait(0.001)
            log.append(sample.batch(1))
            log.append(sample.batch(2))
            for thread in threads:
                thread.join(30)
            for tail in tails:
                tail.close()
    assert interrupted == [2]
    assert got == [[1, 2], [1, 2], [], [1, 2], [1, 2]]
