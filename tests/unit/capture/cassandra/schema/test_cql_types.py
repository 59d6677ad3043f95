"""Type text of Cassandra's schema tables, to types and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.cassandra.schema.cql_types import (
    UserTypes,
    dropped_text,
    parse,
    parse_dropped,
    quoted,
    term,
    text_of,
)
from penstock.errors import InvalidSchema
from penstock.model import types as t
from penstock.model.cql_types import NATIVE
from penstock.model.types import Kind, Type

ADDR = t.user("addr", {"street": t.TEXT, "zip": t.INT32})
USERS = UserTypes(
    {
        "addr": (("street", "zip"), ("text", "int")),
        "Odd Name": (("F", "where"), ("text", "frozen<addr>")),
        'quo"te': (("x",), ("int",)),
        "loop": (("a",), ("frozen<pool>",)),
        "pool": (("b",), ("frozen<loop>",)),
        "uneven": (("a", "b"), ("int",)),
    }
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("int", t.INT32),
        ("varchar", t.TEXT),
        ("timestamp", t.timestamp(t.Unit.MS)),
        ("empty", t.BYTES),
        ("counter", t.SHARDED_COUNTER),
        ("list<int>", t.list_of(t.INT32, multi_cell=True)),
        ("frozen<list<int>>", t.list_of(t.INT32)),
        ("frozen<list<frozen<list<int>>>>", t.list_of(t.list_of(t.INT32))),
        ("frozen<map<text, frozen<addr>>>", t.map_of(t.TEXT, ADDR)),
        ("map<text, frozen<list<int>>>", t.map_of(t.TEXT, t.list_of(t.INT32), multi_cell=True)),
        ("set<frozen<tuple<int, text>>>", t.set_of(t.tuple_of(t.INT32, t.TEXT), multi_cell=True)),
        ("frozen<tuple<int, frozen<list<int>>>>", t.tuple_of(t.INT32, t.list_of(t.INT32))),
        ("tuple<int, list<int>>", t.tuple_of(t.INT32, t.list_of(t.INT32))),
        ("vector<float, 3>", t.vector(t.FLOAT32, 3)),
        ("vector<frozen<addr>, 2>", t.vector(ADDR, 2)),
        ("frozen<addr>", ADDR),
        ("shop.addr", t.user("addr", {"street": t.TEXT, "zip": t.INT32}, multi_cell=True)),
        ('list<frozen<"Odd Name">>', t.list_of(t.user("Odd Name", {"F": t.TEXT, "where": ADDR}), multi_cell=True)),
        ('frozen<"quo""te">', t.user('quo"te', {"x": t.INT32})),
        ("'org.apache.cassandra.db.marshal.DynamicCompositeType(a=>AsciiType)'", t.BYTES),
        ("'org.apache.cassandra.db.marshal.LexicalUUIDType'", t.UUID),
        (" map < text , int > ", t.map_of(t.TEXT, t.INT32, multi_cell=True)),
        ("FROZEN<SET<INT>>", t.set_of(t.INT32)),
    ],
)
def test_text_names_a_type(text: str, wanted: Type) -> None:
    assert parse(text, USERS) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ends too early"),
        ("list<", "ends too early"),
        ("list<int", "> is missing"),
        ("list<int>>", "something follows"),
        ("list", "needs types in angle brackets"),
        ("int<text>", "takes nothing in angle brackets"),
        ("map<int>", "takes 2 types, not 1"),
        ("vector<float>", "needs a type and a length"),
        ("vector<float, 0>", "needs a type and a length"),
        ("vector<float, x>", "whole number"),
        ("<int>", "cannot begin with <"),
        ("in$t", "no meaning"),
        ("'open", "no meaning"),
        ("nowhere", "user type nowhere is not known"),
        ("frozen<loop>", "contains itself"),
        ("frozen<uneven>", "one type for each field"),
        ("list<counter>", "counter cannot stand inside"),
        ("list<" * 200 + "int" + ">" * 200, "nests too deep"),
        ("x" * 200_000, "longer than"),
    ],
)
def test_text_that_is_no_type_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        parse(text, USERS)


def test_a_type_that_was_resolved_while_another_failed_still_works() -> None:
    users = UserTypes({"a": (("x", "y"), ("frozen<b>", "frozen<nowhere>")), "b": (("z",), ("int",))})
    with pytest.raises(InvalidSchema, match="nowhere"):
        parse("frozen<a>", users)
    assert parse("frozen<b>", users) == t.user("b", {"z": t.INT32})


def test_user_types_that_a_text_names_are_found() -> None:
    assert term('map<frozen<a>, frozen<list<frozen<"B">>>>').user_types == {"a", "B"}
    assert term("map<int, text>").user_types == frozenset()


@pytest.mark.parametrize("name", ["plain", "with_1", "Odd", "two words", 'quo"te', "list", "int", "1st", "é"])
def test_a_quoted_name_reads_back(name: str) -> None:
    assert term(f"frozen<{quoted(name)}>").arguments[0].user == name


_NATIVE_TYPES = [kind for name, kind in NATIVE.items() if name != "counter"]
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def _nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    fields = st.dictionaries(_NAMES, inner, min_size=1, max_size=4)
    return st.one_of(
        inner.map(t.list_of),
        inner.map(t.set_of),
        st.tuples(inner, inner).map(lambda pair: t.map_of(*pair)),
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: t.tuple_of(*parts)),
        st.tuples(inner, st.integers(1, 2000)).map(lambda pair: t.vector(*pair)),
        st.tuples(_NAMES, fields).map(lambda pair: t.user(*pair)),
    )


_FROZEN = st.recursive(st.sampled_from(_NATIVE_TYPES), _nested, max_leaves=8)


def _thawed(kind: Type) -> Type:
    if kind.kind not in (Kind.LIST, Kind.SET, Kind.MAP, Kind.USER):
        return kind
    return Type(kind.kind, kind.elements, kind.names, kind.name, multi_cell=True)


def _users_of(kind: Type, found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> bool:
    """Note the user types inside; False when two different ones have the same name, as no keyspace has."""
    fine = all(_users_of(element, found) for element in kind.elements)
    if kind.kind is Kind.USER:
        fields = kind.names, tuple(map(text_of, kind.elements))
        fine = fine and found.setdefault(kind.name, fields) == fields
    return fine


@given(_FROZEN, st.booleans())
def test_a_type_becomes_text_and_the_same_type_again(kind: Type, thaw: bool) -> None:
    kind = _thawed(kind) if thaw else kind
    users: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    if _users_of(kind, users):
        assert parse(text_of(kind), UserTypes(users)) == kind


@given(_FROZEN, st.booleans())
def test_a_dropped_type_keeps_its_shape_without_user_types(kind: Type, thaw: bool) -> None:
    kind = _thawed(kind) if thaw else kind
    back = parse_dropped(dropped_text(kind))
    assert back.multi_cell == kind.multi_cell
    assert (back.kind is Kind.USER) == (kind.kind is Kind.USER and kind.multi_cell)
    assert dropped_text(back) == dropped_text(kind)


@given(st.text(max_size=60))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        parse(text, USERS)
    except InvalidSchema:
        pass


def test_a_dropped_tuple_that_is_not_frozen_was_a_user_type() -> None:
    dropped = parse_dropped("tuple<int, text>")
    assert dropped.kind is Kind.USER
    assert dropped.multi_cell
    assert dropped.elements == (t.INT32, t.TEXT)
    assert parse_dropped("frozen<tuple<int, text>>") == t.tuple_of(t.INT32, t.TEXT)


def test_types_that_cql_does_not_have_have_no_text() -> None:
    with pytest.raises(InvalidSchema, match="CQL has no type uint64"):
        text_of(t.UINT64)


def test_user_types_that_double_again_and_again_are_refused_at_once() -> None:
    doubling = {f"t{n}": (("a", "b"), (f"frozen<t{n - 1}>", f"frozen<t{n - 1}>")) for n in range(1, 60)}
    users = UserTypes({"t0": (("a",), ("int",)), **doubling})
    assert parse("frozen<t5>", users).depth == 7
    with pytest.raises(InvalidSchema, match=r"parts|too deep"):
        parse("frozen<t25>", users)
    with pytest.raises(InvalidSchema, match="parts"):
        parse(f"tuple<{', '.join(['frozen<t10>'] * 100)}>", users)


def test_user_types_nested_in_a_long_chain_are_refused_without_a_crash() -> None:
    frozen = "frozen<" * 30
    chain = {f"t{n}": (("a",), (f"{frozen}t{n - 1}{'>' * 30}",)) for n in range(1, 500)}
    users = UserTypes({"t0": (("a",), ("int",)), **chain})
    with pytest.raises(InvalidSchema, match="nests too deep"):
        parse("frozen<t499>", users)
    assert parse("frozen<t1>", users).elements[0].name == "t0"


@pytest.mark.parametrize("fields", [((None,), ("int",)), (("a",), (None,))])
def test_a_user_type_with_a_part_missing_is_refused(fields: Any) -> None:
    with pytest.raises(InvalidSchema, match="lacks the name or the type"):
        parse("frozen<broken>", UserTypes({"broken": fields}))
