"""The judge of the schema matrix: what `SELECT JSON` at ALL says of a table, against what a Delta table holds.

All rows and all columns are compared, as two lists in one order; nothing is folded, chosen or left out. Only the
spelling of values differs between the two sides, and this is the whole mapping (docs/guides/lakehouse.md, "Types"):

- a number of SELECT JSON is that number; decimal and varint are text in Delta, with the scale that was written. In key
  columns decimals count by value: of two spellings of one clustering key Cassandra itself shows either;
- date, time, timestamp and duration are text in JSON; a day, nanoseconds, microseconds and a struct in Delta;
- a blob is hexadecimal text in JSON; bytes in Delta; an address may be spelled with `::` or without;
- keys of maps are text in JSON, whatever their type; a map in Delta has keys of their own type;
- tuples are arrays in JSON, structs in Delta; of user types the fields are compared that the type has now.

A column stands in Delta under its own name; or, when a column of that name had another type before or the name is
taken by one that differs in case only, under the name with `__2`, `__3`, …: of those, the last one that was made.
A column that Delta does not have yet is null there. Columns that Cassandra has no more may stay in Delta, and are not
asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import SimpleStatement
from deltalake import DeltaTable, QueryBuilder

_INTEGERS = {"int", "bigint", "smallint", "tinyint", "counter"}
_TEXTS = {"text", "ascii", "varchar", "uuid", "timeuuid"}
_UNITS = {
    "y": ("months", 12), "mo": ("months", 1), "w": ("days", 7), "d": ("days", 1), "h": ("rest", 3_600_000_000_000),
    "m": ("rest", 60_000_000_000), "s": ("rest", 1_000_000_000), "ms": ("rest", 1_000_000), "us": ("rest", 1000),
    "µs": ("rest", 1000), "ns": ("rest", 1),
}  # fmt: skip


@dataclass(frozen=True)
class CqlType:
    """A type as `system_schema` spells it, with the types inside it."""

    name: str
    inner: tuple[CqlType, ...] = ()
    fields: tuple[str, ...] = ()


def parse_type(text: str, users: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> CqlType:
    """A type from its text; `users` has the names and types of the fields of each user type."""
    text = text.strip()
    if "<" in text:
        name, inside = text[: text.index("<")], text[text.index("<") + 1 : -1]
        if name == "frozen":
            return parse_type(inside, users)
        if name == "vector":
            return CqlType("list", (parse_type(inside.rsplit(",", 1)[0], users),))
        return CqlType(name, tuple(parse_type(part, users) for part in _parts(inside)))
    if text.strip('"') in users:
        names, types = users[text.strip('"')]
        return CqlType("user", tuple(parse_type(one, users) for one in types), tuple(names))
    return CqlType(text)


def _parts(text: str) -> list[str]:
    """What stands between commas that are not inside of brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "<") - (letter == ">")
        if letter == "," and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def from_json(value: Any, kind: CqlType, *, key: bool = False) -> Any:
    """A value of SELECT JSON in the one spelling in which both sides are compared."""
    if value is None:
        return None
    inside = kind.inner
    match kind.name:
        case "list" | "set":
            return [from_json(item, inside[0], key=key) for item in value]
        case "map":
            return [
                (from_json(_map_key(name, inside[0]), inside[0], key=key), from_json(item, inside[1], key=key))
                for name, item in value.items()
            ]
        case "tuple":
            values = [*value, *[None] * (len(inside) - len(value))]
            return tuple(from_json(item, one, key=key) for item, one in zip(values, inside, strict=True))
        case "user":
            named = {_plain_name(name): item for name, item in value.items()}
            return {n: from_json(named[n], one, key=key) for n, one in zip(kind.fields, inside, strict=True)}
        case "blob":
            return bytes.fromhex(value.removeprefix("0x"))
        case "date":
            return date.fromisoformat(value)
        case "time":
            clock, _, rest = value.partition(".")
            hours, minutes, seconds = map(int, clock.split(":"))
            return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int(rest.ljust(9, "0") or 0)
        case "timestamp":
            return _micros(datetime.fromisoformat(value))
        case "duration":
            return _duration(value)
    return _simple(value, kind, key=key)


def from_lake(value: Any, kind: CqlType, *, key: bool = False) -> Any:
    """A value of a Delta table in the same spelling."""
    if value is None:
        return None
    inside = kind.inner
    match kind.name:
        case "list" | "set":
            return [from_lake(item, inside[0], key=key) for item in value]
        case "map":
            return [(from_lake(k, inside[0], key=key), from_lake(v, inside[1], key=key)) for k, v in value]
        case "tuple":
            return tuple(from_lake(v, one, key=key) for v, one in zip(value.values(), inside, strict=True))
        case "user":
            return {n: from_lake(value.get(n), one, key=key) for n, one in zip(kind.fields, inside, strict=True)}
        case "blob" | "date" | "time" | "duration":
            return value
        case "timestamp":
            return _micros(value)
    return _simple(value, kind, key=key)


def _micros(value: datetime) -> int:
    return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _simple(value: Any, kind: CqlType, *, key: bool) -> Any:
    if kind.name in _INTEGERS or kind.name == "varint":
        return int(value)
    if kind.name in _TEXTS:
        return str(value)
    if kind.name == "inet":
        return str(ip_address(value))
    if kind.name == "decimal":
        found = Decimal(value)
        return str(found.normalize() + 0) if key else str(found)
    if kind.name == "double":
        return repr(float(value))
    if kind.name == "float":
        return repr(float(np.float32(value)))
    assert kind.name == "boolean", kind
    return bool(value)


