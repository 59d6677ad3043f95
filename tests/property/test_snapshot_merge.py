"""A snapshot beside the stream: whatever part of the stream is kept and whenever the read is, the rows are the same."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capture.cassandra.snapshot.statement import Times
from penstock.merge.table_state import fold, visible
from penstock.model import types
from penstock.model.change import (
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Marker,
    Op,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from tests.snapshot_pages import answer, changes_of, page, plan

SCHEMA = TableSchema(
    TableId("ks", "t"),
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("c", types.INT32, Role.CLUSTERING),
        Column("g", types.set_of(types.INT32, multi_cell=True), Role.STATIC),
        Column("s", types.TEXT, Role.STATIC),
        Column("m", types.map_of(types.TEXT, types.INT32, multi_cell=True)),
        Column("u", types.user("pair", {"x": types.INT32, "y": types.TEXT}, multi_cell=True)),
        Column("v", types.INT32),
    ),
)
WITH_LIST = TableSchema(
    TableId("ks", "lists"),
    (
        Column("p", types.INT32, Role.PARTITION),
        Column("l", types.list_of(types.INT32, multi_cell=True)),
        Column("v", types.INT32),
    ),
)
SECOND = 1_800_000_000
START_US = SECOND * 10**6

small = st.integers(0, 2)
seeds = st.integers(0, 1 << 32)


def history_of(random: Random) -> list[Change]:
    """Writes of clients whose clocks are right, so that write times rise. Few rows, so that writes meet."""
    inserted: set[tuple[int, int]] = set()
    return [write(random, START_US + 1000 * number, inserted) for number in range(1, random.randint(2, 9))]


def write(random: Random, time: int, inserted: set[tuple[int, int]]) -> Change:
    p, c = random.randint(0, 1), random.randint(0, 1)
    kind = random.choice(["insert", "insert", "update", "update", "update", "static", "row", "range", "partition"])
    if kind == "static":
        return Change(Op.UPDATE, {"p": p}, cells(random, time, ["g", "s"]), time=time)
    if kind == "partition":
        inserted -= {(p, other) for other in range(2)}
        return Change(Op.DELETE_PARTITION, {"p": p}, time=time, deletion=Deletion(time))
    if kind == "range":
        inserted -= {(p, other) for other in range(c, 2)}
        where = Range(Bound((c,), True), None)
        return Change(Op.DELETE_RANGE, {"p": p}, time=time, deletion=Deletion(time), range=where)
    key = {"p": p, "c": c}
    if kind == "row":
        inserted.discard((p, c))
        return Change(Op.DELETE, key, time=time, deletion=Deletion(time))
    # A SELECT does not show whether a row was INSERTed; here every row is.
    marker = Marker() if kind == "insert" or (p, c) not in inserted else None
    inserted.add((p, c))
    op = Op.UPDATE if marker is None else Op.INSERT
    return Change(op, key, cells(random, time, ["m", "u", "v"]), time=time, marker=marker)


def cells(random: Random, time: int, names: list[str]) -> dict[str, Cell]:
    if random.random() < 0.25:
        # All at once to null, after which only the row's marker is left.
        return {name: Deleted() if name in ("s", "v") else Delta(Deletion(time)) for name in names}
    return {name: cell(random, time, name) for name in random.sample(names, random.randint(0, len(names)))}


def cell(random: Random, time: int, name: str) -> Cell:
    texts = ["", "a", "b"]
    if name in ("s", "v"):
        value: str | int = random.choice(texts) if name == "s" else random.randint(0, 2)
        return Deleted() if random.random() < 0.4 else Set(value)
    replaced = Deletion(time - 1) if random.random() < 0.4 else None
    elements, removed = [], []
    paths: dict[str, list[Any]] = {"m": texts, "g": [0, 1, 2], "u": [0, 1]}
    for path in paths[name]:
        choice = random.random()
        if choice < 0.3:
            removed.append(Removed(path))
        elif choice < 0.7 and name == "u":
            elements.append(Element(path, random.randint(0, 2) if path == 0 else random.choice(texts)))
        elif choice < 0.7:
            elements.append(Element(path, random.randint(0, 2) if name == "m" else None))
    return Delta(replaced, tuple(elements), tuple(removed))


def check_every_seam(schema: TableSchema, history: list[Change], times: Times, shuffle: Random) -> None:
    """Read after each write, and begin the tail before each write up to the read: always the rows of the whole."""
    now_s = SECOND + 10_000
    asked_us = START_US + 10**9
    truth = visible(fold(schema, history), now_s)
    for read_at in range(len(history) + 1):
        rows = answer(fold(schema, history[:read_at]), plan(schema, times), asked_us)
        snapshot = changes_of(schema, [page(rows, asked_us)], times)
        for tail_from in range(read_at + 1):
            mixed = [*snapshot, *history[tail_from:]]
            shuffle.shuffle(mixed)
            assert visible(fold(schema, mixed), now_s) == truth, f"read at {read_at}, tail from {tail_from}"


@given(seeds, st.sampled_from(Times))
@settings(max_examples=100, deadline=None)
def test_a_snapshot_and_any_later_part_of_the_stream_give_the_rows_of_the_whole_stream(seed: int, times: Times) -> None:
    random = Random(seed)
    check_every_seam(SCHEMA, history_of(random), times, random)


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_parts_read_at_different_moments_and_twice_give_the_same_as_one_read(seed: int) -> None:
    random = Random(seed)
    history = history_of(random)
    asked_us = START_US + 10**9
    pages = []
    for partition in range(2):
        read_at = random.randint(0, len(history))
        own = [change for change in history[:read_at] if change.key["p"] == partition]
        pages.append(page(answer(fold(SCHEMA, own), plan(SCHEMA), asked_us), asked_us))
    snapshot = changes_of(SCHEMA, pages)
    mixed = [*history, *snapshot, *snapshot[::2]]
    random.shuffle(mixed)
    now_s = SECOND + 10_000
    assert visible(fold(SCHEMA, mixed), now_s) == visible(fold(SCHEMA, history), now_s)


@given(st.lists(st.tuples(st.sampled_from(["append", "prepend", "overwrite", "delete"]), small), max_size=8), seeds)
@settings(max_examples=100, deadline=None)
def test_a_list_keeps_its_items_and_their_order_beside_appends_prepends_and_overwrites(
    statements: list[tuple[str, int]], seed: int
) -> None:
    history = [list_write(number, *statement) for number, statement in enumerate(statements, 1)]
    check_every_seam(WITH_LIST, history, Times.ELEMENTS, Random(seed))


def list_write(number: int, kind: str, item: int) -> Change:
    time = START_US + 1000 * number
    if kind == "delete":
        return Change(Op.DELETE, {"p": 1}, time=time, deletion=Deletion(time))
    # Cassandra mirrors the current time at 2010-01-01 for the ids of items that are put in front.
    mirror = 2 * 1262304000 * 10**6
    place = mirror - time if kind == "prepend" else time
    delta = Delta(Deletion(time - 1) if kind == "overwrite" else None, (Element(time_uuid(place), item),))
    return Change(Op.INSERT, {"p": 1}, {"l": delta, "v": Set(item)}, time=time, marker=Marker())


def time_uuid(time_us: int) -> UUID:
    ticks = time_us * 10 + 0x01B21DD213814000
    return UUID(fields=(ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, 0x1000 | ticks >> 48, 0x80, 0x80, 1))
