"""Events of whole rows: Debezium's standard envelope with before and after."""

from __future__ import annotations

from dataclasses import replace

from penstock.envelopes.envelope import Envelope, Wire, contract_of
from penstock.model.change import Change, Deletion, Op, Range, Set
from penstock.settings.kafka import Serialisation
from tests.kafka_records import CHOICE, EVENTS, NOW_US, USERS, WRITTEN_US, deleted_user, json_events, records_of, user

_ANNE = {"id": 1, "name": "Anne", "email": None}
_ANNA = {"id": 1, "name": "Anna", "email": None}


def test_an_envelope_has_the_fields_of_debeziums_other_connectors() -> None:
    [(key, value)] = json_events(records_of(USERS, [user(1)], after=[_ANNE], before=[None]), rows=True, before=True)
    assert key == {"id": 1}
    assert list(value) == ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    assert (value["before"], value["after"], value["op"], value["transaction"]) == (None, _ANNE, "c", None)
    assert (value["ts_ms"], value["ts_us"], value["ts_ns"]) == (NOW_US // 1000, NOW_US, NOW_US * 1000)
    assert value["source"]["ts_us"] == WRITTEN_US


def test_the_operation_is_what_happened_to_the_row_not_what_the_statement_was() -> None:
    update = Change(Op.UPDATE, {"id": 1}, {"name": Set("Anna")}, time=1)
    changes = [user(1), user(1), update, deleted_user(1), replace(user(1), op=Op.SNAPSHOT), update]
    befores = [None, _ANNE, _ANNE, _ANNA, None, None]
    afters = [_ANNE, _ANNA, _ANNA, None, _ANNE, _ANNE]
    events = json_events(records_of(USERS, changes, after=afters, before=befores), rows=True, before=True)
    assert [value["op"] for _, value in events] == ["c", "u", "u", "d", "r", "c"]
    assert events[3][1]["before"] == _ANNA
    assert events[3][1]["after"] is None


def test_without_the_row_before_the_operation_is_the_changes_own() -> None:
    update = Change(Op.UPDATE, {"id": 1}, {"name": Set("Anna")}, time=1)
    events = json_events(records_of(USERS, [user(1), update, update], after=[_ANNE, _ANNA, None]), rows=True)
    assert [(value["op"], value["before"]) for _, value in events] == [("c", None), ("u", None), ("d", None)]


def test_the_deletion_of_a_range_has_no_event_and_that_of_a_partition_one_by_choice() -> None:
    partition = Change(Op.DELETE_PARTITION, {"a": 1}, deletion=Deletion(9))
    of_range = Change(Op.DELETE_RANGE, {"a": 1}, deletion=Deletion(9), range=Range(None, None))
    row = Change(Op.DELETE, {"a": 1, "c1": 2}, deletion=Deletion(9))
    records = records_of(EVENTS, [row, partition, of_range], after=[None, None, None])
    wire = Wire(Serialisation.JSON)
    for partial, wanted in ((True, [False, False, True]), (False, [False, True, True])):
        [events] = Envelope(EVENTS, CHOICE, wire, wire, rows=True, partial_keys=partial).render(records, NOW_US)
        assert events.skipped.tolist() == wanted
        assert events.deletes.tolist() == [True, True, False]


def test_a_truncated_table_has_an_event_without_a_key() -> None:
    wire = Wire(Serialisation.JSON)
    records = records_of(USERS, [Change(Op.TRUNCATE, deletion=Deletion(9))], after=[None])
    [events] = Envelope(USERS, CHOICE, wire, wire, rows=True).render(records, NOW_US)
    assert events.keyless.tolist() == [True]
    assert json_events(records, rows=True)[0][1]["op"] == "t"


def test_rows_that_are_a_slice_of_others_are_read_at_their_place() -> None:
    rows = [{"id": number, "name": f"n{number}", "email": None} for number in range(6)]
    whole = records_of(USERS, [user(number) for number in range(6)], after=rows)
    assert whole.after is not None
    some = replace(records_of(USERS, [user(number) for number in range(3, 6)]), after=whole.after.slice(3))
    assert [value["after"] for _, value in json_events(some, rows=True)] == rows[3:]


def test_before_and_after_have_the_same_schema() -> None:
    _, value = contract_of(USERS, CHOICE, rows=True, before=False).schemas
    fields = dict(value.fields)
    assert fields["before"] == fields["after"]
    assert fields["after"].name == "io.debezium.connector.cassandra.lab1.lab.users.Value"
    assert (value.name, value.version) == ("io.debezium.connector.cassandra.lab1.lab.users.Envelope", 2)
