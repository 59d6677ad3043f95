"""Eras in the fold: what three nodes logged before they were truncated, or of a table that was dropped, never shows.

The judge is a model that folds each node by itself: what the node logged since its last truncation, of the newest
table. The rows of all nodes joined are what a cluster reads at ALL.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.fold.bucket import BucketState
from penstock.fold.eras import Eras, Header
from penstock.fold.folder import Folder
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.merge.table_state import TableState, visible
from penstock.model import types
from penstock.model.change import Change, Deleted, Marker, Op, Set
from penstock.model.schema import Column, Role, TableSchema
from penstock.records.records import Records
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType
from tests.folding import Target, comparable, expected, runs_of
from tests.property.test_fold import PLAIN
from tests.property.test_merge import SCHEMA, changes

_SETTINGS = settings(max_examples=60, deadline=None)
_NODES = ("a", "b", "c")
_SECOND = 1_000_000

# Stretches of a node's log that are of one era: the header, and the changes.
Stretches = list[tuple[TableSchema, list[Change]]]


class EraPipeline:
    """Folds batches as a pipeline's driver and tasks do, with the eras that the headers tell."""

    def __init__(self, directory: str, buckets: int, record: RecordType) -> None:
        self.store = StateStore(directory, buckets)
        self.record = record
        self.eras = Eras()
        self.batch = 0

    def fold(self, runs: Sequence[Run], now_s: int, *, commit: bool = True) -> list[Records]:
        headers = [Header(run.node, run.schema) for run in runs]
        eras = self.eras.learn(headers)
        folder = Folder(
            MergeSettings(),
            self.record,
            every=True,
            moves=eras.moves(self.eras),
            eras=eras.numbers(),
            newest=eras.newer_than(headers),
            drops=eras.drops(),
        )
        out: list[Records] = []
        tokens = {}
        for bucket in range(self.store.buckets):
            state = BucketState.open(self.store.directory, bucket, self.batch)
            mine = [run for run in runs if run.bucket == bucket and not eras.is_stale(Header(run.node, run.schema))]
            out += list(folder.fold(mine, state, now_s=now_s))
            tokens[bucket] = state.finish().token
        if commit:
            self.store.commit(self.batch, tokens)
            self.batch += 1
            self.eras = eras
        return out


@st.composite
def histories(draw: st.DrawFn) -> tuple[TableSchema, list[list[Change]], list[str]]:
    """A table, the changes of each of its eras, and how each era but the first begins."""
    schema, change = draw(st.sampled_from([(PLAIN, plain_writes()), (SCHEMA, changes())]))
    eras = draw(st.lists(st.lists(change, max_size=5), min_size=1, max_size=4))
    eras = [[one for one in era if one.op is not Op.TRUNCATE] for era in eras]
    kinds = draw(st.lists(st.sampled_from(["truncate", "truncate", "drop", "remake"]), min_size=3, max_size=3))
    return schema, eras, kinds[: len(eras) - 1]


@st.composite
def plain_writes(draw: st.DrawFn) -> Change:
    key = {"p": draw(st.integers(0, 2)), "a": draw(st.sampled_from(["", "x"]))}
    return Change(Op.INSERT, key, {"v": Set(draw(st.integers(0, 2)))}, time=draw(st.integers(1, 3)))


