"""Predicate: what the WHERE of a CDC_LOG says, as a tree.

A tree comes from the statement parser or is built by hand; the filter evaluates it; `str` turns it back into text that
parses to an equal tree. Values are columns, literals and calls of user functions; everything else combines truths.
Values remember where in the text they stood (`at`), so that an error found later can still show the place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from uuid import UUID

from penstock.errors import InvalidValue

# Words that cannot be names unless they are quoted, in statements and so in predicates.
RESERVED = frozenset(
    (
        *("and", "create", "drop", "false", "if", "in", "is", "not", "null", "on", "or", "primary", "table", "true"),
        *("where", "with"),
    )
)
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)

# What literals hold. Floats and addresses come up only where a literal has taken the type of the column beside it.
Constant = bool | int | Decimal | str | bytes | UUID | float | IPv4Address | IPv6Address | None


class Operator(StrEnum):
    """The comparisons."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    MORE = ">"
    MORE_OR_EQUAL = ">="

    @property
    def is_order(self) -> bool:
        """Whether it needs more of its operands than being equal or not."""
        return self not in (Operator.EQUAL, Operator.NOT_EQUAL)

    @property
    def mirrored(self) -> Operator:
        """The operator that says the same with the operands exchanged."""
        return _MIRRORED.get(self, self)


_MIRRORED = {
    Operator.LESS: Operator.MORE,
    Operator.LESS_OR_EQUAL: Operator.MORE_OR_EQUAL,
    Operator.MORE: Operator.LESS,
    Operator.MORE_OR_EQUAL: Operator.LESS_OR_EQUAL,
}


def always_quoted(name: str) -> str:
    """A name in double quotes, as any name may be written in CQL and SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_name(name: str) -> str:
    """A name as a statement writes it: bare when that reads back as the same name, else in double quotes."""
    if _PLAIN_NAME.fullmatch(name) and name not in RESERVED:
        return name
    return always_quoted(name)


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The value that the change gives to a column."""

    name: str
    at: int | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return quoted_name(self.name)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Numbers with a point or an exponent are decimals, so no digit is lost."""

    value: Constant
    at: int | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.value, Decimal) and not self.value.is_finite():
            raise InvalidValue("a decimal literal must be finite")

    def __str__(self) -> str:
        match self.value:
            case None:
                return "null"
            case bool():
                return "true" if self.value else "false"
            case str():
                return "'" + self.value.replace("'", "''") + "'"
            case bytes():
                return "0x" + self.value.hex()
            case Decimal():
                text = str(self.value)
                # Without point and exponent it would read back as an integer.
                return text if "." in text or "E" in text else text + "E0"
            case _:
                return str(self.value)


@dataclass(frozen=True, slots=True)
class Call:
    """A user function applied to values."""

    function: str
    arguments: tuple[Value, ...] = ()
    at: int | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{quoted_name(self.function)}({', '.join(map(str, self.arguments))})"


Value = ColumnRef | Literal | Call


@dataclass(frozen=True, slots=True)
class Compare:
    """Two values compared; unknown when either is null."""

    left: Value
    operator: Operator
    right: Value

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class In:
    """Whether a value equals one of several."""

    value: Value
    choices: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.value} IN ({', '.join(map(str, self.choices))})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is null; unknown for a column that the change does not touch."""

    value: Value

    def __str__(self) -> str:
        return f"{self.value} IS NULL"


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean value that stands for itself."""

    value: Value

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; unknown stays unknown."""

    part: Predicate

    def __str__(self) -> str:
        match self.part:
            case IsNull(value):
                return f"{value} IS NOT NULL"
            case In(value, choices):
                return f"{value} NOT IN ({', '.join(map(str, choices))})"
            case And() | Or():
                return f"NOT ({self.part})"
            case _:
                return f"NOT {self.part}"


@dataclass(frozen=True, slots=True)
class And:
    """True when every part is; false as soon as one is."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({part})" if isinstance(part, And | Or) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """True as soon as one part is; false when every part is."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({part})" if isinstance(part, Or) else str(part) for part in self.parts)


Predicate = Compare | In | IsNull | Truth | Not | And | Or


def iter_values(predicate: Predicate) -> Iterator[Value]:
    """Every value of the tree, arguments of calls included, in reading order."""
    match predicate:
        case Compare(left, _, right):
            yield from iter_nested(left)
            yield from iter_nested(right)
        case In(value, choices):
            yield from iter_nested(value)
            for choice in choices:
                yield from iter_nested(choice)
        case IsNull(value) | Truth(value):
            yield from iter_nested(value)
        case Not(part):
            yield from iter_values(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from iter_values(part)


def iter_nested(value: Value) -> Iterator[Value]:
    """The value and, of a call, the arguments, to the last."""
    yield value
    if isinstance(value, Call):
        for argument in value.arguments:
            yield from iter_nested(argument)


def column_names(predicate: Predicate) -> tuple[str, ...]:
    """The columns that the predicate looks at, each once."""
    return tuple(dict.fromkeys(value.name for value in iter_values(predicate) if isinstance(value, ColumnRef)))


def has_call(predicate: Predicate) -> bool:
    """Whether a user function takes part."""
    return any(isinstance(value, Call) for value in iter_values(predicate))
