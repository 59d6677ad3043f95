"""Predicates as text."""

from __future__ import annotations

from decimal import Decimal

import pytest

from penstock.errors import InvalidValue
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
    Truth,
    column_names,
    has_call,
    quoted_name,
)

A, B = ColumnRef("a"), ColumnRef("B c")


def test_predicate_prints_as_a_statement_would_write_it() -> None:
    predicate = And(
        (
            Or((Compare(Call("f", (A, Literal(None))), Operator.MORE, Literal(Decimal("1.50"))), IsNull(B))),
            Not(In(A, (Literal("it's"), Literal(b"\xca\xfe")))),
            Not(Or((Truth(A), Not(IsNull(A))))),
        )
    )
    assert str(predicate) == (
        "(f(a, null) > 1.50 OR \"B c\" IS NULL) AND a NOT IN ('it''s', 0xcafe) AND NOT (a OR a IS NOT NULL)"
    )


@pytest.mark.parametrize(
    ("name", "text"), [("a", "a"), ("A", '"A"'), ("where", '"where"'), ('x"y', '"x""y"'), ("é", '"é"')]
)
def test_names_are_quoted_only_where_they_must_be(name: str, text: str) -> None:
    assert quoted_name(name) == text


def test_columns_are_named_once_in_reading_order() -> None:
    predicate = Or((Compare(Call("f", (B, A)), Operator.EQUAL, A), IsNull(ColumnRef("c"))))
    assert column_names(predicate) == ("B c", "a", "c")
    assert has_call(predicate)
    assert not has_call(IsNull(A))


def test_place_does_not_count_in_comparisons() -> None:
    assert ColumnRef("a", 3) == ColumnRef("a", 9)


def test_decimal_literal_must_be_finite() -> None:
    with pytest.raises(InvalidValue, match="finite"):
        Literal(Decimal("NaN"))


@pytest.mark.parametrize("operator", list(Operator))
def test_mirrored_operator_says_the_same_of_exchanged_operands(operator: Operator) -> None:
    signs = {"=": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
    for left in range(3):
        for right in range(3):
            assert getattr(left, signs[operator])(right) == getattr(right, signs[operator.mirrored])(left)
