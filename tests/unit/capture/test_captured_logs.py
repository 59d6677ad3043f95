"""The logs of many tables: what they hold already is not appended again, and a full disk is waited out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.capture.captured_logs import CapturedLogs
from penstock.capture.cassandra.agent.segment_keys import SegmentKeys, reach
from penstock.errors import Exhausted, LogFailed
from penstock.formats import avro
from penstock.log import seal_requests
from penstock.log.erasure import erase
from penstock.log.forgotten import Target
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.log.table_logs import LogSpec, Storage
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Origin, Set
from penstock.model.position import START
from penstock.model.predicate import ColumnRef, Compare, Literal, Operator
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import LogSettings
from penstock.system.files import Files, OsFiles
from testkit.crash_files import CrashFiles
from tests import sample

SETTINGS = LogSettings(reserve_bytes=0)


def change(number: int, *, file: str | None = "CommitLog-7-9.log", ordinal: int = 0) -> Change:
    origin = Origin(file=file, position=None if file is None else number * 10, ordinal=ordinal)
    return Change(Op.INSERT, {"id": number}, {"note": Set("")}, time=number, origin=origin)


def batch(*numbers: int, file: str | None = "CommitLog-7-9.log") -> ChangeBatch:
    return avro.encode(sample.SCHEMA, [change(number, file=file) for number in numbers])


def logs(root: Path | str, ends: dict[str, str] | None, files: Files | None = None, *specs: LogSpec) -> CapturedLogs:
    storage = Storage(str(root), SETTINGS, files)
    return CapturedLogs(storage, lambda _table: specs or (LogSpec(),), ends, SegmentKeys(), open_max=2)


def never(full: Exhausted) -> None:
    raise full


def stored(root: Path | str, name: str = "shop.orders", files: Files | None = None) -> list[int]:
    with LogReader(f"{root}/{name}", files=files) as reader:
        return sample.numbers(reader.read())


def test_what_stands_behind_the_noted_end_is_not_appended_again(tmp_path: Path) -> None:
    first = logs(tmp_path, {})
    first.append([batch(1, 2)], never)
    first.caught_up(lambda _key: False)
    noted = first.ends()
    first.append([batch(3, 4)], never)
    first.close()
    second = logs(tmp_path, noted)
    assert reach(second.repeats()) == {9: 40}
    second.append([batch(3, 4, 5)], never, again=True)
    second.append([batch(4)], never, again=True)
    second.close()
    assert stored(tmp_path) == [1, 2, 3, 4, 5]


def test_ends_stay_those_of_the_place_until_all_repeats_have_come(tmp_path: Path) -> None:
    first = logs(tmp_path, {})
    first.append([batch(1, 2)], never)
    first.close()
    second = logs(tmp_path, {})
    second.append([batch(1)], never, again=True)
    assert second.ends() == {}
    second.close()
    third = logs(tmp_path, second.ends())
    third.append([batch(1, 2, 3)], never, again=True)
    third.caught_up(lambda _key: False)
    assert third.ends() == {"shop.orders": "000001:" + str(_end(tmp_path))}
    third.close()
    assert stored(tmp_path) == [1, 2, 3]


def _end(root: Path) -> str:
    with LogReader(f"{root}/shop.orders") as reader:
        _, offset, ordinal = reader.end()
        return f"{offset}:{ordinal}"


def test_without_a_place_everything_before_the_last_file_counts_as_held(tmp_path: Path) -> None:
    small = LogSettings(file_bytes_max=4096, reserve_bytes=0)
    with TableLog.open(str(tmp_path / "shop.orders"), sample.SCHEMA, settings=small) as log:
        for first in range(0, 300, 50):
            log.append(batch(*range(first, first + 50)))
    again = logs(tmp_path, None)
    assert again.ends() is None
    again.append([batch(*range(300)), batch(300)], never, again=True)
    again.close()
    assert stored(tmp_path) == list(range(301))


def test_changes_of_a_snapshot_are_no_repeats(tmp_path: Path) -> None:
    first = logs(tmp_path, {})
    first.append([batch(1, file=None)], never)
    first.close()
    second = logs(tmp_path, {})
    second.append([batch(1, file=None), batch(2)], never, again=True)
    second.close()
    assert stored(tmp_path) == [1, 1, 2]


def test_log_that_was_replaced_by_an_older_copy_gets_a_change_twice_rather_than_never(tmp_path: Path) -> None:
    first = logs(tmp_path, {})
    first.append([batch(1)], never)
    first.close()
    second = logs(tmp_path, {"shop.orders": "000009:4096:3"})
    second.append([batch(1, 2)], never, again=True)
    second.close()
    assert stored(tmp_path) == [1, 1, 2]


def test_full_disk_is_waited_out_and_nothing_comes_twice() -> None:
    files = CrashFiles()
    large = LogSpec("large", Compare(ColumnRef("id"), Operator.MORE, Literal(2)))
    kept = logs("d", {}, files, LogSpec(), large)
    kept.append([batch(1)], never)
    waits: list[Exhausted] = []

    def free(full: Exhausted) -> None:
        waits.append(full)
        files.disk.capacity = None if len(waits) == 3 else files.disk.used

    files.disk.capacity = files.disk.used + 40
    kept.append([batch(2, 3), batch(4)], free)
    kept.close()
    assert stored("d", files=files) == [1, 2, 3, 4]
    assert stored("d", "shop.orders@large", files) == [3, 4]
    assert len(waits) == 3


def test_other_errors_end_the_append() -> None:
    files = CrashFiles()
    kept = logs("d", {}, files)
    kept.append([batch(1)], never)
    # The next data sync fails, so nothing more is acknowledged on this log.
    from testkit.crash_files import Fault

    files.disk.fault = Fault(files.disk.calls + 2, lasting=True)
    with pytest.raises(LogFailed):
        kept.append([batch(2)], never)


def test_logs_not_written_for_longest_are_closed(tmp_path: Path) -> None:
    from dataclasses import replace

    from penstock.model.schema import TableId

    kept = logs(tmp_path, {})
    schemas = [replace(sample.SCHEMA, table=TableId("shop", f"t{number}")) for number in range(5)]
    for _ in range(2):
        kept.append([avro.encode(schema, [change(1)]) for schema in schemas], never)
    for number in range(3):
        # A closed log can be opened by another writer.
        TableLog.open(str(tmp_path / f"shop.t{number}"), schemas[number]).close()
    kept.close()
    assert {str(table): count for table, count in kept.changes.items()} == {f"shop.t{n}": 2 for n in range(5)}


def test_redefined_logs_are_opened_anew(tmp_path: Path) -> None:
    specs = [LogSpec()]
    kept = CapturedLogs(Storage(str(tmp_path), SETTINGS), lambda _table: specs, {}, SegmentKeys())
    kept.append([batch(1)], never)
    specs.append(LogSpec("second"))
    kept.append([batch(2)], never)
    kept.refresh()
    kept.append([batch(3)], never)
    kept.close()
    assert stored(tmp_path) == [1, 2, 3]
    assert stored(tmp_path, "shop.orders@second") == [3]


def test_empty_start_knows_of_nothing(tmp_path: Path) -> None:
    kept = logs(tmp_path / "new", None)
    assert reach(kept.repeats()) == {}
    kept.caught_up(lambda _key: False)
    assert kept.ends() == {}
    assert START.file == 0


def headers(root: Path | str, files: Files | None = None) -> list[TableSchema]:
    with LogReader(f"{root}/shop.orders", files=files) as reader:
        return [reader.heading(number).schema for number in reader.numbers()]


def test_header_is_said_once_and_nothing_older_after_it(tmp_path: Path) -> None:
    first = replace(sample.SCHEMA, id="a", altered=5)
    later = [replace(first, truncated_us=7), replace(first, id="b", altered=9)]
    for schemas in ([first], later, [first, *later], later[:1]):
        # Each time as after a restart from a place that was saved before.
        made = logs(tmp_path, {})
        made.begin_files(schemas, never)
        made.begin_files(schemas, never)
        made.close()
    assert headers(tmp_path) == [first, *later]
    assert stored(tmp_path) == []


def test_header_goes_to_every_log_of_the_table_and_to_none_of_another_data_centre(tmp_path: Path) -> None:
    large = LogSpec("large", Compare(ColumnRef("id"), Operator.MORE, Literal(2)))
    specs = (LogSpec(), large, LogSpec("elsewhere", None, frozenset({"dc9"})))
    made = logs(tmp_path, {}, None, *specs)
    made.begin_files([sample.SCHEMA], never)
    made.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop.orders", "shop.orders@large"]


def test_table_whose_filter_does_not_fit_stops_no_other(tmp_path: Path) -> None:
    other = TableSchema(TableId("shop", "other"), (Column("k", t.INT32, Role.PARTITION),))
    storage = Storage(str(tmp_path), SETTINGS)
    unfit = LogSpec("unfit", Compare(ColumnRef("id"), Operator.MORE, Literal(2)))
    made = CapturedLogs(storage, lambda table: (unfit,) if table == other.table else (LogSpec(),), {}, SegmentKeys())
    made.begin_files([other, sample.SCHEMA], never)
    made.close()
    assert [path.name for path in tmp_path.iterdir()] == ["shop.orders"]


def test_header_waits_for_room_on_the_disk() -> None:
    files = CrashFiles()
    made = logs("d", {}, files)
    made.begin_files([sample.SCHEMA], never)
    files.disk.capacity = files.disk.used
    waited: list[Exhausted] = []

    def pause(full: Exhausted) -> None:
        waited.append(full)
        files.disk.capacity = None

    anew = replace(sample.SCHEMA, id="b", altered=9)
    made.begin_files([anew], pause)
    made.close()
    assert waited
    assert headers("d", files) == [sample.SCHEMA, anew]


def forget(root: Path, number: int) -> None:
    assert erase(f"{root}/shop.orders", lambda _: [Target((number,))]).complete


def test_a_change_that_was_erased_does_not_come_back_from_the_commit_log(tmp_path: Path) -> None:
    first = logs(tmp_path, {})
    first.append([batch(1, 2, 3)], never)
    first.close()
    forget(tmp_path, 2)
    for place_is_lost in (False, True):
        second = logs(tmp_path, None if place_is_lost else {})
        second.append([batch(1, 2, 3, 4)], never, again=True)
        second.close()
    assert stored(tmp_path) == [1, 3, 4]


def test_whoever_asks_gets_the_newest_file_of_an_open_log_ended(tmp_path: Path) -> None:
    kept = logs(tmp_path, {})
    kept.append([batch(1, 2)], never)
    directory = f"{tmp_path}/shop.orders"
    seal_requests.ask(OsFiles(), directory)

    def answered() -> bool:
        kept.refresh()
        return not seal_requests.waits(OsFiles(), directory)

    report = erase(directory, lambda _: [Target((2,))], seal=answered)
    assert report.complete
    assert report.files == [1]
    kept.append([batch(3)], never)
    kept.close()
    assert stored(tmp_path) == [1, 3]
