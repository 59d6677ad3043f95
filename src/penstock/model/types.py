"""Logical types: what a column holds, for every type of CQL, MariaDB and PostgreSQL, without loss.

A `Type` says what the value means; the formats decide how it is written. The Python value of each kind:

| kind                                        | Python value                                             |
|---------------------------------------------|----------------------------------------------------------|
| boolean                                     | bool                                                     |
| int8 … int64, uint8 … uint64, counter, varint | int                                                    |
| float32, float64                            | float                                                    |
| decimal (any scale), fixed_decimal          | decimal.Decimal, finite                                  |
| numeric (PostgreSQL: also NaN, Infinity)    | str                                                      |
| text, ascii, json, enum, bits, other        | str                                                      |
| bytes                                       | bytes                                                    |
| uuid, timeuuid                              | uuid.UUID                                                |
| inet                                        | ipaddress.IPv4Address or IPv6Address                     |
| date                                        | int, days since 1970-01-01                               |
| time, timestamp, datetime                   | int, in `unit`, since midnight or 1970-01-01             |
| time_tz                                     | TimeTz                                                   |
| civil_date, civil_datetime                  | str as MariaDB prints it; zero parts allowed             |
| duration                                    | Duration                                                 |
| flags                                       | tuple of str                                             |
| list, set, vector                           | tuple of values                                          |
| map                                         | tuple of (key, value) pairs                              |
| tuple, user                                 | tuple, None where a field is null                        |
| array (PostgreSQL, any dimension)           | NdArray, None where an item is null                      |

`timestamp` is an instant (UTC), `datetime` a wall-clock reading without a zone. PostgreSQL's ±infinity are the
least and the greatest 64-bit (32-bit for date) value, as on PostgreSQL's own wire.

A non-frozen list, set, map or user type is written element by element (`Delta`): the element's path is the list's cell
id, the set's element, the map's key or the number of the user type's field. A Cassandra counter is non-frozen too: its
elements are shards, one for each replica that leads increments, named by that replica's counter id and holding
(clock, count). The counter's value is the sum of their counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from penstock.errors import InvalidSchema


class Kind(StrEnum):
    """The closed list of logical types."""

    BOOLEAN = "boolean"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    COUNTER = "counter"
    VARINT = "varint"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    FIXED_DECIMAL = "fixed_decimal"
    NUMERIC = "numeric"
    TEXT = "text"
    ASCII = "ascii"
    JSON = "json"
    BYTES = "bytes"
    UUID = "uuid"
    TIMEUUID = "timeuuid"
    INET = "inet"
    DATE = "date"
    CIVIL_DATE = "civil_date"
    TIME = "time"
    TIME_TZ = "time_tz"
    TIMESTAMP = "timestamp"
    DATETIME = "datetime"
    CIVIL_DATETIME = "civil_datetime"
    DURATION = "duration"
    ENUM = "enum"
    FLAGS = "flags"
    BITS = "bits"
    OTHER = "other"
    LIST = "list"
    SET = "set"
    MAP = "map"
    TUPLE = "tuple"
    USER = "user"
    VECTOR = "vector"
    ARRAY = "array"


class Unit(StrEnum):
    """The resolution of a time-like type."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


class Duration(NamedTuple):
    """Months, days and a rest in the type's unit: three parts because none converts into another."""

    months: int
    days: int
    rest: int


class TimeTz(NamedTuple):
    """A time of day in the type's unit, and its zone's seconds east of UTC."""

    time: int
    offset_s: int


class NdArray(NamedTuple):
    """A PostgreSQL array: length and lower bound per dimension, items in row-major order."""

    lengths: tuple[int, ...]
    lower_bounds: tuple[int, ...]
    items: tuple[Any, ...]


