"""Dead letters survive, are found again, and can be delivered again as they were."""

from __future__ import annotations

import dataclasses
import stat
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.deliver.dead_letter import dead_letter
from penstock.deliver.sink import DeadLetter, Delivered, Sink, Task, Writer
from penstock.errors import CorruptData, DeadLettersFull, InvalidInput, StorageError, UnsupportedFormat
from penstock.formats import avro
from penstock.model import types
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deletion, Delta, Element, Marker, Op
from penstock.model.schema import Column, TableSchema
from penstock.model.types import Type
from penstock.pipeline.dead_letters import DeadLetterStore, records_of, replay
from penstock.records.records import Records, images
from penstock.settings import RecordType
from tests import row_records, sample
from tests.every_type import every_type_table
from tests.row_records import gone, put
from tests.strategies import tables_of_changes


def rows(*numbers: int) -> Records:
    return row_records.records_of(sample.SCHEMA, [put({"id": number}, number, note=f"n{number}") for number in numbers])


def letters(*numbers: int, reason: str = "no") -> list[DeadLetter]:
    records = rows(*numbers)
    return [dead_letter("search", records, at, reason) for at in range(len(records))]


def test_a_letter_says_what_and_why() -> None:
    (letter,) = letters(7, reason="x" * 9999)
    assert (letter.sink, letter.table, letter.key) == ("search", "shop.orders", '{"id":7}')
    assert letter.reason == "x" * 2000
    assert letter.schema == sample.SCHEMA


def test_a_letter_of_a_row_that_is_gone_holds_nothing_of_it() -> None:
    records = rows(7)
    assert records.after is not None
    children = [records.after.field(part.name) for part in records.after.type]
    after = pa.StructArray.from_arrays(children, fields=list(records.after.type), mask=pa.array([True]))
    letter = dead_letter("search", dataclasses.replace(records, after=after), 0, "no")
    (change,) = avro.decode(ChangeBatch(sample.SCHEMA, 1, letter.row))
    assert (change.cells, change.marker, change.deletion) == ({}, None, Deletion(7))


def test_letters_are_there_after_a_restart(tmp_path: Path) -> None:
    DeadLetterStore(tmp_path / "dead").add(3, letters(1, 2))
    DeadLetterStore(tmp_path / "dead").add(2, letters(5))
    found = list(DeadLetterStore(tmp_path / "dead").letters())
    assert [(stored.id, stored.letter) for stored in found] == list(
        zip(("2-0", "3-0", "3-1"), letters(5, 1, 2), strict=True)
    )


def test_a_batch_that_is_done_again_replaces_its_letters(tmp_path: Path) -> None:
    store = DeadLetterStore(tmp_path)
    store.add(3, letters(1, 2))
    store.add(3, letters(2))
    assert [stored.letter.key for stored in store.letters()] == ['{"id":2}']
    store.add(3, [])
    assert list(store.letters()) == []
    assert store.size_bytes == 0


def test_letters_are_found_by_sink_table_and_id(tmp_path: Path) -> None:
    store = DeadLetterStore(tmp_path)
    other = dataclasses.replace(letters(9)[0], sink="kafka", table="shop.items")
    store.add(1, [*letters(1), other])
    assert [stored.id for stored in store.letters(sink="kafka")] == ["1-1"]
    assert [stored.id for stored in store.letters(table="shop.orders")] == ["1-0"]
    assert store.letter("1-1").letter == other
    for wrong in ("1-2", "7-0"):
        with pytest.raises(InvalidInput, match="no such dead letter"):
            store.letter(wrong)
    with pytest.raises(InvalidInput, match="it looks like 42-0"):
        store.letter("../etc")


def test_removed_letters_are_gone_and_others_keep_their_ids(tmp_path: Path) -> None:
    store = DeadLetterStore(tmp_path)
    store.add(1, letters(1, 2, 3))
    assert store.remove(["1-1", "1-7", "9-0"]) == 1
    assert [stored.id for stored in store.letters()] == ["1-0", "1-2"]
    assert store.remove(["1-0", "1-2"]) == 2
    assert list(tmp_path.glob("batch-*")) == []


def test_only_the_owner_can_read_letters(tmp_path: Path) -> None:
    DeadLetterStore(tmp_path / "dead").add(1, letters(1))
    (file,) = (tmp_path / "dead").glob("batch-*")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_store_refuses_to_grow_beyond_its_limit(tmp_path: Path) -> None:
    DeadLetterStore(tmp_path).add(1, letters(1, 2, 3))
    size = DeadLetterStore(tmp_path).size_bytes
    store = DeadLetterStore(tmp_path, bytes_max=size + 100)
    with pytest.raises(DeadLettersFull, match=rf"more than {size + 100} bytes .*batch 2"):
        store.add(2, letters(4))
    # What was there is still there, and a batch that is done again counts once.
    store.add(1, letters(1, 2, 3))
    assert [stored.id for stored in store.letters()] == ["1-0", "1-1", "1-2"]


