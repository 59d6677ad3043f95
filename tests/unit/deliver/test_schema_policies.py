"""What each sink does when a table changes, across batches and inside one: follow, go on without what is new, or stop.

Every sink that has a schema policy is taken through the same changes of the same table.
"""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import structlog
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.files.sink import FilesSink
from penstock.deliver.iceberg.sink import IcebergSink
from penstock.deliver.kafka import sink as kafka_sink
from penstock.deliver.kafka.packers import Packers
from penstock.deliver.kafka.sink import KafkaSink
from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Sink, Task
from penstock.errors import CorruptCheckpoint, SchemaRefused
from penstock.model import types as t
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.records import Records
from penstock.settings import RecordType, SchemaPolicy
from penstock.settings.kafka import KafkaSettings
from penstock.settings.sinks import DeltaSettings, FilesSettings, IcebergSettings, SearchSettings
from tests.lake_records import query
from tests.row_records import put, records_of
from tests.scripted_search import scripted_search

TABLE = TableId("shop", "orders")
ID = Column("id", t.INT64, Role.PARTITION)
Row = dict[str, Any]


def schema(version: int, *columns: Column) -> TableSchema:
    return TableSchema(TABLE, (ID, *columns), version=version)


FIRST = schema(1, Column("a", t.INT32))
# By name: the versions that follow, and the row that is written under the last of them.
CHANGES: dict[str, tuple[list[TableSchema], Row]] = {
    "add": ([schema(2, Column("a", t.INT32), Column("b", t.TEXT))], {"a": 2, "b": "x"}),
    "drop": ([schema(2)], {}),
    "rename": ([schema(2, Column("a2", t.INT32))], {"a2": 2}),
    "widen": ([schema(2, Column("a", t.INT64))], {"a": 1 << 40}),
    "drop and add again": ([schema(2), schema(3, Column("a", t.INT32))], {"a": 2}),
    "drop and add another": ([schema(2), schema(3, Column("a", t.TEXT))], {"a": "x"}),
}
# What a target that ignores new columns has of that row.
IGNORED: dict[str, Row] = {"add": {"a": 2}, "drop and add again": {"a": 2}}


class Bench(ABC):
    """One sink, and what its target has."""

    # What a target that follows has of the last row, where this is not the row itself; None: it refuses the change.
    evolved: ClassVar[dict[str, Row | None]] = {}
    # Changes that do not stop a sink that is told to stop: nothing is asked of the target.
    unnoticed: ClassVar[frozenset[str]] = frozenset()
    sink: Sink

    def __init__(self, directory: Path, policy: SchemaPolicy, opened: ExitStack) -> None:
        self.directory = directory
        self.policy = policy
        self.opened = opened
        self.start()

    @abstractmethod
    def start(self) -> None:
        """Make the sink, as a start of the pipeline does."""

    def keep(self) -> None:
        self.sink.keep_in(self.directory / "kept", "policies")

    def deliver(self, batch: int, *parts: tuple[TableSchema, Row]) -> None:
        records = [rows(version, number, row) for number, (version, row) in enumerate(parts, batch)]
        self.sink.prepare([version for version, _ in parts])
        self.write(batch, records)

    def write(self, batch: int, records: list[Records]) -> None:
        with pickle.loads(pickle.dumps(self.sink)).writer(Task("p", batch, 0, 0)) as writer:
            for some in records:
                writer.write(some)
            payload = writer.finish().payload
        self.sink.commit("p", batch, [payload] if payload else [])

    @abstractmethod
    def found(self) -> dict[int, Row]:
        """The rows that the target has, by key, without nulls."""


def rows(version: TableSchema, number: int, row: Row) -> Records:
    return records_of(version, [put({"id": number}, 100 + number, **row)])


def by_id(found: list[Row]) -> dict[int, Row]:
    return {row["id"]: {k: v for k, v in row.items() if k != "id" and v is not None} for row in found}


class Kafka(Bench):
    def start(self) -> None:
        settings = {"bootstrap_servers": "b:9092", "topic_prefix": "lab", "record": "after"}
        self.settings = KafkaSettings.model_validate({**settings, "schema_policy": self.policy})
        self.sink: KafkaSink = KafkaSink(self.settings)
        self.values: list[Row] = getattr(self, "values", [])

    def write(self, batch: int, records: list[Records]) -> None:
        packers = Packers(self.settings, pickle.loads(pickle.dumps(self.sink))._prepared)
        for some in records:
            for parcel in packers.pack(some, Task("p", batch, 0, 0)):
                self.values += [json.loads(value) for value in parcel.records.column("value").to_pylist()]

    def found(self) -> dict[int, Row]:
        return by_id([value["after"] for value in self.values])


