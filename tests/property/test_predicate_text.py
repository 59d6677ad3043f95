"""Predicates survive the way to text and back; no text breaks the parser."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.control.statements import parse, parse_predicate
from penstock.errors import InvalidStatement
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
)

NAMES = st.one_of(
    st.sampled_from(["a", "key", "cdc", "where", "null", "A b", 'x"y', "é"]),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=6),
)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False) | st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent), st.integers(-(10**25), 10**25), st.integers(-60, 60)
)
CONSTANTS = st.one_of(
    st.booleans(),
    st.integers(),
    DECIMALS,
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=6),
    st.uuids(),
    st.none(),
)
VALUES = st.recursive(
    st.one_of(st.builds(ColumnRef, NAMES), st.builds(Literal, CONSTANTS)),
    lambda inner: st.builds(Call, NAMES, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=4,
)
LEAVES = st.one_of(
    st.builds(Compare, VALUES, st.sampled_from(Operator), VALUES),
    st.builds(In, VALUES, st.lists(VALUES, min_size=1, max_size=3).map(tuple)),
    st.builds(IsNull, VALUES),
    st.builds(Truth, VALUES.filter(lambda v: not isinstance(v, Literal) or isinstance(v.value, bool))),
)
PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        "CREATE",
        "DROP",
        "TABLE",
        "CDC_LOG",
        "CDC",
        "LOG",
        "ON",
        "WHERE",
        "WITH",
        "DCs",
        "IF",
        "NOT",
        "EXISTS",
        "AND",
        "OR",
        "IN",
        "IS",
        "NULL",
        "PRIMARY",
        "KEY",
        "STATIC",
        "a",
        "ks.t",
        "int",
        "list<int>",
        "f(",
        "(",
        ")",
        "{",
        "}",
        "=",
        "<>",
        "<",
        ">=",
        ",",
        ";",
        ".",
        "-",
        "5",
        "1.5",
        "'x'",
        "''",
        '"',
        "'",
        "0x",
        "0xca",
        "/*",
        "--",
        "true",
    ]
)


@settings(max_examples=300, deadline=None)
@given(PREDICATES)
def test_predicate_reads_back_from_its_own_text(predicate: Predicate) -> None:
    back = parse_predicate(str(predicate))
    assert back == predicate
    # Equality does not tell 1 from 1.0 from true; the representation does.
    assert repr(back) == repr(predicate)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join)))
def test_any_text_parses_or_is_refused_with_a_place(text: str) -> None:
    refusal = None
    try:
        parse(text)
    except InvalidStatement as error:
        refusal = error
    if refusal is not None and {"line", "column"} <= set(refusal.place):
        *_, shown, caret = refusal.message.split("\n")
        assert caret.strip() == "^"
        assert len(shown) < 130
    elif refusal is not None:
        assert "\n" not in refusal.message
