"""Documents are the rows: whatever is written, in whatever order, however often batches are done again.

Random changes of a table with static columns go through fold and sink in batches, as in a pipeline's tasks, some of
which are delivered and then done once more, as after a crash. The documents are then the rows that a merge of all
changes shows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Task
from penstock.fold.bucket import BucketState
from penstock.fold.folder import Folder
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.merge.table_state import fold, visible
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Bound, Change, Deleted, Deletion, Marker, Op, Range, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType
from penstock.settings.sinks import SearchSettings
from tests.scripted_search import ScriptedSearch, scripted_search

SCHEMA = TableSchema(
    TableId("shop", "carts"),
    (
        Column("customer", t.TEXT, Role.PARTITION),
        Column("line", t.INT32, Role.CLUSTERING),
        Column("tier", t.TEXT, Role.STATIC),
        Column("note", t.TEXT),
        Column("count", t.INT64),
    ),
    source="cassandra",
)
# A table whose partitions are one row each.
NARROW = TableSchema(
    SCHEMA.table, tuple(column for column in SCHEMA.columns if column.name not in ("line", "tier")), source="cassandra"
)
NOW_US = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptedSearch]:
    with scripted_search() as made:
        yield made


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_documents_are_the_rows(cluster: ScriptedSearch, tmp_path: Path, seed: int, every: bool) -> None:
    chance = random.Random(seed)
    schema = SCHEMA if seed % 4 else NARROW
    changes = [_change(chance, schema, NOW_US + at) for at in range(60)]
    # Replicas log the same changes, each in an order of its own.
    copies = [change for _ in range(2) for change in chance.sample(changes, len(changes))]
    sink = SearchSink(SearchSettings(urls=(cluster.url,), index=f"{seed}-{every}-{{table}}".lower()))
    sink.prepare([schema])
    store = StateStore(str(tmp_path), 1)
    for batch, start in enumerate(range(0, len(copies), 30)):
        for _ in range(chance.choice([1, 1, 2])):
            token = _deliver(sink, tmp_path, batch, avro.encode(schema, copies[start : start + 30]), every=every)
        store.commit(batch, {0: token})
    found = cluster.rows(f"{seed}-{every}-carts".lower()).values()
    wanted = [
        {name: value for name, value in row.items() if value is not None}
        for row in visible(fold(schema, changes), NOW_US // 1_000_000)
    ]
    assert sorted(found, key=_order) == sorted(wanted, key=_order)


def _deliver(sink: SearchSink, directory: Path, batch: int, rows: ChangeBatch, *, every: bool) -> bytes:
    """Do one batch, and leave its state uncommitted; gives what the commit needs."""
    state = BucketState.open(str(directory), 0, batch)
    folder = Folder(MergeSettings(), RecordType.AFTER, every=every)
    with sink.writer(Task("p", batch, 0, NOW_US)) as writer:
        given = [Run(rows.schema, "n1", 0, rows.count, rows.rows)]
        for records in folder.fold(given, state, now_s=NOW_US // 1_000_000):
            writer.write(records.last())
        assert writer.finish().dead == []
    return state.finish().token


def _order(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def _cell(chance: random.Random, text: str) -> Set | Deleted:
    return Set(text) if chance.random() < 0.5 else Deleted()


def _change(chance: random.Random, schema: TableSchema, time: int) -> Change:
    partition = {"customer": chance.choice("ab")}
    key = {**partition, "line": chance.randint(1, 3)} if schema.clustering else partition
    kind = chance.random()
    if kind < 0.2 and schema.clustering:
        return Change(Op.UPDATE, partition, {"tier": _cell(chance, f"t{time % 100}")}, time=time)
    if kind < 0.5:
        cells = {"note": Set(f"n{time % 100}"), "count": Set(time % 7)}
        return Change(Op.INSERT, key, cells, time=time, marker=Marker())
    if kind < 0.7:
        return Change(Op.UPDATE, key, {"note": _cell(chance, f"u{time % 100}")}, time=time)
    if kind < 0.85:
        return Change(Op.DELETE, key, time=time, deletion=Deletion(time))
    if kind < 0.95 and schema.clustering:
        ends = Range(Bound((chance.randint(1, 2),), True), Bound((chance.randint(2, 3),), True))
        return Change(Op.DELETE_RANGE, partition, time=time, deletion=Deletion(time), range=ends)
    return Change(Op.DELETE_PARTITION, partition, time=time, deletion=Deletion(time))


@pytest.mark.parametrize("every", [False, True])
def test_static_cells_outlive_their_rows_and_go_with_their_partition(
    cluster: ScriptedSearch, tmp_path: Path, every: bool
) -> None:
    partition = {"customer": "a"}
    batches = [
        [
            Change(Op.UPDATE, partition, {"tier": Set("gold")}, time=NOW_US),
            Change(Op.INSERT, {**partition, "line": 1}, {"note": Set("x")}, time=NOW_US + 1, marker=Marker()),
        ],
        [Change(Op.DELETE_RANGE, partition, deletion=Deletion(NOW_US + 2), range=Range(None, Bound((9,), True)))],
        [Change(Op.DELETE_PARTITION, partition, deletion=Deletion(NOW_US + 3))],
    ]
    sink = SearchSink(SearchSettings(urls=(cluster.url,), index=f"static-{every}-{{table}}".lower()))
    sink.prepare([SCHEMA])
    store = StateStore(str(tmp_path), 1)
    seen = []
    for batch, changes in enumerate(batches):
        store.commit(batch, {0: _deliver(sink, tmp_path, batch, avro.encode(SCHEMA, changes), every=every)})
        seen.append(sorted(cluster.rows(f"static-{every}-carts".lower())))
    assert seen == [["a|1"], ["a|\\static"], []]
