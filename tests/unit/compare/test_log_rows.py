"""The rows of large logs: folded bucket after bucket they are the same as folded at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.compare import log_rows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.log_rows import LogRows
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.merge import table_state
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema

TABLE = TableId("shop", "orders")
COLUMNS = (
    Column("id", t.INT64, Role.PARTITION),
    Column("line", t.TEXT, Role.CLUSTERING),
    Column("owner", t.TEXT, Role.STATIC),
    Column("note", t.TEXT),
)
SCHEMA = TableSchema(TABLE, COLUMNS, version=1, source="cassandra")
# The second version has dropped the note and got another column.
LATER = TableSchema(TABLE, (*COLUMNS[:3], Column("amount", t.INT32)), version=2, source="cassandra")


def put(number: int, line: str, time: int, **cells: Any) -> Change:
    sets = {name: Set(value) for name, value in cells.items()}
    return Change(Op.INSERT, {"id": number, "line": line}, sets, time=time, marker=Marker())


def logs(root: Path) -> list[str]:
    """Two nodes that each have most changes, one of them across a truncation and a change of the schema."""
    first = [put(number, line, 10, note="n", owner=f"o{number}") for number in range(200) for line in "ab"]
    truncation = Change(Op.TRUNCATE, time=20, deletion=Deletion(20, 0))
    again = [put(number, "a", 30, owner="again", note=f"n{number}") for number in range(0, 200, 2)]
    gone = [Change(Op.DELETE_PARTITION, {"id": 4}, time=40, deletion=Deletion(40, 0))]
    later = [put(number, "c", 50, amount=number) for number in range(0, 200, 3)]
    written = {
        "n1": [(SCHEMA, [*first, truncation, *again]), (LATER, later)],
        "n2": [(SCHEMA, [*again, *gone, *first])],
    }
    directories = []
    for node, parts in written.items():
        directories.append(str(root / node))
        for schema, changes in parts:
            with TableLog.open(directories[-1], schema, node=node) as log:
                for start in range(0, len(changes), 50):
                    log.append(avro.encode(schema, changes[start : start + 50]))
    return directories


def rows(directories: list[str], bucket_bytes: int) -> list[dict[str, Any]]:
    source = LogRows(directories, TABLE, LakeShape(), 100, bucket_bytes=bucket_bytes)
    return sorted(
        (row for some in source.images() for row in some.to_pylist()), key=lambda row: (row["id"], row["line"])
    )


def test_buckets_give_the_same_rows_and_hold_few_of_them_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = logs(tmp_path)
    sizes: list[int] = []

    def counted(state: table_state.TableState, now_s: int) -> list[dict[str, Any]]:
        found = list(table_state.visible(state, now_s))
        sizes.append(len(found))
        return found

    monkeypatch.setattr(log_rows, "visible", counted)
    at_once = rows(directories, 1 << 30)
    assert sizes == [len(at_once)]
    assert len(at_once) > 150
    sizes.clear()
    assert rows(directories, 1000) == at_once
    assert len(sizes) > 10
    assert max(sizes) < len(at_once) // 3


def test_rows_of_the_table_that_had_the_id_before_and_of_one_that_stays_empty_are_gone(tmp_path: Path) -> None:
    old = replace(SCHEMA, id="a", altered=5)
    again = replace(old, altered=9, remade_us=5)
    unaware = replace(old, altered=9)
    for node, parts in {"n1": [(old, 1), (again, 2)], "n2": [(old, 1)], "n3": [(unaware, 3)]}.items():
        for schema, number in parts:
            with TableLog.open(str(tmp_path / node), schema, node=node) as log:
                log.append(avro.encode(schema, [put(number, "a", 10, note="n")]))
    directories = [str(tmp_path / node) for node in ("n1", "n2", "n3")]
    assert [row["id"] for row in rows(directories, 1 << 20)] == [2, 3]
    with TableLog.open(directories[0], replace(old, id="b", altered=12), node="n1") as log:
        log.begin(replace(old, id="b", altered=12))
    assert rows(directories, 1 << 20) == []


def test_what_a_drop_took_stays_gone_when_the_column_is_dropped_again_as_of_an_earlier_time(tmp_path: Path) -> None:
    first = replace(SCHEMA, id="a", altered=5)
    without = tuple(column for column in COLUMNS if column.name != "note")
    again = [replace(first, columns=(*without, replace(COLUMNS[3], dropped_us=time))) for time in (30, 15)]
    versions = [
        first,
        replace(first, columns=without, altered=6, dropped=(("note", 30),)),
        replace(again[0], altered=7),
        replace(first, columns=without, altered=8, dropped=(("note", 15),)),
        replace(again[1], altered=9),
    ]
    for number, version in enumerate(versions):
        with TableLog.open(str(tmp_path / "n1"), version, node="n1") as log:
            log.begin(version)
            if number % 2 == 0:
                log.append(avro.encode(version, [put(number, "a", 20, note="n"), put(number, "b", 40, note="n")]))
    found = {(row["id"], row["line"]): row["note"] for row in rows([str(tmp_path / "n1")], 1 << 20)}
    assert found == {(0, "a"): None, (0, "b"): "n", (2, "a"): None, (2, "b"): "n", (4, "a"): "n", (4, "b"): "n"}
