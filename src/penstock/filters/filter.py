"""Filter: which changes of a table go into a log.

A change is kept when the log's predicate is true for it. A column that the change does not touch is unknown, and so is
what depends on it; a change for which the predicate is unknown is dropped, except deletions: to miss one is worse than
to apply one that was not needed. A change at which a user function raises is neither kept nor dropped but parked.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.errors import InvalidStatement
from penstock.filters.comparison import family, fitted, has_order, natural_family
from penstock.filters.evaluation import (
    AllSteps,
    AnyStep,
    ColumnCompare,
    ColumnIn,
    ColumnIsNull,
    ColumnTruth,
    Leaf,
    Opposite,
    PythonLeaf,
    Rows,
    Step,
)
from penstock.filters.functions import Functions, takes
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.predicate import (
    And,
    Call,
    ColumnRef,
    Compare,
    In,
    IsNull,
    Literal,
    Not,
    Operator,
    Or,
    Predicate,
    Truth,
    Value,
    column_names,
    iter_values,
    quoted_name,
)
from penstock.model.schema import Column, TableSchema
from penstock.model.spelling import did_you_mean
from penstock.model.types import Kind

log = structlog.get_logger()


class Filtered(NamedTuple):
    """One batch after the filter."""

    kept: ChangeBatch | None
    parked: ChangeBatch | None
    dropped: int


class Filter:
    """A predicate made ready for one schema of a table. May be used from many threads."""

    def __init__(self, predicate: Predicate, schema: TableSchema, functions: Functions, *, name: str = "") -> None:
        """Raises InvalidStatement when the predicate cannot be evaluated. `name` is the log's, for messages."""
        self.predicate = predicate
        self.schema = schema
        self._name = name
        self._step = Planner(schema, functions).plan(predicate)
        self._columns = column_names(predicate)
        self._mutex = threading.Lock()
        # Changes kept, dropped and parked since the start.
        self.kept = 0
        self.dropped = 0
        self.parked = 0

    def truths(self, batch: ChangeBatch) -> pa.BooleanArray:
        """Whether each change is kept; one at which a user function raises is not, and is counted as parked."""
        rows = Rows(batch, self._columns)
        truth = self._step.run(rows, pa.array([True] * rows.count, pa.bool_()))
        keep = pc.if_else(pc.is_valid(truth), truth, rows.vectors.deletes())
        if rows.failed:
            keep = pc.and_(keep, pa.array([index not in rows.failed for index in range(rows.count)]))
            self._note_failures(rows)
        return keep

    def apply(self, batch: ChangeBatch) -> Filtered:
        """Cut the batch. A batch that is kept as a whole is returned as it is."""
        rows = Rows(batch, self._columns)
        everything = pa.array([True] * rows.count, pa.bool_())
        truth = self._step.run(rows, everything)
        keep = pc.if_else(pc.is_valid(truth), truth, rows.vectors.deletes())
        chosen: list[bool] = keep.to_pylist()
        for index in rows.failed:
            chosen[index] = False
        kept, parked = sum(chosen), len(rows.failed)
        result = Filtered(
            batch if kept == rows.count and not batch.skip else avro.select(batch, chosen) if kept else None,
            avro.select(batch, [index in rows.failed for index in range(rows.count)]) if parked else None,
            rows.count - kept - parked,
        )
        with self._mutex:
            self.kept += kept
            self.dropped += result.dropped
            self.parked += parked
        if parked:
            self._note_failures(rows)
        return result

    def _note_failures(self, rows: Rows) -> None:
        (function, error), count = rows.raised.most_common(1)[0]
        log.warning(
            "filter function raised",
            table=str(self.schema.table),
            log=self._name,
            function=function,
            error=error,
            count=count,
            parked=len(rows.failed),
        )


# Plan: checks a predicate against a table and the known functions, and lays out the steps that evaluate it.
#
# All that can be wrong is found here, when a log is created, and not while changes flow: unknown columns and
# functions, values that cannot be compared. The error is an InvalidStatement whose place `at` is the offset in the
# statement's text.

# Arrow holds these exactly and compares them as we do; every other kind is compared in Python.
_VECTOR_KINDS = {
    *(Kind.BOOLEAN, Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.COUNTER),
    *(Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64),
    *(Kind.FLOAT32, Kind.FLOAT64, Kind.TEXT, Kind.ASCII, Kind.JSON, Kind.ENUM, Kind.BITS, Kind.OTHER, Kind.BYTES),
    *(Kind.CIVIL_DATE, Kind.CIVIL_DATETIME, Kind.UUID, Kind.TIMEUUID, Kind.DATE, Kind.TIME, Kind.TIMESTAMP),
    Kind.DATETIME,
}