def logs_of(schema: TableSchema, eras: list[list[Change]], kinds: list[str], chance: random.Random) -> list[Stretches]:
    """What each node logs: copies are lost, but one is always there; each era begins a little later on each node."""
    logs: list[Stretches] = [[], [], []]
    table, altered, remade, truncated = 0, 10, 0, [0, 0, 0]
    for number, era in enumerate(eras):
        kind = kinds[number - 1] if number else ""
        if kind == "drop":
            table, altered, remade, truncated = table + 1, altered + 1, 0, [0, 0, 0]
        elif kind == "remake":
            # The next table has the id of this one.
            altered, remade, truncated = altered + 1, altered, [0, 0, 0]
        elif kind == "truncate":
            begun = (number * 60 + 100) * _SECOND
            truncated = [begun + chance.randint(0, 3 * _SECOND) for _ in _NODES]
        held: list[list[Change]] = [[], [], []]
        for change in era:
            for node in chance.sample(range(3), chance.randint(1, 3)):
                held[node] += [change] * chance.choice((1, 1, 2))
        for node, log in enumerate(logs):
            header = replace(
                schema,
                id=f"table-{table}",
                altered=altered,
                remade_us=remade,
                truncated_us=truncated[node],
                since_us=1,
            )
            marks = [Change(Op.TRUNCATE, time=truncated[node] or altered)] if number else []
            log.append((header, marks + held[node]))
    return logs


def batches_of(logs: list[Stretches], chance: random.Random) -> list[list[tuple[str, TableSchema, list[Change]]]]:
    """Micro-batches, each with no more than one era of a node, and the first change of an era by itself."""
    waiting = [[(schema, list(log)) for schema, log in stretches] for stretches in logs]
    out = []
    while any(waiting):
        batch = []
        for node, stretches in zip(_NODES, waiting, strict=True):
            if not stretches or chance.random() > 0.7:
                continue
            schema, log = stretches[0]
            alone = bool(log) and log[0].op is Op.TRUNCATE
            cut = 1 if alone else chance.randint(min(1, len(log)), len(log))
            batch.append((node, schema, log[:cut]))
            del log[:cut]
            if not log:
                stretches.pop(0)
        out.append([one for one in batch if one[2]])
    return out


def cluster_rows(schema: TableSchema, logs: list[Stretches]) -> list[dict[str, Any]]:
    """What the nodes still have, each by itself, joined."""
    state = TableState(schema)
    for stretches in logs:
        _, changes = stretches[-1]
        for change in changes:
            if change.op is not Op.TRUNCATE:
                state.apply(change)
    return visible(state, 9)


@_SETTINGS
@given(histories(), st.randoms(use_true_random=False), st.sampled_from([RecordType.AFTER, RecordType.ALL]))
def test_only_what_nodes_logged_since_the_last_truncation_shows(
    table: tuple[TableSchema, list[list[Change]], list[str]], chance: random.Random, record: RecordType
) -> None:
    schema, eras, kinds = table
    logs = logs_of(schema, eras, kinds, chance)
    with tempfile.TemporaryDirectory() as directory:
        pipeline = EraPipeline(directory, chance.choice((1, 3)), record)
        target = Target()
        for batch in batches_of(logs, chance):
            runs = [run for node, header, log in batch for run in runs_of(header, node, log, pipeline.store.buckets)]
            if chance.random() < 0.3:
                pipeline.fold(runs, 9, commit=False)
            for records in pipeline.fold(runs, 9):
                if (records.ops == 5).any():
                    # A table that was made anew is emptied by the record that says so.
                    for key in list(target.rows):
                        del target.rows[key]
                target.write(records)
    assert comparable(list(target.rows.values())) == expected(schema, cluster_rows(schema, logs))


@_SETTINGS
@given(histories(), st.randoms(use_true_random=False))
def test_an_era_begins_with_one_record_before_all_that_is_of_it(
    table: tuple[TableSchema, list[list[Change]], list[str]], chance: random.Random
) -> None:
    schema, eras, kinds = table
    logs = logs_of(schema, eras, kinds, chance)
    with tempfile.TemporaryDirectory() as directory:
        pipeline = EraPipeline(directory, chance.choice((1, 3)), RecordType.CHANGE)
        told: list[Change] = []
        for batch in batches_of(logs, chance):
            runs = [run for node, header, log in batch for run in runs_of(header, node, log, pipeline.store.buckets)]
            for records in pipeline.fold(runs, 9):
                told += avro.decode(records.changes)
    last = max((at for at, change in enumerate(told) if change.op is Op.TRUNCATE), default=-1)
    # Whoever obeys the records ends with what the cluster has.
    state = TableState(schema)
    for change in told[last + 1 :]:
        state.apply(change)
    assert comparable_rows(visible(state, 9)) == comparable_rows(cluster_rows(schema, logs))
    assert sum(change.op is Op.TRUNCATE for change in told) <= len(kinds)


