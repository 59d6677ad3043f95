"""A million damaged mutations of each format: the decoder reads or refuses them, and never crashes, hangs or floods.

The inputs are mutations of every type and kind with some bytes changed, cut, doubled or replaced by numbers at the
edges, framed with right checksums so that they reach the parser. All randomness comes from one seed for each format.
"""

from __future__ import annotations

import random
import resource
import uuid
from collections.abc import Iterator
from struct import Struct

import pytest

from penstock.capture.cassandra.decoding import native
from penstock.capture.cassandra.decoding.decoder import Decoder, MemoryParking
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.sections import Section
from penstock.capture.cassandra.segments.segment import FORMATS, SegmentHeader
from penstock.formats import avro
from penstock.model import types as t
from penstock.model.schema import Column, Role
from penstock.sandbox.commit_log.mutation import encode_mutation
from penstock.sandbox.commit_log.statements import create_keyspace, create_table, drop_table, truncate
from penstock.system.checksum import crc32
from tests.mutated_mutations import TIME, damaged, sources
from tests.mutation_bytes import START, table

# Interpreted kernels are some seventy times slower and have no memory to damage.
SCALE = 1 if native else 50
PER_FORMAT = 1_000_000 // SCALE
PER_SECTION = 50
# So many sections go through one decoder.
PER_DECODER = 100
GROWTH_BYTES_MAX = 256 << 20
_HEAD = Struct(">iI")
_TAIL = Struct(">I")
_SIZES = [Struct(">i").pack(size) for size in range(4096)]
_SIZE_SUMS = [crc32(size) for size in _SIZES]


class NoParking(MemoryParking):
    """Counts what is parked and keeps nothing, so that no table has to wait and every input is read."""

    def __init__(self) -> None:
        super().__init__()
        self.parked = 0

    def park(self, entry: object) -> None:
        self.parked += 1


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < GROWTH_BYTES_MAX


def framed(data: bytes) -> bytes:
    size = len(data)
    crc = _SIZE_SUMS[size]
    return _HEAD.pack(size, crc) + data + _TAIL.pack(crc32(data, crc))


def fresh(format_: int, tables: list[CassandraTable]) -> tuple[Decoder, NoParking]:
    schemas, parking = Schemas(), NoParking()
    for one in tables:
        schemas.add(one)
    made = Decoder(schemas, captures=lambda one: one.schema.table.keyspace == "ks", parking=parking)
    made.begin(SegmentHeader(format_, 5, 42), f"CommitLog-{format_}-5.log")
    return made, parking


@pytest.mark.parametrize("format_", FORMATS)
def test_a_million_damaged_mutations(format_: int) -> None:
    tables, payloads = sources(format_)
    chance = random.Random(format_)
    done = refused = read = parked = 0
    while done < PER_FORMAT:
        made, parking = fresh(format_, tables)
        for _ in range(PER_DECODER):
            data = b"".join([framed(damaged(payloads, chance)) for _ in range(PER_SECTION)])
            assert made.decode(Section(data, START, True)) == START + len(data), done
        done += PER_DECODER * PER_SECTION
        counts = made.counts
        # Each input is read, refused or left for later, and only that.
        assert counts.mutations + counts.damaged + parking.parked == PER_DECODER * PER_SECTION
        batches = made.take()
        assert sum(batch.count for batch in batches) == counts.changes
        for batch in batches:
            avro.scan(batch.schema, batch.rows, batch.count)
        if done % 50_000 == 0:
            for batch in batches:
                assert avro.encode(batch.schema, avro.decode(batch)).rows == batch.rows
        refused, read, parked = refused + counts.damaged, read + counts.mutations, parked + parking.parked
    assert min(refused, read, parked) > PER_FORMAT // 100
    assert parked < PER_FORMAT // 3


@pytest.mark.parametrize("sealed", [True, False])
def test_damaged_frames_lead_to_the_end(sealed: bool) -> None:
    tables, payloads = sources(7)
    chance = random.Random(11)
    made, _ = fresh(7, tables)
    for _ in range(20_000 // SCALE):
        data = bytearray(b"".join([framed(payloads[chance.randrange(len(payloads))]) for _ in range(3)]))
        at = chance.randrange(len(data))
        data[at : at + chance.randrange(5)] = chance.randbytes(chance.randrange(5))
        reached = made.decode(Section(bytes(data), START, sealed))
        assert reached == START + len(data) if sealed else START <= reached <= START + len(data)
        made.take()
        made.damage.clear()


def test_damaged_schema_changes_teach_nothing_wrong() -> None:
    """The log's own schema tables are input as well: whatever they say, decoding goes on."""
    one = table(Column("k", t.INT32, Role.PARTITION), Column("v", t.list_of(t.TEXT, multi_cell=True)), number=3)
    mutations = [create_keyspace("ks", TIME), create_table(one, TIME), drop_table(one, TIME + 1)]
    mutations.append(truncate(one, TIME, 5, 77))
    payloads = [encode_mutation(mutation, 8) for mutation in mutations]
    chance = random.Random(12)
    learned = 0
    for _ in range(2_000 // SCALE):
        made, _ = fresh(8, [])
        data = b"".join([framed(damaged(payloads, chance)) for _ in range(3)])
        assert made.decode(Section(data, START, True)) == START + len(data)
        learned += made.counts.mutations
        made.learned([uuid.UUID(int=3)])
        for batch in made.take():
            avro.decode(batch)
    assert learned > 500 // SCALE
