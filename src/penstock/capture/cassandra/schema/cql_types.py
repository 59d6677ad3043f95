"""CQL type text, as Cassandra's schema tables hold it, to logical types and back.

`system_schema` keeps the type of a column as text: `frozen<map<text, frozen<addr>>>`, `vector<float, 3>`, a class name
in single quotes for a custom type. User types stand there by name; their fields are text of the same kind in another
table. What stands inside another type is frozen whether the text says so or not, because Cassandra has no other.

Two things differ from a statement's types: a counter is known by its shards, and types without a logical one (custom
classes, the `empty` of compact tables) are kept as bytes, so that nothing of a row is lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from penstock.errors import InvalidSchema
from penstock.model import types
from penstock.model.cql_types import COMPOSITE, NATIVE
from penstock.model.predicate import always_quoted
from penstock.model.types import DEPTH_MAX, Kind, Type

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[A-Za-z0-9_]+)|"(?P<name>(?:[^"]|"")*)"|'(?P<custom>(?:[^']|'')*)'|(?P<sign>[<>,.]))""",
    re.ASCII,
)
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
# Text of this length names more types than any table has columns; hostile text must not cost time.
_TEXT_MAX = 100_000
_NEST_MAX = 2 * DEPTH_MAX
# A few user types that each hold the last one twice would make a type of billions of parts.
_PARTS_MAX = 10_000
# Classes whose values have a fixed length, which the log relies on, though CQL has no name for them.
_CLASSES: dict[str, Type] = {
    "LexicalUUIDType": types.UUID,
    "LegacyTimeUUIDType": types.TIMEUUID,
    "CounterColumnType": types.SHARDED_COUNTER,
}
_CLASS_PACKAGE = "org.apache.cassandra.db.marshal."
_SCALARS = {**NATIVE, "counter": types.SHARDED_COUNTER, "empty": types.BYTES}
# Words that name a type by themselves: a user type with such a name is always quoted.
_TAKEN = frozenset({*_SCALARS, *COMPOSITE})
_NAMES: dict[Type, str] = {kind: name for name, kind in NATIVE.items() if name not in ("varchar", "counter")}

Fields = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Term:
    """A type as written. `user` names a user type, `custom` a class; otherwise `name` is CQL's own word."""

    name: str = ""
    arguments: tuple[Term, ...] = ()
    length: int = 0
    user: str = ""
    custom: str = ""

    @property
    def depth(self) -> int:
        """How many types are nested in the text, this one included."""
        return 1 + max((argument.depth for argument in self.arguments), default=0)

    @property
    def user_types(self) -> frozenset[str]:
        """The user types that it names, itself or inside."""
        inside = (argument.user_types for argument in self.arguments)
        return frozenset({self.user} if self.user else ()).union(*inside)


@lru_cache(maxsize=4096)
def term(text: str) -> Term:
    """The parsed text; InvalidSchema when it is no type."""
    return _Parser(text).whole()