class Search(Bench):
    evolved: ClassVar[dict[str, Row | None]] = {"widen": None, "drop and add another": None}
    unnoticed = frozenset({"drop", "drop and add again"})

    def start(self) -> None:
        if not hasattr(self, "cluster"):
            self.cluster = self.opened.enter_context(scripted_search())
        self.sink = SearchSink(SearchSettings(urls=(self.cluster.url,), schema_policy=self.policy))

    def found(self) -> dict[int, Row]:
        return by_id(list(self.cluster.rows("orders").values()))


class Delta(Bench):
    evolved: ClassVar[dict[str, Row | None]] = {"drop and add another": {"a__2": "x"}}
    unnoticed = frozenset({"drop", "drop and add again"})

    def start(self) -> None:
        self.sink = DeltaSink(DeltaSettings(directory=self.directory, schema_policy=self.policy))

    def found(self) -> dict[int, Row]:
        assert DeltaTable.is_deltatable(str(self.directory / "shop/orders"))
        return by_id(query(self.directory / "shop/orders"))


class Iceberg(Bench):
    evolved: ClassVar[dict[str, Row | None]] = Delta.evolved
    unnoticed = Delta.unnoticed

    def start(self) -> None:
        self.sink = IcebergSink(IcebergSettings(warehouse=self.directory, schema_policy=self.policy))

    def found(self) -> dict[int, Row]:
        where = {"uri": f"sqlite:///{self.directory}/penstock.db", "warehouse": self.directory.as_uri()}
        return by_id(
            load_catalog("penstock", type="sql", **where).load_table("shop.orders").scan().to_arrow().to_pylist()
        )


class Files(Bench):
    def start(self) -> None:
        settings = FilesSettings(
            directory=self.directory / "files",
            format="json",
            compression="none",
            record=RecordType.AFTER,
            schema_policy=self.policy,
        )
        self.sink = FilesSink(settings)
        self.sink.check()

    def found(self) -> dict[int, Row]:
        files = sorted((self.directory / "files/shop.orders").glob("*.jsonl"))
        lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
        return by_id([json.loads(line)["after"] for line in lines])


KINDS: list[type[Bench]] = [Kafka, Search, Delta, Iceberg, Files]
benches = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.lower())
changes = pytest.mark.parametrize("change", CHANGES)


