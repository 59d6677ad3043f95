"""CrashFiles: what survives power loss, a killed process, refused calls and a full disk."""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Callable
from random import Random

import pytest

from penstock.system.files import File, Files
from testkit.crash_files import CrashFiles, Fault, Killed
from testkit.power_loss import Crash, Mode

KEEP, DROP = Crash(Mode.KEEP), Crash(Mode.DROP)


def disk_with(content: bytes, path: str = "d/a") -> CrashFiles:
    """A disk with one durable file."""
    files = CrashFiles()
    files.make_directory("d")
    files.sync_directory("")
    file = files.open(path, write=True, create=True)
    file.pwrite(content, 0)
    file.sync()
    file.close()
    files.sync_directory("d")
    return files


def read(files: Files, path: str = "d/a") -> bytes | None:
    if not files.exists(path):
        return None
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def outcomes(files: CrashFiles, mode: Mode, path: str = "d/a", seeds: int = 60) -> set[bytes | None]:
    return {read(files.clone_after_crash(Crash(mode, seed)), path) for seed in range(seeds)}


def test_crash_files_are_files() -> None:
    files: Files = CrashFiles()
    files.make_directory("/x/y")
    file: File = files.open("/x/y/f", write=True, create=True)
    file.pwritev([memoryview(b"a"), b"bc"], 3, 2)
    assert file.pread(10, 0) == b"\0\0abc"
    assert file.size() == 5
    file.truncate(3)
    assert file.pread(10, 0) == b"\0\0a"
    files.rename("/x/y/f", "/x/y/g")
    assert files.list("/x/y") == ["g"]
    assert files.exists("/x")
    assert files.exists("/x/y/g")
    assert not files.exists("/x/y/f")
    assert files.exists(".")
    assert files.exists("/")
    files.unlink("/x/y/g")
    assert not files.exists("/x/y/g")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.size()


def test_missing_files_and_directories_raise_as_the_system_does() -> None:
    files = CrashFiles()
    files.make_directory("d")
    attempts: list[Callable[[], object]] = [
        lambda: files.open("d/no"),
        lambda: files.unlink("d/no"),
        lambda: files.rename("d/no", "d/other"),
        lambda: files.list("e"),
        lambda: files.open("e/f", create=True, write=True),
        lambda: files.sync_directory("e"),
    ]
    for attempt in attempts:
        with pytest.raises(FileNotFoundError):
            attempt()
    with pytest.raises(IsADirectoryError):
        files.open("d", write=True)


def test_a_file_opened_for_reading_cannot_be_written() -> None:
    file = disk_with(b"x").open("d/a")
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(b"y", 0)


@pytest.mark.parametrize("mode", list(Mode))
def test_synced_content_survives_every_crash(mode: Mode) -> None:
    files = disk_with(b"durable" * 300)
    file = files.open("d/a", write=True)
    file.pwrite(b"volatile" * 300, 2100)
    for content in outcomes(files, mode):
        assert content is not None
        assert content[:2100] == b"durable" * 300


def test_unsynced_content_is_dropped_or_kept() -> None:
    files = disk_with(b"old")
    files.open("d/a", write=True).pwrite(b"newer", 0)
    assert read(files) == b"newer"
    assert outcomes(files, Mode.DROP, seeds=3) == {b"old"}
    assert outcomes(files, Mode.KEEP, seeds=3) == {b"newer"}


def test_torn_write_stops_at_every_byte() -> None:
    files = disk_with(b"")
    files.open("d/a", write=True).pwrite(b"abcd", 0)
    found = outcomes(files, Mode.TORN, seeds=200)
    torn = {b"abcd"[:size] for size in range(5)}
    assert found == torn | {part.ljust(4, b"\0") for part in torn}


def test_pages_survive_independently_of_their_order() -> None:
    files = disk_with(b"")
    files.open("d/a", write=True).pwrite(b"a" * 512 + b"b" * 512, 0)
    found = outcomes(files, Mode.PAGES, seeds=100)
    assert bytes(512) + b"b" * 512 in found
    assert b"a" * 512 + bytes(512) in found
    assert b"" in found


def test_pages_are_those_of_the_file_not_of_the_write() -> None:
    files = disk_with(b"x" * 500)
    files.open("d/a", write=True).pwrite(b"a" * 12 + b"b" * 8, 500)
    found = outcomes(files, Mode.PAGES, seeds=100)
    assert b"x" * 500 + bytes(12) + b"b" * 8 in found
    assert b"x" * 500 + b"a" * 12 + bytes(8) in found