class _Parser:
    """One type's text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        at = 0
        end = len(text.rstrip())
        if end > _TEXT_MAX:
            raise InvalidSchema(f"a type's text is longer than {_TEXT_MAX} characters")
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self._wrong(f"character {at + 1} has no meaning there")
            self._tokens.append((match.lastgroup, match.group(match.lastgroup)))
            at = match.end()
        self._at = 0

    def whole(self) -> Term:
        found = self._type(0)
        if self._at != len(self._tokens):
            raise self._wrong("something follows the type")
        return found

    def _wrong(self, why: str) -> InvalidSchema:
        return InvalidSchema(f"not a CQL type: {self._text[:80]!r}: {why}")

    def _take(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._wrong("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def _type(self, depth: int) -> Term:
        if depth > _NEST_MAX:
            raise self._wrong("it nests too deep")
        kind, text = self._take()
        if kind == "custom":
            return Term(custom=text.replace("''", "'"))
        if kind == "sign":
            raise self._wrong(f"a type cannot begin with {text}")
        if self._accept("."):
            # A user type with its keyspace, which can only be the table's own.
            kind, text = self._take()
            return Term(user=self._name(kind, text))
        if kind == "name":
            return Term(user=self._name(kind, text))
        word = text.lower()
        if self._accept("<"):
            return self._composite(word, depth)
        if word in COMPOSITE:
            raise self._wrong(f"{word} needs types in angle brackets")
        return Term(word) if word in _SCALARS else Term(user=word)

    def _name(self, kind: str, text: str) -> str:
        if kind not in ("name", "word") or not text:
            raise self._wrong("a user type needs a name")
        return text.replace('""', '"') if kind == "name" else text.lower()

    def _composite(self, word: str, depth: int) -> Term:
        if word not in COMPOSITE:
            raise self._wrong(f"{word} takes nothing in angle brackets")
        arguments = [self._type(depth + 1)]
        length = 0
        while self._accept(","):
            if word == "vector":
                kind, digits = self._take()
                if kind != "word" or not digits.isdigit() or len(digits) > 9:
                    raise self._wrong("a vector's length is a whole number")
                length = int(digits)
                break
            arguments.append(self._type(depth + 1))
        if not self._accept(">"):
            raise self._wrong("a > is missing")
        wanted = COMPOSITE[word]
        if wanted is not None and len(arguments) != wanted:
            raise self._wrong(f"{word} takes {wanted} types, not {len(arguments)}")
        if word == "vector" and length < 1:
            raise self._wrong("a vector needs a type and a length")
        return Term(word, tuple(arguments), length)


class UserTypes:
    """The user types of one keyspace: field names and the text of field types, resolved when they are asked for."""

    def __init__(self, fields: Mapping[str, Fields] | None = None) -> None:
        self._fields = dict(fields or {})
        self._resolved: dict[str, Type] = {}
        # By name the number of parts of a type that was resolved.
        self._parts: dict[str, int] = {}
        self._resolving: list[str] = []
        self._nested = 0

    def __call__(self, name: str) -> Type:
        """The frozen type of this name; InvalidSchema when it is unknown, contains itself or is beyond all measure."""
        found = self._resolved.get(name)
        if found is not None:
            return found
        names, terms = self._known(name)
        nested = max((one.depth for one in terms), default=0)
        if name in self._resolving or self._nested + nested > _NEST_MAX:
            raise InvalidSchema(f"the user type {name} contains itself, or nests too deep")
        self._resolving.append(name)
        self._nested += nested
        try:
            # What is inside is resolved first, so that its parts are known before it is put together.
            for inner in frozenset().union(*(one.user_types for one in terms)):
                self(inner)
            parts = 1 + sum(map(self.parts, terms))
            if parts > _PARTS_MAX:
                raise InvalidSchema(f"the user type {name} has more than {_PARTS_MAX} parts")
            self._parts[name] = parts
            elements = tuple(_resolve(one, self, frozen=True) for one in terms)
            found = Type(Kind.USER, elements, names=names, name=name)
        finally:
            self._resolving.pop()
            self._nested -= nested
        self._resolved[name] = found
        return found

    def _known(self, name: str) -> tuple[tuple[str, ...], tuple[Term, ...]]:
        if name not in self._fields:
            raise InvalidSchema(f"the user type {name} is not known")
        names, texts = self._fields[name]
        if len(names) != len(texts) or len(set(names)) != len(names):
            raise InvalidSchema(f"the user type {name} does not have one type for each field")
        if not all(isinstance(one, str) for one in (*names, *texts)):
            raise InvalidSchema(f"the user type {name} lacks the name or the type of a field")
        return names, tuple(map(term, texts))

    def parts(self, found: Term) -> int:
        """How many parts a type has, its user types resolved; InvalidSchema when they are too many."""
        if found.user:
            self(found.user)
            return self._parts[found.user]
        total = 1 + sum(map(self.parts, found.arguments))
        if total > _PARTS_MAX:
            raise InvalidSchema(f"a type has more than {_PARTS_MAX} parts")
        return total

    def __contains__(self, name: str) -> bool:
        return name in self._fields


NO_USER_TYPES = UserTypes()


def parse(text: str, user_types: UserTypes = NO_USER_TYPES) -> Type:
    """The type of a column; InvalidSchema when the text is no type, or names a user type that is not known."""
    found = term(text)
    user_types.parts(found)
    return _resolve(found, user_types, frozen=False)


def parse_dropped(text: str) -> Type:
    """The type of a dropped column, where user types stand as tuples of their fields.

    A tuple that is not frozen is what Cassandra leaves of a non-frozen user type: its cells have paths.
    """
    found = term(text)
    resolved = _resolve(found, NO_USER_TYPES, frozen=False)
    if found.name != "tuple":
        return resolved
    names = tuple(f"field{index}" for index in range(len(resolved.elements)))
    return Type(Kind.USER, resolved.elements, names=names, name="dropped", multi_cell=True)


def _resolve(found: Term, user_types: UserTypes, *, frozen: bool) -> Type:
    if found.custom:
        name = found.custom.removeprefix(_CLASS_PACKAGE)
        return _CLASSES.get(name, types.BYTES)
    if found.user:
        whole = user_types(found.user)
        return whole if frozen else Type(Kind.USER, whole.elements, whole.names, whole.name, multi_cell=True)
    if not found.arguments:
        kind = _SCALARS[found.name]
        if kind.multi_cell and frozen:
            raise InvalidSchema("a counter cannot stand inside another type")
        return kind
    elements = tuple(_resolve(argument, user_types, frozen=True) for argument in found.arguments)
    multi_cell = not frozen
    match found.name:
        case "frozen":
            return elements[0]
        case "list":
            return types.list_of(elements[0], multi_cell=multi_cell)
        case "set":
            return types.set_of(elements[0], multi_cell=multi_cell)
        case "map":
            return types.map_of(*elements, multi_cell=multi_cell)
        case "tuple":
            return types.tuple_of(*elements)
        case _:
            return types.vector(elements[0], found.length)


def quoted(name: str) -> str:
    """A name as the type text has it: bare when that reads back as the same name."""
    if _PLAIN_NAME.fullmatch(name) and name not in _TAKEN:
        return name
    return always_quoted(name)


def text_of(kind: Type) -> str:
    """The type as Cassandra would write it. Only for types that CQL has."""
    text = _text(kind)
    frozen = kind.kind in (Kind.LIST, Kind.SET, Kind.MAP, Kind.USER, Kind.TUPLE) and not kind.multi_cell
    return f"frozen<{text}>" if frozen else text


def _text(kind: Type) -> str:
    inside = ", ".join(map(text_of, kind.elements))
    match kind.kind:
        case Kind.COUNTER:
            return "counter"
        case Kind.LIST | Kind.SET | Kind.MAP | Kind.TUPLE:
            return f"{kind.kind.value}<{inside}>"
        case Kind.VECTOR:
            return f"vector<{inside}, {kind.length}>"
        case Kind.USER:
            return quoted(kind.name)
        case _:
            name = _NAMES.get(kind)
            if name is None:
                raise InvalidSchema(f"CQL has no type {kind.kind}")
            return name


def dropped_text(kind: Type) -> str:
    """The type of a dropped column as Cassandra notes it: `parse_dropped` gives what decodes the same values."""
    if kind.kind is Kind.USER and kind.multi_cell:
        return f"tuple<{', '.join(text_of(_expanded(element)) for element in kind.elements)}>"
    return text_of(_expanded(kind))


def _expanded(kind: Type) -> Type:
    """The type with tuples in place of user types."""
    elements = tuple(map(_expanded, kind.elements))
    return types.tuple_of(*elements) if kind.kind is Kind.USER else replace(kind, elements=elements)
