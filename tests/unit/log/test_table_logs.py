"""All logs of one table: who gets what, and what happens when one of them fails."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.control.statements import parse_predicate
from penstock.errors import DiskFull, InvalidInput, InvalidStatement, LogClosed, LogLocked
from penstock.filters.functions import Functions
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.log.table_logs import DEFAULT, Counts, LogSpec, Storage, TableLogs
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema

TABLE = TableId("ks", "t")
SCHEMA = TableSchema(TABLE, (Column("p", t.INT32, Role.PARTITION), Column("v", t.INT32)))
NEWER = TableSchema(TABLE, (Column("p", t.INT32, Role.PARTITION), Column("w", t.INT32)), version=2)


def fussy(value: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return value


FUNCTIONS = Functions({"fussy": fussy})
LARGE = LogSpec("large", parse_predicate("v >= 10"))
FUSSY = LogSpec("fussy", parse_predicate("fussy(v) > 0"))


def batch(*values: int, schema: TableSchema = SCHEMA) -> ChangeBatch:
    column = schema.columns[1].name
    return avro.encode(schema, [Change(Op.INSERT, {"p": i}, {column: Set(value)}) for i, value in enumerate(values)])


def stored(root: Path, name: str) -> list[int]:
    with LogReader(str(root / name)) as reader:
        return [
            cell.value
            for part in reader.read()
            for change in avro.decode(part)
            for cell in change.cells.values()
            if isinstance(cell, Set)
        ]


def test_each_log_takes_what_its_filter_keeps(tmp_path: Path) -> None:
    with TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec(), LARGE, FUSSY], FUNCTIONS) as logs:
        first = logs.append(batch(1, 10, -1))
        assert set(first) == {DEFAULT, "large", "fussy"}
        second = logs.append(batch(2))
        assert set(second) == {DEFAULT, "fussy"}
        assert second["fussy"] > first["fussy"]
        assert second[DEFAULT] == logs.log().end
        assert logs.counts() == {DEFAULT: Counts(4, 0, 0), "large": Counts(1, 3, 0), "fussy": Counts(3, 0, 1)}
        assert stored(tmp_path, "ks.t") == [1, 10, -1, 2]
        assert stored(tmp_path, "ks.t@large") == [10]
        assert stored(tmp_path, "ks.t@fussy") == [1, 10, 2]
        assert stored(tmp_path, "ks.t@fussy!parked") == [-1]


def test_nothing_is_returned_for_changes_that_no_log_takes(tmp_path: Path) -> None:
    with TableLogs(Storage(str(tmp_path)), SCHEMA, [LARGE]) as logs:
        assert logs.append(batch(1, 2)) == {}
        assert stored(tmp_path, "ks.t@large") == []


def test_parked_changes_survive_reopening_and_more_are_added(tmp_path: Path) -> None:
    for value in (-1, -2):
        with TableLogs(Storage(str(tmp_path)), SCHEMA, [FUSSY], FUNCTIONS) as logs:
            assert logs.append(batch(value)) == {}
    assert stored(tmp_path, "ks.t@fussy!parked") == [-1, -2]


def test_node_outside_the_data_centres_writes_nothing(tmp_path: Path) -> None:
    spec = LogSpec("m", data_centres=frozenset({"dc1", "dc3"}))
    with TableLogs(Storage(str(tmp_path), data_centre="dc2"), SCHEMA, [spec]) as logs:
        assert logs.names == ()
        assert logs.append(batch(1)) == {}
    assert list(tmp_path.iterdir()) == []
    with TableLogs(Storage(str(tmp_path), data_centre="dc3"), SCHEMA, [spec]) as logs:
        assert set(logs.append(batch(1))) == {"m"}


def test_predicate_that_cannot_work_leaves_no_directory_and_no_lock(tmp_path: Path) -> None:
    bad = LogSpec("bad", parse_predicate("missing = 1"))
    with pytest.raises(InvalidStatement, match="no column missing"):
        TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec(), bad])
    assert [path.name for path in tmp_path.iterdir()] == ["ks.t"]
    TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec()]).close()


def test_failure_of_one_log_fails_the_append_after_all_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec(), LARGE], FUNCTIONS) as logs:
        logs.append(batch(11))
        broken = logs.log("large")
        real = TableLog.submit

        def submit(log: TableLog, part: ChangeBatch) -> object:
            if log is broken:
                raise DiskFull("no room while appending", file="x")
            return real(log, part)

        monkeypatch.setattr(TableLog, "submit", submit)
        with pytest.raises(DiskFull):
            logs.append(batch(12))
        # The other log had it already: when the write is repeated it stands there twice, but is never missing.
        assert stored(tmp_path, "ks.t") == [11, 12]
        monkeypatch.undo()
        logs.append(batch(12))
        assert stored(tmp_path, "ks.t") == [11, 12, 12]
        assert stored(tmp_path, "ks.t@large") == [11, 12]


def test_parked_log_that_cannot_be_opened_fails_the_append(tmp_path: Path) -> None:
    other = Storage(str(tmp_path)).open(SCHEMA, "fussy", parked=True)
    with other, TableLogs(Storage(str(tmp_path)), SCHEMA, [FUSSY], FUNCTIONS) as logs:
        with pytest.raises(LogLocked):
            logs.append(batch(-1))
        assert logs.append(batch(5))


def test_filter_that_no_longer_fits_the_schema_parks_instead_of_guessing(tmp_path: Path) -> None:
    with TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec(), LARGE]) as logs:
        logs.append(batch(50))
        assert set(logs.append(batch(60, schema=NEWER))) == {DEFAULT}
        assert logs.counts()["large"] == Counts(1, 0, 1)
    assert stored(tmp_path, "ks.t@large") == [50]
    assert stored(tmp_path, "ks.t@large!parked") == [60]


def test_logs_come_and_go_while_open(tmp_path: Path) -> None:
    with TableLogs(Storage(str(tmp_path)), SCHEMA, []) as logs:
        assert logs.append(batch(1)) == {}
        assert logs.add(LARGE)
        assert set(logs.append(batch(20))) == {"large"}
        with pytest.raises(InvalidInput, match="open already"):
            logs.add(LARGE)
        assert logs.remove("large")
        assert not logs.remove("large")
        assert logs.append(batch(30)) == {}
        with pytest.raises(InvalidInput, match="writes no log 'large'"):
            logs.log("large")
    assert stored(tmp_path, "ks.t@large") == [20]


def test_log_removed_during_an_append_does_not_fail_it(tmp_path: Path) -> None:
    filtering, removed = threading.Event(), threading.Event()

    def waits(value: int) -> int:
        filtering.set()
        assert removed.wait(30)
        return fussy(value)

    slow = LogSpec("slow", parse_predicate("waits(v) > 0"))
    with TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec(), slow], Functions({"waits": waits})) as logs:
        results: list[set[str]] = []
        thread = threading.Thread(target=lambda: results.append(set(logs.append(batch(1, -1)))))
        thread.start()
        assert filtering.wait(30)
        assert logs.remove("slow")
        removed.set()
        thread.join()
        assert results == [{DEFAULT}]
        assert stored(tmp_path, "ks.t") == [1, -1]
        assert not (tmp_path / "ks.t@slow!parked").exists()


def test_closed_logs_say_so(tmp_path: Path) -> None:
    logs = TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec()])
    logs.close()
    logs.close()
    with pytest.raises(LogClosed, match="logs are closed"):
        logs.append(batch(1))


def test_many_threads_append_and_every_log_has_every_change(tmp_path: Path) -> None:
    each = 20
    with TableLogs(Storage(str(tmp_path)), SCHEMA, [LogSpec(), LARGE, FUSSY], FUNCTIONS) as logs:

        def work(number: int) -> None:
            for i in range(each):
                logs.append(batch(10 + number * each + i))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wanted = list(range(10, 10 + 6 * each))
        for name in ("ks.t", "ks.t@large", "ks.t@fussy"):
            assert sorted(stored(tmp_path, name)) == wanted
        assert not os.path.exists(tmp_path / "ks.t@fussy!parked")
