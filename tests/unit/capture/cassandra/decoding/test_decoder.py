"""What is decided between entries: frames and damage, learning, parking, dropped columns, TRUNCATE, batches."""

from __future__ import annotations

import struct
import uuid
import zlib
from dataclasses import replace

import pytest

from penstock.capture.cassandra.decoding.decoder import Decoder, MemoryParking
from penstock.capture.cassandra.decoding.era_division import Overtaken
from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable, DroppedColumn
from penstock.capture.cassandra.segments.sections import Damage, Section
from penstock.capture.cassandra.segments.segment import FORMATS, SegmentHeader
from penstock.errors import DiskFull
from penstock.formats import avro
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId
from penstock.sandbox.commit_log.mutation import encode_mutation
from penstock.sandbox.commit_log.statements import create_keyspace, create_table, drop_table, truncate
from tests.commit_logs import as_table
from tests.mutation_bytes import START, changes, decoder, entry, section, table

TIME = 1_700_000_000_000_000
NAME = "CommitLog-7-5.log"
WIDE = table(Column("k", t.INT64, Role.PARTITION), Column("v", t.TEXT), Column("w", t.INT32))


def row(number: int, **cells: object) -> Change:
    return Change(Op.INSERT, {"k": number}, {name: Set(value) for name, value in cells.items()}, TIME, marker=Marker())


def payload(one: CassandraTable, *rows: Change, format_: int = 7) -> bytes:
    return encode_mutation([(one, rows)], format_)


def numbers(made: Decoder) -> list[int]:
    return [change.key["k"] for change in changes(made)]


ENTRIES = [payload(WIDE, row(number, v="x" * number)) for number in range(4)]
SIZES = [len(entry(data)) for data in ENTRIES]


# Frames.


@pytest.mark.parametrize("format_", FORMATS)
def test_a_section_gives_all_its_entries_and_its_end(format_: int) -> None:
    made = decoder(WIDE, format_=format_)
    data = section(*[payload(WIDE, row(number), format_=format_) for number in range(4)], padding=20)
    assert made.decode(data) == START + len(data.data)
    assert numbers(made) == [0, 1, 2, 3]
    assert made.counts.mutations == made.counts.changes == 4
    assert made.damage == []


def test_entries_up_to_a_position_do_not_count() -> None:
    made = decoder(WIDE)
    made.decode(section(*ENTRIES), START + SIZES[0] + SIZES[1])
    assert numbers(made) == [2, 3]


def test_a_change_has_the_position_behind_its_entry() -> None:
    made = decoder(WIDE)
    made.decode(section(*ENTRIES))
    positions = [change.origin.position for change in changes(made)]
    assert positions == [START + sum(SIZES[: index + 1]) for index in range(4)]


@pytest.mark.parametrize("place", [0, 3, 4, 7])
def test_a_bad_size_ends_a_sealed_section_and_is_named(place: int) -> None:
    data = bytearray(section(*ENTRIES).data)
    data[SIZES[0] + place] ^= 0x01
    made = decoder(WIDE)
    assert made.decode(Section(bytes(data), START, True)) == START + len(data)
    assert numbers(made) == [0]
    assert [(d.file, d.offset, d.what) for d in made.damage] == [(NAME, START + SIZES[0], "entry size")]
    assert made.counts.damaged == 1


@pytest.mark.parametrize("place", [8, 20, -1])
def test_a_bad_entry_is_skipped_alone(place: int) -> None:
    data = bytearray(section(*ENTRIES).data)
    data[SIZES[0] + place if place > 0 else SIZES[0] + SIZES[1] - 1] ^= 0x40
    made = decoder(WIDE)
    made.decode(Section(bytes(data), START, True))
    assert numbers(made) == [0, 2, 3]
    assert made.damage == [Damage(NAME, START + SIZES[0], START + SIZES[0], "entry", "an entry has a wrong checksum")]


def test_a_bad_mutation_is_skipped_alone() -> None:
    made = decoder(WIDE)
    made.decode(section(ENTRIES[0], ENTRIES[1][:-1], ENTRIES[2]))
    assert numbers(made) == [0, 2]
    assert [(d.what, d.offset) for d in made.damage] == [("mutation", START + SIZES[0])]


