"""The laws of the fold: order, duplication, loss of some copies, batches, buckets and repetition do not matter."""

from __future__ import annotations

import contextlib
import random
import tempfile
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock
from uuid import UUID

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import CorruptLog, InvalidValue
from penstock.formats import avro
from penstock.merge.table_state import fold, visible
from penstock.model import types
from penstock.model.batch import ChangeBatch
from penstock.model.change import NO_ORIGIN, Change, Deleted, Deletion, Delta, Element, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records import keys
from penstock.records._groups import Contents
from penstock.records.runs import Run
from penstock.settings import Copies, MergeSettings, RecordType
from tests.folding import Pipeline, Target, as_installed, comparable, expected, plain_python, runs_of
from tests.property.test_merge import SCHEMA, changes, expiries, own_times, seconds, small, times

_SETTINGS = settings(max_examples=60, deadline=None)

# Plain cells only: what the native way joins.
PLAIN = TableSchema(
    TableId("ks", "plain"),
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("a", types.TEXT, Role.CLUSTERING),
        Column("v", types.INT32),
        Column("t", types.TEXT),
        Column("c", types.COUNTER),
    ),
)
SIMPLE = TableSchema(
    TableId("ks", "simple"),
    (Column("p", types.INT32, Role.PARTITION), Column("v", types.INT32), Column("d", types.DECIMAL)),
)
SHARDED = TableSchema(
    TableId("ks", "sharded"), (Column("p", types.INT32, Role.PARTITION), Column("c", types.SHARDED_COUNTER))
)


@st.composite
def plain_changes(draw: st.DrawFn) -> Change:
    op = draw(st.sampled_from([Op.INSERT, Op.UPDATE, Op.UPDATE, Op.DELETE, Op.SNAPSHOT]))
    key = {"p": draw(st.integers(0, 2)), "a": draw(st.sampled_from(["", "x"]))}
    values: dict[str, st.SearchStrategy[Any]] = {"v": small, "t": st.sampled_from(["", "a", "é"]), "c": small}
    cells: dict[str, Set | Deleted] = {}
    for name in draw(st.lists(st.sampled_from(list(values)), max_size=3, unique=True)):
        living = st.builds(Set, st.none() | values[name], own_times, expiries)
        cells[name] = draw(living | st.builds(Deleted, own_times, seconds))
    marker = draw(st.builds(Marker, own_times, expiries)) if op is Op.INSERT else None
    deletion = draw(st.none() | st.builds(Deletion, times, seconds))
    return Change(op, key, cells, time=draw(times), marker=marker, deletion=deletion)


@st.composite
def simple_changes(draw: st.DrawFn) -> Change:
    key = {"p": draw(st.integers(0, 2))}
    time = draw(times)
    kind = draw(st.sampled_from(["write", "write", "delete", "truncate"]))
    if kind == "delete":
        return Change(Op.DELETE_PARTITION, key, time=time, deletion=draw(st.none() | st.just(Deletion(time, 1))))
    if kind == "truncate":
        return Change(Op.TRUNCATE, time=time, deletion=Deletion(time))
    cell = Set(draw(st.decimals(min_value=-1, max_value=1, places=1)), None, draw(expiries))
    return Change(Op.INSERT, key, {"v": Set(draw(small)), "d": cell}, time=time, marker=Marker())


@st.composite
def shard_changes(draw: st.DrawFn) -> Change:
    key = {"p": draw(st.integers(0, 1))}
    time = draw(times)
    if draw(st.integers(0, 5)) == 0:
        return Change(Op.DELETE_PARTITION, key, time=time)
    if draw(st.integers(0, 3)) == 0:
        # What a snapshot reads: the total without its shards.
        return Change(Op.SNAPSHOT, key, {"c": Set(draw(small))}, time=time)
    shard = UUID(int=draw(st.integers(0, 2)))
    element = Element(shard, (draw(st.integers(0, 3)), draw(small)))
    replaced = draw(st.none() | st.just(Deletion(time)))
    return Change(Op.UPDATE, key, {"c": Delta(replaced, (element,))}, time=time)


TABLES = {
    "everything": (SCHEMA, changes()),
    "plain": (PLAIN, plain_changes()),
    "simple": (SIMPLE, simple_changes()),
    "sharded": (SHARDED, shard_changes()),
}
histories = st.sampled_from(sorted(TABLES)).flatmap(
    lambda name: st.tuples(st.just(TABLES[name][0]), st.lists(TABLES[name][1], max_size=12))
)


