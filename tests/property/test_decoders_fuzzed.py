"""A million damaged inputs: the decoders refuse or read them, and never crash, hang or take memory without bound.

The inputs are real rows, files and compressed blocks with a few bytes changed, cut, doubled or replaced by numbers at
the edges. All randomness comes from one seed; a failure names the input's number.
"""

from __future__ import annotations

import random
import resource
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from penstock.errors import PenstockError
from penstock.formats import arrow, avro, container, native
from penstock.formats._columns import Budget, Column, ColumnReader
from penstock.formats._kernel import Program, RowReader, Scanner
from penstock.formats.arrow_plan import Plan, plan
from penstock.formats.program import program
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column as TableColumn
from penstock.model.schema import Role, TableId, TableSchema
from penstock.settings import Codec
from tests.every_type import EVERY_TYPE, MULTI_CELL, every_type_table

# Interpreted kernels are some seventy times slower and have no memory to damage.
SCALE = 1 if native else 50
GROWTH_BYTES_MAX = 256 << 20
EDGES = (
    b"\0",
    b"\1",
    b"\2",
    b"\3",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 9 + b"\1",
    b"\xfe" + b"\xff" * 8 + b"\1",
    b"\xff\xff\xff\xff\x0f",
)


def _mutations(sources: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` damaged copies of the sources."""
    chance = random.Random(seed)
    below, unit = chance.randrange, chance.random
    for _ in range(count):
        data = bytearray(sources[below(len(sources))])
        for _ in range(1 + int(unit() * 3)):
            size = len(data)
            at = int(unit() * size)
            choice = int(unit() * 6)
            if choice == 0 and size:
                data[at] ^= 1 << int(unit() * 8)
            elif choice == 1 and size:
                data[at] = int(unit() * 256)
            elif choice == 2:
                data[at : at + 1] = EDGES[int(unit() * len(EDGES))]
            elif choice == 3:
                del data[at : at + int(unit() * 8)]
            elif choice == 4:
                data[at:at] = data[at : at + int(unit() * 16)]
            else:
                del data[at:]
        yield bytes(data)


def _survives(work: Callable[[bytes], object], inputs: Iterator[bytes]) -> int:
    """Run all inputs; only errors of ours may come out. The number of inputs that were refused."""
    refused = 0
    for number, data in enumerate(inputs):
        try:
            work(data)
        except PenstockError:
            refused += 1
        except Exception as error:  # noqa: BLE001
            pytest.fail(f"input {number} ({data.hex()}) raised {error!r}")
    return refused


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < GROWTH_BYTES_MAX


def _small_tables() -> list[tuple[TableSchema, list[bytes], int]]:
    """Tables of a few columns, which together have every type, with rows of one change each."""
    examples = EVERY_TYPE + MULTI_CELL
    _, changes = every_type_table()
    tables = []
    for start in range(0, len(examples), 6):
        part = range(start, min(start + 6, len(examples)))
        columns = [TableColumn("id", t.INT64, Role.PARTITION), TableColumn("at", t.TEXT, Role.CLUSTERING)]
        columns += [TableColumn(f"c{number} {examples[number][0].kind}", examples[number][0]) for number in part]
        schema = TableSchema(TableId("ks", "t"), tuple(columns))
        names = {column.name for column in columns}
        rows = []
        for change in changes:
            kept = replace(
                change,
                key={"id": 5, "at": "now"},
                cells={name: cell for name, cell in change.cells.items() if name in names},
                before={name: value for name, value in (change.before or {}).items() if name in names},
                range=None,
            )
            rows.append(bytes(avro.encode(schema, [kept]).rows))
        tables.append((schema, rows, start))
    return tables


def _per_table(total: int) -> int:
    return total // SCALE // len(_small_tables()) + 1


def test_rows_to_changes_survives_damage() -> None:
    for schema, rows, seed in _small_tables():
        count = _per_table(250_000)

        def read(data: bytes, schema: TableSchema = schema) -> None:
            avro.decode(ChangeBatch(schema, 1, data))

        refused = _survives(read, _mutations(rows, count, seed))
        assert 0 < refused <= count


def test_rows_to_columns_survives_damage() -> None:
    for schema, rows, seed in _small_tables():
        chosen = plan(schema)

        def read(data: bytes, chosen: Plan = chosen) -> None:
            budget = Budget(1 << 20)
            columns = [Column(s.layout, s.width, s.nullable, 1, budget) for s in chosen.slots]
            ColumnReader(chosen.program, chosen.targets, columns).read_rows(RowReader(data), 1)

        count = _per_table(250_000)
        refused = _survives(read, _mutations(rows, count, 1000 + seed))
        assert 0 < refused <= count


def test_skipping_and_scanning_survive_damage() -> None:
    for schema, rows, seed in _small_tables():
        rules = program(schema)
        starts, tails = array("q", bytes(16)), array("q", bytes(16))

        def scan(data: bytes, rules: Program = rules, starts: array[int] = starts, tails: array[int] = tails) -> None:
            Scanner(rules).scan(RowReader(data), 1)
            rules.bounds(RowReader(data), starts, tails, 1)

        refused = _survives(scan, _mutations(rows, _per_table(350_000), 2000 + seed))
        assert refused > 0


def test_what_columns_accept_is_valid_arrow() -> None:
    for schema, rows, seed in _small_tables():

        def read(data: bytes, schema: TableSchema = schema) -> None:
            columns = arrow.to_arrow(ChangeBatch(schema, 1, data))
            columns.validate(full=True)

        _survives(read, _mutations(rows, _per_table(10_000), 3000 + seed))


def test_columns_and_changes_accept_the_same_rows() -> None:
    """What one decoder refuses and the other takes would be read differently by two readers."""
    for schema, rows, seed in _small_tables():
        for data in _mutations(rows, _per_table(5_000), 4000 + seed):
            batch = ChangeBatch(schema, 1, data)
            try:
                changes: list[Change] | None = avro.decode(batch)
            except PenstockError:
                changes = None
            if changes is not None:
                assert arrow.to_arrow(batch).num_rows == 1


def test_headers_and_blocks_survive_damage() -> None:
    small = container.header(
        '{"type":"null"}', {"penstock.format": b"1", "penstock.file": b"12"}, Codec.NULL, b"s" * 16
    )
    block = container.frame_block(3, b"some data of a block", b"s" * 16)

    def parse(data: bytes) -> None:
        head = container.parse_header(data)
        container.parse_block_head(data, head.size)

    refused = _survives(parse, _mutations([small + block], 60_000 // SCALE, 1))
    refused += _survives(container.parse_block_head, _mutations([block], 30_000 // SCALE, 2))
    assert refused > 0


@pytest.mark.parametrize("codec", [Codec.DEFLATE, Codec.SNAPPY, Codec.ZSTANDARD])
def test_decompressors_survive_damage_within_their_limit(codec: Codec) -> None:
    limit = 4096
    sources = [container.compress(codec, data) for data in (b"", b"abc" * 100, bytes(4000), bytes(range(256)) * 8)]

    def unpack(data: bytes) -> None:
        assert len(container.decompress(codec, data, limit)) <= limit

    assert _survives(unpack, _mutations(sources, 20_000 // SCALE, 3)) > 0


@pytest.mark.parametrize("codec", Codec)
def test_a_bomb_is_refused_before_it_grows(codec: Codec) -> None:
    bomb = container.compress(codec, bytes(200 << 20))
    with pytest.raises(PenstockError, match="longer than"):
        container.decompress(codec, bomb, 1 << 20)


def test_a_count_that_cannot_be_true_allocates_nothing() -> None:
    schema = TableSchema(TableId("ks", "t"), (TableColumn("v", t.list_of(t.BOOLEAN)),))
    batch = avro.encode(schema, [Change(Op.INSERT)])
    with pytest.raises(PenstockError, match="cannot hold"):
        avro.decode(replace(batch, count=1 << 40))
    with pytest.raises(PenstockError, match="cannot hold"):
        arrow.to_arrow(replace(batch, count=1 << 40))


def test_small_items_cannot_become_a_flood_of_columns() -> None:
    """A null in an array is one byte in the rows and 32 bytes as a wide decimal; the budget ends that."""
    schema = TableSchema(TableId("ks", "t"), (TableColumn("v", t.array(t.fixed_decimal(70, 0))),))
    items = 6_000_000
    change = Change(Op.INSERT, {}, {"v": Set(t.NdArray((), (), (None,) * items))})
    batch = avro.encode(schema, [change])
    with pytest.raises(PenstockError, match="more memory"):
        arrow.to_arrow(batch)