@pytest.mark.parametrize("size", [-5, 1, 9, 1 << 20, -(1 << 31), (1 << 31) - 1])
def test_a_size_that_cannot_be_is_damage_though_its_checksum_is_right(size: int) -> None:
    frame = bytearray(entry(ENTRIES[0]))
    frame[:4] = struct.pack(">i", size)
    frame[4:8] = struct.pack(">I", zlib.crc32(frame[:4]))
    made = decoder(WIDE)
    end = made.decode(Section(bytes(frame) + entry(ENTRIES[1]), START, True))
    assert end == START + SIZES[0] + SIZES[1]
    assert numbers(made) == []
    assert [d.what for d in made.damage] == ["entry size"]


@pytest.mark.parametrize("gap", [4, 5, 12, 100])
def test_entries_behind_a_gap_of_zeros_are_found(gap: int) -> None:
    made = decoder(WIDE)
    data = entry(ENTRIES[0]) + bytes(gap) + entry(ENTRIES[1]) + entry(ENTRIES[2])
    assert made.decode(Section(data, START, True)) == START + len(data)
    assert numbers(made) == [0, 1, 2]
    assert [(d.what, d.offset) for d in made.damage] == [("entry", START + SIZES[0])]


def test_a_gap_with_nonsense_behind_it_ends_the_section() -> None:
    made = decoder(WIDE)
    data = entry(ENTRIES[0]) + bytes(9) + b"nonsense of some length" + entry(ENTRIES[1])
    assert made.decode(Section(data, START, True)) == START + len(data)
    assert numbers(made) == [0]
    assert len(made.damage) == 1


def test_a_live_section_stops_at_the_first_entry_that_is_not_whole() -> None:
    whole = section(*ENTRIES).data
    made = decoder(WIDE)
    found: list[int] = []
    position = START
    for size in range(len(whole) + 1):
        data = bytes(whole[:size]) + bytes(len(whole) - size)
        reached = made.decode(Section(data[position - START :], position, False), position)
        assert reached in {START + sum(SIZES[:count]) for count in range(5)}
        assert reached <= START + size
        position = reached
        found += numbers(made)
    assert found == [0, 1, 2, 3]
    assert made.damage == []


@pytest.mark.parametrize("place", [0, 4, 8, 30])
def test_a_live_section_waits_where_a_sealed_one_is_damaged(place: int) -> None:
    data = bytearray(section(*ENTRIES).data)
    data[SIZES[0] + place] ^= 0x01
    made = decoder(WIDE)
    assert made.decode(Section(bytes(data), START, False)) == START + SIZES[0]
    assert numbers(made) == [0]
    assert made.damage == []


def test_a_section_without_bytes_is_passed() -> None:
    assert decoder(WIDE).decode(Section(b"", START, True)) == START


# Batches.


def test_decoding_stops_early_when_enough_is_pending_and_goes_on_from_there() -> None:
    made = decoder(WIDE)
    data = section(*ENTRIES * 50)
    position, found, turns = 0, [], 0
    while position < START + len(data.data):
        position = made.decode(data, position, 1000)
        assert made.pending_bytes < 1000 + 200
        batches = made.take()
        assert made.pending_bytes == 0
        found += [change.key["k"] for batch in batches for change in avro.decode(batch)]
        turns += 1
    assert found == [0, 1, 2, 3] * 50
    assert turns > 10


def test_a_batch_has_its_greatest_time_and_its_schema() -> None:
    made = decoder(WIDE)
    made.decode(section(payload(WIDE, replace(row(1), time=5)), payload(WIDE, replace(row(2), time=9)), ENTRIES[0]))
    (batch,) = made.take()
    assert (batch.count, batch.when_max) == (3, TIME)
    assert batch.schema.columns == WIDE.schema.columns
    assert avro.scan(batch.schema, batch.rows, batch.count)[0] == TIME


def test_batches_are_split_to_their_size() -> None:
    rows = [
        Change(Op.INSERT, {"k": 1, "c": number}, {"v": Set("x" * 50)}, TIME - number, marker=Marker())
        for number in range(100)
    ]
    many = table(Column("k", t.INT64, Role.PARTITION), Column("c", t.INT32, Role.CLUSTERING), Column("v", t.TEXT))
    schemas = Schemas()
    schemas.add(many)
    made = Decoder(schemas, captures=lambda _: True, parking=MemoryParking(), batch_bytes_max=1000)
    made.begin(SegmentHeader(7, 5, 42), NAME)
    made.decode(section(payload(many, *rows), payload(many, *rows[:3])))
    batches = made.take()
    assert len(batches) > 10
    assert all(len(batch.rows) <= 1000 for batch in batches)
    found = [change for batch in batches for change in avro.decode(batch)]
    assert [change.key["c"] for change in found] == [*range(100), 0, 1, 2]
    assert all(batch.when_max == max(c.time for c in avro.decode(batch) if c.time) for batch in batches)


