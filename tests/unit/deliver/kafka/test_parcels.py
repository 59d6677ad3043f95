"""Records ready to be sent, and those that never will be."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.deliver.kafka.packers import Packers, Prepared
from penstock.deliver.kafka.parcels import Parcel
from penstock.deliver.sink import Task
from penstock.errors import TargetRefused
from penstock.formats import avro
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deletion, Op, Set
from penstock.model.schema import Column, Role, TableSchema
from penstock.pipeline import dead_letters
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.kafka import KafkaSettings
from tests.kafka_records import NOW_US, USERS, deleted_user, records_of, user

TASK = Task("p", 1, 0, NOW_US)


def packed(records: Records, bytes_max: int | None = None, **given: Any) -> list[Parcel]:
    settings = KafkaSettings.model_validate({"bootstrap_servers": "b:9092", "topic_prefix": "lab", **given})
    taken = {} if bytes_max is None else {"lab.lab.users": bytes_max}
    return list(Packers(settings, Prepared(bytes_max=taken)).pack(records, TASK))


def test_a_record_that_is_too_large_is_set_aside_with_its_row() -> None:
    changes = [user(1), user(2, "x" * 5000), user(3)]
    [parcel] = packed(records_of(USERS, changes), bytes_max=4096)
    assert parcel.records.column("key").to_pylist() == [b'{"id":1}', b'{"id":3}']
    [letter] = parcel.dead
    assert (letter.key, letter.table, letter.schema) == ('{"id":2}', "lab.users", USERS)
    assert avro.decode(ChangeBatch(USERS, 1, letter.row)) == [changes[1]]


def test_the_operators_own_limit_counts_when_it_is_lower_than_the_topics() -> None:
    [parcel] = packed(records_of(USERS, [user(1), user(2, "x" * 5000)]), record_bytes_max=3000)
    assert len(parcel.dead) == 1
    assert "takes 3000" in parcel.dead[0].reason


@pytest.mark.parametrize(
    ("topic", "given", "wanted"),
    [
        (None, {}, 1_047_564),
        (None, {"record_bytes_max": 5_000_000}, 5_000_000),
        (10_000, {"record_bytes_max": 5_000_000}, 8_976),
        (2_000_000, {"producer": {"max.request.size": "9000"}}, 7_976),
    ],
)
def test_a_record_may_be_as_large_as_all_on_its_way_take_it(topic: int | None, given: Any, wanted: int) -> None:
    sizes = []
    for size in (wanted - 900, wanted + 1):
        [parcel] = packed(records_of(USERS, [user(1, "x" * (size // 2))]), topic, **given)
        sizes.append(len(parcel.dead))
    assert sizes == [0, 1]


def test_a_value_that_has_no_place_is_set_aside_and_never_shown() -> None:
    columns = (Column("id", t.INT32, Role.PARTITION), Column("v", t.VARINT))
    schema = TableSchema(USERS.table, columns, source="cassandra")
    changes = [Change(Op.INSERT, {"id": number}, {"v": Set(1 << (40 * number))}, time=1) for number in range(1, 4)]
    [parcel] = packed(records_of(schema, changes))
    assert parcel.records.column("key").to_pylist() == [b'{"id":1}']
    assert [letter.key for letter in parcel.dead] == ['{"id":2}', '{"id":3}']
    assert "varint" in parcel.dead[0].reason
    assert str(1 << 80) not in parcel.dead[0].reason


def test_a_delete_is_followed_by_a_record_without_a_value() -> None:
    changes = [user(1), deleted_user(1), user(2), deleted_user(2)]
    [parcel] = packed(records_of(USERS, changes), tombstones=True)
    assert parcel.records.column("key").to_pylist() == [b'{"id":1}'] * 3 + [b'{"id":2}'] * 3
    assert parcel.records.column("value").is_null().to_pylist() == [False, False, True] * 2


def test_a_truncated_table_has_no_key() -> None:
    [parcel] = packed(records_of(USERS, [user(1), Change(Op.TRUNCATE, deletion=Deletion(9))]))
    assert parcel.records.column("key").to_pylist() == [b'{"id":1}', None]


def test_large_batches_are_sent_in_parcels_that_do_not_take_much_memory() -> None:
    assert len(packed(records_of(USERS, [user(number) for number in range(2000)]))) <= 2
    # What came before was small, and these are large.
    records = records_of(USERS, [user(number, "x" * 20_000) for number in range(1000)])
    parcels = packed(records)
    assert sum(parcel.records.num_rows for parcel in parcels) == 1000
    assert len(parcels) > 2
    assert max(parcel.records.nbytes for parcel in parcels) < 24 << 20
    keys = [key for parcel in parcels for key in parcel.records.column("key").to_pylist()]
    assert keys == [f'{{"id":{number}}}'.encode() for number in range(1000)]


def test_the_same_batch_gives_the_same_bytes_each_time() -> None:
    records = records_of(USERS, [user(number) for number in range(700)])
    first, again = (
        [value for parcel in packed(records) for value in parcel.records.column("value").to_pylist()] for _ in range(2)
    )
    assert first == again


def test_packers_are_kept_by_schema_version() -> None:
    packers = Packers(KafkaSettings.model_validate({"bootstrap_servers": "b:9092", "topic_prefix": "lab"}), Prepared())
    later = TableSchema(USERS.table, USERS.columns, version=2, source=USERS.source)
    versions = []
    for schema in (USERS, later, USERS):
        [parcel] = packers.pack(records_of(schema, [user(1)]), TASK)
        assert parcel.topic == "lab.lab.users"
        versions += parcel.records.column("penstock.change").to_pylist()
    place = b"node1:CommitLog-8-1794726648383.log:107091:0"
    assert versions == [place + b";schema=%d;batch=1" % version for version in (1, 2, 1)]


def test_a_task_that_refuses_too_much_stops() -> None:
    given = {"bootstrap_servers": "b:9092", "refused_records_max": 2, "record_bytes_max": 1024}
    packers = Packers(KafkaSettings.model_validate(given), Prepared())
    records = records_of(USERS, [user(number, "x" * 2000) for number in range(3)])
    with pytest.raises(TargetRefused, match="3 records of one task cannot be delivered"):
        list(packers.pack(records, TASK))


def test_a_dead_letter_of_whole_rows_holds_the_whole_row() -> None:
    row = {"id": 1, "name": "x" * 5000, "email": None}
    records = records_of(USERS, [user(1, "x")], after=[row], before=[None])
    [parcel] = packed(records, record="all", record_bytes_max=3000)
    [letter] = parcel.dead
    again = dead_letters.records_of(USERS, [letter.row], RecordType.ALL)
    assert again.after is not None
    assert again.after.to_pylist() == [row]


@pytest.mark.parametrize("given", [{"value_format": "avro"}, {"decimals": "long"}])
def test_settings_that_contradict_each_other_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"registry_url|decimals"):
        KafkaSettings.model_validate(given)