def test_flip_changes_only_unsynced_bits() -> None:
    files = disk_with(bytes(100))
    files.open("d/a", write=True).pwrite(bytes(50), 100)
    found = outcomes(files, Mode.FLIP)
    assert len(found) > 30
    for content in found:
        assert content is not None
        assert len(content) == 150
        assert content[:100] == bytes(100)
        assert 1 <= sum(byte.bit_count() for byte in content) <= 3


def test_flip_spares_what_is_only_written_again() -> None:
    files = disk_with(b"durable")
    files.open("d/a", write=True).pwrite(b"durable", 0)
    assert outcomes(files, Mode.FLIP) == {b"durable"}


def test_holes_keep_the_length_and_garbage_is_noise() -> None:
    files = disk_with(b"old")
    files.open("d/a", write=True).pwrite(b"newer", 3)
    assert outcomes(files, Mode.HOLES, seeds=3) == {b"old" + bytes(5)}
    noise = outcomes(files, Mode.GARBAGE, seeds=20)
    assert len(noise) == 20
    assert all(content and content[:3] == b"old" and len(content) == 8 for content in noise)


def test_truncation_is_volatile_until_synced_and_never_half_done() -> None:
    files = disk_with(b"0123456789")
    file = files.open("d/a", write=True)
    file.truncate(4)
    assert read(files) == b"0123"
    assert outcomes(files, Mode.MIX) == {b"0123456789", b"0123"}
    file.sync()
    assert outcomes(files, Mode.MIX) == {b"0123"}


def test_a_lost_truncation_leaves_the_old_tail_behind_a_kept_write() -> None:
    files = disk_with(b"0123456789")
    file = files.open("d/a", write=True)
    file.truncate(2)
    file.pwrite(b"ab", 2)
    assert b"01ab456789" in outcomes(files, Mode.MIX, seeds=300)


def test_prefix_keeps_the_order_between_files() -> None:
    files = disk_with(b"")
    one, two = files.open("d/a", write=True), files.open("d/b", write=True, create=True)
    files.sync_directory("d")
    for number in range(4):
        one.pwrite(bytes([number]), number)
        two.pwrite(bytes([number]), number)
    for seed in range(50):
        after = files.clone_after_crash(Crash(Mode.PREFIX, seed))
        first, second = read(after, "d/a"), read(after, "d/b")
        assert first is not None
        assert second is not None
        assert 0 <= len(first) - len(second) <= 1


def test_mix_reorders_between_files() -> None:
    files = disk_with(b"")
    one, two = files.open("d/a", write=True), files.open("d/b", write=True, create=True)
    files.sync_directory("d")
    one.pwrite(b"first", 0)
    two.pwrite(b"second", 0)
    pairs = set()
    for seed in range(100):
        after = files.clone_after_crash(Crash(Mode.MIX, seed))
        pairs.add((read(after, "d/a"), read(after, "d/b")))
    assert (b"", b"second") in pairs
    assert (b"first", b"") in pairs


def test_a_created_name_is_lost_without_a_directory_sync_even_when_its_content_is_synced() -> None:
    files = disk_with(b"a")
    file = files.open("d/b", write=True, create=True)
    file.pwrite(b"b", 0)
    file.sync()
    assert read(files.clone_after_crash(DROP), "d/b") is None
    assert read(files.clone_after_crash(KEEP), "d/b") == b"b"
    files.sync_directory("d")
    assert read(files.clone_after_crash(DROP), "d/b") == b"b"


def test_a_rename_is_old_or_new_never_half() -> None:
    files = disk_with(b"old")
    file = files.open("d/t", write=True, create=True)
    file.pwrite(b"new", 0)
    file.sync()
    files.sync_directory("d")
    files.rename("d/t", "d/a")
    seen = set()
    for mode in Mode:
        for seed in range(20):
            after = files.clone_after_crash(Crash(mode, seed))
            seen.add((read(after, "d/a"), read(after, "d/t")))
    assert seen == {(b"old", b"new"), (b"new", None)}


def test_a_rename_can_survive_without_the_new_content() -> None:
    files = disk_with(b"old")
    files.open("d/t", write=True, create=True).pwrite(b"new", 0)
    files.rename("d/t", "d/a")
    assert read(files.clone_after_crash(Crash(Mode.NAMES))) == b""
    assert read(files.clone_after_crash(Crash(Mode.HOLES))) == bytes(3)


