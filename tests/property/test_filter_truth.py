"""The filter agrees with a naive evaluation, change by change, in three-valued logic."""

from __future__ import annotations

import ipaddress
import math
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from penstock.control.statements import parse_predicate
from penstock.filters.filter import Filter
from penstock.filters.functions import Functions
from penstock.formats import avro
from penstock.model import types as t
from penstock.model.change import Change, Deleted, Deletion, Op, Set
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
    has_call,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Type, Unit

ONE, TWO = UUID(int=1), UUID(int=2)
DAY_MS = 86_400_000
# Type, values that changes hold, and literals with what each means beside a column of the type.
KINDS: dict[str, tuple[Type, list[Any], list[tuple[Any, Any]]]] = {
    "i8": (t.INT8, [-1, 0, 1, 127], [(0, 0), (1, 1), (-128, -128)]),
    "i32": (t.INT32, [0, 1, -(1 << 31)], [(0, 0), (1, 1)]),
    "i64": (t.INT64, [0, 1, (1 << 53) + 1, (1 << 63) - 1], [(1, 1), ((1 << 53), 1 << 53), ((1 << 63) - 1,) * 2]),
    "u32": (t.UINT32, [0, 1, (1 << 32) - 1], [(0, 0), ((1 << 32) - 1,) * 2]),
    "u64": (t.UINT64, [0, 1, (1 << 64) - 1], [(1, 1), ((1 << 64) - 1,) * 2]),
    "vi": (t.VARINT, [0, 1, 10**40], [(1, 1), (10**40, 10**40)]),
    "f32": (
        t.FLOAT32,
        [0.0, -0.0, 0.10000000149011612, math.nan, math.inf],
        [(0, 0.0), (Decimal("0.1"), 0.10000000149011612)],
    ),
    "f64": (t.FLOAT64, [0.0, -0.0, 0.1, 1.0, math.nan, math.inf], [(0, 0.0), (Decimal("0.1"), 0.1), (1, 1.0)]),
    "de": (
        t.DECIMAL,
        [Decimal("0.1"), Decimal("1.00"), Decimal("1E+9")],
        [(Decimal("0.1"),) * 2, (1, 1), (10**9, 10**9)],
    ),
    "fd": (t.fixed_decimal(10, 2), [Decimal("0.10"), Decimal("1.00")], [(Decimal("0.1"),) * 2, (1, 1)]),
    "nu": (t.NUMERIC, ["0.1", "NaN", "Infinity", "1"], [(Decimal("0.1"),) * 2, (1, 1)]),
    "te": (t.TEXT, ["", "a", "b", "é", "\U0001f600"], [("a", "a"), ("", ""), ("é", "é")]),
    "by": (t.BYTES, [b"", b"\x00", b"\xff"], [(b"", b""), (b"\xff", b"\xff")]),
    "bo": (t.BOOLEAN, [True, False], [(True, True), (False, False)]),
    "uu": (t.UUID, [ONE, TWO], [(ONE, ONE), (TWO, TWO)]),
    "ip": (
        t.INET,
        [ipaddress.ip_address("192.0.2.1"), ipaddress.ip_address("::1")],
        [("192.0.2.1", ipaddress.ip_address("192.0.2.1")), ("::1", ipaddress.ip_address("::1"))],
    ),
    "da": (t.DATE, [-1, 0, 1, 1 << 30], [("1970-01-01", 0), ("1969-12-31", -1)]),
    "ti": (t.time(Unit.NS), [0, 1, 3_600_000_000_000], [("01:00", 3_600_000_000_000), ("00:00:00.000000001", 1)]),
    "ts": (
        t.timestamp(Unit.MS),
        [0, DAY_MS, -(1 << 62)],
        [("1970-01-02", DAY_MS), ("1970-01-02T02:00+0200", DAY_MS), ("1970-01-01 00:00:00Z", 0)],
    ),
    "dt": (t.datetime(Unit.US), [0, 1], [("1970-01-01 00:00:00.000001", 1), ("1970-01-01", 0)]),
}
ORDERLESS = {"bo", "uu", "ip"}
NUMBERS = ["i8", "i32", "i64", "u32", "u64", "vi", "f32", "f64", "de", "fd", "nu"]
SCHEMA = TableSchema(
    TableId("ks", "t"),
    (
        Column("p", t.INT32, Role.PARTITION),
        Column("c", t.TEXT, Role.CLUSTERING),
        Column("s", t.INT32, Role.STATIC),
        *(Column(name, kind) for name, (kind, _, _) in KINDS.items()),
    ),
)


def _picky(value: Any) -> Any:
    if value in (1, "a", True, ONE):
        raise LookupError("not this one")
    return value