def test_tables_that_are_not_captured_are_passed_over_and_read_only_where_others_follow() -> None:
    other = as_table(TableId("elsewhere", "t"), WIDE.schema.columns, uuid.UUID(int=9))
    made = decoder(WIDE, other)
    together = encode_mutation([(other, [row(1, v="a")]), (WIDE, [row(1, v="b")])], 7)
    made.decode(section(payload(other, row(3)), together, payload(other, row(4))))
    assert [change.cells for change in changes(made)] == [{"v": Set("b")}]
    assert (made.counts.mutations, made.counts.skipped, made.counts.changes) == (3, 2, 1)


# Schema.


def test_a_table_is_learned_before_the_next_entry() -> None:
    made = decoder()
    wider = as_table(WIDE.schema.table, [*WIDE.schema.columns, Column("x", t.BOOLEAN)], WIDE.id)
    made.decode(
        section(
            encode_mutation(create_keyspace("ks", TIME), 7),
            encode_mutation(create_table(WIDE, TIME), 7),
            ENTRIES[1],
            encode_mutation(create_table(wider, TIME + 1), 7),
            payload(wider, row(2, x=True)),
            ENTRIES[3],
        )
    )
    assert made.damage == []
    first, second = made.take()
    assert [column.name for column in first.schema.columns] == ["k", "v", "w"]
    assert [column.name for column in second.schema.columns] == ["k", "v", "w", "x"]
    assert [change.key["k"] for change in avro.decode(first)] == [1]
    assert [change.cells for change in avro.decode(second)] == [{"x": Set(True)}, {"v": Set("xxx")}]
    assert made.counts.changes == 3


def test_entries_of_an_unknown_table_wait_and_come_before_later_ones() -> None:
    parking = MemoryParking()
    made = decoder(parking=parking)
    made.decode(section(ENTRIES[0], ENTRIES[1]))
    assert changes(made) == []
    assert [(e.table, e.reason, e.segment, e.format, e.file) for e in parking.entries()] == [
        (WIDE.id, "the table is not known", 5, 7, NAME)
    ] * 2
    assert parking.holds(WIDE.id)
    made.begin(SegmentHeader(8, 6, 42), "CommitLog-8-6.log")
    made.decode(section(encode_mutation(create_table(WIDE, TIME), 8), payload(WIDE, row(2), format_=8)))
    found = changes(made)
    assert [change.key["k"] for change in found] == [0, 1, 2]
    assert [change.origin.file for change in found] == [NAME, NAME, "CommitLog-8-6.log"]
    assert [change.origin.position for change in found][:2] == [START + SIZES[0], START + SIZES[0] + SIZES[1]]
    assert not parking.holds(WIDE.id)
    assert made.counts.parked == 2


def test_a_definition_from_elsewhere_frees_what_waits() -> None:
    schemas, parking = Schemas(), MemoryParking()
    made = Decoder(schemas, captures=lambda _: True, parking=parking)
    made.begin(SegmentHeader(7, 5, 42), NAME)
    made.decode(section(*ENTRIES))
    made.learned(schemas.add(WIDE))
    assert numbers(made) == [0, 1, 2, 3]


def test_a_definition_that_is_found_later_frees_what_waits_too() -> None:
    schemas, parking = Schemas(), MemoryParking()
    made = Decoder(schemas, captures=lambda _: True, parking=parking)
    made.begin(SegmentHeader(7, 5, 42), NAME)
    made.decode(section(*ENTRIES[:2]))
    schemas.add(WIDE)
    made.decode(Section(entry(ENTRIES[2]), START + 1000, True))
    assert numbers(made) == [0, 1, 2]


def test_an_unknown_column_makes_its_table_wait() -> None:
    parking = MemoryParking()
    narrow = as_table(WIDE.schema.table, [c for c in WIDE.schema.columns if c.name != "w"], WIDE.id)
    other = table(*WIDE.schema.columns, number=2, name="other")
    made = decoder(narrow, other, parking=parking)
    data = [payload(WIDE, row(0, v="")), payload(WIDE, row(1, w=1)), payload(WIDE, row(2)), payload(other, row(3))]
    made.decode(section(*data))
    assert numbers(made) == [0, 3]
    assert [e.reason for e in parking.entries()] == [
        "a column is not known",
        "earlier entries of the table wait for its schema",
    ]
    made.decode(Section(entry(encode_mutation(create_table(WIDE, TIME), 7)), START + 1000, True))
    assert numbers(made) == [1, 2]