def test_an_unlink_can_come_back() -> None:
    files = disk_with(b"a")
    files.unlink("d/a")
    assert outcomes(files, Mode.MIX) == {b"a", None}
    files.sync_directory("d")
    assert outcomes(files, Mode.MIX) == {None}


def test_a_directory_without_a_sync_of_its_parent_takes_its_files_along() -> None:
    files = CrashFiles()
    files.make_directory("p/q")
    file = files.open("p/q/f", write=True, create=True)
    file.sync()
    files.sync_directory("p/q")
    assert not files.clone_after_crash(DROP).exists("p")
    files.sync_directory("")
    assert files.clone_after_crash(DROP).exists("p")
    assert not files.clone_after_crash(DROP).exists("p/q")
    files.sync_directory("p")
    assert files.clone_after_crash(DROP).exists("p/q/f")


def test_a_failed_sync_leaves_the_pages_clean_and_undurable() -> None:
    files = disk_with(b"old")
    file = files.open("d/a", write=True)
    file.pwrite(b"newer", 0)
    files.disk.fault = Fault(files.disk.calls + 1)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert read(files) == b"newer"
    assert outcomes(files, Mode.DROP) == {b"old"}
    file.pwrite(b"!", 5)
    file.sync()
    assert outcomes(files, Mode.DROP) == {b"old\0\0!"}
    file.pwrite(b"newer", 0)
    file.sync()
    assert outcomes(files, Mode.MIX) == {b"newer!"}


def test_every_call_can_be_refused_and_a_refused_call_does_nothing() -> None:
    def run(files: CrashFiles) -> None:
        files.make_directory("d")
        file = files.open("d/a", write=True, create=True)
        file.pwrite(b"data", 0)
        file.sync()
        files.sync_directory("d")
        file.truncate(2)
        files.rename("d/a", "d/b")
        file.size()
        file.lock()
        file.pread(1, 0)
        files.list("d")
        files.unlink("d/b")

    good = CrashFiles()
    trace: list[tuple[str, str]] = []
    good.disk.trace = trace
    run(good)
    for call in range(1, good.disk.calls + 1):
        files = CrashFiles()
        found: list[tuple[str, str]] = []
        files.disk.trace = found
        files.disk.fault = Fault(call, errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            run(files)
        assert found == trace[:call]


def test_a_short_write_leaves_its_first_bytes() -> None:
    files = disk_with(b"old")
    file = files.open("d/a", write=True)
    files.disk.fault = Fault(files.disk.calls + 1, errno.ENOSPC, written_bytes=2)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"newer", 0)
    assert read(files) == b"ned"


def test_a_fault_may_take_effect_and_still_report() -> None:
    files = disk_with(b"old")
    files.disk.fault = Fault(files.disk.calls + 1, done=True)
    with pytest.raises(OSError, match="Input/output"):
        files.unlink("d/a")
    assert not files.exists("d/a")


def test_a_lasting_fault_strikes_the_same_kind_of_call_again() -> None:
    files = disk_with(b"old")
    file = files.open("d/a", write=True)
    files.disk.fault = Fault(files.disk.calls + 1, errno.ENOSPC, lasting=True)
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            file.pwrite(b"x", 0)
    assert file.pread(3, 0) == b"old"


def test_a_full_disk_writes_what_fits_and_goes_on_when_there_is_room() -> None:
    files = disk_with(b"12345")
    files.disk.capacity = 8
    file = files.open("d/b", write=True, create=True)
    with pytest.raises(OSError, match="No space"):
        file.pwrite(b"abcdef", 0)
    assert read(files, "d/b") == b"abc"
    file.pwrite(b"xyz", 0)
    files.unlink("d/a")
    file.pwrite(b"abcdef", 0)
    assert read(files, "d/b") == b"abcdef"
    assert files.disk.used == 6


def test_an_unlinked_open_file_holds_its_space_until_it_is_closed() -> None:
    files = disk_with(b"12345")
    file = files.open("d/a")
    files.unlink("d/a")
    assert files.disk.used == 5
    assert file.pread(5, 0) == b"12345"
    file.close()
    assert files.disk.used == 0