FUNCTIONS = Functions(
    {
        "same": lambda value: value,
        "nothing": lambda *_: None,
        "picky": _picky,
        "is_null": lambda value: value is None,
        "count": lambda *values: len(values),
        "wrong": lambda *_: ["a", "list"],
    }
)


def changes(seed: int, count: int) -> list[Change]:
    """Changes that touch some columns, set others to null, and hold values that the literals hit now and then."""
    source = random.Random(seed)
    out = []
    for _ in range(count):
        key: dict[str, Any] = {"p": source.choice([0, 1, 2])}
        if source.random() < 0.7:
            key["c"] = source.choice("ab")
        cells: dict[str, Any] = {}
        for name, (_, pool, _) in KINDS.items():
            chance = source.random()
            if chance < 0.6:
                cells[name] = Set(source.choice(pool))
            elif chance < 0.8:
                cells[name] = Set(None) if chance < 0.7 else Deleted()
        deletion = Deletion(5) if source.random() < 0.3 else None
        out.append(Change(source.choice(list(Op)), key, cells, deletion=deletion))
    return out


@st.composite
def literals(draw: st.DrawFn, name: str) -> Literal:
    return Literal(draw(st.sampled_from([written for written, _ in KINDS[name][2]])))


@st.composite
def compares(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(list(KINDS)))
    operators = [o for o in Operator if name not in ORDERLESS or not o.is_order]
    operator = draw(st.sampled_from(operators))
    if name in NUMBERS and draw(st.booleans()):
        return Compare(ColumnRef(name), operator, ColumnRef(draw(st.sampled_from(NUMBERS))))
    if draw(st.booleans()):
        return In(ColumnRef(name), tuple(draw(st.lists(literals(name), min_size=1, max_size=3))))
    sides = (ColumnRef(name), draw(literals(name)))
    return Compare(sides[0], operator, sides[1]) if draw(st.booleans()) else Compare(sides[1], operator, sides[0])


@st.composite
def calls(draw: st.DrawFn, depth: int = 2) -> Call:
    function = draw(st.sampled_from(list(FUNCTIONS)))
    argument = st.one_of(
        st.sampled_from(["p", "c", "s", *KINDS]).map(ColumnRef),
        st.sampled_from([Literal(1), Literal("a"), Literal(None)]),
        *([calls(depth - 1)] if depth else []),
    )
    many = draw(st.integers(0, 2)) if function in ("nothing", "count", "wrong") else 1
    return Call(function, tuple(draw(argument) for _ in range(many)))


LEAVES = st.one_of(
    compares(),
    st.sampled_from(["p", "c", "s", *KINDS]).map(lambda name: IsNull(ColumnRef(name))),
    st.just(Truth(ColumnRef("bo"))),
    st.sampled_from(
        [Truth(Literal(True)), Truth(Literal(False)), Compare(Literal(1), Operator.LESS, Literal(Decimal("1.5")))]
    ),
    st.builds(
        Compare,
        st.sampled_from(["p", "s"]).map(ColumnRef),
        st.sampled_from(Operator),
        st.sampled_from([0, 1]).map(Literal),
    ),
    st.builds(
        Compare, calls(), st.sampled_from(Operator), st.sampled_from([Literal(1), Literal("a"), ColumnRef("nu")])
    ),
    st.builds(
        In,
        calls(),
        st.lists(
            st.sampled_from([Literal(1), ColumnRef("i8"), Call("same", (ColumnRef("p"),))]), min_size=1, max_size=2
        ).map(tuple),
    ),
    calls().map(IsNull),
    calls().map(Truth),
)
PREDICATES: st.SearchStrategy[Predicate] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


class Park(Exception):
    """A function raised, or gave what cannot be used."""


class Unknown(Exception):
    """The value is not in the change."""


def naive_value(value: Any, change: Change, *, argument: bool = False) -> Any:
    if isinstance(value, Literal):
        return value.value
    if isinstance(value, Call):
        given_ = [naive_value(inner, change, argument=True) for inner in value.arguments]
        try:
            return FUNCTIONS[value.function](*given_)
        except LookupError:
            raise Park from None
    if value.name in ("p", "c"):
        if value.name not in change.key:
            raise Unknown
        return change.key[value.name]
    if value.name not in change.cells:
        raise Unknown
    cell = change.cells[value.name]
    raw = cell.value if isinstance(cell, Set) else None
    if value.name == "nu" and raw is not None and not argument:
        return float(raw) if raw in ("NaN", "Infinity") else Decimal(raw)
    return raw


def group(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, ipaddress.IPv4Address | ipaddress.IPv6Address):
        return "inet"
    return "number" if isinstance(value, int | float | Decimal) else type(value).__name__


