"""Tables that something is wrong with, in a query without Spark, which ends wherever a test wants it to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from structlog.testing import capture_logs

from penstock.deliver.files.sink import FilesSink
from penstock.errors import (
    CorruptCheckpoint,
    CorruptLog,
    DeliveryFailed,
    PenstockError,
    SchemaRefused,
    StorageError,
    TargetRefused,
)
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.log.checkpoint import Checkpoint as LogCheckpoint
from penstock.log.checkpoint import load_all
from penstock.log.table_log import TableLog
from penstock.model.change import Change, Expiry, Marker, Op, Set
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline.blame import blamed, prepare
from penstock.pipeline.checkpoint import Checkpoint
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.troubles import Trouble, Troubles
from penstock.settings import PipelineSettings, RecordType, Settings
from penstock.settings.sinks import DeltaSettings, FileCompression, FileFormat, FilesSettings
from penstock.system.files import OsFiles
from tests import many_logs
from tests.query_stand_in import Crash, GoingOn, OnceSink

PLUMS = TableId("shop", "plums")


def settings(home: Path, **more: Any) -> Settings:
    (home / "n1").mkdir(exist_ok=True)
    return Settings(
        pipeline=PipelineSettings(
            name="test",
            checkpoint_directory=home / "checkpoint",
            logs=(str(home / "n1"),),
            sinks=more.pop("sinks", ("delta", "files")),
            buckets=2,
            **more,
        ),
        delta=DeltaSettings(directory=home / "lake", history=True),
        files=FilesSettings(
            directory=home / "files",
            format=FileFormat.JSON,
            compression=FileCompression.NONE,
            record=RecordType.CHANGE,
        ),
    )


def put(home: Path, ids: range, *tables: str) -> None:
    for table in tables or ("apples", "plums"):
        many_logs.write(home / "n1", table, ids.start, 1, each=len(ids))


def in_files(home: Path, table: str) -> list[int]:
    """The keys in a table's files, each as often as it is there."""
    files = (home / "files" / f"shop.{table}").glob("[!.]*.json*")
    return sorted(json.loads(line)["key"]["id"] for file in files for line in file.read_text().splitlines())


def in_lake(home: Path, table: str) -> list[int]:
    """The keys of a Delta table, as another reader sees them, each as often as it is there."""
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake/shop" / table))).execute("SELECT id FROM t")
    return sorted(row["id"] for batch in found for row in pa.record_batch(batch).to_pylist())


def assert_whole(home: Path, upto: int, *tables: str) -> None:
    for table in tables:
        assert in_files(home, table) == list(range(upto)), table
        if not (home / "lake").exists():
            continue
        assert in_lake(home, table) == list(range(upto)), table
        assert in_lake(home, f"{table}_history") == list(range(upto)), table


@contextmanager
def refusing(home: Path, table: str = "plums") -> Iterator[None]:
    """No directory for a table's files while this lasts."""
    directory = home / "files" / f"shop.{table}"
    away = home / "away"
    directory.parent.mkdir(exist_ok=True)
    if directory.exists():
        directory.rename(away)
    directory.write_text("a file where the directory should be")
    try:
        yield
    finally:
        directory.unlink()
        if away.exists():
            away.rename(directory)


def subscribed(home: Path, table: str) -> Any:
    """How far the pipeline's subscription in a log has come."""
    found = load_all(OsFiles(), str(home / "n1" / f"shop.{table}")).values()
    return next(one.position for one in found if isinstance(one, LogCheckpoint))


class Staged(GoingOn):
    """One that remembers how far its life has come."""

    stage: float = 0


def life(home: Path, query: Staged) -> None:
    """A table that a target refuses in its second batch, and takes again later."""
    if query.stage < 1:
        put(home, range(10))
        query.stage = 1
    if query.stage < 2:
        query.start().run()
        put(home, range(10, 20))
        query.stage = 2
    if query.stage < 3:
        with refusing(home):
            query.start().run()
            assert list(query.pipeline.status().troubles) == ["shop.plums"]
            if query.stage < 2.5:
                put(home, range(20, 30))
                query.stage = 2.5
            query.run()
            assert_whole(home, 30, "apples")
        query.stage = 3
    query.start().run()
    query.stop()


def test_table_that_a_target_refuses_comes_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Staged(settings(tmp_path), monkeypatch)
    with capture_logs() as logs:
        life(tmp_path, query)
    assert query.pipeline.status().troubles == {}
    assert_whole(tmp_path, 30, "apples", "plums")
    told = [entry["event"] for entry in logs if entry["event"].startswith("table ")]
    assert told == ["table in trouble", "table well again"]
    assert list((tmp_path / "checkpoint/troubles").iterdir()) == []


