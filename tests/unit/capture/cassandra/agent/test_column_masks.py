"""Columns that never reach a log, whatever way their values come."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.cassandra.agent.agent import Agent
from penstock.capture.column_masks import ColumnMasks
from penstock.errors import InvalidSetting
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_logs import LogSpec
from penstock.model import types as t
from penstock.model.change import Change, Delta, Element, Op, Set
from penstock.model.predicate import ColumnRef, Compare, Literal, Operator
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import AgentSettings
from tests.every_type import every_type_table
from tests.scripted_agent import Setup, cassandra_table
from tests.unit.capture.cassandra.agent.test_agent import Copying

SALT = "a salt of some length"
SECRET = "what nobody may read"
PEOPLE = TableSchema(
    TableId("shop", "people"),
    (
        Column("id", t.INT64, Role.PARTITION),
        Column("seen", t.TEXT, Role.STATIC),
        Column("email", t.TEXT),
        Column("photo", t.BYTES),
        Column("age", t.INT32),
        Column("tags", t.set_of(t.TEXT, multi_cell=True)),
    ),
)


def masks(**settings: Any) -> ColumnMasks:
    return ColumnMasks(AgentSettings(mask_salt=SALT, **settings))


def digest(value: bytes) -> bytes:
    return hmac.new(SALT.encode(), value, hashlib.sha256).digest()


def without(change: Change, *names: str) -> Change:
    before = change.before
    return replace(
        change,
        cells={name: cell for name, cell in change.cells.items() if name not in names},
        before=None if before is None else {name: value for name, value in before.items() if name not in names},
    )


def test_every_column_of_every_type_can_be_left_out_and_nothing_else_changes() -> None:
    schema, changes = every_type_table()
    batch = avro.encode(schema, changes)
    cells = [column.name for column in schema.cells]
    for names in [[name] for name in cells] + [cells]:
        quoted = tuple('{}.{}."{}"'.format(*schema.table, name.replace('"', '""')) for name in names)
        made = masks(exclude_columns=quoted).apply(batch)
        assert made.schema.excluded == tuple(names)
        # As if the columns had never been: the same bytes that the encoder of single changes writes.
        assert bytes(made.rows) == bytes(avro.encode(made.schema, [without(one, *names) for one in changes]).rows)
        assert (made.count, made.when_max, made.transactions) == (batch.count, batch.when_max, batch.transactions)


def test_values_are_hidden_and_equal_ones_stay_equal() -> None:
    rows = [
        Change(Op.INSERT, {"id": 1}, {"email": Set("a@x"), "photo": Set(b"\0\1"), "age": Set(7), "seen": Set("s")}),
        Change(Op.UPDATE, {"id": 2}, {"email": Set("a@x", 9), "age": Set(None)}, before={"email": "b@x", "age": 3}),
        Change(Op.UPDATE, {"id": 3}, {"email": Set(None), "tags": Delta(None, (Element("t"),))}, time=7),
        Change(Op.DELETE, {"id": 4}, time=8),
    ]  # fmt: skip
    chosen = {
        "shop.people.email": "hash",
        "shop.*.photo": "hash",
        "*.people.age": "null",
        "shop.people.seen": "truncate:0",
    }
    made = masks(masks=chosen).apply(avro.encode(PEOPLE, rows))
    first, second, third, fourth = avro.decode(made)
    assert first.cells == {
        "email": Set(digest(b"a@x").hex()), "photo": Set(digest(b"\0\1")), "age": Set(None), "seen": Set("")
    }  # fmt: skip
    assert second.cells == {"email": Set(digest(b"a@x").hex(), 9), "age": Set(None)}
    assert second.before == {"email": digest(b"b@x").hex(), "age": None}
    assert third.cells == {"email": Set(None), "tags": Delta(None, (Element("t"),))}
    assert fourth == rows[3]
    assert {column.name: column.mask for column in made.schema.columns if column.mask} == {
        "email": "hash", "photo": "hash", "age": "null", "seen": "truncate:0"
    }  # fmt: skip
    assert [column.type for column in made.schema.columns] == [column.type for column in PEOPLE.columns]
    assert TableSchema.from_json(made.schema.to_json()) == made.schema


def test_a_table_that_no_setting_names_is_passed_on_as_it_is() -> None:
    batch = avro.encode(PEOPLE, [Change(Op.DELETE, {"id": 4}, time=8)])
    chosen = masks(exclude_columns=("shop.orders.email",), masks={"other.*.*": "null"})
    assert chosen.apply(batch) is batch
    assert chosen.schema(PEOPLE) is PEOPLE
    assert not masks()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exclude_columns": ("shop.people.id",)}, "a key column cannot be left out"),
        ({"exclude_columns": ("*.*.*",)}, "a key column cannot be left out"),
        ({"exclude_columns": ("shop.people",)}, "not a pattern"),
        ({"masks": {"shop.people.id": "hash"}}, "a key column cannot be masked"),
        ({"masks": {"shop.people.tags": "null"}}, "exclude it"),
        ({"masks": {"shop.people.age": "hash"}}, "only text and bytes can be hashed"),
        ({"masks": {"shop.people.age": "truncate:1"}}, "only text and bytes can be truncated"),
        ({"masks": {"shop.people.email": "rot13"}}, "not a mask"),
        ({"masks": {"shop.people.email": "hash"}, "mask_salt": None}, "a hash needs agent.mask_salt"),
        ({"mask_salt_file": Path("/nowhere/salt")}, "cannot read the salt"),
    ],
)
def test_what_does_not_suit_a_column_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        ColumnMasks(AgentSettings(**{"mask_salt": SALT, **settings})).schema(PEOPLE)


# Through the agent.

ORDERS = cassandra_table(
    "orders", Column("email", t.TEXT, source_type="text"), Column("amount", t.INT32, source_type="int")
)
HIDING = {"agent": {"exclude_columns": ("shop.*.note",), "masks": {"shop.*.email": "hash"}, "mask_salt": SALT}}


def logged(setup: Setup) -> bytes:
    """All bytes of all logs; not those of the agent's own state."""
    return b"".join(path.read_bytes() for path in setup.data.glob("shop.*/*"))


