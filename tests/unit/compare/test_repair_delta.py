"""Repair of Delta tables: only rows that differ are written, by the sink's own rules, and what is left is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.compare.comparison import DOUBLED, Difference, Kind, Report, compare
from penstock.compare.delta_rows import DeltaRows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.repair import Repaired, repair
from penstock.deliver.delta.sink import DeltaSink
from penstock.errors import DeliveryFailed, InvalidInput
from penstock.model import types
from penstock.model.schema import Column, Role, TableSchema
from penstock.settings.sinks import DeltaSettings
from tests.given_rows import GivenRows
from tests.lake_records import SCHEMA, actions, by_key, deliver, query, records

Rows = dict[tuple[Any, ...], dict[str, Any]]


def given(rows: Rows, schema: TableSchema = SCHEMA) -> list[dict[str, Any] | None]:
    names = [column.name for column in schema.key]
    return [{**dict(zip(names, key, strict=True)), **row} for key, row in rows.items()]


def row(note: str | None, amount: int | None = 1) -> dict[str, Any]:
    return {"note": note, "amount": amount}


def table_of(directory: Path, rows: Rows, **settings: Any) -> DeltaSink:
    """A table that the sink has made, with these rows."""
    sink = DeltaSink(DeltaSettings(directory=directory, **settings))
    sink.prepare([SCHEMA])
    deliver(sink, 0, {0: [records(SCHEMA, rows.items())]})
    return sink


def repaired(source: GivenRows, target: DeltaRows) -> tuple[Report, Repaired]:
    report = compare(source, target, ranges=4)
    return report, repair(source, target, report, pipeline="p")


WANTED: Rows = {(number, "a"): row(f"n{number}", number) for number in range(20)}
CHANGED: Rows = {
    **{key: values for key, values in WANTED.items() if key != (3, "a")},
    (5, "a"): row("wrong", 5),
    (6, "a"): row(None, None),
    (77, "a|'"): row("too many"),
    (78, ""): row("too many"),
}


@pytest.mark.parametrize("vectors", [True, False])
def test_missing_different_and_extra_rows_become_what_the_source_has(tmp_path: Path, vectors: bool) -> None:
    table_of(tmp_path, CHANGED, deletion_vectors=vectors)
    directory = tmp_path / "shop/orders"
    source = GivenRows(SCHEMA, LakeShape(), given(WANTED))
    report, done = repaired(source, DeltaRows(directory, SCHEMA))
    assert report.counts == {Kind.MISSING: 1, Kind.EXTRA: 2, Kind.DIFFERENT: 2}
    assert (done.settled, done.repaired, done.left.total) == (0, 5, 0)
    # The last comparison is one of the keys that were repaired, not of all rows.
    assert (done.left.source_rows, done.left.target_rows) == (3, 3)
    assert by_key(query(directory)) == WANTED


def test_repair_is_one_commit_of_a_pipeline_of_its_own_with_the_differing_rows_only(tmp_path: Path) -> None:
    table_of(tmp_path, CHANGED)
    directory = tmp_path / "shop/orders"
    before = DeltaTable(str(directory)).version()
    repaired(GivenRows(SCHEMA, LakeShape(), given(WANTED)), DeltaRows(directory, SCHEMA))
    table = DeltaTable(str(directory))
    assert table.version() == before + 1
    batch = table.transaction_version("p.repair/shop.orders")
    assert batch is not None
    assert batch > 1_600_000_000_000_000
    assert table.transaction_version("p/shop.orders") == 0
    operations = [
        action["commitInfo"]["operation"] for action in actions(directory, before + 1) if "commitInfo" in action
    ]
    assert operations == ["MERGE"]


def test_pipeline_goes_on_after_a_repair(tmp_path: Path) -> None:
    sink = table_of(tmp_path, CHANGED)
    directory = tmp_path / "shop/orders"
    repaired(GivenRows(SCHEMA, LakeShape(), given(WANTED)), DeltaRows(directory, SCHEMA))
    change = {0: [records(SCHEMA, [((5, "a"), row("newer")), ((6, "a"), None)], version=50)]}
    with pytest.raises(DeliveryFailed, match="another program has changed the table"):
        deliver(sink, 1, change)
    deliver(sink, 1, change)
    expected = {**WANTED, (5, "a"): row("newer")}
    del expected[6, "a"]
    assert by_key(query(directory)) == expected


def test_row_that_has_become_right_is_left_alone(tmp_path: Path) -> None:
    table_of(tmp_path, {(1, "a"): row("new"), (2, "a"): row("old")})
    directory = tmp_path / "shop/orders"
    rows = given({(1, "a"): row("old"), (2, "a"): row("new")})

    def before(reading: int) -> None:
        if reading == 1:
            rows[0] = {"id": 1, "line": "a", **row("new")}
            rows[1] = {"id": 2, "line": "a", **row("newest")}

    source = GivenRows(SCHEMA, LakeShape(), rows, before)
    version = DeltaTable(str(directory)).version()
    report, done = repaired(source, DeltaRows(directory, SCHEMA))
    assert (report.total, done.settled, done.repaired, done.left.total) == (2, 1, 1, 0)
    assert by_key(query(directory)) == {(1, "a"): row("new"), (2, "a"): row("newest")}
    added = [action["add"] for action in actions(directory, version + 1) if "add" in action]
    assert sum('"numRecords":1' in add["stats"].replace(" ", "") for add in added) == 1


def test_nothing_is_written_when_all_has_become_right(tmp_path: Path) -> None:
    table_of(tmp_path, {(1, "a"): row("new")})
    directory = tmp_path / "shop/orders"
    rows = given({(1, "a"): row("old")})

    def before(reading: int) -> None:
        rows[0] = {"id": 1, "line": "a", **row("old" if reading == 0 else "new")}

    version = DeltaTable(str(directory)).version()
    _, done = repaired(GivenRows(SCHEMA, LakeShape(), rows, before), DeltaRows(directory, SCHEMA))
    assert (done.settled, done.repaired, done.left.total) == (1, 0, 0)
    assert DeltaTable(str(directory)).version() == version


def test_differences_beyond_those_that_are_kept_are_repaired_too(tmp_path: Path) -> None:
    table_of(tmp_path, {(1, "a"): row("x")})
    directory = tmp_path / "shop/orders"
    source, target = GivenRows(SCHEMA, LakeShape(), given(WANTED)), DeltaRows(directory, SCHEMA)
    report = compare(source, target, keep=2)
    assert len(report.differences) == 2
    assert repair(source, target, report, pipeline="p").repaired == 20
    assert by_key(query(directory)) == WANTED


def test_table_made_by_another_program_is_repaired(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 9], "line": ["a", "z"], "note": ["x", "y"], "amount": pa.array([1, 1], pa.int32())})
    write_deltalake(str(tmp_path / "any {name}"), rows, configuration={"delta.enableDeletionVectors": "true"})
    target = DeltaRows(tmp_path / "any {name}", SCHEMA)
    _, done = repaired(GivenRows(SCHEMA, LakeShape(), given({(1, "a"): row("new"), (2, "b"): row("two")})), target)
    assert (done.repaired, done.left.total) == (3, 0)
    assert by_key(query(tmp_path / "any {name}")) == {(1, "a"): row("new"), (2, "b"): row("two")}


@pytest.mark.parametrize("vectors", [True, False])
def test_rows_that_are_there_more_than_once_become_one_or_none(tmp_path: Path, vectors: bool) -> None:
    sink = table_of(
        tmp_path, {(1, "a"): row("one"), (2, "a"): row("wrong"), (3, "a"): row("gone")}, deletion_vectors=vectors
    )
    directory = tmp_path / "shop/orders"
    # Twice in one file of another program, and once more in another.
    for keys in ([1, 1, 3], [1]):
        count = len(keys)
        amounts = pa.array([1] * count, pa.int32())
        doubles = pa.table({"id": keys, "line": ["a"] * count, "note": ["two"] * count, "amount": amounts})
        write_deltalake(str(directory), doubles, mode="append")
    wanted = {(1, "a"): row("one"), (2, "a"): row("right")}
    report, done = repaired(GivenRows(SCHEMA, LakeShape(), given(wanted)), DeltaRows(directory, SCHEMA))
    assert {each.key for each in report.differences if DOUBLED in each.columns} == {'[1, "a"]', '[3, "a"]'}
    assert (done.repaired, done.left.total) == (3, 0)
    assert by_key(query(directory)) == wanted
    # The pipeline knows where the row is now.
    sink.prepare([SCHEMA])
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "a"), row("later"))])]})
    assert by_key(query(directory)) == {**wanted, (1, "a"): row("later")}


def test_partition_with_static_cells_only_is_a_row_without_clustering_values(tmp_path: Path) -> None:
    schema = dataclasses.replace(SCHEMA, columns=(*SCHEMA.columns, Column("owner", types.TEXT, Role.STATIC)))
    sink = DeltaSink(DeltaSettings(directory=tmp_path))
    sink.prepare([schema])
    written = [((1, "a"), {**row("one"), "owner": "anna"}), ((2,), {"owner": "bert"}), ((3,), {"owner": "carl"})]
    deliver(sink, 0, {0: [records(schema, written)]})
    rows = [{"id": 1, "line": "a", **row("one"), "owner": "anna"}, {"id": 2, "owner": "bert"}, None]
    report, done = repaired(GivenRows(schema, LakeShape(), rows), DeltaRows(tmp_path / "shop/orders", schema))
    assert report.differences == [Difference(Kind.EXTRA, "[3, null]")]
    assert (done.repaired, done.left.total) == (1, 0)
    report, done = repaired(
        GivenRows(schema, LakeShape(), [rows[0], {"id": 2, "owner": "dora"}]),
        DeltaRows(tmp_path / "shop/orders", schema),
    )
    assert report.differences == [Difference(Kind.DIFFERENT, "[2, null]", ("owner",))]
    assert (done.repaired, done.left.total) == (1, 0)


def test_extra_rows_with_a_collection_in_their_key_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    schema = TableSchema(
        SCHEMA.table, (Column("id", types.list_of(types.INT32), Role.PARTITION), Column("note", types.TEXT))
    )
    sink = DeltaSink(DeltaSettings(directory=tmp_path))
    sink.prepare([schema])
    deliver(sink, 0, {0: [records(schema, [(([1, 2],), {"note": "a"}), (([3],), {"note": "b"})])]})
    target = DeltaRows(tmp_path / "shop/orders", schema)
    source = GivenRows(schema, LakeShape(), [{"id": [1, 2], "note": "c"}])
    version = DeltaTable(target.name).version()
    with pytest.raises(InvalidInput, match="collection, tuple or user type is part of the key"):
        repaired(source, target)
    assert DeltaTable(target.name).version() == version
    # Without rows that are too many there is nothing to turn back.
    source.rows.append({"id": [3], "note": "b"})
    assert repaired(source, target)[1].repaired == 1


def test_no_table_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no Delta table here"):
        compare(GivenRows(SCHEMA, LakeShape(), []), DeltaRows(tmp_path / "nothing", SCHEMA))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": [1], "line": ["a"], "note": ["x"]}, "the table has no column amount"),
        ({"id": [1], "line": ["a"], "note": ["x"], "amount": [1 << 40]}, r"cannot \(.*column amount\)"),
        ({"id": [1], "line": ["a"], "note": ["x"], "amount": [[1]]}, r"cannot \(.*column amount\)"),
    ],
    ids=["lacking", "too large", "of another type"],
)
def test_table_whose_columns_are_not_the_sources_is_told(tmp_path: Path, rows: dict[str, Any], message: str) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table(rows))
    with pytest.raises(InvalidInput, match=message):
        compare(GivenRows(SCHEMA, LakeShape(), given(WANTED)), DeltaRows(tmp_path / "t", SCHEMA))


def test_table_with_wider_columns_is_compared_by_value(tmp_path: Path) -> None:
    wide = pa.table({"more": [0], "amount": [1], "id": [1], "note": ["x"], "line": ["a"]})
    write_deltalake(str(tmp_path / "t"), wide)
    source = GivenRows(SCHEMA, LakeShape(), given({(1, "a"): row("x")}))
    assert compare(source, DeltaRows(tmp_path / "t", SCHEMA)).same


def foreign(directory: Path, number: int) -> None:
    """Another program adds a row."""
    rows = pa.table({"id": [number], "line": ["f"], "note": ["x"], "amount": pa.array([1], pa.int32())})
    write_deltalake(str(directory), rows, mode="append")


@pytest.mark.parametrize("conflicts", [1, 99])
def test_repair_is_done_again_when_the_table_changes_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    table_of(tmp_path, CHANGED)
    directory = tmp_path / "shop/orders"
    commit = DeltaSink.commit
    calls: list[int] = []

    def disturbed(sink: DeltaSink, pipeline: str, batch: int, payloads: Sequence[bytes]) -> None:
        calls.append(batch)
        if len(calls) <= conflicts:
            foreign(directory, 100 + len(calls))
        commit(sink, pipeline, batch, payloads)

    monkeypatch.setattr(DeltaSink, "commit", disturbed)
    source, target = GivenRows(SCHEMA, LakeShape(), given(WANTED)), DeltaRows(directory, SCHEMA)
    if conflicts > 5:
        with pytest.raises(DeliveryFailed, match="another program has changed the table"):
            repaired(source, target)
        assert len(calls) == 6
        return
    _, done = repaired(source, target)
    assert (done.repaired, done.left.total) == (5, 0)
    assert calls == sorted(set(calls))
    assert by_key(query(directory)) == {**WANTED, (101, "f"): row("x")}


SPELLED = TableSchema(
    SCHEMA.table,
    (
        Column("id", types.DECIMAL, Role.PARTITION),
        Column("line", types.DECIMAL, Role.CLUSTERING),
        Column("note", types.TEXT),
    ),
)


def decimal(unscaled: int, scale: int) -> dict[str, Any]:
    return {"unscaled": unscaled.to_bytes(2, "big", signed=True).lstrip(b"\0") or b"\0", "scale": scale}


def spelled(*rows: tuple[int, str]) -> list[dict[str, Any] | None]:
    """Rows of partition 1.0 whose clustering value is 1, with as many zeros as it says."""
    return [{"id": decimal(10, 1), "line": decimal(10**scale, scale), "note": note} for scale, note in rows]


def spelled_table(directory: Path, *rows: tuple[str, str, str]) -> Path:
    names = ("id", "line", "note")
    write_deltalake(str(directory), pa.table([pa.array(values) for values in zip(*rows, strict=True)], names=names))
    return directory


def test_a_clustering_value_in_another_spelling_is_the_same_row_and_a_partition_key_is_not(tmp_path: Path) -> None:
    target = DeltaRows(spelled_table(tmp_path / "t", ("1.0", "1.00", "n")), SPELLED)
    assert compare(GivenRows(SPELLED, LakeShape(), spelled((1, "n"))), target).same
    other = DeltaRows(spelled_table(tmp_path / "u", ("1.00", "1.0", "n")), SPELLED)
    report = compare(GivenRows(SPELLED, LakeShape(), spelled((1, "n"))), other)
    assert report.counts == {Kind.MISSING: 1, Kind.EXTRA: 1, Kind.DIFFERENT: 0}


def test_a_row_in_another_spelling_is_repaired_under_the_one_that_the_target_has(tmp_path: Path) -> None:
    directory = spelled_table(tmp_path / "t", ("1.0", "1.00", "wrong"))
    report, done = repaired(GivenRows(SPELLED, LakeShape(), spelled((1, "n"))), DeltaRows(directory, SPELLED))
    assert report.differences == [Difference(Kind.DIFFERENT, '["1.0", "1"]', ("note",))]
    assert (done.repaired, done.left.total) == (1, 0)
    assert query(directory) == [{"id": "1.0", "line": "1.00", "note": "n"}]


def test_a_row_that_is_there_in_two_spellings_becomes_one(tmp_path: Path) -> None:
    directory = spelled_table(tmp_path / "t", ("1.0", "1.00", "n"), ("1.0", "1.0", "old"))
    report, done = repaired(GivenRows(SPELLED, LakeShape(), spelled((1, "n"))), DeltaRows(directory, SPELLED))
    assert report.differences == [Difference(Kind.EXTRA, '["1.0", "1"]', (DOUBLED,))]
    assert (done.repaired, done.left.total) == (1, 0)
    assert [row["note"] for row in query(directory)] == ["n"]
