"""CQL's types by name: what a column definition says, as a logical type.

A collection is frozen when it is written so, or when it stands in something that is frozen by nature (a tuple, a
vector). A collection inside an unfrozen collection must be frozen explicitly, as in Cassandra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import InvalidSchema
from penstock.model import types
from penstock.model.cql_types import COMPOSITE, NATIVE
from penstock.model.predicate import quoted_name
from penstock.model.types import Type

# What other databases call some of them.
ELSEWHERE = {
    "bool": "boolean",
    "bytes": "blob",
    "character": "text",
    "datetime": "timestamp",
    "integer": "int",
    "long": "bigint",
    "number": "decimal",
    "numeric": "decimal",
    "real": "float",
    "string": "text",
}


class Word(NamedTuple):
    """A name and its place in the statement."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class TypeTerm:
    """A type as written: a name, the types in its angle brackets, and a vector's length."""

    word: Word
    arguments: tuple[TypeTerm, ...] = ()
    length: int | None = None

    def __str__(self) -> str:
        inside = [*map(str, self.arguments), *([] if self.length is None else [str(self.length)])]
        return quoted_name(self.word.text) + (f"<{', '.join(inside)}>" if inside else "")


class Misfit(Exception):
    """A type that cannot be, with the word to blame. The statement parser turns it into an InvalidStatement."""

    def __init__(self, word: Word, message: str) -> None:
        super().__init__(message)
        self.word = word
        self.message = message


def resolve(term: TypeTerm) -> Type:
    """The logical type of a column; raises Misfit."""
    return _resolve(term, frozen=False, inside="")


def _resolve(term: TypeTerm, *, frozen: bool, inside: str) -> Type:
    name = term.word.text
    if name in NATIVE:
        if term.arguments or term.length is not None:
            raise Misfit(term.word, f"type {name} takes nothing in angle brackets")
        if name == "counter" and inside:
            raise Misfit(term.word, "a counter cannot stand inside another type")
        return NATIVE[name]
    if name not in COMPOSITE:
        raise Misfit(term.word, f"{name} is no CQL type, and user types cannot be named in a statement")
    _check_brackets(term)
    if name == "frozen":
        if term.arguments[0].word.text not in COMPOSITE:
            raise Misfit(term.arguments[0].word, "only collections and tuples can be frozen")
        return _resolve(term.arguments[0], frozen=True, inside=inside)
    if inside and not frozen and name in ("list", "set", "map"):
        raise Misfit(term.word, f"a {name} inside a {inside} must be frozen: write frozen<{term}>")
    # Tuples and vectors are one value, and with them all that they hold.
    inner_frozen = frozen or name in ("tuple", "vector")
    elements = tuple(_resolve(argument, frozen=inner_frozen, inside=name) for argument in term.arguments)
    try:
        match name:
            case "list":
                return types.list_of(elements[0], multi_cell=not inner_frozen)
            case "set":
                return types.set_of(elements[0], multi_cell=not inner_frozen)
            case "map":
                return types.map_of(*elements, multi_cell=not inner_frozen)
            case "tuple":
                return types.tuple_of(*elements)
            case _:
                return types.vector(elements[0], term.length or 0)
    except InvalidSchema as error:
        raise Misfit(term.word, error.message) from error


def _check_brackets(term: TypeTerm) -> None:
    name, wanted, given = term.word.text, COMPOSITE[term.word.text], len(term.arguments)
    if name == "vector":
        if given != 1 or not term.length:
            raise Misfit(term.word, "a vector needs a type and a length: vector<float, 3>")
    elif term.length is not None:
        raise Misfit(term.word, f"type {name} takes types only, not a number")
    elif given != wanted and (wanted is not None or not given):
        many = "at least one type" if wanted is None else f"{wanted} type{'s' if wanted > 1 else ''}"
        raise Misfit(term.word, f"type {name} takes {many} in angle brackets, not {given}")