def naive_compare(left: Any, operator: Operator, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, list) or isinstance(right, list) or group(left) != group(right):
        raise Park
    if operator.is_order and group(left) not in ("number", "str", "bytes"):
        raise Park
    if left != left or right != right:
        return operator is Operator.NOT_EQUAL
    if operator is Operator.EQUAL:
        return bool(left == right)
    if operator is Operator.NOT_EQUAL:
        return bool(left != right)
    return bool(
        (left < right and operator in (Operator.LESS, Operator.LESS_OR_EQUAL))
        or (left > right and operator in (Operator.MORE, Operator.MORE_OR_EQUAL))
        or (left == right and operator in (Operator.LESS_OR_EQUAL, Operator.MORE_OR_EQUAL))
    )


def meant(value: Any, beside: Any) -> Any:
    """A literal in the meaning that it has beside a column."""
    if isinstance(value, Literal) and isinstance(beside, ColumnRef) and beside.name in KINDS:
        for written, meaning in KINDS[beside.name][2]:
            if repr(written) == repr(value.value):
                return Literal(meaning)
    return value


def naive_truth(predicate: Predicate, change: Change) -> bool | None:
    match predicate:
        case Not(part):
            truth = naive_truth(part, change)
            return None if truth is None else not truth
        case And(parts) | Or(parts):
            decisive = isinstance(predicate, Or)
            seen: list[bool | None] = []
            for part in sorted(parts, key=has_call):
                seen.append(naive_truth(part, change))
                if seen[-1] is decisive:
                    return decisive
            return None if None in seen else not decisive
        case _:
            try:
                return naive_leaf(predicate, change)
            except Unknown:
                return None


def naive_known(change: Change, *values: Any) -> None:
    """A condition that needs an untouched column is unknown, and none of its functions is called."""
    for value in values:
        if isinstance(value, Call):
            naive_known(change, *value.arguments)
        elif isinstance(value, ColumnRef) and value.name not in change.key and value.name not in change.cells:
            raise Unknown


def naive_leaf(leaf: Predicate, change: Change) -> bool | None:
    match leaf:
        case IsNull(value):
            naive_known(change, value)
            return naive_value(value, change) is None
        case Truth(value):
            naive_known(change, value)
            truth = naive_value(value, change)
            if truth is not None and not isinstance(truth, bool):
                raise Park
            return truth
        case Compare(left, operator, right):
            naive_known(change, left, right)
            first, second = naive_value(meant(left, right), change), naive_value(meant(right, left), change)
            return naive_compare(first, operator, second)
        case In(value, choices):
            naive_known(change, value)
            wanted = naive_value(value, change)
            answer: bool | None = None if wanted is None else False
            for choice in choices if wanted is not None else ():
                try:
                    naive_known(change, choice)
                    equal = naive_compare(wanted, Operator.EQUAL, naive_value(meant(choice, value), change))
                except Unknown:
                    equal = None
                if equal:
                    return True
                answer = None if equal is None else answer
            return answer
    raise AssertionError(leaf)


def naive_outcome(predicate: Predicate, change: Change) -> str:
    try:
        truth = naive_truth(predicate, change)
    except Park:
        return "parked"
    deletes = change.deletion is not None or change.op in (Op.DELETE, Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE)
    return "kept" if truth or (truth is None and deletes) else "dropped"


@settings(max_examples=400, deadline=None)
@given(PREDICATES, st.integers(0, 1 << 32), st.integers(1, 20), st.integers(0, 3))
def test_filter_equals_naive_evaluation(predicate: Predicate, seed: int, count: int, skip: int) -> None:
    given_changes = changes(seed, count)
    batch = replace(avro.encode(SCHEMA, given_changes), skip=min(skip, count - 1))
    counted = given_changes[batch.skip :]
    # What is filtered in production comes from the catalog's text.
    chosen = Filter(parse_predicate(str(predicate)), SCHEMA, FUNCTIONS)
    with capture_logs() as events:
        result = chosen.apply(batch)
    wanted = [naive_outcome(predicate, change) for change in counted]
    for part, name in ((result.kept, "kept"), (result.parked, "parked")):
        rows = [] if part is None else avro.decode(part)
        # NaN is not equal to itself, but its text is.
        assert list(map(repr, rows)) == [repr(c) for c, outcome in zip(counted, wanted, strict=True) if outcome == name]
    assert result.dropped == wanted.count("dropped")
    assert (chosen.kept, chosen.dropped, chosen.parked) == tuple(map(wanted.count, ("kept", "dropped", "parked")))
    assert [event["parked"] for event in events] == [wanted.count("parked")] * bool(result.parked)