def comparable_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


COLLECTIONS = TableSchema(
    PLAIN.table,
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("a", types.TEXT, Role.CLUSTERING),
        Column("s", types.INT32, Role.STATIC),
        Column("m", types.map_of(types.TEXT, types.INT32, multi_cell=True)),
        Column("v", types.INT32),
    ),
)


@st.composite
def column_histories(draw: st.DrawFn) -> tuple[TableSchema, list[Change]]:
    """A table, and changes of it around the times at which columns are dropped."""
    schema = draw(st.sampled_from([PLAIN, COLLECTIONS]))
    out = []
    for _ in range(draw(st.integers(0, 10))):
        time = draw(st.integers(1, 4))
        key = {"p": draw(st.integers(0, 1)), "a": draw(st.sampled_from(["", "x"]))}
        cells: dict[str, Any] = {}
        for column in schema.cells:
            if column.name != "c" and draw(st.booleans()):
                value: Any = draw(st.integers(0, 2))
                if column.type.multi_cell:
                    value = (("k", value),)
                elif column.name == "t":
                    value = str(value)
                cells[column.name] = draw(st.just(Set(value)) | st.just(Deleted()))
        change = Change(draw(st.sampled_from([Op.INSERT, Op.UPDATE])), key, cells, time=time)
        out.append(change)
    return schema, out


# The drops: at these write times some columns go, and each is there again two versions later. A drop can be as of an
# earlier time than the one before it; what that one took stays gone, and what is written after the later one does not.
_DROPS = st.sampled_from([(2, 3), (3, 2), (3, 1), (2, 3, 1), (2, 3, 2), (3, 1, 2)])


def versions_of(schema: TableSchema, names: Sequence[str], times: Sequence[int]) -> list[TableSchema]:
    """With the columns, without them, with them again, and so on."""
    out = [replace(schema, id="t", altered=10)]
    for number, dropped_us in enumerate(times):
        columns = tuple(column for column in schema.columns if column.name not in names)
        drops = tuple((name, dropped_us) for name in sorted(names))
        out.append(replace(schema, columns=columns, id="t", altered=20 + 20 * number, dropped=drops))
        columns = tuple(replace(c, dropped_us=dropped_us) if c.name in names else c for c in schema.columns)
        out.append(replace(schema, columns=columns, id="t", altered=30 + 20 * number))
    return out


def floor_of(version: TableSchema) -> int:
    """The time of the last drop that a version knows of; they are of all its columns that are ever dropped."""
    return max([0, *(column.dropped_us or 0 for column in version.cells), *(time for _, time in version.dropped)])


