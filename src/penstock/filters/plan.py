"""Plan: checks a predicate against a table and the known functions, and lays out the steps that evaluate it.

All that can be wrong is found here, when a log is created, and not while changes flow: unknown columns and functions,
values that cannot be compared. The error is an InvalidStatement whose place `at` is the offset in the statement's text.
"""

from __future__ import annotations

from typing import Any

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
    Step,
)
from penstock.filters.functions import Functions, takes
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