# Whatever is written on the way, and may be the last thing that a process does.
STEPS: list[tuple[Any, str]] = [
    (Checkpoint, "batch_time"),
    (Pipeline, "_outcomes"),
    (FilesSink, "commit"),
    (StateStore, "commit"),
    (Troubles, "write"),
    (Troubles, "remove"),
    (Staged, "note_done"),
    (Planner, "commit"),
    (Planner, "latest"),
]


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch, last: int | None = None) -> Iterator[list[str]]:
    """Count the steps; the process ends before the one with number `last`."""
    done: list[str] = []
    with monkeypatch.context() as patched:
        for owner, method in STEPS:
            original: Callable[..., Any] = getattr(owner, method)

            def step(*given: Any, _name: str = method, _original: Callable[..., Any] = original, **named: Any) -> Any:
                if len(done) == last:
                    raise Crash
                done.append(_name)
                return _original(*given, **named)

            patched.setattr(owner, method, step)
        yield done


def test_no_end_of_the_process_loses_or_repeats_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole").mkdir()
    with counting(monkeypatch) as steps:
        life(tmp_path / "whole", Staged(settings(tmp_path / "whole", sinks=("files",)), monkeypatch))
    # The batches before anything is wrong have a test of their own.
    first = steps.index("write") - 6
    for last in range(first, len(steps)):
        home = tmp_path / str(last)
        home.mkdir()
        query = Staged(settings(home, sinks=("files",)), monkeypatch)
        with counting(monkeypatch, last), pytest.raises(Crash):
            life(home, query)
        life(home, query)
        assert query.pipeline.status().troubles == {}, (last, steps[last])
        assert_whole(home, 30, "apples", "plums")


def test_damage_holds_a_table_and_the_files_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = GoingOn(settings(tmp_path), monkeypatch)
    put(tmp_path, range(10))
    query.start().run().stop()
    before = subscribed(tmp_path, "plums")
    put(tmp_path, range(10, 20))
    [file] = (tmp_path / "n1/shop.plums").glob("*.avro")
    sound = file.read_bytes()
    file.write_bytes(sound[:-40] + bytes(20) + sound[-20:])
    query.start().run().stop()
    assert query.pipeline.status().troubles["shop.plums"].error == "CorruptLog"
    assert_whole(tmp_path, 20, "apples")
    assert_whole(tmp_path, 10, "plums")
    assert subscribed(tmp_path, "plums") == before < subscribed(tmp_path, "apples")
    # While it runs, someone mends the log and asks.
    query.start().run()
    file.write_bytes(sound)
    put(tmp_path, range(20, 30))
    assert Troubles(tmp_path / "checkpoint/troubles").ask(PLUMS)
    query.run().stop()
    assert query.pipeline.status().troubles == {}
    assert_whole(tmp_path, 30, "apples", "plums")
    assert subscribed(tmp_path, "plums") > before


@pytest.mark.parametrize("before", [True, False], ids=["known", "new"])
def test_log_whose_first_file_cannot_be_read_holds_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    query = GoingOn(settings(tmp_path), monkeypatch)
    put(tmp_path, range(10))
    if before:
        query.start().run().stop()
    put(tmp_path, range(10, 20))
    [file] = (tmp_path / "n1/shop.plums").glob("*.avro")
    sound = file.read_bytes()
    file.write_bytes(b"not a log" + sound[9:])
    query.start().run().stop()
    assert list(query.pipeline.status().troubles) == ["shop.plums"]
    assert_whole(tmp_path, 20, "apples")
    file.write_bytes(sound)
    query.start().run().stop()
    assert query.pipeline.status().troubles == {}
    assert_whole(tmp_path, 20, "apples", "plums")


def test_bucket_that_has_given_its_records_for_good_does_not_give_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(tmp_path, sinks=("once",), own_sinks={"once": "tests.query_stand_in:OnceSink"})
    OnceSink.begin()
    query = GoingOn(made, monkeypatch)
    put(tmp_path, range(10))
    query.start().run()
    OnceSink.refused = "shop.plums", 1
    put(tmp_path, range(10, 40))
    query.run().stop()
    assert list(query.pipeline.status().troubles) == ["shop.plums"]
    given = sorted(id_ for table, id_ in OnceSink.given if table == "shop.plums")
    assert 10 < len(given) < 40
    OnceSink.refused = None
    query.start().run().stop()
    assert query.pipeline.status().troubles == {}
    for table in ("shop.apples", "shop.plums"):
        assert sorted(id_ for name, id_ in OnceSink.given if name == table) == list(range(40))


