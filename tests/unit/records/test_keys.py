"""Splitting blocks by bucket, and what the content hash leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import CorruptLog
from penstock.formats import avro
from penstock.log import block
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deletion, Marker, Op, Origin, Set
from penstock.records import keys
from penstock.records._groups import Contents
from penstock.settings import Codec
from tests.property.test_merge import SCHEMA


def change(number: int, time: int = 1) -> Change:
    key = {"p": number, "a": 1, "b": 2}
    return Change(Op.INSERT, key, {"v": Set(number)}, time=time, marker=Marker())


def test_each_change_goes_to_the_bucket_of_its_partition_in_order() -> None:
    changes = [change(number % 7, number) for number in range(100)]
    found: dict[int, set[int]] = {}
    total = 0
    for part in keys.split(avro.encode(SCHEMA, changes), 4):
        mine = avro.decode(ChangeBatch(SCHEMA, part.count, part.rows))
        assert [one.time for one in mine] == sorted(one.time or 0 for one in mine)
        found[part.bucket] = {one.key["p"] for one in mine}
        assert part.copies == part.count
        total += part.count
    assert total == 100
    assert sum(map(len, found.values())) == 7


def test_the_deletion_of_a_table_goes_to_every_bucket() -> None:
    truncation = Change(Op.TRUNCATE, time=5, deletion=Deletion(5))
    found = keys.split(avro.encode(SCHEMA, [change(1), truncation, change(1, 9)]), 3)
    assert [part.bucket for part in found] == [0, 1, 2]
    assert sorted(part.count for part in found) == [1, 1, 3]


def test_a_blocks_seal_and_skipped_changes_are_left_out() -> None:
    changes = [change(number) for number in range(10)]
    batch = avro.encode(SCHEMA, changes)
    parts = block.build([batch.rows], 10, 1, Codec.NULL, b"\0" * block.SYNC_BYTES).parts
    sealed = bytes(parts[1]) + bytes(parts[2])[: -block.SYNC_BYTES]
    read = ChangeBatch(SCHEMA, 10, sealed, skip=4)
    (part,) = keys.split(read, 1)
    assert (part.bucket, part.count) == (0, 6)
    assert avro.decode(ChangeBatch(SCHEMA, 6, part.rows)) == changes[4:]


def test_copies_are_left_out_and_counted_unless_their_order_matters() -> None:
    timeless = replace(change(3), time=None)
    truncation = Change(Op.TRUNCATE, time=5, deletion=Deletion(5))
    first = [change(1), timeless, truncation, change(2), change(1)]
    known = Contents()
    (part,) = keys.split(avro.encode(SCHEMA, first), 1, known)
    assert avro.decode(ChangeBatch(SCHEMA, part.count, part.rows)) == first[:-1]
    assert part.copies == 5
    other = [replace(one, capture_time=9, origin=Origin(node="other")) for one in (*first, change(4))]
    (part,) = keys.split(avro.encode(SCHEMA, other), 1, known)
    assert avro.decode(ChangeBatch(SCHEMA, part.count, part.rows)) == [other[1], other[2], other[5]]
    assert part.copies == 6
    assert keys.split(avro.encode(SCHEMA, [change(2)]), 1, known) == [keys.Part(0, 0, memoryview(b""), 1)]


def test_any_number_of_contents_is_known() -> None:
    known = Contents()
    changes = [change(number) for number in range(3000)]
    for step in range(0, 3000, 500):
        parts = keys.split(avro.encode(SCHEMA, changes[step : step + 500]), 3, known)
        assert (sum(part.count for part in parts), sum(part.copies for part in parts)) == (500, 500)
    parts = keys.split(avro.encode(SCHEMA, changes), 3, known)
    assert (sum(part.count for part in parts), sum(part.copies for part in parts)) == (0, 3000)


def test_the_content_is_the_same_whoever_captured_it_and_when() -> None:
    one = change(1)
    copy = replace(one, capture_time=77, origin=Origin("n2", "dc", "file", 5))
    other = replace(one, commit_time=1)
    hashes = keys.scan(avro.encode(SCHEMA, [one, copy, other])).hashes[:, keys.CONTENT_HIGH :]
    assert np.array_equal(hashes[0], hashes[1])
    assert not np.array_equal(hashes[0], hashes[2])


def test_a_column_in_another_place_does_not_alter_the_content() -> None:
    turned = replace(SCHEMA, columns=(*SCHEMA.columns[:3], *reversed(SCHEMA.columns[3:])))
    one = replace(change(1), cells={"v": Set(1), "f": Set(2.0)})
    here = keys.scan(avro.encode(SCHEMA, [one])).hashes
    there = keys.scan(avro.encode(turned, [one])).hashes
    assert np.array_equal(here, there)


def test_keys_are_the_bytes_of_the_key_columns() -> None:
    batch = avro.encode(SCHEMA, [change(1), change(2), change(1, 5)])
    first, second, third = keys.key_bytes(batch).to_pylist()
    assert first == third != second


def test_bytes_that_are_left_over_are_refused() -> None:
    batch = avro.encode(SCHEMA, [change(1)])
    with pytest.raises(CorruptLog, match="bytes are left"):
        keys.split(ChangeBatch(SCHEMA, 1, bytes(batch.rows) + b"\0"), 2)


def test_changes_stand_by_row_and_time_where_no_two_times_of_a_row_are_equal() -> None:
    scan = keys.scan(avro.encode(SCHEMA, [change(number % 7, number * 31 % 100) for number in range(100)]))
    groups, firsts = scan.group_by_key()
    everything = np.arange(100)
    found = scan.in_time(everything, groups, len(firsts))
    assert found is not None
    order, bounds = found
    assert order.tolist() == scan.ordered(everything, groups).tolist()
    assert bounds.tolist() == np.searchsorted(groups[order], np.arange(8)).tolist()
    some = everything[groups != 3]
    again = scan.in_time(some, groups[some], len(firsts))
    assert again is not None
    assert again[0].tolist() == scan.ordered(some, groups[some]).tolist()


@pytest.mark.parametrize("times", [[4, 4], [*range(99), 98], list(range(1000))])
def test_equal_times_and_rows_with_very_many_changes_are_ordered_in_another_way(times: list[int]) -> None:
    scan = keys.scan(avro.encode(SCHEMA, [change(1, time) for time in times]))
    groups, firsts = scan.group_by_key()
    assert scan.in_time(np.arange(len(times)), groups, len(firsts)) is None