@pytest.mark.parametrize("place", range(0, 900, 37))
def test_a_damaged_file_is_noticed(tmp_path: Path, place: int) -> None:
    store = DeadLetterStore(tmp_path)
    store.add(1, letters(1))
    (file,) = tmp_path.glob("batch-*")
    data = bytearray(file.read_bytes())
    data[place % len(data)] ^= 4
    file.write_bytes(data)
    with pytest.raises(CorruptData, match=r"batch-0+1\.jsonl"):
        list(store.letters())


def test_a_cut_file_is_noticed(tmp_path: Path) -> None:
    store = DeadLetterStore(tmp_path)
    store.add(1, letters(1, 2))
    (file,) = tmp_path.glob("batch-*")
    data = file.read_bytes()
    for size in (0, 1, data.index(b"\n") + 1, len(data) - 1):
        file.write_bytes(data[:size])
        with pytest.raises(CorruptData):
            list(store.letters())


def test_a_later_version_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeadLetterStore(tmp_path)
    monkeypatch.setattr("penstock.pipeline.dead_letters._VERSION", 2)
    store.add(1, letters(1))
    monkeypatch.undo()
    with pytest.raises(UnsupportedFormat):
        list(store.letters())


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write dead letters"):
        DeadLetterStore(tmp_path / "file").add(1, letters(1))


def test_whole_rows_come_back_from_letters() -> None:
    schema, changes = every_type_table()
    changes = [dataclasses.replace(change, time=10 + at) for at, change in enumerate(changes)]
    records = row_records.records_of(schema, changes)
    records = dataclasses.replace(records, before=records.after)
    _expect_round_trip(records, RecordType.ALL)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    tables_of_changes(columns_max=3, changes_max=2, max_leaves=3),
    st.lists(st.integers(0, 1 << 60), min_size=8, max_size=8),
)
def test_any_whole_rows_come_back_from_letters(table: tuple[TableSchema, list[Change]], versions: list[int]) -> None:
    schema, changes = table
    records = row_records.records_of(schema, changes, versions[: len(changes)])
    if all(dead_letter("x", records, at, "no", RecordType.ALL).whole for at in range(len(records))):
        _expect_round_trip(records, RecordType.ALL)


def test_a_row_that_no_change_can_say_as_a_whole_is_kept_as_its_change() -> None:
    steps = Column("steps", types.list_of(types.INT32, multi_cell=True))
    schema = dataclasses.replace(sample.SCHEMA, columns=(*sample.SCHEMA.columns, steps))
    item = Element(UUID("e3e70682-c209-11ac-a29f-6fbed82c07cd"), None)
    change = Change(Op.UPDATE, {"id": 1}, {"steps": Delta(None, (item,))}, time=5)
    letter = dead_letter("search", row_records.records_of(schema, [change]), 0, "no")
    assert not letter.whole
    assert avro.decode(ChangeBatch(schema, 1, letter.row)) == [change]


@pytest.mark.parametrize(
    "type_",
    [types.INT32, types.DECIMAL, types.array(types.BOOLEAN), types.list_of(types.TEXT), types.tuple_of(types.INT32)],
    ids=lambda type_: type_.kind.value,
)
def test_a_list_with_a_null_among_its_elements_is_kept_as_its_change_whatever_the_elements_are(type_: Type) -> None:
    schema = dataclasses.replace(
        sample.SCHEMA, columns=(*sample.SCHEMA.columns, Column("steps", types.list_of(type_, multi_cell=True)))
    )
    item = Element(UUID("e3e70682-c209-11ac-a29f-6fbed82c07cd"), None)
    change = Change(Op.UPDATE, {"id": 1}, {"steps": Delta(None, (item,))}, time=5)
    records = row_records.records_of(schema, [change])
    assert records.after is not None
    assert records.after[0]["steps"].as_py() == [None]
    letter = dead_letter("search", records, 0, "no")
    assert not letter.whole
    assert avro.decode(ChangeBatch(schema, 1, letter.row)) == [change]


def _expect_round_trip(records: Records, record: RecordType) -> None:
    made = [dead_letter("x", records, at, "no", record).row for at in range(len(records))]
    found = records_of(records.schema, made, record)
    assert found.versions.equals(records.versions)
    for one, other in ((found.after, records.after), (found.before, records.before)):
        # NaN is not equal to itself, so what stands there is compared.
        assert _shown(one) == _shown(other)
    # The letter of a letter is the same: replaying finds out which ones were refused again.
    assert [dead_letter("x", found, at, "no", record).row for at in range(len(found))] == made


def _shown(array: pa.Array | None) -> list[str]:
    return [] if array is None else [repr(_numbers(scalar)) for scalar in array]