def test_row_that_expires_while_its_table_is_held_is_deleted_when_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = _Clock()
    query = GoingOn(settings(tmp_path, sinks=("delta",)), monkeypatch, clock=clock)
    schema = many_logs.schema_of("plums")
    with TableLog.open(str(tmp_path / "n1/shop.plums"), schema, node="n1") as log:
        log.append(avro.encode(schema, [_mortal(1, clock.now_s + 100), _mortal(2, clock.now_s + 10_000)]))
    query.start().run()
    assert in_lake(tmp_path, "plums") == [1, 2]
    put(tmp_path, range(10, 20))
    with _no_commits(tmp_path / "lake/shop/plums"):
        query.run()
        assert list(query.pipeline.status().troubles) == ["shop.plums"]
        clock.now_s += 1000
        put(tmp_path, range(20, 30), "apples")
        query.run()
    put(tmp_path, range(30, 40))
    query.start().run().stop()
    assert in_lake(tmp_path, "plums") == [2, *range(10, 20), *range(30, 40)]


def test_where_time_may_help_a_table_is_tried_again_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock()
    query = GoingOn(settings(tmp_path), monkeypatch, clock=clock)
    tried: list[int] = []
    original = FilesSink.prepare

    def refuse(sink: FilesSink, schemas: Any) -> None:
        for schema in schemas:
            if schema.table == PLUMS and len(tried) < 5:
                tried.append(clock.now_s)
                raise DeliveryFailed("not now", table=schema.table)
        original(sink, schemas)

    monkeypatch.setattr(FilesSink, "prepare", refuse)
    put(tmp_path, range(10))
    # The batch is tried three times before the table is left out.
    query.start().run()
    assert len(tried) == 3
    assert list(query.pipeline.status().troubles) == ["shop.plums"]
    assert_whole(tmp_path, 10, "apples")
    query.run()
    assert len(tried) == 3
    clock.now_s += 60
    query.run()
    clock.now_s += 60
    query.run()
    assert query.pipeline.status().troubles == {}
    assert_whole(tmp_path, 10, "apples", "plums")


def test_damaged_trouble_is_told_and_not_passed_over(tmp_path: Path) -> None:
    troubles = Troubles(tmp_path)
    made = Trouble(PLUMS, "CorruptLog", "damage", 5, batch=3, moved={"a": (None, "1:2:3:4:5")}, expired={0: 7})
    troubles.write(made)
    assert troubles.read() == {PLUMS: made}
    file = tmp_path / "shop.plums.json"
    file.write_bytes(file.read_bytes().replace(b'"batch":3', b'"batch":2'))
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        troubles.read()


def test_error_of_a_target_is_blamed_on_the_tables_that_go_there() -> None:
    apples = TableId("shop", "apples")
    sources = {"fruit.all": {apples, PLUMS}, "shop.apples": {apples}}
    refused = StorageError("no", table="fruit.all (history)")
    assert blamed(refused, [apples, PLUMS], sources) == {apples, PLUMS}
    assert blamed(CorruptLog("damage", table="shop.plums"), [apples, PLUMS], sources) == {PLUMS}
    assert blamed(CorruptLog("damage", table="else.where"), [apples, PLUMS], sources) == frozenset()
    assert blamed(StorageError("no", directory="/lake"), [apples], sources) == frozenset()


class _Clock:
    """A clock that the test sets."""

    now_s = 1_800_000_000

    def now_us(self) -> int:
        return self.now_s * 1_000_000

    def monotonic(self) -> float:
        return float(self.now_s)


def _mortal(number: int, until_s: int) -> Change:
    expiry = Expiry(100, until_s)
    cells = {"note": Set("x", expiry=expiry)}
    return Change(Op.INSERT, {"id": number}, cells, time=number, marker=Marker(expiry=expiry))


@contextmanager
def _no_commits(table: Path) -> Iterator[None]:
    """A table whose directory is somebody else's for a while."""
    log, away = table / "_delta_log", table.parent / "away"
    table.rename(away)
    write_deltalake(str(table), pa.table({"somebody": ["else's"]}))
    assert log.exists()
    yield
    shutil.rmtree(table)
    away.rename(table)


def test_refusal_to_prepare_is_blamed_on_the_table_that_is_refused_alone() -> None:
    apples, plums = many_logs.schema_of("apples"), many_logs.schema_of("plums")

    class Registry(OnceSink):
        bad: set[TableId]
        error: PenstockError

        def prepare(self, schemas: Sequence[TableSchema]) -> None:
            if any(schema.table in self.bad for schema in schemas):
                raise self.error

    sink = Registry({})
    sink.bad, sink.error = {PLUMS}, TargetRefused("no right to it")
    with pytest.raises(TargetRefused) as raised:
        prepare(sink, [apples, plums])
    assert raised.value.place == {"table": PLUMS}
    # All of them: that is the target's own matter.
    sink.bad = {apples.table, PLUMS}
    with pytest.raises(TargetRefused) as raised:
        prepare(sink, [apples, plums])
    assert raised.value.place == {}
    sink.bad, sink.error = {PLUMS}, SchemaRefused("does not fit", subject="plums-value")
    with pytest.raises(SchemaRefused) as raised_too:
        prepare(sink, [plums])
    assert raised_too.value.place == {"subject": "plums-value", "table": PLUMS}