def test_what_still_cannot_be_decoded_waits_again_in_order() -> None:
    parking = MemoryParking()
    made = decoder(parking=parking)
    newest = as_table(WIDE.schema.table, [*WIDE.schema.columns, Column("x", t.BOOLEAN)], WIDE.id)
    made.decode(section(ENTRIES[0], payload(newest, row(1, x=True)), ENTRIES[2]))
    made.decode(Section(entry(encode_mutation(create_table(WIDE, TIME), 7)), START + 1000, True))
    assert numbers(made) == [0]
    assert len(list(parking.entries())) == 2
    made.decode(Section(entry(encode_mutation(create_table(newest, TIME + 1), 7)), START + 2000, True))
    assert numbers(made) == [1, 2]
    assert not list(parking.entries())


def test_a_mutation_of_two_tables_waits_for_both() -> None:
    other = table(*WIDE.schema.columns, number=2, name="other")
    made = decoder()
    together = encode_mutation([(other, [row(1, v="a")]), (WIDE, [row(1, v="b")])], 7)
    made.decode(section(together))
    made.decode(Section(entry(encode_mutation(create_table(other, TIME), 7)), START + 1000, True))
    assert changes(made) == []
    made.decode(Section(entry(encode_mutation(create_table(WIDE, TIME), 7)), START + 2000, True))
    assert [change.cells for change in changes(made)] == [{"v": Set("a")}, {"v": Set("b")}]


def test_parking_in_memory_has_a_bound() -> None:
    made = decoder(parking=MemoryParking(bytes_max=100))
    with pytest.raises(DiskFull, match="parked entries"):
        made.decode(section(*ENTRIES))


def test_a_dropped_column_is_read_with_a_schema_that_has_it_again() -> None:
    gone = Column("w", t.INT32, source_type=cql_types.text_of(t.INT32))
    narrow = as_table(WIDE.schema.table, [c for c in WIDE.schema.columns if c.name != "w"], WIDE.id)
    narrow = replace(narrow, dropped={"w": DroppedColumn(gone, TIME + 5)})
    made = decoder(narrow)
    made.decode(section(payload(WIDE, row(0, v="a")), payload(WIDE, row(1, v="b", w=5)), payload(WIDE, row(2))))
    assert made.damage == []
    first, second = made.take()
    assert [column.name for column in first.schema.columns] == ["k", "v"]
    assert [column.name for column in second.schema.columns] == ["k", "v", "w"]
    assert [change.cells for change in avro.decode(second)] == [{"v": Set("b"), "w": Set(5)}, {}]


def test_a_dropped_table_is_still_read() -> None:
    made = decoder()
    made.decode(
        section(
            encode_mutation(create_table(WIDE, TIME), 7),
            ENTRIES[0],
            encode_mutation(drop_table(WIDE, TIME + 1), 7),
            ENTRIES[1],
        )
    )
    assert numbers(made) == [0, 1]


# TRUNCATE.


def test_truncate_is_a_change_of_its_table_at_its_place() -> None:
    made = decoder(WIDE)
    cut = encode_mutation(truncate(WIDE, TIME, 5, START + SIZES[0]), 7)
    made.decode(section(ENTRIES[0], cut, ENTRIES[1]))
    found = changes(made)
    assert [change.op for change in found] == [Op.INSERT, Op.TRUNCATE, Op.INSERT]
    time = TIME // 1000 * 1000
    assert (found[1].time, found[1].deletion) == (time, Deletion(time))
    assert found[1].origin.position == START + SIZES[0] + len(entry(cut))
    assert made.counts.changes == 3


def eras(made: Decoder) -> list[tuple[int, list[Op]]]:
    """What was decoded, batch by batch: when the table had been truncated, and the operations."""
    return [(batch.schema.truncated_us, [change.op for change in avro.decode(batch)]) for batch in made.take()]


def test_what_is_decoded_before_and_after_a_truncation_is_of_two_eras() -> None:
    made = decoder(WIDE)
    cut = encode_mutation(truncate(WIDE, TIME, 5, START + SIZES[0]), 7)
    made.decode(section(ENTRIES[0], cut, ENTRIES[1]))
    assert eras(made) == [(0, [Op.INSERT]), (TIME, [Op.TRUNCATE]), (TIME, [Op.INSERT])]
    assert made.overtaken == []