def _numbers(scalar: pa.Scalar) -> Any:
    """A value as lists and numbers: there are dates and times that Python does not have."""
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return [_numbers(scalar[at]) for at in range(scalar.type.num_fields)]
    if pa.types.is_map(scalar.type) or pa.types.is_list(scalar.type):
        return [_numbers(item) for item in scalar.values]
    if pa.types.is_temporal(scalar.type):
        return scalar.value
    return scalar.as_py()


def test_changes_come_back_from_letters_as_they_were() -> None:
    schema, changes = every_type_table()
    records = row_records.records_of(schema, changes)
    made = [dead_letter("x", records, at, "no", RecordType.CHANGE).row for at in range(len(records))]
    assert b"".join(made) == records.changes.rows
    assert records_of(schema, made, RecordType.CHANGE).changes.rows == records.changes.rows


class Picky(Sink):
    """Takes rows whose id is not in `wrong`."""

    name: ClassVar[str] = "search"

    def __init__(self, *wrong: int) -> None:
        self.record = RecordType.AFTER
        self.wrong = wrong
        self.taken: list[tuple[int, str | None, int]] = []
        self.prepared: list[TableSchema] = []
        self.tasks: list[Task] = []
        self.commits: list[tuple[str, int]] = []

    def prepare(self, schemas: Any) -> None:
        self.prepared += schemas

    def writer(self, task: Task) -> Writer:
        self.tasks.append(task)
        return PickyWriter(self)

    def commit(self, pipeline: str, batch: int, payloads: Any) -> None:
        self.commits.append((pipeline, batch))


class PickyWriter(Writer):
    def __init__(self, sink: Picky) -> None:
        self.sink = sink
        self.delivered = Delivered()

    def write(self, records: Records) -> None:
        assert records.after is not None
        keys = images(records.schema, records.changes, 0)
        for at in range(len(records)):
            after = records.after[at].as_py()
            number = (after or keys[at].as_py() or {"id": 0})["id"]
            if number in self.sink.wrong:
                self.delivered.dead.append(dead_letter("search", records, at, "still no"))
            else:
                self.sink.taken.append((number, after and after["note"], records.versions[at].as_py()))

    def finish(self) -> Delivered:
        return self.delivered


def test_replayed_letters_are_delivered_and_forgotten(tmp_path: Path) -> None:
    store = DeadLetterStore(tmp_path)
    wide = row_records.records_of(sample.WIDER, [put({"id": 4}, 40, note="w", paid=True)])
    kafka = dataclasses.replace(letters(8)[0], sink="kafka")
    store.add(1, [*letters(1, 2), dead_letter("search", wide, 0, "no"), kafka])
    sink = Picky(2)
    done = replay(store, sink, list(store.letters()), pipeline="p", now_us=77)
    assert (done.delivered, done.refused) == (2, 1)
    assert sink.taken == [(1, "n1", 1), (4, "w", 40)]
    assert sink.prepared == [sample.SCHEMA, sample.WIDER]
    assert (sink.tasks, sink.commits) == ([Task("p.dead-letters", 77, 0, 77)], [("p.dead-letters", 77)])
    assert [stored.id for stored in store.letters()] == ["1-1", "1-3"]


def test_a_letter_is_not_replayed_as_another_type_of_record(tmp_path: Path) -> None:
    store = DeadLetterStore(tmp_path)
    records = rows(1)
    store.add(1, [dead_letter("search", records, 0, "no", RecordType.CHANGE)])
    sink = Picky()
    with pytest.raises(InvalidInput, match=r"another type of record.*id 1-0"):
        replay(store, sink, list(store.letters()), pipeline="p", now_us=1)
    assert (sink.tasks, len(list(store.letters()))) == ([], 1)


def test_a_deletion_can_be_a_letter_too(tmp_path: Path) -> None:
    records = row_records.records_of(sample.SCHEMA, [gone({"id": 3}, 9)])
    assert records.after is not None
    assert records.after.null_count == 1
    store = DeadLetterStore(tmp_path)
    store.add(1, [dead_letter("search", records, 0, "no")])
    sink = Picky()
    assert replay(store, sink, list(store.letters()), pipeline="p", now_us=1).delivered == 1
    assert [(note, version) for _, note, version in sink.taken] == [(None, 9)]


def test_replaying_nothing_writes_nothing(tmp_path: Path) -> None:
    sink = Picky()
    done = replay(DeadLetterStore(tmp_path), sink, [], pipeline="p", now_us=1)
    assert (done.delivered, done.refused, sink.tasks) == (0, 0, [])


def test_letters_of_rows_with_only_a_key_come_back() -> None:
    schema = TableSchema(sample.TABLE, sample.SCHEMA.columns[:1])
    change = Change(Op.INSERT, {"id": 5}, time=3, marker=Marker())
    records = dataclasses.replace(row_records.records_of(schema, [change]), before=None)
    _expect_round_trip(records, RecordType.AFTER)