def _logged(schema: TableSchema, history: list[Change], chance: random.Random) -> list[list[Change]]:
    """The logs of three replicas: each has its own order; copies are lost and repeated, but one is always there."""
    logs: list[list[Change]] = [[], [], []]
    for change in history:
        holders = chance.sample(range(3), chance.randint(1, 3))
        for node in holders:
            logs[node] += [change] * chance.choice((1, 1, 2))
    for log in logs:
        chance.shuffle(log)
    return logs


def _batches(logs: list[list[Change]], chance: random.Random) -> list[list[tuple[int, list[Change]]]]:
    """The logs cut into micro-batches."""
    count = chance.randint(1, 4)
    out: list[list[tuple[int, list[Change]]]] = []
    for _ in range(count - 1):
        batch = []
        for node, log in enumerate(logs):
            cut = chance.randint(0, len(log))
            batch.append((node, log[:cut]))
            del log[:cut]
        out.append(batch)
    out.append(list(enumerate(logs)))
    return out


@_SETTINGS
@given(histories, st.randoms(use_true_random=False), st.sampled_from([RecordType.AFTER, RecordType.ALL]), st.booleans())
def test_rows_are_the_merged_rows_whatever_comes_when(
    table: tuple[TableSchema, list[Change]], chance: random.Random, record: RecordType, every: bool
) -> None:
    schema, history = table
    now_s = chance.choice((0, 1, 2, 4))
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(directory, chance.choice((1, 3)), record, every=every)
        target = Target()
        batches = _batches(_logged(schema, history, chance), chance)
        for number, batch in enumerate(batches):
            runs = [
                run
                for node, log in batch
                if log
                for run in runs_of(replace(schema), f"n{node}", log, pipeline.store.buckets)
            ]
            # Time goes on while the batches come.
            then = max(0, now_s - (len(batches) - 1 - number))
            if chance.random() < 0.3:
                # The batch fails before its commit, and is done again.
                lost = pipeline.fold(runs, then, commit=False)
                again = pipeline.fold(runs, then, commit=False)
                assert [_shown(one) for one in lost] == [_shown(one) for one in again]
            for records in pipeline.fold(runs, then):
                target.write(records)
        rows = visible(fold(schema, history), now_s)
        assert comparable(list(target.rows.values())) == expected(schema, rows)


def _shown(records: Any) -> tuple[Any, ...]:
    after = None if records.after is None else repr(records.after.to_pylist())
    before = None if records.before is None else repr(records.before.to_pylist())
    return records.changes.rows, records.versions.to_pylist(), after, before


def _said(schema: TableSchema, change: Change) -> bytes:
    """What a change says, without who logged it and when."""
    return bytes(avro.encode(schema, [replace(change, capture_time=None, origin=NO_ORIGIN)]).rows)


@_SETTINGS
@given(histories, st.randoms(use_true_random=False))
def test_each_distinct_change_is_passed_on_once(table: tuple[TableSchema, list[Change]], chance: random.Random) -> None:
    schema, history = table
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(directory, chance.choice((1, 3)), RecordType.CHANGE)
        told: list[Change] = []
        for batch in _batches(_logged(schema, history, chance), chance):
            for records in pipeline.fold(_runs(schema, batch, pipeline.store.buckets), now_s=9):
                told += avro.decode(records.changes)
    # The deletion of a table comes to each bucket, and is told in one like anything else.
    assert sorted(_said(schema, change) for change in told) == sorted({_said(schema, change) for change in history})


@_SETTINGS
@given(histories, st.randoms(use_true_random=False), st.sampled_from(list(RecordType)), st.booleans())
def test_copies_that_tasks_leave_out_make_no_difference(
    table: tuple[TableSchema, list[Change]], chance: random.Random, record: RecordType, every: bool
) -> None:
    schema, history = table
    batches = _batches(_logged(schema, history, chance), chance)
    shown = []
    for side, leaves_out in ((as_installed(), False), (as_installed(), True), (plain_python(), True)):
        with tempfile.TemporaryDirectory() as directory:
            pipeline = side.Pipeline(directory, 2, record, every=every)
            out: list[Any] = []
            for second, batch in enumerate(batches):
                known = side.Contents() if leaves_out else None
                runs = _runs(schema, batch, 2, partial(side.runs_of, known=known))
                out += [_shown(records) for records in pipeline.fold(runs, second)]
            shown.append(out)
    assert shown[0] == shown[1] == shown[2]