def test_neither_stream_nor_parked_entries_nor_filters_bring_a_hidden_value_into_a_log(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings=HIDING)
    node = setup.node
    late = cassandra_table("late", Column("email", t.TEXT, source_type="text"))
    node.create(ORDERS)
    node.write(10, table=late, note=SECRET, email=SECRET)
    large = Compare(ColumnRef("amount"), Operator.MORE, Literal(5))
    specs = [LogSpec(), LogSpec("large", large)]

    def write() -> None:
        node.write(1, 2, table=ORDERS, note=SECRET, email=SECRET, amount=1)
        node.write(7, table=ORDERS, note=SECRET, email=SECRET, amount=9)

    status = setup.run(write, specs=lambda _table: specs)
    assert status.parked_waiting == 1
    setup.run(lambda: node.create(late))
    assert SECRET.encode() not in logged(setup)
    assert setup.numbers("shop.orders@large") == [7]
    assert setup.numbers("shop.late") == [10]
    for change in (*setup.changes(), *setup.changes("shop.late"), *setup.changes("shop.orders@large")):
        assert change.cells["email"] == Set(digest(SECRET.encode()).hex())
        assert "note" not in change.cells
        assert change.origin.file is not None
    # What waits for its table is the node's own bytes, and goes with the wait.
    assert list((setup.data / ".agent" / "parked").iterdir()) == []


def test_a_snapshot_goes_the_same_way(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"agent": {"exclude_columns": ("shop.orders.note",)}})
    node = setup.node
    node.create()
    setup.run(lambda: node.write(1, note=SECRET))
    made: list[Copying] = []

    def make(agent: Agent) -> Copying:
        made.append(Copying(agent))
        return made[0]

    def wait() -> None:
        assert made[0].done.wait(30)

    setup.run(wait, snapshots=make)
    assert sorted(setup.numbers()) == [1, 100, 101]
    assert all(not change.cells for change in setup.changes())


def test_other_settings_begin_a_new_file_and_a_new_version(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    node = setup.node
    node.create(ORDERS)
    setup.run(lambda: node.write(1, table=ORDERS, note="open", email="e", amount=1))
    setup.given = HIDING
    setup.run(lambda: node.write(2, table=ORDERS, note=SECRET, email="e", amount=1))
    setup.run(lambda: node.write(3, table=ORDERS, note=SECRET, email="e", amount=1))
    setup.given = {}
    setup.run(lambda: node.write(4, table=ORDERS, note="open", email="e", amount=1))
    with LogReader(str(setup.data / "shop.orders")) as reader:
        found = [reader.heading(number).schema for number in reader.numbers()]
    assert [(schema.version, schema.excluded) for schema in found] == [(1, ()), (2, ("note",)), (3, ())]
    assert [schema.by_name["email"].mask for schema in found] == ["", "hash", ""]
    assert SECRET.encode() not in logged(setup)
    assert setup.numbers() == [1, 2, 3, 4]


def test_settings_that_would_take_a_key_stop_the_agent_before_it_logs_anything(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"agent": {"exclude_columns": ("shop.*.id",)}})
    setup.node.create()
    with pytest.raises(InvalidSetting, match="a key column cannot be left out") as refused:
        setup.run(lambda: setup.node.write(1))
    assert refused.value.place["table"] == TableId("shop", "orders")
    assert setup.changes() == []


def test_statements_are_told_of_tables_as_they_are_logged(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings=HIDING)
    setup.node.create(ORDERS)
    told: list[TableSchema] = []
    setup.run(announce=told.append)
    assert told[-1].excluded == ("note",)
    assert "note" not in told[-1].by_name