def _map_key(name: str, kind: CqlType) -> Any:
    """The key of a JSON object as the value that it spells."""
    if kind.name in _INTEGERS | {"varint", "decimal", "double", "float"}:
        return name
    return _loads(name) if kind.inner or kind.name == "boolean" else name


def _plain_name(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _duration(text: str) -> dict[str, int]:
    sign = -1 if text.startswith("-") else 1
    total = {"months": 0, "days": 0, "rest": 0}
    for number, unit in re.findall(r"(\d+)(mo|ms|us|µs|ns|[ywdhms])", text):
        part, size = _UNITS[unit]
        total[part] += sign * size * int(number)
    return total


def _loads(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str)


Spelled = tuple[tuple[str, str], ...]


@dataclass
class Verdict:
    """What came of one comparison: rows that the Delta table lacks, and rows that it should not have."""

    rows: int
    key: frozenset[str]
    missing: list[Spelled] = field(default_factory=list)
    extra: list[Spelled] = field(default_factory=list)

    def told(self) -> str:
        """In words; of rows with the same key only what is not the same."""
        lines = [f"{len(self.missing)} of {self.rows} rows missing, {len(self.extra)} rows too many"]
        for who, rows, others in (("Cassandra", self.missing, self.extra), ("Delta", self.extra, self.missing)):
            for row in rows[:8]:
                twin = next((other for other in others if self._key(other) == self._key(row)), ())
                parts = [f"{name}={value}" for name, value in row if name in self.key or (name, value) not in twin]
                lines.append(f"    {who} has {', '.join(parts)[:600]}")
        return "\n".join(lines)

    def _key(self, row: Spelled) -> Spelled:
        return tuple(part for part in row if part[0] in self.key)


class Judge:
    """Asks Cassandra for its definitions and rows."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def tables(self, keyspace: str) -> dict[str, bool]:
        """The tables of a keyspace, and whether they are captured now."""
        query = "SELECT table_name, cdc FROM system_schema.tables WHERE keyspace_name = %s"
        return {name: bool(cdc) for name, cdc in self._session.execute(query, (keyspace,))}

    def columns(self, keyspace: str, table: str) -> dict[str, tuple[CqlType, bool]]:
        """The columns with their types, and whether they belong to the key."""
        query = "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = %s"
        users = {name: (names, types) for name, names, types in self._session.execute(query, (keyspace,))}
        query = "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s"
        found = self._session.execute(query, (keyspace, table))
        return {name: (parse_type(kind, users), role in ("partition_key", "clustering")) for name, kind, role in found}

    def dropped(self, keyspace: str, table: str) -> set[str]:
        """The columns that the table had and has no more."""
        query = "SELECT column_name FROM system_schema.dropped_columns WHERE keyspace_name = %s AND table_name = %s"
        found = {name for (name,) in self._session.execute(query, (keyspace, table))}
        return found - self.columns(keyspace, table).keys()

    def selected(self, keyspace: str, table: str) -> list[dict[str, Any]]:
        """The rows of SELECT JSON at ALL."""
        query = f'SELECT JSON * FROM "{keyspace}"."{table}"'
        found = self._session.execute(SimpleStatement(query, consistency_level=ConsistencyLevel.ALL))
        return [{_plain_name(name): value for name, value in _loads(text).items()} for (text,) in found]

    def compare(self, keyspace: str, table: str, delta: Path) -> Verdict:
        columns = self.columns(keyspace, table)
        theirs = [_spelled(row, columns, from_json) for row in self.selected(keyspace, table)]
        left = [_spelled(row, columns, from_lake) for row in lake_rows(delta, columns)]
        verdict = Verdict(len(theirs), frozenset(name for name, (_, key) in columns.items() if key))
        for row in theirs:
            if row in left:
                left.remove(row)
            else:
                verdict.missing.append(row)
        verdict.extra += left
        return verdict


def _spelled(row: Mapping[str, Any], columns: Mapping[str, tuple[CqlType, bool]], spell: Callable[..., Any]) -> Spelled:
    """A row as names and texts."""
    return tuple((name, repr(spell(row[name], kind, key=key))) for name, (kind, key) in sorted(columns.items()))


def lake_rows(delta: Path, columns: Mapping[str, tuple[CqlType, bool]]) -> list[dict[str, Any]]:
    """The rows of a Delta table, by the names that Cassandra's columns have; none when there is no table."""
    if not (delta / "_delta_log").exists():
        return []
    try:
        found = pa.table(QueryBuilder().register("t", DeltaTable(str(delta))).execute("SELECT * FROM t").read_all())
    except Exception as error:
        # The reader has no error of its own.
        raise ValueError(f"the table cannot be read: {error}") from error
    places = {name: place_of(name, columns, found.column_names) for name in columns}
    return [
        {name: None if place is None else row[place] for name, place in places.items()} for row in found.to_pylist()
    ]


def place_of(name: str, columns: Mapping[str, object], there: Sequence[str]) -> str | None:
    """The column of a Delta table that holds a column of Cassandra's."""
    numbered = re.compile(re.escape(name) + r"__\d+")
    made = [one for one in there if numbered.fullmatch(one) and one not in columns]
    return made[-1] if made else name if name in there else None
