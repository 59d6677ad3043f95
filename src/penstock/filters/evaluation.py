"""Evaluation: a checked predicate as a tree of steps over a batch, each giving true, false or unknown per change.

Truths are Arrow boolean arrays whose nulls mean unknown, combined by Kleene's rules. Comparisons of columns run over
whole Arrow columns; a step that needs Python (a user function, a kind of number that Arrow cannot hold exactly) looks
only at the changes whose outcome still depends on it. AND and OR therefore take their cheap parts first, and those with
user functions last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from penstock.filters.comparison import comparable, compare
from penstock.formats import avro
from penstock.formats.arrow import to_arrow
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Set
from penstock.model.predicate import (
    Call,
    ColumnRef,
    Compare,
    In,
    IsNull,
    Literal,
    Operator,
    Truth,
    Value,
    has_call,
    iter_nested,
    iter_values,
)
from penstock.model.types import Kind, Type

_UNKNOWN = pa.scalar(None, pa.bool_())
_KERNELS = {
    Operator.EQUAL: "equal",
    Operator.NOT_EQUAL: "not_equal",
    Operator.LESS: "less",
    Operator.LESS_OR_EQUAL: "less_equal",
    Operator.MORE: "greater",
    Operator.MORE_OR_EQUAL: "greater_equal",
}


class Untouched(Exception):
    """The value depends on a column that the change does not touch."""


class Raised(Exception):
    """A user function raised, or returned what cannot be compared."""

    def __init__(self, function: str, error: str) -> None:
        super().__init__(function, error)
        self.function = function
        self.error = error


class Rows:
    """One batch during its evaluation: its columns, its changes as far as Python needs them, and what failed."""

    def __init__(self, batch: ChangeBatch, columns: tuple[str, ...]) -> None:
        self.batch = batch
        self.vectors = Vectors(batch, columns)
        self.count = len(batch)
        # Which functions raised what, and at which changes.
        self.raised: Counter[tuple[str, str]] = Counter()
        self.failed: set[int] = set()
        self._changes: dict[int, Change] = {}

    def changes(self, wanted: list[int]) -> dict[int, Change]:
        """The changes at these places as objects; each is decoded once."""
        missing = [index for index in wanted if index not in self._changes]
        if missing:
            keep = [False] * self.count
            for index in missing:
                keep[index] = True
            part = avro.select(self.batch, keep)
            assert part is not None
            self._changes.update(zip(missing, avro.decode(part), strict=True))
        return self._changes

    def fail(self, index: int, error: Raised) -> None:
        self.failed.add(index)
        self.raised[error.function, error.error] += 1


class Cost(IntEnum):
    """What a step costs per change; AND and OR go by it."""

    ARROW = 0
    PYTHON = 1
    FUNCTION = 2


class Step(Protocol):
    """A part of the predicate."""

    cost: Cost

    def run(self, rows: Rows, need: pa.BooleanArray, /) -> pa.BooleanArray:
        """The truth of each change; where `need` is false any answer will do."""
        ...


class AllSteps:
    """AND."""

    def __init__(self, parts: list[Step]) -> None:
        self._parts = sorted(parts, key=lambda part: part.cost)
        self.cost = self._parts[-1].cost

    def run(self, rows: Rows, need: pa.BooleanArray) -> pa.BooleanArray:
        result = self._parts[0].run(rows, need)
        for part in self._parts[1:]:
            open_ = _still_needed(rows, need, pc.fill_null(result, True), part)
            result = pc.and_kleene(result, part.run(rows, open_))
        return result


class AnyStep:
    """OR."""

    def __init__(self, parts: list[Step]) -> None:
        self._parts = sorted(parts, key=lambda part: part.cost)
        self.cost = self._parts[-1].cost

    def run(self, rows: Rows, need: pa.BooleanArray) -> pa.BooleanArray:
        result = self._parts[0].run(rows, need)
        for part in self._parts[1:]:
            open_ = _still_needed(rows, need, pc.invert(pc.fill_null(result, False)), part)
            result = pc.or_kleene(result, part.run(rows, open_))
        return result


def _still_needed(rows: Rows, need: pa.BooleanArray, undecided: pa.BooleanArray, part: Step) -> pa.BooleanArray:
    if part.cost is Cost.ARROW:
        return need
    need = pc.and_(need, undecided)
    if rows.failed:
        sound = pa.array([index not in rows.failed for index in range(rows.count)])
        need = pc.and_(need, sound)
    return need


class Opposite:
    """NOT."""

    def __init__(self, part: Step) -> None:
        self._part = part
        self.cost = part.cost

    def run(self, rows: Rows, need: pa.BooleanArray) -> pa.BooleanArray:
        return pc.invert(self._part.run(rows, need))


class ColumnCompare:
    """A column compared with a literal or with a column of the same Arrow type."""

    cost = Cost.ARROW

    def __init__(self, column: str, operator: Operator, other: str | None, literal: Any) -> None:
        self._column = column
        self._kernel = _KERNELS[operator]
        self._other = other
        self._literal = literal

    def run(self, rows: Rows, _need: pa.BooleanArray) -> pa.BooleanArray:
        values = rows.vectors.values(self._column)
        if self._other is not None:
            return pc.call_function(self._kernel, [values, rows.vectors.values(self._other)])
        return pc.call_function(self._kernel, [values, rows.vectors.scalar(self._column, self._literal)])


class ColumnIn:
    """A column looked up in a list of literals."""

    cost = Cost.ARROW

    def __init__(self, column: str, literals: list[Any]) -> None:
        self._column = column
        self._literals = literals

    def run(self, rows: Rows, _need: pa.BooleanArray) -> pa.BooleanArray:
        values = rows.vectors.values(self._column)
        if pa.types.is_floating(values.type):
            # The look-up tells 0.0 from -0.0, which are equal.
            found = [pc.equal(values, rows.vectors.scalar(self._column, literal)) for literal in self._literals]
            result = found[0]
            for one in found[1:]:
                result = pc.or_kleene(result, one)
            return result
        choices = rows.vectors.array(self._column, self._literals)
        return pc.if_else(pc.is_valid(values), pc.is_in(values, value_set=choices), _UNKNOWN)


class ColumnIsNull:
    """Whether the change sets a column to null, or deletes it."""

    cost = Cost.ARROW

    def __init__(self, column: str) -> None:
        self._column = column

    def run(self, rows: Rows, _need: pa.BooleanArray) -> pa.BooleanArray:
        null = pc.is_null(rows.vectors.values(self._column))
        return pc.if_else(rows.vectors.touched(self._column), null, _UNKNOWN)


class ColumnTruth:
    """A boolean column."""

    cost = Cost.ARROW

    def __init__(self, column: str) -> None:
        self._column = column

    def run(self, rows: Rows, _need: pa.BooleanArray) -> pa.BooleanArray:
        return rows.vectors.values(self._column)


Leaf = Compare | In | IsNull | Truth


class PythonLeaf:
    """A comparison, look-up, null test or boolean that is evaluated change by change."""

    def __init__(self, leaf: Leaf, types: Mapping[str, Type], functions: Mapping[str, Callable[..., Any]]) -> None:
        self.cost = Cost.FUNCTION if has_call(leaf) else Cost.PYTHON
        self._leaf = leaf
        self._types = types
        self._functions = functions

    def run(self, rows: Rows, need: pa.BooleanArray) -> pa.BooleanArray:
        wanted = [index for index, needed in enumerate(need.to_pylist()) if needed]
        truths: list[bool | None] = [None] * rows.count
        if not wanted:
            return pa.array(truths, pa.bool_())
        changes = rows.changes(wanted) if self._types else {}
        for index in wanted:
            try:
                truths[index] = self._truth(changes.get(index))
            except Untouched:
                pass
            except Raised as error:
                rows.fail(index, error)
        return pa.array(truths, pa.bool_())

    def _truth(self, change: Change | None) -> bool | None:
        match self._leaf:
            case Compare(left, operator, right):
                one, two = self._values((left, right), change)
                return self._compared(one, operator, two)
            case IsNull(value):
                return self._values((value,), change)[0] is None
            case Truth(value):
                result = self._values((value,), change)[0]
                if result is None or isinstance(result, bool):
                    return result
                raise Raised(self._blamed(), "TypeError")
            case In(value, choices):
                return self._found(self._values((value,), change)[0], choices, change)

    def _found(self, value: Any, choices: tuple[Value, ...], change: Change | None) -> bool | None:
        if value is None:
            return None
        answer: bool | None = False
        for choice in choices:
            try:
                equal = self._compared(value, Operator.EQUAL, self._values((choice,), change)[0])
            except Untouched:
                equal = None
            if equal:
                return True
            if equal is None:
                answer = None
        return answer

    def _values(self, values: tuple[Value, ...], change: Change | None) -> list[Any]:
        """The values, unless one of them needs an untouched column: no function is called then."""
        for value in values:
            for part in iter_nested(value):
                if isinstance(part, ColumnRef):
                    assert change is not None
                    column_value(change, part.name)
        return [self._value(value, change) for value in values]

    def _compared(self, left: Any, operator: Operator, right: Any) -> bool | None:
        if left is None or right is None:
            return None
        try:
            return compare(left, operator, right)
        # Values of a function's own class may do anything when they are compared.
        except Exception as error:
            raise Raised(self._blamed(), type(error).__name__) from error

    def _value(self, value: Value, change: Change | None) -> Any:
        match value:
            case Literal(constant):
                return constant
            case ColumnRef(name):
                assert change is not None
                return comparable(column_value(change, name), self._types[name])
            case Call(name, arguments):
                given = [self._argument(argument, change) for argument in arguments]
                try:
                    return self._functions[name](*given)
                # A user function may raise anything; the change is parked, never lost.
                except Exception as error:
                    raise Raised(name, type(error).__name__) from error

    def _argument(self, value: Value, change: Change | None) -> Any:
        """As `_value`, but columns as they are, not in the form for comparisons."""
        if isinstance(value, ColumnRef):
            assert change is not None
            return column_value(change, value.name)
        return self._value(value, change)

    def _blamed(self) -> str:
        """The function that gave a value which cannot be used."""
        return next((value.function for value in iter_values(self._leaf) if isinstance(value, Call)), "")


def column_value(change: Change, name: str) -> Any:
    """What the change says of a column: its value, None for null or deleted. Raises Untouched."""
    if name in change.key:
        value = change.key[name]
        if value is None:
            raise Untouched
        return value
    cell = change.cells.get(name)
    if cell is None:
        raise Untouched
    return cell.value if isinstance(cell, Set) else None


# Vectors: what a batch says of the columns that a predicate looks at, as Arrow arrays of one entry per change.
#
# Only these columns are read. A value is null where the change sets null, deletes the cell or does not touch it;
# `touched` tells the last from the others. Dates and times are plain numbers, as everywhere in a predicate.

# Arrow has types of its own for these; underneath they are the numbers that literals become.
_NUMBERS = {Kind.DATE: pa.int32(), Kind.TIME: pa.int64(), Kind.TIMESTAMP: pa.int64(), Kind.DATETIME: pa.int64()}
_DELETIONS = pa.array([Op.DELETE.value, Op.DELETE_PARTITION.value, Op.DELETE_RANGE.value, Op.TRUNCATE.value])
# The state of a cell that the change does not touch.
_ABSENT = pa.scalar(0, pa.int8())


class Vectors:
    """One batch's columns."""

    def __init__(self, batch: ChangeBatch, columns: tuple[str, ...]) -> None:
        self._schema = batch.schema
        self._rows = to_arrow(batch, columns)
        self._keys = {column.name for column in batch.schema.key}
        self._values: dict[str, pa.Array] = {}

    def values(self, column: str) -> pa.Array:
        """The column's values."""
        if column not in self._values:
            found = self._cell(column, "value")
            number = _NUMBERS.get(self._schema.by_name[column].type.kind)
            self._values[column] = found if number is None else found.view(number)
        return self._values[column]

    def touched(self, column: str) -> pa.BooleanArray:
        """Whether the change says anything of the column."""
        if column in self._keys:
            return pc.is_valid(self.values(column))
        return pc.not_equal(self._cell(column, "state"), _ABSENT)

    def deletes(self) -> pa.BooleanArray:
        """Whether the change deletes a row or more, alone or before it sets cells anew."""
        operations = pc.is_in(self._rows.column("op").cast(pa.string()), value_set=_DELETIONS)
        return pc.or_(operations, pc.is_valid(self._rows.column("deletion")))

    def scalar(self, column: str, value: Any) -> pa.Scalar:
        """A literal, as Arrow compares it with the column."""
        return pa.scalar(_plain(value), self.values(column).type)

    def array(self, column: str, values: Iterable[Any]) -> pa.Array:
        """Several literals."""
        return pa.array(map(_plain, values), self.values(column).type)

    def _cell(self, column: str, part: str) -> pa.Array:
        if column in self._keys:
            return self._rows.column("key").field(column)
        return self._rows.column("cells").field(column).field(part)


def _plain(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value
