"""Filters: what is refused when a log is created, what is kept, dropped and parked afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.control.statements import parse_predicate
from penstock.errors import InvalidStatement
from penstock.filters.filter import Filter, Filtered
from penstock.filters.functions import Functions
from penstock.formats import avro
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deleted, Deletion, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Unit

SCHEMA = TableSchema(
    TableId("ks", "t"),
    (
        Column("p", t.INT32, Role.PARTITION, source_type="int"),
        Column("c", t.INT32, Role.CLUSTERING, source_type="int"),
        Column("name", t.TEXT, source_type="text"),
        Column("Big One", t.INT64, source_type="bigint"),
        Column("active", t.BOOLEAN, source_type="boolean"),
        Column("id", t.UUID, source_type="uuid"),
        Column("at", t.timestamp(Unit.MS), source_type="timestamp"),
        Column("day", t.DATE, source_type="date"),
        Column("small", t.FLOAT32, source_type="float"),
        Column("letter", t.enum("a", "b")),
        Column("tags", t.set_of(t.TEXT, multi_cell=True), source_type="set<text>"),
        Column("pair", t.tuple_of(t.INT32, t.INT32), source_type="tuple<int, int>"),
    ),
)


def fails_on_seven(value: int | None) -> int | None:
    if value == 7:
        raise ZeroDivisionError(f"secret row value {value}")
    return value


FUNCTIONS = Functions({"MyUdf": lambda a, b: a + b, "seven": fails_on_seven, "some": lambda *values: values})


def insert(c: int, **cells: Any) -> Change:
    return Change(Op.INSERT, {"p": 1, "c": c}, {name: Set(value) for name, value in cells.items()})


def batch(*changes: Change) -> ChangeBatch:
    return avro.encode(SCHEMA, changes)


def filtered(text: str, *changes: Change) -> Filtered:
    return Filter(parse_predicate(text), SCHEMA, FUNCTIONS).apply(batch(*changes))


def clustering(part: ChangeBatch | None) -> list[Any]:
    return [] if part is None else [change.key.get("c") for change in avro.decode(part)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nam = 'x'", "table ks.t has no column nam; did you mean name?"),
        ("Name = 'x' AND \"Name\" = 'y'", 'table ks.t has no column "Name"; did you mean name?'),
        ("MyUfd(p, c) = 5", "there is no function myufd; did you mean myudf?"),
        ("other(p) = 5", "there is no function other; functions are registered in the settings"),
        ("seven(MyUdf(p)) = 5", "function myudf does not take 1 argument"),
        ("p = 'x'", "column p (int): a number is needed"),
        ("p = 1.5", "column p (int): a whole number is needed"),
        ("p = 2147483648", "column p (int): the number must lie in -2147483648 … 2147483647"),
        ("p = true", "column p (int): a number is needed"),
        ("name = 5", "column name (text): a 'string' is needed"),
        ("p IN (1, 'x')", "column p (int): a number is needed"),
        ("active = 1", "column active (boolean): true or false is needed"),
        ("active < true", "column active (boolean) has no order; only = and != are possible"),
        ("id = 'f47ac10b-58cc-4372-a567-0e02b2c3d479'", "column id (uuid): a uuid without quotes is needed"),
        ("at > 5", "column at (timestamp): a 'string' is needed"),
        ("at > '2026-13-01'", "column at (timestamp): a date such as '2026-11-15' is needed"),
        ("at > '2026-11-15 25:00'", "column at (timestamp): the time of day does not exist"),
        ("at > '2026-11-15 00:00:00.0001'", "column at (timestamp): the column counts in ms and the literal is finer"),
        ("day = '15.11.2026'", "column day (date): a date such as '2026-11-15' is needed"),
        ("small = 1e39", "column small (float): the number is too large for the column"),
        ("letter = 'c'", "column letter (enum): the text is none of the column's labels"),
        ("name = null", "nothing compares with null: write IS NULL or IS NOT NULL"),
        ("name IN ('a', null)", "nothing compares with null: write IS NULL or IS NOT NULL"),
        ("p = name", "column p (int) and column name (text) do not compare"),
        ("at = day", "column at (timestamp) and column day (date) do not compare"),
        ("5 = 'x'", "a number and a text do not compare by ="),
        ("name", "column name (text) is no condition: compare it with something"),
        ("pair = pair", "column pair (tuple<int, int>) does not compare; give it to a function"),
        (
            "tags IS NULL",
            "column tags is not frozen: a change says what was added and removed, not what the column holds",
        ),
        ("some(tags) = 5", "column tags is not frozen"),
    ],
)
def test_predicate_that_cannot_work_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        Filter(parse_predicate(text), SCHEMA, FUNCTIONS)
    assert message in caught.value.message
    at = caught.value.place["at"]
    assert isinstance(at, int)
    assert 0 <= at < len(text)


def test_only_true_is_kept() -> None:
    result = filtered(
        '"Big One" > 5', insert(1, **{"Big One": 6}), insert(2, **{"Big One": 5}), insert(3, **{"Big One": None})
    )
    assert clustering(result.kept) == [1]
    assert result.parked is None
    assert result.dropped == 2


def test_batch_that_is_kept_whole_is_not_copied() -> None:
    given = batch(insert(1, name="a"), insert(2, name="b"))
    assert Filter(parse_predicate("name >= 'a'"), SCHEMA, FUNCTIONS).apply(given).kept is given


def test_negation_of_unknown_is_unknown() -> None:
    changes = [insert(1, name="a"), insert(2, name=None), insert(3)]
    assert clustering(filtered("name = 'b'", *changes).kept) == []
    assert clustering(filtered("NOT name = 'b'", *changes).kept) == [1]
    assert clustering(filtered("name = 'b' OR NOT name = 'b'", *changes).kept) == [1]


def test_null_test_tells_null_and_deleted_from_untouched() -> None:
    gone = Change(Op.UPDATE, {"p": 1, "c": 4}, {"name": Deleted()})
    changes = [insert(1, name="a"), insert(2, name=None), insert(3), gone]
    assert clustering(filtered("name IS NULL", *changes).kept) == [2, 4]
    assert clustering(filtered("name IS NOT NULL", *changes).kept) == [1]


@pytest.mark.parametrize(
    "deletion",
    [
        Change(Op.DELETE, {"p": 1, "c": 9}, deletion=Deletion(5)),
        Change(Op.DELETE_PARTITION, {"p": 1}, deletion=Deletion(5)),
        Change(Op.DELETE_RANGE, {"p": 1}, deletion=Deletion(5)),
        Change(Op.TRUNCATE, deletion=Deletion(5)),
        Change(Op.INSERT, {"p": 1, "c": 9}, {"active": Set(True)}, deletion=Deletion(5)),
    ],
)
def test_deletion_is_kept_unless_the_predicate_is_false(deletion: Change) -> None:
    assert len(filtered("name = 'a'", deletion).kept or ()) == 1
    assert len(filtered("name IS NOT NULL", deletion).kept or ()) == 1
    assert len(filtered('MyUdf("Big One", "Big One") = 5', deletion).kept or ()) == 1
    assert len(filtered("name = 'a' AND p = 2", deletion).kept or ()) == (0 if deletion.key else 1)


def test_function_is_given_plain_values_and_none_for_null() -> None:
    seen: list[tuple[Any, ...]] = []

    def see(*values: Any) -> bool:
        seen.append(values)
        return True

    functions = Functions({"see": see})
    chosen = Filter(parse_predicate("see(c, name, at, pair, 'x', 1.50, null)"), SCHEMA, functions)
    result = chosen.apply(
        batch(insert(1, name="a", at=1_000, pair=(1, None)), insert(2, name=None, at=None, pair=None))
    )
    assert clustering(result.kept) == [1, 2]
    assert repr(seen) == (
        "[(1, 'a', 1000, (1, None), 'x', Decimal('1.50'), None), (2, None, None, None, 'x', Decimal('1.50'), None)]"
    )


def test_function_is_not_called_for_untouched_columns_or_decided_changes() -> None:
    seen: list[int] = []

    def see(value: int) -> bool:
        seen.append(value)
        return True

    functions = Functions({"see": see})
    chosen = Filter(parse_predicate("see(\"Big One\") AND c > 1 OR name = 'x'"), SCHEMA, functions)
    big = {"Big One": 10}
    result = chosen.apply(
        batch(insert(1, **big), insert(2, **big), insert(3), insert(4, name="x", **{"Big One": 40}), insert(5, **big))
    )
    assert seen == [10, 10]
    assert clustering(result.kept) == [2, 4, 5]


def test_change_at_which_a_function_raises_is_parked_and_reported_without_values() -> None:
    chosen = Filter(parse_predicate('seven("Big One") = 1'), SCHEMA, FUNCTIONS, name="mylog")
    given = batch(*(insert(c, **{"Big One": value}) for c, value in enumerate([1, 7, 2, 7])))
    with capture_logs() as events:
        result = chosen.apply(given)
    assert clustering(result.kept) == [0]
    assert clustering(result.parked) == [1, 3]
    assert (result.dropped, chosen.kept, chosen.dropped, chosen.parked) == (1, 1, 1, 2)
    assert events == [
        {
            "event": "filter function raised",
            "log_level": "warning",
            "table": "ks.t",
            "log": "mylog",
            "function": "seven",
            "error": "ZeroDivisionError",
            "count": 2,
            "parked": 2,
        }
    ]


def test_parked_changes_are_kept_as_they_were_encoded() -> None:
    change = insert(3, name="a", **{"Big One": 7})
    result = filtered('seven("Big One") = 1', insert(1, **{"Big One": 1}), change)
    assert result.parked is not None
    assert bytes(result.parked.rows) == bytes(batch(change).rows)


@pytest.mark.parametrize("text", ["some(p) = 1", "some(p) < 'x'", "some(p)", "MyUdf(p, c) = 'x'", "some(p) IN (1, 2)"])
def test_function_result_that_cannot_be_used_parks_the_change(text: str) -> None:
    with capture_logs() as events:
        result = filtered(text, insert(1))
    assert clustering(result.parked) == [1]
    assert events[0]["error"] == "TypeError"


def test_times_and_dates_compare_with_literals_in_words() -> None:
    changes = [insert(1, at=1_763_208_000_000, day=20407), insert(2, at=1_763_207_999_999, day=20406)]
    assert clustering(filtered("at >= '2025-11-15 12:00'", *changes).kept) == [1]
    assert clustering(filtered("at < '2025-11-15T14:00:00.000+02:00'", *changes).kept) == [2]
    assert clustering(filtered("day = '2025-11-15'", *changes).kept) == [1]
