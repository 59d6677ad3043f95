"""The test of the tests: each way to break durability on purpose must be caught by the crash tests.

A mutant is the log with one thing taken away: a sync, a check, an order. It is made by patching in memory, so that no
broken file can ever lie about. One that no schedule catches would mean that the crash tests do not see that thing at
all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from penstock.log import block, read_times, retention, sealed, segment
from penstock.log.active import ActiveSegment
from penstock.log.recovery import _Tail
from penstock.log.table_log import TableLog
from penstock.system import checksum
from testkit.crash_files import CrashFile, CrashFiles, Fault
from tests.simulation.refusals import KINDS, count_calls, refuse, refuse_and_kill
from tests.simulation.schedules import explore

Patch = pytest.MonkeyPatch
# No mutant may live longer than this.
SCHEDULES_MAX = 8000


def _sync_does_nothing(patch: Patch) -> None:
    patch.setattr(CrashFile, "sync", lambda self: None)


def _skip_sync_of(ending: str) -> Callable[[Patch], None]:
    def apply(patch: Patch) -> None:
        sync = CrashFile.sync
        patch.setattr(CrashFile, "sync", lambda self: None if self._path.endswith(ending) else sync(self))

    return apply


def _acknowledge_before_sync(patch: Patch) -> None:
    write = ActiveSegment.write

    def hasty(self: ActiveSegment, *args: Any, sync: bool, **named: Any) -> int:
        return write(self, *args, sync=False, **named)

    patch.setattr(ActiveSegment, "write", hasty)


def _directory_sync_does_nothing(patch: Patch) -> None:
    patch.setattr(CrashFiles, "sync_directory", lambda self, path: None)


def _segments_without_directory_sync(patch: Patch) -> None:
    create = segment.create

    def hasty(files: CrashFiles, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(CrashFiles, "sync_directory", lambda self, path: None)
            return create(files, *args)

    patch.setattr(segment, "create", hasty)


def _checksum_not_checked(patch: Patch) -> None:
    real = checksum.crc32

    class Agreeable(int):
        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    patch.setattr(block, "crc32", lambda data, start=0: Agreeable(real(data, start)))


def _sealed_files_renamed_without_sync(patch: Patch) -> None:
    write = sealed.write

    def hasty(*args: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(CrashFile, "sync", lambda self: None)
            write(*args)

    patch.setattr(sealed, "write", hasty)


def _sealed_files_without_directory_sync(patch: Patch) -> None:
    write = sealed.write

    def hasty(*args: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(CrashFiles, "sync_directory", lambda self, path: None)
            write(*args)

    patch.setattr(sealed, "write", hasty)


def _recovery_keeps_the_torn_tail(patch: Patch) -> None:
    rebuild = _Tail.rebuild

    def keep(self: _Tail, blocks: Any) -> str | None:
        rebuild(self, blocks)
        self.end = self.size
        return None

    patch.setattr(_Tail, "rebuild", keep)


def _recovery_cuts_one_block_too_many(patch: Patch) -> None:
    rebuild = _Tail.rebuild

    def all_but_the_last(blocks: Iterator[block.Block]) -> Iterator[block.Block]:
        held = next(blocks, None)
        for one in blocks:
            assert held is not None
            yield held
            held = one

    def cut(self: _Tail, blocks: Iterator[block.Block]) -> str | None:
        return rebuild(self, all_but_the_last(blocks))

    patch.setattr(_Tail, "rebuild", cut)


def _retention_by_the_fastest(patch: Patch) -> None:
    removable = retention.removable

    def hasty(spans: Any, subscribers: Sequence[Any], *args: Any) -> Any:
        return removable(spans, sorted(subscribers, key=lambda one: one.position)[-1:], *args)

    patch.setattr(retention, "removable", hasty)


def _retention_newest_first(patch: Patch) -> None:
    removable = retention.removable
    patch.setattr(retention, "removable", lambda *args: removable(*args)[::-1])


def _note_of_retention_in_place(patch: Patch) -> None:
    def hasty(files: CrashFiles, directory: str, log_id: str, times: read_times.ReadTimes) -> None:
        content = {"format": read_times.FORMAT, "log": log_id, "read": [list(entry) for entry in times.entries]}
        file = files.open(f"{directory}/{read_times.NAME}", write=True, create=True)
        data = sealed.seal(content)
        file.pwrite(data, 0)
        file.truncate(len(data))
        file.sync()
        file.close()

    patch.setattr(read_times, "save", hasty)


def _watermark_before_sync(patch: Patch) -> None:
    write, commit = ActiveSegment.write, TableLog._write
    # Logs of other schedules come and go in between, so each segment looks for its own.
    logs: list[TableLog] = []

    def hasty(self: ActiveSegment, *args: Any, sync: bool, **named: Any) -> int:
        offset = write(self, *args, sync=False, **named)
        next(log for log in reversed(logs) if log._segment is self)._publish()
        self._file.sync()
        return offset

    def noted(self: TableLog, *args: Any) -> Any:
        logs.append(self)
        try:
            return commit(self, *args)
        finally:
            logs.remove(self)

    patch.setattr(ActiveSegment, "write", hasty)
    patch.setattr(TableLog, "_write", noted)


CRASH_MUTANTS: dict[str, tuple[Callable[[Patch], None], tuple[str, ...]]] = {
    "sync does nothing": (_sync_does_nothing, ("single",)),
    "data is not synced": (_skip_sync_of(".avro"), ("rollover", "reopen")),
    "acknowledged before the sync": (_acknowledge_before_sync, ("single", "rollover")),
    "directory sync does nothing": (_directory_sync_does_nothing, ("single", "rollover")),
    "new files without directory sync": (_segments_without_directory_sync, ("rollover", "schema")),
    "headers are not synced": (_skip_sync_of(".avro.tmp"), ("rollover", "schema")),
    "checksum not checked": (_checksum_not_checked, ("single", "batches", "rollover")),
    "small files renamed without sync": (_sealed_files_renamed_without_sync, ("subscriptions",)),
    "small files without directory sync": (_sealed_files_without_directory_sync, ("subscriptions",)),
    "readers are told before the sync": (_watermark_before_sync, ("single", "reopen")),
    "recovery keeps the torn tail": (_recovery_keeps_the_torn_tail, ("single", "batches")),
    "recovery cuts too much": (_recovery_cuts_one_block_too_many, ("single", "reopen")),
    "retention's note is not synced": (_skip_sync_of("retention.json.tmp"), ("kept",)),
    "retention's note is written in place": (_note_of_retention_in_place, ("kept",)),
    "retention by the fastest subscriber": (_retention_by_the_fastest, ("subscriptions",)),
    "retention deletes the newest first": (_retention_newest_first, ("subscriptions", "random")),
}


# A mutant must break a promise. An error of the patch itself, or a workload that no longer runs, proves nothing.
NO_PROOF = ("does not run", "TypeError", "AttributeError", "NameError")


def schedules_until_caught(workloads: Sequence[str]) -> tuple[int, str]:
    """How many schedules a mutant lives, and the promise that it broke; nothing when it survives them all."""
    done = 0
    for workload in workloads:
        tally = explore(workload, seed=1, limit=SCHEDULES_MAX, failures_max=1)
        done += tally.schedules
        if tally.failures:
            return done, tally.failures[0]
    return done, ""


@pytest.mark.parametrize("name", list(CRASH_MUTANTS))
def test_every_durability_mutant_is_caught_by_a_crash(
    name: str, monkeypatch: Patch, record_property: Callable[[str, object], None]
) -> None:
    mutate, workloads = CRASH_MUTANTS[name]
    mutate(monkeypatch)
    lived, broken = schedules_until_caught(workloads)
    record_property("mutant", f"{name}: {lived} schedules, {broken}")
    assert broken, f"survived {lived} schedules: {name}"
    assert not any(word in broken for word in NO_PROOF), broken


def _failed_sync_is_tried_again(patch: Patch) -> None:
    sync = CrashFile.sync

    def stubborn(self: CrashFile) -> None:
        try:
            sync(self)
        except OSError:
            sync(self)

    patch.setattr(CrashFile, "sync", stubborn)


def _recovery_trusts_the_page_cache(patch: Patch) -> None:
    settle = _Tail.settle

    def trusting(self: _Tail, start: int) -> None:
        settle(self, self.end)

    patch.setattr(_Tail, "settle", trusting)


def _failed_log_goes_on(patch: Patch) -> None:
    patch.setattr(TableLog, "_fail", lambda self, failure: None)


def _errors_are_swallowed(patch: Patch) -> None:
    pwritev = CrashFile.pwritev

    def deaf(self: CrashFile, *args: Any) -> None:
        try:
            pwritev(self, *args)
        except OSError:
            pass

    patch.setattr(CrashFile, "pwritev", deaf)


REFUSAL_MUTANTS: dict[str, Callable[[Patch], None]] = {
    "a failed sync is tried again": _failed_sync_is_tried_again,
    "recovery trusts the page cache": _recovery_trusts_the_page_cache,
    "a failed log goes on": _failed_log_goes_on,
    "a failed write is swallowed": _errors_are_swallowed,
}


def refusals(fault: Fault) -> list[str]:
    return refuse(fault, small=True)[1] or refuse_and_kill(fault, small=True)[1]


@pytest.mark.parametrize("name", list(REFUSAL_MUTANTS))
def test_every_durability_mutant_is_caught_by_a_refusal(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    lived = 0
    for code, written_bytes, done in KINDS:
        for call in range(1, count_calls(small=True) + 1):
            fault = Fault(call, code, written_bytes, done)
            with pytest.MonkeyPatch.context() as patch:
                REFUSAL_MUTANTS[name](patch)
                problems = refusals(fault)
            lived += 1
            # Only what the sound log does not do counts against the mutant.
            if problems and not refusals(fault):
                record_property("mutant", f"{name}: {lived} refusals, {problems[0]}")
                assert not any(word in problems[0] for word in NO_PROOF), problems
                return
    pytest.fail(f"survived {lived} refusals: {name}")
