"""Renamed keys, columns that differ by case only, tables made anew and truncations, in every kind of lakehouse table.

The judges are other readers of the tables: delta-rs and pyiceberg.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog

from penstock.compare.comparison import compare
from penstock.compare.delta_rows import DeltaRows
from penstock.compare.iceberg_rows import IcebergRows
from penstock.compare.lake_rows import LakeRows, LakeShape
from penstock.compare.repair import repair
from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.iceberg.sink import IcebergSink
from penstock.deliver.sink import Sink
from penstock.errors import DeliveryFailed, SchemaRefused, SchemaUnfit
from penstock.model import types as t
from penstock.model.schema import Column, Role, TableSchema
from penstock.records.records import Records
from penstock.settings import SchemaPolicy
from penstock.settings.sinks import DeltaSettings, IcebergSettings
from tests.given_rows import GivenRows
from tests.lake_records import TABLE, actions, deliver, query, records, truncation

Rows = list[dict[str, Any]]


def schema(*columns: Column, altered: int = 1, id_: str = "one") -> TableSchema:
    return TableSchema(TABLE, columns, source="sandbox", altered=altered, id=id_)


def key(name: str, type_: t.Type = t.INT64, role: Role = Role.PARTITION) -> Column:
    return Column(name, type_, role)


def text(name: str, **more: Any) -> Column:
    return Column(name, t.TEXT, **more)


def in_order(rows: Iterable[dict[str, Any]]) -> Rows:
    return sorted(rows, key=lambda row: str(sorted(row.items())))


class Bench(ABC):
    """Tables of one kind. A sink is made anew whenever `restart` is called."""

    sink: Sink

    def __init__(self, directory: Path, policy: SchemaPolicy = SchemaPolicy.EVOLVE, **more: Any) -> None:
        self.directory = directory
        self.policy = policy
        self.more = more
        self.batch = 0
        self.restart()

    @abstractmethod
    def restart(self) -> None: ...

    @abstractmethod
    def read(self, *, history: bool = False) -> Rows: ...

    @abstractmethod
    def versions(self) -> int:
        """How often the table was committed to."""

    @abstractmethod
    def side(self, schema: TableSchema) -> LakeRows: ...

    def deliver(self, *given: Records, prepare: Sequence[TableSchema] | None = None) -> None:
        self.batch += 1
        self.sink.prepare([each.schema for each in given] if prepare is None else prepare)
        deliver(self.sink, self.batch, {0: given})

    def rows(self) -> Rows:
        return in_order(self.read())


class Delta(Bench):
    vectors = True

    def restart(self) -> None:
        self.sink = DeltaSink(
            DeltaSettings(
                directory=self.directory, schema_policy=self.policy, deletion_vectors=self.vectors, **self.more
            )
        )

    @property
    def place(self) -> Path:
        return self.directory / "shop/orders"

    def read(self, *, history: bool = False) -> Rows:
        return query(self.directory / "shop/orders_history" if history else self.place)

    def versions(self) -> int:
        return DeltaTable(str(self.place)).version()

    def side(self, schema: TableSchema) -> LakeRows:
        return DeltaRows(self.place, schema)


class WithoutVectors(Delta):
    vectors = False


class Iceberg(Bench):
    def settings(self) -> IcebergSettings:
        return IcebergSettings(warehouse=self.directory, schema_policy=self.policy, **self.more)

    def restart(self) -> None:
        self.sink = IcebergSink(self.settings())

    def table(self, *, history: bool = False) -> Any:
        where = {"uri": f"sqlite:///{self.directory}/penstock.db", "warehouse": self.directory.as_uri()}
        return load_catalog("penstock", type="sql", **where).load_table(f"shop.orders{'_history' * history}")

    def read(self, *, history: bool = False) -> Rows:
        found: Rows = self.table(history=history).scan().to_arrow().to_pylist()
        return found

    def versions(self) -> int:
        return len(self.table().metadata.metadata_log)

    def side(self, schema: TableSchema) -> LakeRows:
        return IcebergRows("iceberg:shop.orders", schema, self.settings())


KINDS: list[type[Bench]] = [Delta, WithoutVectors, Iceberg]
benches = pytest.mark.parametrize("kind", KINDS, ids=["delta", "without vectors", "iceberg"])
OLD = schema(key("k"), key("c", t.TEXT, Role.CLUSTERING), text("v"))
NEW = schema(key("key"), key("c", t.TEXT, Role.CLUSTERING), text("v"), altered=2)


def numbered(found: Iterable[dict[str, Any]], name: str) -> dict[Any, Any]:
    rows = list(found)
    out = {row.pop(name): row for row in rows}
    assert len(out) == len(rows)
    return out


# Keys that are renamed.


@benches
def test_a_renamed_key_is_renamed_for_all_rows_and_finds_them(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(OLD, [((n, "a"), {"v": f"old{n}"}) for n in range(4)]))
    bench.deliver(records(NEW, [((1, "a"), {"v": "new1"}), ((2, "a"), None), ((9, "a"), {"v": "new9"})]))
    wanted = {0: "old0", 1: "new1", 3: "old3", 9: "new9"}
    assert numbered(bench.read(), "key") == {n: {"c": "a", "v": v} for n, v in wanted.items()}
    # A late copy from another node's log is of the old name; the table does not go back to it.
    bench.restart()
    bench.deliver(records(OLD, [((3, "a"), None), ((0, "a"), {"v": "late"})]))
    assert numbered(bench.read(), "key") == {
        n: {"c": "a", "v": v} for n, v in ({**wanted, 0: "late"}).items() if n != 3
    }


@benches
def test_a_log_with_both_names_starts_on_an_empty_target(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(
        records(OLD, [((1, "a"), {"v": "x"})]), records(NEW, [((1, "a"), {"v": "y"}), ((2, "b"), {"v": "z"})])
    )
    assert bench.rows() == in_order([{"key": 1, "c": "a", "v": "y"}, {"key": 2, "c": "b", "v": "z"}])
    commits = bench.versions()
    bench.restart()
    bench.sink.prepare([OLD, NEW])
    assert bench.versions() == commits


@benches
def test_key_columns_can_exchange_their_names(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    one = schema(key("a"), key("b", role=Role.CLUSTERING), text("v"))
    other = schema(key("b"), key("a", role=Role.CLUSTERING), text("v"), altered=2)
    bench.deliver(records(one, [((1, 2), {"v": "x"}), ((2, 1), {"v": "y"})]))
    bench.deliver(records(other, [((1, 2), {"v": "z"})]))
    assert bench.rows() == in_order([{"b": 1, "a": 2, "v": "z"}, {"b": 2, "a": 1, "v": "y"}])


@benches
def test_a_key_gets_the_name_of_a_column_that_was_dropped(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    one = schema(key("k"), text("v"))
    two = schema(key("k"), altered=2)
    three = schema(key("v"), altered=3)
    bench.deliver(records(one, [((1,), {"v": "x"})]))
    bench.deliver(records(two, [((2,), {})]))
    bench.deliver(records(three, [((2,), {}), ((3,), {})]))
    assert bench.rows() == in_order(
        [
            {"v__2": 1, "v": "x"},
            {"v__2": 2, "v": None},
            {"v__2": 3, "v": None},
        ]
    )


@benches
def test_a_column_gets_the_name_that_a_key_had(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    one = schema(key("k"), key("c", role=Role.CLUSTERING), text("v"))
    two = schema(key("k"), key("d", role=Role.CLUSTERING), text("v"), text("c"), altered=2)
    bench.deliver(records(one, [((1, 1), {"v": "x"}), ((1, 2), {"v": "y"})]))
    bench.deliver(records(two, [((1, 2), {"v": "y", "c": "z"})]))
    wanted = [{"k": 1, "d": 1, "v": "x", "c": None}, {"k": 1, "d": 2, "v": "y", "c": "z"}]
    assert bench.rows() == in_order(wanted)


@benches
def test_a_target_that_was_made_before_there_were_notes_follows_a_renamed_key(
    kind: type[Bench], tmp_path: Path
) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    forget_notes(bench)
    bench.restart()
    bench.deliver(records(NEW, [((1, "a"), {"v": "y"}), ((2, "a"), {"v": "z"})]))
    assert bench.rows() == in_order([{"key": 1, "c": "a", "v": "y"}, {"key": 2, "c": "a", "v": "z"}])


def forget_notes(bench: Bench) -> None:
    """Leave the table as an older Penstock would have made it."""
    names = ["penstock.table_id", "penstock.columns"]
    if isinstance(bench, Iceberg):
        with bench.table().transaction() as transaction:
            transaction.remove_properties(*names)
        return
    assert isinstance(bench, Delta)
    log = bench.place / "_delta_log"
    first = log / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        for name in names:
            line.get("metaData", {}).get("configuration", {}).pop(name, None)
    first.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("policy", [SchemaPolicy.IGNORE, SchemaPolicy.FAIL])
@benches
def test_a_sink_that_does_not_follow_refuses_a_renamed_key_and_names_the_table(
    kind: type[Bench], policy: SchemaPolicy, tmp_path: Path
) -> None:
    bench = kind(tmp_path, policy)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    with pytest.raises(SchemaRefused, match="key column k is called key") as caught:
        bench.sink.prepare([NEW])
    assert caught.value.place["table"] == TABLE
    assert "evolve" in caught.value.hint


@benches
def test_a_key_of_another_type_is_refused_without_a_hint_at_policies(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    other = schema(key("k", t.TEXT), key("c", t.TEXT, Role.CLUSTERING), text("v"), altered=2)
    with pytest.raises(SchemaUnfit, match="has another type") as caught:
        bench.sink.prepare([other])
    assert caught.value.place["table"] == TABLE
    assert "evolve" not in caught.value.hint


@pytest.mark.parametrize("vectors", [True, False])
def test_a_renamed_key_divides_and_sorts_a_delta_table_as_before(vectors: bool, tmp_path: Path) -> None:
    kind = Delta if vectors else WithoutVectors
    bench = kind(tmp_path, partition_by={"*": ("k",)}, cluster_by={"*": ("c",)}, history=True)
    bench.deliver(records(OLD, [((1, "b"), {"v": "x"}), ((1, "a"), {"v": "x"}), ((2, "a"), {"v": "x"})]))
    newer = schema(key("key"), key("at", t.TEXT, Role.CLUSTERING), text("v"), altered=2)
    bench.deliver(records(newer, [((1, "b"), {"v": "y"}), ((2, "a"), None), ((3, "a"), {"v": "z"})]))
    assert bench.rows() == in_order(
        [
            {"key": 1, "at": "a", "v": "x"},
            {"key": 1, "at": "b", "v": "y"},
            {"key": 3, "at": "a", "v": "z"},
        ]
    )
    assert DeltaTable(str(bench.place)).metadata().partition_columns == ["key"]
    assert len(bench.read(history=True)) == 6
    bench.restart()
    bench.deliver(records(newer, [((3, "a"), None)]))
    assert len(bench.rows()) == 2


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_history_has_all_its_rows_under_the_new_name(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path, history=True)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    bench.deliver(records(NEW, [((1, "a"), {"v": "y"})]))
    bench.deliver(records(OLD, [((1, "a"), None)]))
    found = [(row["key"], row["v"], row["_op"]) for row in bench.read(history=True)]
    assert sorted(found, key=str) == [(1, "x", "insert"), (1, "y", "insert"), (1, None, "delete")]


# Columns that differ by case only.

CASES = schema(key("K"), key("k", t.TEXT, Role.CLUSTERING), text("A"), text("a"))


@benches
def test_columns_that_differ_by_case_only_are_kept_apart(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(CASES, [((1, "x"), {"A": "upper", "a": "lower"}), ((2, "x"), {"A": "u", "a": "l"})]))
    bench.deliver(records(CASES, [((2, "x"), None), ((1, "y"), {"A": None, "a": "l"})]))
    assert bench.rows() == in_order(
        [
            {"K__2": 1, "k": "x", "A__2": "upper", "a": "lower"},
            {"K__2": 1, "k": "y", "A__2": None, "a": "l"},
        ]
    )


@benches
def test_a_column_keeps_its_name_when_one_comes_that_differs_by_case_only(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(schema(key("id"), text("A")), [((1,), {"A": "x"})]))
    both = schema(key("id"), text("A"), text("a"), altered=2)
    bench.deliver(records(both, [((2,), {"A": "u", "a": "l"})]))
    bench.restart()
    # The first is dropped, and a third one comes: what the names stand for does not change.
    more = schema(key("id"), text("a"), text("a__2"), altered=3)
    bench.deliver(records(more, [((3,), {"a": "m", "a__2": "n"})]))
    assert bench.rows() == in_order(
        [
            {"id": 1, "A": "x", "a__2": None, "a__2__2": None},
            {"id": 2, "A": "u", "a__2": "l", "a__2__2": None},
            {"id": 3, "A": None, "a__2": "m", "a__2__2": "n"},
        ]
    )


@benches
def test_a_table_with_such_columns_is_compared_and_repaired(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    right = [{"K": 1, "k": "x", "A": "upper", "a": "lower"}, {"K": 2, "k": "x", "A": "u", "a": None}]
    wrong = [((1, "x"), {"A": "wrong", "a": "lower"}), ((3, "x"), {"A": "u", "a": "l"})]
    bench.deliver(records(CASES, wrong))
    source = GivenRows(CASES, LakeShape(), right)
    target = bench.side(CASES)
    report = compare(source, target)
    assert report.total == 3
    assert repair(source, target, report, pipeline="p").left.same
    assert bench.rows() == in_order(
        [
            {"K__2": 1, "k": "x", "A__2": "upper", "a": "lower"},
            {"K__2": 2, "k": "x", "A__2": "u", "a": None},
        ]
    )


@benches
def test_fields_of_a_user_type_that_differ_by_case_only_are_kept_apart(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    user = t.user("thing", {"X": t.INT32, "x": t.TEXT})
    bench.deliver(records(schema(key("id"), Column("u", user)), [((1,), {"u": {"X": 1, "x": "y"}})]))
    assert bench.rows() == [{"id": 1, "u": {"X": 1, "x__2": "y"}}]


# Tables that are dropped and made anew.

ANEW = schema(key("id", t.TEXT), Column("w", t.INT32), text("v"), altered=5, id_="two")


@benches
def test_a_table_made_anew_has_its_own_columns_key_and_rows_only(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(OLD, [((n, "a"), {"v": "x"}) for n in range(5)]))
    before = bench.versions()
    bench.sink.prepare([OLD, ANEW])
    assert bench.versions() == before + 1
    assert bench.rows() == []
    bench.deliver(records(ANEW, [(("1",), {"w": 1, "v": "y"}), (("2",), {"w": 2, "v": "z"})]))
    bench.deliver(records(ANEW, [(("1",), None)]))
    wanted = [{"id": "2", "w": 2, "v": "z"}]
    assert bench.rows() == wanted
    # Once more after a restart, and what is left of the old table.
    for _ in range(2):
        bench.restart()
        bench.deliver(records(ANEW, [(("2",), {"w": 2, "v": "z"})]), prepare=[OLD, ANEW])
        assert bench.rows() == wanted
    bench.deliver(records(OLD, [((1, "a"), None)]))
    assert bench.rows() == wanted


@benches
def test_an_unknown_id_replaces_nothing_and_a_target_without_one_takes_the_first(
    kind: type[Bench], tmp_path: Path
) -> None:
    bench = kind(tmp_path)
    nameless = replace(OLD, id="")
    bench.deliver(records(nameless, [((1, "a"), {"v": "x"})]))
    bench.sink.prepare([OLD])
    bench.sink.prepare([replace(nameless, altered=9)])
    assert bench.rows() == [{"k": 1, "c": "a", "v": "x"}]
    bench.restart()
    bench.sink.prepare([replace(OLD, id="two", altered=10)])
    assert bench.rows() == []


@benches
def test_a_sink_that_ignores_empties_the_table_and_keeps_its_columns(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path, SchemaPolicy.IGNORE)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    other = schema(key("k"), key("c", t.TEXT, Role.CLUSTERING), text("w"), altered=5, id_="two")
    bench.deliver(records(other, [((2, "a"), {"w": "lost"})]))
    assert bench.rows() == [{"k": 2, "c": "a", "v": None}]
    assert bench.sink.left_out() == {str(TABLE): ["w"]}
    with pytest.raises(SchemaRefused, match="key") as caught:
        bench.sink.prepare([replace(ANEW, altered=6, id="three")])
    assert caught.value.place["table"] == TABLE
    assert bench.rows() == [{"k": 2, "c": "a", "v": None}]


@benches
def test_a_sink_that_must_stop_stops_at_a_table_made_anew(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path, SchemaPolicy.FAIL)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    with pytest.raises(SchemaRefused, match="dropped and made anew") as caught:
        bench.sink.prepare([replace(OLD, id="two", altered=5)])
    assert caught.value.place["table"] == TABLE
    assert bench.rows() == [{"k": 1, "c": "a", "v": "x"}]


def test_a_delta_table_made_anew_is_one_commit_and_its_past_is_read_by_version(tmp_path: Path) -> None:
    bench = Delta(tmp_path)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    version = bench.versions()
    bench.sink.prepare([ANEW])
    kinds = [next(iter(action)) for action in actions(bench.place, version + 1)]
    assert kinds == ["commitInfo", "metaData", "remove"]
    past = QueryBuilder().register("t", DeltaTable(str(bench.place), version=version)).execute("SELECT * FROM t")
    assert pa.table(past.read_all()).to_pylist() == [{"k": 1, "c": "a", "v": "x"}]


def test_the_past_of_an_iceberg_table_made_anew_is_read_by_snapshot(tmp_path: Path) -> None:
    bench = Iceberg(tmp_path)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    snapshot = bench.table().current_snapshot().snapshot_id
    bench.sink.prepare([ANEW])
    assert bench.table().scan(snapshot_id=snapshot).to_arrow().to_pylist() == [{"k": 1, "c": "a", "v": "x"}]


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_history_goes_on_over_a_table_made_anew(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path, history=True)
    bench.deliver(records(schema(key("id"), text("v")), [((1,), {"v": "x"})]))
    bench.deliver(records(ANEW, [(("1",), {"w": 1, "v": "y"})]), prepare=[ANEW])
    bench.deliver(truncation(ANEW), records(schema(key("id"), text("v")), [((1,), None)]))
    found = [(row["id"], row["id__2"], row["v"], row["w"], row["_op"]) for row in bench.read(history=True)]
    assert sorted(found, key=str) == [
        (1, None, "x", None, "insert"),
        (1, None, None, None, "delete"),
        (None, "1", "y", 1, "insert"),
        (None, None, None, None, "truncate"),
    ]


# Columns that are dropped and added again.


@benches
def test_a_column_added_again_with_another_type_has_its_name_and_none_of_the_old_values(
    kind: type[Bench], tmp_path: Path
) -> None:
    bench = kind(tmp_path)
    one = schema(key("id"), Column("v", t.INT32), text("w"))
    two = schema(key("id"), text("w"), altered=2)
    three = schema(key("id"), Column("v", t.BYTES, dropped_us=7), text("w"), altered=3)
    bench.deliver(records(one, [((1,), {"v": 1, "w": "a"}), ((2,), {"v": 2, "w": "b"})]))
    bench.deliver(records(two, [((3,), {"w": "c"})]))
    bench.deliver(records(three, [((3,), {"v": b"x", "w": "d"})]))
    wanted = [(1, None, "a"), (2, None, "b"), (3, b"x", "d")]
    assert sorted((row["id"], row["v"], row["w"]) for row in bench.read()) == wanted
    bench.restart()
    bench.deliver(records(one, [((4,), {"v": 4, "w": "late"})]), prepare=[one, two, three])
    found = bench.read()
    assert sorted((row["id"], row["v"], row["w"]) for row in found) == [*wanted, (4, None, "late")]
    assert {name for row in found for name in row} == {"id", "v", "w"}


# Truncations.


@benches
def test_a_truncation_empties_the_table_and_later_rows_stay(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(OLD, [((n, "a"), {"v": "x"}) for n in range(5)]))
    bench.deliver(truncation(OLD))
    assert bench.rows() == []
    bench.deliver(records(OLD, [((1, "a"), {"v": "y"}), ((7, "a"), {"v": "y"})]))
    bench.deliver(records(OLD, [((7, "a"), None)]))
    assert bench.rows() == [{"k": 1, "c": "a", "v": "y"}]
    # In one batch: what comes before it goes, what comes after it stays.
    bench.deliver(
        records(OLD, [((2, "a"), {"v": "before"})]), truncation(OLD), records(OLD, [((3, "a"), {"v": "after"})])
    )
    assert bench.rows() == [{"k": 3, "c": "a", "v": "after"}]


@benches
def test_a_truncation_that_comes_again_takes_nothing_more(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    bench.deliver(records(OLD, [((1, "a"), {"v": "x"})]))
    bench.deliver(truncation(OLD), records(OLD, [((2, "a"), {"v": "y"})]))
    deliver(bench.sink, bench.batch, {0: [truncation(OLD), records(OLD, [((2, "a"), {"v": "y"})])]})
    assert bench.rows() == [{"k": 2, "c": "a", "v": "y"}]


def test_a_truncation_while_files_are_written_anew_takes_the_old_rows_too(tmp_path: Path) -> None:
    bench = Delta(tmp_path)
    bench.sink.prepare([OLD])
    for batch in range(1, 9):
        deliver(bench.sink, batch, {0: [records(OLD, [((batch, "a"), {"v": "x"})])]})
    given = {0: [records(OLD, [((50, "a"), {"v": "y"})])], 1: [truncation(OLD)]}
    with pytest.raises(DeliveryFailed, match="done again"):
        deliver(bench.sink, 9, given)
    # The driver says so before, so that it need not be found out.
    bench.sink.prepare([OLD])
    bench.sink.end_eras([OLD])
    deliver(bench.sink, 9, given)
    assert bench.rows() == [{"k": 50, "c": "a", "v": "y"}]
    deliver(bench.sink, 10, {0: [records(OLD, [((50, "a"), None), ((1, "a"), {"v": "z"})])]})
    assert bench.rows() == [{"k": 1, "c": "a", "v": "z"}]


@benches
def test_a_truncation_of_a_source_without_eras_takes_only_what_has_a_record(kind: type[Bench], tmp_path: Path) -> None:
    bench = kind(tmp_path)
    plain = replace(OLD, id="")
    bench.deliver(records(plain, [((1, "a"), {"v": "older"}), ((2, "a"), {"v": "written later"})]))
    bench.deliver(records(plain, [((1, "a"), None)]), truncation(plain))
    assert bench.rows() == [{"k": 2, "c": "a", "v": "written later"}]


SHAPES = ["struct", "map", "list", "list of maps", "map in a user type", "user type in a user type"]


def nested_column(shape: str, *fields: str) -> Column:
    pair = t.user("pair", dict.fromkeys(fields, t.INT32))
    whole = {
        "struct": pair,
        "map": t.map_of(t.TEXT, pair),
        "list": t.list_of(pair),
        "list of maps": t.list_of(t.map_of(t.TEXT, pair)),
        "map in a user type": t.user("outer", {"m": t.map_of(t.TEXT, pair)}),
        "user type in a user type": t.user("outer", {"i": pair}),
    }
    return Column("v", whole[shape])


def nested_value(shape: str, **fields: int | None) -> Any:
    pairs = [("a", fields)]
    return {
        "struct": fields,
        "map": pairs,
        "list": [fields],
        "list of maps": [pairs],
        "map in a user type": {"m": pairs},
        "user type in a user type": {"i": fields},
    }[shape]


@benches
@pytest.mark.parametrize("shape", SHAPES)
def test_a_user_type_inside_of_other_types_gets_a_field(kind: type[Bench], tmp_path: Path, shape: str) -> None:
    one, two = nested_column(shape, "x"), nested_column(shape, "x", "z")
    bench = kind(tmp_path)
    bench.deliver(records(schema(key("k"), one), [((n,), {"v": nested_value(shape, x=n)}) for n in range(3)]))
    bench.deliver(records(schema(key("k"), two, altered=2), [((1,), {"v": nested_value(shape, x=1, z=2)})]))
    wanted = [nested_value(shape, x=n, z=2 if n == 1 else None) for n in range(3)]
    assert bench.rows() == in_order([{"k": n, "v": value} for n, value in enumerate(wanted)])


@benches
@pytest.mark.parametrize("shape", SHAPES)
def test_a_field_of_a_user_type_is_renamed_for_all_rows(kind: type[Bench], tmp_path: Path, shape: str) -> None:
    one, two = nested_column(shape, "x", "y"), nested_column(shape, "ex", "y", "z")
    bench = kind(tmp_path)
    first, second = schema(key("k"), one), schema(key("k"), two, altered=2)
    bench.deliver(records(first, [((n,), {"v": nested_value(shape, x=n, y=7)}) for n in range(4)]))
    if kind is Iceberg and shape == "list of maps":
        with pytest.raises(SchemaUnfit, match="pyiceberg does not read"):
            bench.sink.prepare([second])
        return
    bench.deliver(records(second, [((1,), {"v": nested_value(shape, ex=10, y=8, z=9)})]))
    # What comes late under the older version goes to the same fields.
    bench.restart()
    bench.deliver(records(first, [((2,), {"v": nested_value(shape, x=20, y=6)})]))
    values = [(0, 7, None), (10, 8, 9), (20, 6, None), (3, 7, None)]
    wanted = [nested_value(shape, ex=x, y=y, z=z) for x, y, z in values]
    assert bench.rows() == in_order([{"k": n, "v": value} for n, value in enumerate(wanted)])


@benches
@pytest.mark.parametrize("fields", [("ex", "y"), ("x", "y", "z"), ("ex", "y", "z")], ids=", ".join)
def test_a_user_type_in_the_key_is_altered(kind: type[Bench], tmp_path: Path, fields: tuple[str, ...]) -> None:
    def place(*names: str) -> Column:
        return Column("c", t.user("pair", dict.fromkeys(names, t.INT32)), Role.CLUSTERING)

    def shown(number: int) -> dict[str, int | None]:
        return dict(zip(fields, (number, number, None), strict=False))

    def given(number: int) -> tuple[int | None, ...]:
        return tuple(shown(number).values())

    first = schema(key("k"), place("x", "y"), text("v"))
    second = schema(key("k"), place(*fields), text("v"), altered=2)
    bench = kind(tmp_path)
    bench.deliver(records(first, [((1, (n, n)), {"c": {"x": n, "y": n}, "v": f"old{n}"}) for n in range(3)]))
    bench.deliver(records(second, [((1, given(0)), {"c": shown(0), "v": "new"}), ((1, given(2)), None)]))
    wanted = [{"k": 1, "c": shown(0), "v": "new"}, {"k": 1, "c": shown(1), "v": "old1"}]
    assert bench.rows() == in_order(wanted)