@settings(max_examples=150, deadline=None)
@given(column_histories(), _DROPS, st.integers(0, 1 << 32), st.sampled_from([RecordType.AFTER, RecordType.ALL]))
def test_cells_up_to_the_drop_of_their_column_never_show_again(
    table: tuple[TableSchema, list[Change]], times: tuple[int, ...], seed: int, record: RecordType
) -> None:
    """Whatever is logged under which version, and in whatever order the versions of two nodes are folded."""
    schema, history = table
    chance = random.Random(seed)
    names = [column.name for column in schema.cells if column.name in ("v", "s", "m")]
    versions = versions_of(schema, names, times)
    # What each node logs, version by version, with nothing but the header where it logs nothing.
    logs: dict[str, list[tuple[TableSchema, list[Change]]]] = {}
    shares = [[change for change in history if change.time == time or chance.random() < 0.5] for time in (1, 2)]
    every = [change for change in history if change not in shares[0]]
    for node, share in zip("ab", (shares[0] + every, shares[1]), strict=True):
        where = sorted((chance.randrange(len(versions)), number) for number in range(len(share)))
        logs[node] = [(version, []) for version in versions]
        for version, number in where:
            known = versions[version].by_name
            change = share[number]
            cells = {name: cell for name, cell in change.cells.items() if name in known}
            logs[node][version][1].append(replace(change, cells=cells))
    last = chance.choice((len(versions) - 1, chance.randrange(len(versions))))
    with tempfile.TemporaryDirectory() as directory:
        pipeline = EraPipeline(directory, chance.choice((1, 3)), record)
        target = Target()
        waiting = {node: list(log[: last + 1]) for node, log in logs.items()}
        while any(waiting.values()):
            batch = []
            for node, log in waiting.items():
                for _ in range(chance.randint(0, len(log))):
                    header, some = log.pop(0)
                    batch += list(runs_of(header, node, some, pipeline.store.buckets))
                    batch.append(Run(header, node, 0, 0, b""))
            if chance.random() < 0.3:
                pipeline.fold(batch, 9, commit=False)
            for records in pipeline.fold(batch, 9):
                target.write(records)
    final = versions[last]
    # Each node by itself: a drop takes what the node has up to its time, and so does the version in which it writes.
    state = TableState(replace(final, columns=tuple(replace(column, dropped_us=None) for column in final.columns)))
    for log in logs.values():
        for number, (_, some) in enumerate(log[: last + 1]):
            since = [floor_of(version) for version in versions[number : last + 1]]
            for change in some:
                cells = {name: cell for name, cell in change.cells.items() if name in final.by_name}
                kept = {n: c for n, c in cells.items() if n not in names or (change.time or 0) > max(since)}
                state.apply(replace(change, cells=kept))
    # A target still has the columns that the table had; nobody asks for them.
    shown = [column.name for column in final.columns]
    rows = [{name: row.get(name) for name in shown} for row in target.rows.values()]
    assert comparable(rows) == expected(final, visible(state, 9))


def written(key: str, time: int) -> Change:
    cells: dict[str, Any] = {"v": Set(time), "m": Set((("k", time),))}
    return Change(Op.INSERT, {"p": 1 if key else 0, "a": key}, cells, time=time, marker=Marker())


@pytest.mark.parametrize("cuts", list(product((False, True), repeat=4)))
@pytest.mark.parametrize("late", [False, True])
def test_a_drop_as_of_an_earlier_time_brings_nothing_back_however_a_log_is_cut(
    cuts: tuple[bool, ...], *, late: bool
) -> None:
    """Of what is written with one time, the first drop takes what it finds, and the second leaves what comes after it.

    A second node's log is in the same batches, or comes late, when all is known.
    """
    versions = versions_of(COLLECTIONS, ["v", "m"], (3, 1))
    rows = {0: "before", 2: "between", 4: "after"}
    log = [(version, [written(rows[number], 2)] if number in rows else []) for number, version in enumerate(versions)]
    batches: list[list[tuple[TableSchema, list[Change]]]] = [[log[0]]]
    for stretch, cut in zip(log[1:], cuts, strict=True):
        if cut:
            batches.append([])
        batches[-1].append(stretch)
    target = Target()
    with tempfile.TemporaryDirectory() as directory:
        pipeline = EraPipeline(directory, 1, RecordType.AFTER)
        steps = [(batch, ("a",) if late else ("a", "b")) for batch in batches]
        steps += [(batch, ("b",)) for batch in batches] if late else []
        for batch, nodes in steps:
            runs = [Run(header, node, 0, 0, b"") for node in nodes for header, _ in batch]
            runs += [run for node in nodes for header, some in batch for run in runs_of(header, node, some, 1)]
            for records in pipeline.fold(runs, 9):
                target.write(records)
    assert {row["a"]: (row.get("v"), row.get("m")) for row in target.rows.values()} == {
        "before": (None, None),
        "between": (None, None),
        "after": (2, [("k", 2)]),
    }