def test_what_came_while_the_table_was_truncated_is_of_the_new_era() -> None:
    made = decoder(WIDE)
    cut = encode_mutation(truncate(WIDE, TIME, 5, START + SIZES[0]), 7)
    made.decode(section(ENTRIES[0], ENTRIES[1], cut, ENTRIES[2]))
    assert eras(made) == [(0, [Op.INSERT]), (TIME, [Op.TRUNCATE]), (TIME, [Op.INSERT]), (TIME, [Op.INSERT])]


def test_what_was_taken_before_its_truncation_was_noted_is_to_be_decoded_again() -> None:
    made = decoder(WIDE)
    cut = encode_mutation(truncate(WIDE, TIME, 5, START + SIZES[0]), 7)
    data = section(ENTRIES[0], ENTRIES[1], cut, ENTRIES[2])
    # Half of it, then the rest: as the log is read while it is written.
    first = Section(data.data[: SIZES[0] + SIZES[1]], START, False)
    reached = made.decode(first)
    assert eras(made) == [(0, [Op.INSERT, Op.INSERT])]
    made.decode(data, reached)
    assert eras(made) == [(TIME, [Op.TRUNCATE]), (TIME, [Op.INSERT])]
    assert made.overtaken == [Overtaken(WIDE.id, (5, START + SIZES[0]), (5, START + SIZES[0] + SIZES[1]))]


def test_a_truncation_that_is_told_again_counts_once() -> None:
    made = decoder(WIDE)
    cut = encode_mutation(truncate(WIDE, TIME, 5, 77), 7)
    made.decode(section(cut, cut))
    assert [change.op for change in changes(made)] == [Op.TRUNCATE]


def test_a_truncation_of_another_table_is_passed_over() -> None:
    made = decoder()
    made.decode(section(encode_mutation(truncate(WIDE, TIME, 5, 77), 7)))
    assert changes(made) == []
    assert made.damage == []


@pytest.mark.parametrize("format_", [7, 9])
def test_table_made_anew_is_told_after_what_came_of_the_one_before_and_is_the_newer_one(format_: int) -> None:
    old, new = replace(WIDE, cdc=True), replace(WIDE, cdc=True, id=uuid.UUID(int=9))
    made = Decoder(Schemas(), captures=lambda one: one.cdc, parking=MemoryParking(), tells_tables=True)
    made.begin(SegmentHeader(format_, 5, 0), f"CommitLog-{format_}-5.log")
    log = [
        (create_table(old, TIME), 1),
        ([(old, [row(1, v="x")])], 4),
        (drop_table(old, TIME + 10), 1),
        (create_table(new, TIME + 20), 1),
        ([(new, [row(2, v="y")])], 7),
    ]
    made.decode(section(*(encode_mutation(mutation, format_, epoch=epoch) for mutation, epoch in log)))
    first, *later = made.take()
    found = [(batch.schema.id, [change.op for change in avro.decode(batch)]) for batch in (first, *later)]
    assert found == [(str(old.id), [Op.INSERT]), (str(new.id), [Op.TRUNCATE]), (str(new.id), [Op.INSERT])]
    assert all(batch.schema.order > first.schema.order for batch in later)


def test_truncation_does_not_make_a_table_older_where_epochs_order_it() -> None:
    one = replace(WIDE, cdc=True)
    made = Decoder(Schemas(), captures=lambda one: one.cdc, parking=MemoryParking(), tells_tables=True)
    made.begin(SegmentHeader(9, 5, 0), "CommitLog-9-5.log")
    log = [(create_table(one, TIME), 1), ([(one, [row(1, v="x")])], 4), (truncate(one, TIME + 1000, 5, 1), 1)]
    made.decode(section(*(encode_mutation(mutation, 9, epoch=epoch) for mutation, epoch in log)))
    before, *_, after = [batch.schema.altered for batch in made.take()]
    assert after == before


def test_what_waited_for_a_table_that_was_truncated_meanwhile_is_told_from_what_came_after() -> None:
    one = replace(WIDE, cdc=True)
    made = Decoder(Schemas(), captures=lambda one: one.cdc, parking=MemoryParking(), tells_tables=True)
    made.begin(SegmentHeader(7, 5, 0), NAME)
    cut = encode_mutation(truncate(one, TIME, 5, START + SIZES[0]), 7)
    made.decode(section(ENTRIES[0], cut, ENTRIES[1], encode_mutation(create_table(one, TIME), 7)))
    assert eras(made) == [(0, [Op.INSERT]), (TIME, [Op.TRUNCATE]), (TIME, [Op.INSERT])]