# How many element types each composite kind takes; None means one per field name.
_ELEMENTS: dict[Kind, int | None] = {
    Kind.LIST: 1,
    Kind.SET: 1,
    Kind.MAP: 2,
    Kind.VECTOR: 1,
    Kind.ARRAY: 1,
    Kind.TUPLE: None,
    Kind.USER: None,
}
_WITH_UNIT = {Kind.TIME, Kind.TIME_TZ, Kind.TIMESTAMP, Kind.DATETIME, Kind.DURATION}
_MULTI_CELL = {Kind.LIST, Kind.SET, Kind.MAP, Kind.USER, Kind.COUNTER}
# Deeper nesting than any database accepts; decoders rely on the bound.
DEPTH_MAX = 32


@dataclass(frozen=True, slots=True)
class Type:
    """One logical type. Only the fields that its kind uses are set."""

    kind: Kind
    elements: tuple[Type, ...] = ()
    # Field names of a user type; labels of an enum or of flags.
    names: tuple[str, ...] = ()
    # The name of a user type.
    name: str = ""
    unit: Unit | None = None
    precision: int = 0
    scale: int = 0
    # The number of dimensions of a vector.
    length: int = 0
    # A non-frozen collection or user type, whose elements are cells of their own; a counter whose shards are known.
    multi_cell: bool = False

    def __post_init__(self) -> None:
        wanted = _ELEMENTS.get(self.kind, 0)
        if wanted is not None and len(self.elements) != wanted:
            raise InvalidSchema(f"type {self.kind} takes {wanted} element types, not {len(self.elements)}")
        if self.kind is Kind.TUPLE and not self.elements:
            raise InvalidSchema("a tuple type needs at least one element")
        if self.kind is Kind.USER and (not self.name or len(self.names) != len(self.elements)):
            raise InvalidSchema("a user type needs a name and one name per field")
        if (self.unit is not None) != (self.kind in _WITH_UNIT):
            raise InvalidSchema(f"type {self.kind} {'needs a' if self.unit is None else 'takes no'} unit")
        if self.kind is Kind.VECTOR and self.length < 1:
            raise InvalidSchema("a vector type needs a length of at least one")
        if self.kind is Kind.FIXED_DECIMAL and not 0 <= self.scale <= self.precision:
            raise InvalidSchema(f"fixed_decimal({self.precision}, {self.scale}): scale must lie in 0 … precision")
        if self.multi_cell and self.kind not in _MULTI_CELL:
            raise InvalidSchema(f"type {self.kind} cannot be non-frozen")
        if any(element.multi_cell for element in self.elements):
            raise InvalidSchema("a nested collection must be frozen")
        if self.depth > DEPTH_MAX:
            raise InvalidSchema(f"types nest deeper than {DEPTH_MAX}")

    @property
    def depth(self) -> int:
        """How many types are nested, this one included."""
        return 1 + max((element.depth for element in self.elements), default=0)

    @property
    def path_type(self) -> Type | None:
        """What names an element of a non-frozen type; None for a user type, whose fields have numbers."""
        if self.kind is Kind.LIST:
            return TIMEUUID
        if self.kind is Kind.COUNTER:
            return UUID
        return None if self.kind is Kind.USER else self.elements[0]

    @property
    def item_type(self) -> Type | None:
        """What an element of a non-frozen type holds; None for a set, and for a user type, where it is the field's."""
        if self.kind is Kind.COUNTER:
            return SHARD
        return None if self.kind in (Kind.SET, Kind.USER) else self.elements[-1]

    def to_json(self) -> dict[str, Any]:
        """The JSON form, without the fields that have their default."""
        out: dict[str, Any] = {"kind": self.kind.value}
        if self.elements:
            out["elements"] = [element.to_json() for element in self.elements]
        if self.names:
            out["names"] = list(self.names)
        if self.unit is not None:
            out["unit"] = self.unit.value
        for field in ("name", "precision", "scale", "length", "multi_cell"):
            if getattr(self, field):
                out[field] = getattr(self, field)
        return out

    @classmethod
    def from_json(cls, data: dict[str, Any], depth: int = 0) -> Type:
        """The inverse of `to_json`; refuses what it does not know."""
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"types nest deeper than {DEPTH_MAX}")
        try:
            rest = dict(data)
            kind = Kind(rest.pop("kind"))
            elements = tuple(cls.from_json(element, depth + 1) for element in rest.pop("elements", ()))
            unit = Unit(rest.pop("unit")) if "unit" in rest else None
            return cls(kind=kind, elements=elements, names=tuple(rest.pop("names", ())), unit=unit, **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidSchema(f"not a type: {error}") from error


BOOLEAN = Type(Kind.BOOLEAN)
INT8 = Type(Kind.INT8)
INT16 = Type(Kind.INT16)
INT32 = Type(Kind.INT32)
INT64 = Type(Kind.INT64)
UINT8 = Type(Kind.UINT8)
UINT16 = Type(Kind.UINT16)
UINT32 = Type(Kind.UINT32)
UINT64 = Type(Kind.UINT64)
COUNTER = Type(Kind.COUNTER)
VARINT = Type(Kind.VARINT)
FLOAT32 = Type(Kind.FLOAT32)
FLOAT64 = Type(Kind.FLOAT64)
DECIMAL = Type(Kind.DECIMAL)
NUMERIC = Type(Kind.NUMERIC)
TEXT = Type(Kind.TEXT)
ASCII = Type(Kind.ASCII)
JSON = Type(Kind.JSON)
BYTES = Type(Kind.BYTES)
UUID = Type(Kind.UUID)
TIMEUUID = Type(Kind.TIMEUUID)
INET = Type(Kind.INET)
DATE = Type(Kind.DATE)
CIVIL_DATE = Type(Kind.CIVIL_DATE)
CIVIL_DATETIME = Type(Kind.CIVIL_DATETIME)
BITS = Type(Kind.BITS)
OTHER = Type(Kind.OTHER)


def time(unit: Unit) -> Type:
    """A time of day, or MariaDB's TIME, which may be negative or longer than a day."""
    return Type(Kind.TIME, unit=unit)


def time_tz(unit: Unit) -> Type:
    return Type(Kind.TIME_TZ, unit=unit)


def timestamp(unit: Unit) -> Type:
    return Type(Kind.TIMESTAMP, unit=unit)


def datetime(unit: Unit) -> Type:
    return Type(Kind.DATETIME, unit=unit)


def duration(unit: Unit) -> Type:
    return Type(Kind.DURATION, unit=unit)


def fixed_decimal(precision: int, scale: int) -> Type:
    return Type(Kind.FIXED_DECIMAL, precision=precision, scale=scale)


def enum(*labels: str) -> Type:
    return Type(Kind.ENUM, names=labels)


def flags(*labels: str) -> Type:
    return Type(Kind.FLAGS, names=labels)


def list_of(element: Type, *, multi_cell: bool = False) -> Type:
    return Type(Kind.LIST, (element,), multi_cell=multi_cell)


def set_of(element: Type, *, multi_cell: bool = False) -> Type:
    return Type(Kind.SET, (element,), multi_cell=multi_cell)


def map_of(key: Type, value: Type, *, multi_cell: bool = False) -> Type:
    return Type(Kind.MAP, (key, value), multi_cell=multi_cell)


def tuple_of(*elements: Type) -> Type:
    return Type(Kind.TUPLE, elements)


def user(name: str, fields: dict[str, Type], *, multi_cell: bool = False) -> Type:
    return Type(Kind.USER, tuple(fields.values()), names=tuple(fields), name=name, multi_cell=multi_cell)


SHARD = user("shard", {"clock": INT64, "count": INT64})
SHARDED_COUNTER = Type(Kind.COUNTER, multi_cell=True)


def vector(element: Type, length: int) -> Type:
    return Type(Kind.VECTOR, (element,), length=length)


def array(element: Type) -> Type:
    return Type(Kind.ARRAY, (element,))