class NoTopics:
    """A broker that has every topic."""

    def __init__(self, _: KafkaSettings) -> None:
        pass

    def make(self, names: Iterator[str]) -> None:
        list(names)

    def sizes(self, names: Iterator[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1 << 20)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(kafka_sink, "Topics", NoTopics)
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("together", [False, True], ids=["across batches", "inside one"])
@changes
@benches
def test_a_sink_that_follows_has_what_is_new(
    kind: type[Bench], change: str, together: bool, tmp_path: Path, opened: ExitStack
) -> None:
    bench = kind(tmp_path, SchemaPolicy.EVOLVE, opened)
    versions, row = CHANGES[change]
    wanted = bench.evolved.get(change, row)
    parts = [(FIRST, {"a": 1}), *((version, {}) for version in versions[:-1]), (versions[-1], row)]
    if wanted is None:
        with pytest.raises(SchemaRefused, match=r"index orders"):
            bench.deliver(1, *parts)
        return
    for number, part in enumerate([parts] if together else [[part] for part in parts], 1):
        bench.deliver(number, *part)
    found = bench.found()
    assert (found[1], found[len(parts)]) == ({"a": 1}, wanted)
    assert bench.sink.left_out() == {}


@pytest.mark.parametrize("together", [False, True], ids=["across batches", "inside one"])
@changes
@benches
def test_a_sink_that_ignores_leaves_out_what_is_new_and_says_so_once(
    kind: type[Bench], change: str, together: bool, tmp_path: Path, opened: ExitStack
) -> None:
    bench = kind(tmp_path, SchemaPolicy.IGNORE, opened)
    versions, row = CHANGES[change]
    parts = [(FIRST, {"a": 1}), *((version, {}) for version in versions[:-1]), (versions[-1], row)]
    with structlog.testing.capture_logs() as logs:
        for number, part in enumerate([parts] if together else [[part] for part in parts], 1):
            bench.deliver(number, *part)
        bench.sink.prepare([versions[-1]])
    found, wanted = bench.found(), IGNORED.get(change, {})
    assert (found[1], found[len(parts)]) == ({"a": 1}, wanted)
    lost = sorted(set(row) - set(wanted))
    assert bench.sink.left_out() == ({str(TABLE): lost} if lost else {})
    told = [entry for entry in logs if entry["log_level"] == "warning"]
    assert [entry["columns"] for entry in told] == ([lost] if lost else [])


@changes
@benches
def test_a_sink_that_must_not_follow_stops_at_a_change(
    kind: type[Bench], change: str, tmp_path: Path, opened: ExitStack
) -> None:
    bench = kind(tmp_path, SchemaPolicy.FAIL, opened)
    bench.deliver(1, (FIRST, {"a": 1}))
    if change in bench.unnoticed:
        bench.sink.prepare(CHANGES[change][0])
        return
    with pytest.raises(SchemaRefused, match=r"shop\.orders"):
        bench.sink.prepare(CHANGES[change][0])
    assert bench.found() == {1: {"a": 1}}


@benches
def test_a_key_can_neither_be_left_out_nor_get_another_name(
    kind: type[Bench], tmp_path: Path, opened: ExitStack
) -> None:
    bench = kind(tmp_path, SchemaPolicy.IGNORE, opened)
    bench.sink.prepare([FIRST])
    renamed = TableSchema(TABLE, (Column("number", t.INT64, Role.PARTITION), Column("a", t.INT32)), version=2)
    with pytest.raises(SchemaRefused, match="key"):
        bench.sink.prepare([renamed])


@pytest.mark.parametrize("kind", [Kafka, Files], ids=["kafka", "files"])
def test_a_target_that_takes_anything_is_remembered_over_a_restart(
    kind: type[Bench], tmp_path: Path, opened: ExitStack
) -> None:
    [wider], row = CHANGES["add"]
    bench = kind(tmp_path, SchemaPolicy.IGNORE, opened)
    bench.keep()
    bench.deliver(1, (FIRST, {"a": 1}))
    bench.start()
    bench.keep()
    bench.deliver(2, (wider, row))
    assert bench.found() == {1: {"a": 1}, 2: {"a": 2}}
    # Whoever lets it follow for a while, and then no more, has chosen the newer columns.
    for policy in (SchemaPolicy.EVOLVE, SchemaPolicy.FAIL):
        bench.policy = policy
        bench.start()
        bench.keep()
        bench.sink.prepare([wider])
    with pytest.raises(SchemaRefused, match="set to stop"):
        bench.sink.prepare([FIRST])
    [file] = (tmp_path / "kept").iterdir()
    file.write_text("{}")
    bench.start()
    bench.keep()
    with pytest.raises(CorruptCheckpoint, match="damaged"):
        bench.sink.prepare([FIRST])


@pytest.mark.parametrize("kind", [Kafka, Files], ids=["kafka", "files"])
def test_a_renamed_key_and_late_copies_of_the_old_name_are_delivered_as_they_are(
    kind: type[Bench], tmp_path: Path, opened: ExitStack
) -> None:
    bench = kind(tmp_path, SchemaPolicy.EVOLVE, opened)
    first = replace(FIRST, altered=1, id="one")
    number = Column("id2", t.INT64, Role.PARTITION)
    second = replace(first, columns=(ID, Column("a", t.INT32), Column("id2", t.INT64)), altered=3)
    renamed = TableSchema(TABLE, (number, Column("a", t.INT32)), altered=2, id="one")
    bench.sink.prepare([first, renamed, first])
    bench.deliver(1, (first, {"a": 1}))
    bench.deliver(2, (second, {"a": 2, "id2": 9}))
    assert bench.found() == {1: {"a": 1}, 2: {"a": 2, "id2": 9}}


@pytest.mark.parametrize("kind", [Kafka, Files], ids=["kafka", "files"])
def test_a_table_made_anew_is_followed_or_has_the_old_columns_or_stops_the_sink(
    kind: type[Bench], tmp_path: Path, opened: ExitStack
) -> None:
    first = replace(FIRST, altered=1, id="one")
    anew = replace(schema(1, Column("b", t.TEXT)), altered=2, id="two")
    bench = kind(tmp_path / "evolve", SchemaPolicy.EVOLVE, opened)
    bench.deliver(1, (first, {"a": 1}), (anew, {"b": "x"}))
    bench.sink.prepare([first])
    assert bench.found() == {1: {"a": 1}, 2: {"b": "x"}}
    bench = kind(tmp_path / "ignore", SchemaPolicy.IGNORE, opened)
    bench.keep()
    bench.deliver(1, (first, {"a": 1}), (anew, {"b": "x"}))
    bench.start()
    bench.keep()
    # It is known as the new one over a restart, and what is left of the old one changes nothing.
    bench.deliver(3, (first, {"a": 1}), (anew, {"b": "x"}))
    assert bench.found() == {1: {"a": 1}, 2: {}, 3: {"a": 1}, 4: {}}
    assert bench.sink.left_out() == {str(TABLE): ["b"]}
    other = TableSchema(TABLE, (Column("id", t.TEXT, Role.PARTITION),), altered=3, id="three")
    with pytest.raises(SchemaRefused, match="key"):
        bench.sink.prepare([other])
    bench = kind(tmp_path / "fail", SchemaPolicy.FAIL, opened)
    bench.keep()
    bench.sink.prepare([replace(first, id=""), first])
    bench.start()
    bench.keep()
    with pytest.raises(SchemaRefused, match="dropped and made anew") as caught:
        bench.sink.prepare([replace(first, altered=2, id="two")])
    assert caught.value.place["table"] == TABLE