def _runs(
    schema: TableSchema, batch: list[tuple[int, list[Change]]], buckets: int, runs_of: Any = runs_of
) -> list[Run]:
    """Runs in which each copy has its own capture time and origin."""
    out: list[Run] = []
    for node, log in batch:
        own = [
            replace(change, capture_time=node * 100 + place, origin=Origin(f"n{node}", file="log", position=place))
            for place, change in enumerate(log)
        ]
        out += runs_of(replace(schema), f"n{node}", own, buckets) if own else []
    return out


@_SETTINGS
@given(st.lists(plain_changes(), max_size=8), st.randoms(use_true_random=False), st.integers(1, 3))
def test_a_quorum_passes_a_change_on_once_and_only_when_enough_nodes_have_it(
    history: list[Change], chance: random.Random, quorum: int
) -> None:
    logs = _logged(PLAIN, history, chance)
    holders: dict[bytes, set[int]] = {}
    for node, log in enumerate(logs):
        for change in log:
            holders.setdefault(_said(PLAIN, change), set()).add(node)
    with tempfile.TemporaryDirectory() as directory:
        merge = MergeSettings(copies=Copies.QUORUM, quorum=quorum)
        pipeline = Pipeline(directory, 2, RecordType.CHANGE, merge=merge)
        told: list[bytes] = []
        for batch in _batches(logs, chance):
            for records in pipeline.fold(_runs(PLAIN, batch, 2), now_s=9):
                told += [_said(PLAIN, change) for change in avro.decode(records.changes)]
    assert sorted(told) == sorted(said for said, nodes in holders.items() if len(nodes) >= quorum)


@settings(max_examples=20, deadline=None)
@given(histories, st.randoms(use_true_random=False), st.sampled_from(list(RecordType)), st.booleans())
def test_compiled_and_plain_kernels_give_the_same_records(
    table: tuple[TableSchema, list[Change]], chance: random.Random, record: RecordType, every: bool
) -> None:
    schema, history = table
    batches = _batches(_logged(schema, history, chance), chance)
    shown = []
    for side in (as_installed(), plain_python()):
        with tempfile.TemporaryDirectory() as directory:
            pipeline = side.Pipeline(directory, 2, record, every=every)
            out = []
            for second, batch in enumerate(batches):
                runs = [run for node, log in batch if log for run in side.runs_of(replace(schema), f"n{node}", log, 2)]
                out += [_shown(records) for records in pipeline.fold(runs, second)]
            shown.append(out)
    assert shown[0] == shown[1]


@settings(max_examples=80, deadline=None)
@given(histories, st.randoms(use_true_random=False))
def test_damaged_rows_are_refused_and_never_crash(
    table: tuple[TableSchema, list[Change]], chance: random.Random
) -> None:
    schema, history = table
    data = bytearray(avro.encode(schema, history).rows)
    for _ in range(chance.randint(1, 3)):
        if data:
            data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
    damaged = bytes(data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data)
    count = len(history) + chance.choice((0, 0, 1, -1))
    record = chance.choice(list(RecordType))
    with tempfile.TemporaryDirectory() as directory:
        pipeline = Pipeline(directory, 1, record)
        # Any other error fails the test; rows that are still good by chance are folded.
        with contextlib.suppress(CorruptLog, InvalidValue):
            keys.split(ChangeBatch(schema, max(count, 0), damaged), 3, chance.choice((None, Contents())))
            pipeline.fold([Run(schema, "n", 0, max(count, 0), damaged)], now_s=2)


@_SETTINGS
@given(histories, st.randoms(use_true_random=False), st.booleans())
def test_rows_whose_keys_have_the_same_hash_stay_apart(
    table: tuple[TableSchema, list[Change]], chance: random.Random, every: bool
) -> None:
    schema, history = table

    def few(partitions: Any, rows: Any) -> Any:
        return ((partitions & np.uint64(1)) + np.uint64(1)) << np.uint64(32) | (rows & np.uint64(1)) + np.uint64(1)

    with tempfile.TemporaryDirectory() as directory, mock.patch.object(keys, "state_keys", few):
        pipeline = Pipeline(directory, 1, RecordType.AFTER, every=every)
        target = Target()
        for batch in _batches(_logged(schema, history, chance), chance):
            for records in pipeline.fold(_runs(schema, batch, 1), now_s=2):
                target.write(records)
    assert comparable(list(target.rows.values())) == expected(schema, visible(fold(schema, history), 2))