class Planner:
    """Plans the predicates of one table."""

    def __init__(self, schema: TableSchema, functions: Functions) -> None:
        self._schema = schema
        self._functions = functions

    def plan(self, predicate: Predicate) -> Step:
        """The steps of a predicate; InvalidStatement when it cannot be evaluated for this table."""
        for value in iter_values(predicate):
            self._check_exists(value)
        return self._step(predicate)

    def _check_exists(self, value: Value) -> None:
        if isinstance(value, ColumnRef):
            self._column(value)
        elif isinstance(value, Call):
            if value.function not in self._functions:
                hint = did_you_mean(value.function, self._functions) or "; functions are registered in the settings"
                raise InvalidStatement(f"there is no function {quoted_name(value.function)}{hint}", at=value.at)
            if not takes(self._functions[value.function], len(value.arguments)):
                many = f"{len(value.arguments)} argument{'' if len(value.arguments) == 1 else 's'}"
                raise InvalidStatement(f"function {quoted_name(value.function)} does not take {many}", at=value.at)

    def _column(self, ref: ColumnRef) -> Column:
        column = self._schema.by_name.get(ref.name)
        name = quoted_name(ref.name)
        if column is None:
            hint = did_you_mean(ref.name, self._schema.by_name)
            raise InvalidStatement(f"table {self._schema.table} has no column {name}{hint}", at=ref.at)
        if column.type.multi_cell:
            raise InvalidStatement(
                f"column {name} is not frozen: a change says what was added and removed, not what the column holds",
                at=ref.at,
            )
        return column

    def _step(self, predicate: Predicate) -> Step:
        match predicate:
            case And(parts):
                return AllSteps([self._step(part) for part in parts])
            case Or(parts):
                return AnyStep([self._step(part) for part in parts])
            case Not(part):
                return Opposite(self._step(part))
            case Compare(left, operator, right):
                return self._compare(left, operator, right)
            case In(value, choices):
                return self._in(value, choices)
            case IsNull(value):
                return ColumnIsNull(value.name) if isinstance(value, ColumnRef) else self._python(predicate)
            case Truth(value):
                return self._truth(value)

    def _truth(self, value: Value) -> Step:
        if isinstance(value, ColumnRef):
            column = self._column(value)
            if column.type.kind is not Kind.BOOLEAN:
                raise InvalidStatement(f"{_described(column)} is no condition: compare it with something", at=value.at)
            return ColumnTruth(value.name)
        return self._python(Truth(value))

    def _compare(self, left: Value, operator: Operator, right: Value) -> Step:
        left, right = self._matched(left, right, operator)
        if not isinstance(left, ColumnRef) and isinstance(right, ColumnRef):
            left, operator, right = right, operator.mirrored, left
        if isinstance(left, ColumnRef) and self._is_vector(left):
            if isinstance(right, Literal):
                return ColumnCompare(left.name, operator, None, right.value)
            if isinstance(right, ColumnRef) and self._column(left).type == self._column(right).type:
                return ColumnCompare(left.name, operator, right.name, None)
        return self._python(Compare(left, operator, right))

    def _in(self, value: Value, choices: tuple[Value, ...]) -> Step:
        matched = [self._matched(value, choice, Operator.EQUAL)[1] for choice in choices]
        if isinstance(value, ColumnRef) and self._is_vector(value):
            literals = [choice.value for choice in matched if isinstance(choice, Literal)]
            if len(literals) == len(matched):
                return ColumnIn(value.name, literals)
        if isinstance(value, Literal):
            # Beside columns of different types one literal would need several meanings.
            return AnyStep([self._compare(value, Operator.EQUAL, choice) for choice in choices])
        return self._python(In(value, tuple(matched)))

    def _python(self, leaf: Leaf) -> Step:
        types = {name: self._schema.by_name[name].type for name in column_names(leaf)}
        return PythonLeaf(leaf, types, self._functions)

    def _is_vector(self, ref: ColumnRef) -> bool:
        return self._column(ref).type.kind in _VECTOR_KINDS

    def _matched(self, left: Value, right: Value, operator: Operator) -> tuple[Value, Value]:
        """Both sides of a comparison, checked, with literals in the type of the column beside them."""
        for side in (left, right):
            if isinstance(side, Literal) and side.value is None:
                raise InvalidStatement("nothing compares with null: write IS NULL or IS NOT NULL", at=side.at)
            if isinstance(side, ColumnRef):
                self._check_comparable(side, operator)
        if isinstance(left, Literal) and isinstance(right, ColumnRef):
            return self._fitted(left, right), right
        if isinstance(left, ColumnRef) and isinstance(right, Literal):
            return left, self._fitted(right, left)
        if isinstance(left, ColumnRef) and isinstance(right, ColumnRef):
            one, two = self._column(left), self._column(right)
            if family(one.type) != family(two.type):
                raise InvalidStatement(f"{_described(one)} and {_described(two)} do not compare", at=right.at)
        if isinstance(left, Literal) and isinstance(right, Literal):
            kinds = natural_family(left.value), natural_family(right.value)
            if kinds[0] != kinds[1] or (operator.is_order and not has_order(kinds[0])):
                raise InvalidStatement(f"a {kinds[0]} and a {kinds[1]} do not compare by {operator}", at=right.at)
        return left, right

    def _check_comparable(self, ref: ColumnRef, operator: Operator) -> None:
        column = self._column(ref)
        group = family(column.type)
        if group is None:
            raise InvalidStatement(f"{_described(column)} does not compare; give it to a function", at=ref.at)
        if operator.is_order and not has_order(group):
            raise InvalidStatement(f"{_described(column)} has no order; only = and != are possible", at=ref.at)

    def _fitted(self, literal: Literal, ref: ColumnRef) -> Literal:
        column = self._column(ref)
        try:
            value: Any = fitted(literal.value, column.type)
        except ValueError as error:
            raise InvalidStatement(f"{_described(column)}: {error}", at=literal.at) from None
        return Literal(value, literal.at)


def _described(column: Column) -> str:
    return f"column {quoted_name(column.name)} ({column.source_type or column.type.kind.value})"
