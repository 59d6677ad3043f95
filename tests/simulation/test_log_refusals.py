"""Every call of the log to the file system is refused once: EIO, ENOSPC, short writes; and a disk that is full."""

from __future__ import annotations

import errno
from collections import Counter

import pytest

from testkit.crash_files import Fault
from tests.counted import RecordProperty, record
from tests.simulation.checker import promises
from tests.simulation.refusals import KINDS, count_calls, fill, refuse, refuse_and_kill


@pytest.mark.parametrize("small", [True, False], ids=["small files", "one file"])
@pytest.mark.parametrize(
    ("code", "written_bytes", "done"),
    KINDS,
    ids=[f"{errno.errorcode[code]}-{written}{'-done' * done}" for code, written, done in KINDS],
)
def test_every_refused_call_leaves_the_log_sound(
    code: int, written_bytes: int, done: bool, small: bool, record_property: RecordProperty
) -> None:
    calls = count_calls(small=small)
    assert calls > 150
    total, problems, broken = 0, [], Counter[str]()
    for call in range(1, calls + 1):
        schedules, found = refuse(Fault(call, code, written_bytes, done), small=small)
        total += schedules
        problems += found
        broken += promises(found)
    record(record_property, "refusal schedules", total, broken)
    assert not problems, "\n".join(problems[:10])
    assert total > calls


@pytest.mark.parametrize("small", [True, False], ids=["small files", "one file"])
def test_what_a_failed_sync_left_in_memory_is_not_taken_for_durable(
    small: bool, record_property: RecordProperty
) -> None:
    total, problems, broken = 0, [], Counter[str]()
    for call in range(1, count_calls(small=small) + 1):
        schedules, found = refuse_and_kill(Fault(call, errno.EIO), small=small)
        total += schedules
        problems += found
        broken += promises(found)
    record(record_property, "refusal schedules", total, broken)
    assert not problems, "\n".join(problems[:10])
    assert total > 1000


@pytest.mark.parametrize("room", [0, 1, 50, 500, 700, 1500, 3000, 5000, 6500])
def test_a_full_disk_damages_nothing_and_appends_go_on_when_there_is_room(room: int) -> None:
    assert fill(room) == []