def test_a_lock_belongs_to_one_open_file_until_it_is_closed() -> None:
    files = disk_with(b"")
    one, two = files.open("d/a", write=True), files.process().open("d/a", write=True)
    assert one.lock()
    assert one.lock()
    assert not two.lock()
    two.close()
    three = files.open("d/a")
    assert not three.lock()
    one.close()
    assert three.lock()


def test_a_killed_process_loses_its_locks_and_keeps_the_page_cache() -> None:
    files = disk_with(b"old")
    file = files.open("d/a", write=True)
    assert file.lock()
    file.pwrite(b"new", 0)
    after = files.kill()
    for attempt in (lambda: file.pwrite(b"x", 0), lambda: files.list("d"), lambda: files.unlink("d/a")):
        with pytest.raises(Killed):
            attempt()
    assert read(after) == b"new"
    assert after.open("d/a").lock()
    assert outcomes(after, Mode.DROP) == {b"old"}


def test_the_watcher_sees_the_disk_before_each_step_and_may_kill() -> None:
    files = disk_with(b"old")
    seen = []

    def watch(now: CrashFiles) -> None:
        seen.append((now.disk.doing, read(now.clone_after_crash(KEEP))))
        if len(seen) == 3:
            now.kill()

    files.disk.watch = watch
    file = files.open("d/a", write=True)
    file.pwrite(b"1", 0)
    file.pwrite(b"2", 0)
    with pytest.raises(Killed):
        file.sync()
    assert seen == [(("pwrite", "d/a"), b"old"), (("pwrite", "d/a"), b"1ld"), (("sync", "d/a"), b"2ld")]


def test_a_clone_shares_nothing_with_its_origin() -> None:
    files = disk_with(b"old")
    after = files.clone_after_crash(KEEP)
    after.open("d/a", write=True).pwrite(b"new", 0)
    after.open("d/b", write=True, create=True)
    assert read(files) == b"old"
    assert not files.exists("d/b")
    files.open("d/a", write=True).pwrite(b"xyz", 0)
    assert read(after) == b"new"


def test_the_same_crash_gives_the_same_disk() -> None:
    files = disk_with(b"old" * 100)
    rng = Random(1)
    for number in range(8):
        file = files.open(f"d/{number % 3}", write=True, create=True)
        file.pwrite(rng.randbytes(700), number * 100)
    for mode in Mode:
        crash = Crash.parse(str(Crash(mode, 7)))
        assert files.clone_after_crash(crash).contents() == files.clone_after_crash(crash).contents()


def test_volatile_tells_whether_a_crash_can_lose_anything() -> None:
    files = disk_with(b"old")
    assert not files.volatile()
    file = files.open("d/a", write=True)
    file.pwrite(b"x", 0)
    assert files.volatile()
    file.sync()
    assert not files.volatile()
    files.rename("d/a", "d/b")
    assert files.volatile()


_FRAME = struct.Struct("<II")


def _bare_append(file: File, end: int, payload: bytes) -> int:
    file.pwrite(_FRAME.pack(len(payload), zlib.crc32(payload)) + payload, end)
    file.sync()
    return end + _FRAME.size + len(payload)


def _bare_read(file: File) -> list[bytes]:
    data = file.pread(1 << 20, 0)
    found, at = [], 0
    while at + _FRAME.size <= len(data):
        length, crc = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(payload) < length or not length or zlib.crc32(payload) != crc:
            break
        found.append(payload)
        at += _FRAME.size + length
    return found


def bare_log_schedules(seeds: int) -> int:
    """A minimal log, crashed before each of its steps in each way; gives the number of schedules."""
    payloads = [bytes([number]) * 40 for number in range(1, 9)]
    acked = 0
    schedules = 0

    def watch(files: CrashFiles) -> None:
        nonlocal schedules
        for mode in Mode:
            for seed in range(seeds):
                after = files.clone_after_crash(Crash(mode, seed))
                found = _bare_read(after.open("d/a"))
                assert acked <= len(found) <= acked + 1, (mode, seed)
                assert found == payloads[: len(found)], (mode, seed)
                schedules += 1

    files = disk_with(b"")
    files.disk.watch = watch
    file, end = files.open("d/a", write=True), 0
    for payload in payloads:
        end = _bare_append(file, end, payload)
        acked += 1
    return schedules


def test_a_bare_log_holds_at_every_step() -> None:
    assert bare_log_schedules(5) == 8 * 2 * len(Mode) * 5
