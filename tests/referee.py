"""What Cassandra's own reader says of a segment, as the changes that our decoder must give for it.

The peer (tests/java) prints every entry that Cassandra accepts, with values as bytes. Here they become values and
changes by a second reading of the rules (docs/formats/commit-log.md), which shares no code with the decoder.
"""

from __future__ import annotations

import ipaddress
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, NamedTuple

from penstock.capture.cassandra.decoding.decoder import Decoder, MemoryParking, ParkedEntry
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, Section, SegmentReader
from penstock.errors import CorruptSegment, UnsupportedFormat
from penstock.formats import avro
from penstock.model.change import (
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Origin,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import TableId
from penstock.model.types import Duration, Kind, Type

# Of these, no bytes are a value; of all others they are a null.
_MAY_BE_EMPTY = {Kind.TEXT, Kind.ASCII, Kind.BYTES}
_FIXED = {
    Kind.INT8: ">b",
    Kind.INT16: ">h",
    Kind.INT32: ">i",
    Kind.INT64: ">q",
    Kind.FLOAT32: ">f",
    Kind.FLOAT64: ">d",
    Kind.TIME: ">q",
    Kind.TIMESTAMP: ">q",
}
_ELEMENT_BYTES = {Kind.BOOLEAN: 1, Kind.INT32: 4, Kind.INT64: 8, Kind.FLOAT32: 4, Kind.FLOAT64: 8}
_ELEMENT_BYTES |= {Kind.TIMESTAMP: 8, Kind.UUID: 16, Kind.TIMEUUID: 16}
_EXACT = Context(prec=100_000, Emax=10**15, Emin=-(10**15))
Row = dict[str, Any]


class Entry(NamedTuple):
    """An entry that was accepted: where it ends, and its changes by table, in order."""

    position: int
    changes: tuple[tuple[TableId, Change], ...]


def expected(
    lines: Sequence[dict[str, Any]],
    tables: Mapping[str, CassandraTable],
    file: str,
    senseless: list[int] | None = None,
) -> list[Entry]:
    """The peer's lines of one file, without the summary, as entries.

    A crafted file may hold values that do not fit their type: Cassandra does not look at those of keys and static rows.
    The positions of such entries go to `senseless`, where it is given.
    """
    entries = []
    for line in lines:
        try:
            entries.append(_entry(line, tables, file))
        except (ValueError, struct.error):
            if senseless is None:
                raise
            senseless.append(line["position"])
    return entries


class Reading(NamedTuple):
    """What our reader and decoder make of a file: entries, what they report as damage, and what waits for a schema.

    `released` is what waits only behind another entry of its table: what it is when decoded without that one.
    """

    entries: list[Entry]
    damage: list[Damage]
    parked: list[int]
    released: list[Entry]


def decoded(path: Path, tables: Sequence[CassandraTable], keys: KeyStore | None = None) -> Reading:
    """Our reading of a file, of what its markers vouch for, as Cassandra reads."""
    parking = MemoryParking()
    decoder = _decoder(tables, parking)
    damage: list[Damage] = []
    try:
        reader = SegmentReader(str(path), keys=keys)
    except (CorruptSegment, UnsupportedFormat) as error:
        return Reading([], [Damage(path.name, 0, 0, "header", str(error))], [], [])
    with reader:
        decoder.begin(reader.header, reader.name)
        for item in reader.sections(written=False):
            if isinstance(item, Damage):
                damage.append(item)
            else:
                decoder.decode(item)
    released = []
    for waiting in parking.entries():
        alone = _decoder(tables, MemoryParking())
        alone.begin(reader.header, reader.name)
        alone.decode(_section_of(waiting))
        damage += alone.damage
        released += _entries(alone)
    damage += decoder.damage
    parked = sorted(entry.position for entry in parking.entries())
    return Reading(_entries(decoder), damage, parked, released)


def _decoder(tables: Sequence[CassandraTable], parking: MemoryParking) -> Decoder:
    schemas = Schemas()
    for table in tables:
        schemas.add(table)
    wanted = {table.id for table in tables}
    return Decoder(schemas, captures=lambda table: table.id in wanted, parking=parking)


def _section_of(entry: ParkedEntry) -> Section:
    """A section with this entry alone, where it stood."""
    size = struct.pack(">i", len(entry.data))
    first = zlib.crc32(size)
    data = size + struct.pack(">I", first) + entry.data + struct.pack(">I", zlib.crc32(entry.data, first))
    return Section(data, entry.position - len(data), sealed=True)


def _entries(decoder: Decoder) -> list[Entry]:
    found: dict[int, list[tuple[int, TableId, Change]]] = {}
    for batch in decoder.take():
        for change in avro.decode(batch):
            assert change.origin.position is not None
            assert change.origin.ordinal is not None
            place = found.setdefault(change.origin.position, [])
            place.append((change.origin.ordinal, batch.schema.table, replace(change, capture_time=None)))
    entries = []
    for position in sorted(found):
        changes = sorted(found[position], key=lambda item: item[0])
        entries.append(Entry(position, tuple((table, change) for _, table, change in changes)))
    return entries


def _entry(line: dict[str, Any], tables: Mapping[str, CassandraTable], file: str) -> Entry:
    changes: list[tuple[TableId, Change]] = []
    for update in line["updates"]:
        table = tables.get(update["table"])
        if table is None:
            continue
        for change in _Update(table, update).changes():
            origin = Origin(file=file, position=line["position"], ordinal=len(changes))
            changes.append((table.schema.table, replace(change, origin=origin)))
    return Entry(line["position"], tuple(changes))


class _Update:
    """One partition's update: its changes in our order."""

    def __init__(self, table: CassandraTable, update: dict[str, Any]) -> None:
        self._schema = table.schema
        self._types = {column.name: column.type for column in table.schema.columns}
        self._update = update
        self._key = self._partition_key(bytes.fromhex(update["key"]))

    def changes(self) -> list[Change]:
        found = []
        if self._update["deletion"] is not None:
            deletion = Deletion(*self._update["deletion"])
            found.append(Change(Op.DELETE_PARTITION, self._key, time=deletion.time, deletion=deletion))
        found += self._ranges()
        if self._update["static"] is not None:
            found.append(self._row(self._update["static"]))
        return found + [self._row(row) for row in self._update["rows"]]

    def _partition_key(self, data: bytes) -> dict[str, Any]:
        columns = self._schema.partition
        parts = [data]
        if len(columns) > 1:
            parts, at = [], 0
            while at < len(data):
                (length,) = struct.unpack_from(">H", data, at)
                parts.append(data[at + 2 : at + 2 + length])
                at += 2 + length + 1
        return {column.name: value_of(column.type, part) for column, part in zip(columns, parts, strict=True)}

    def _ranges(self) -> list[Change]:
        found = []
        for item in self._update["ranges"]:
            deletion = Deletion(*item["deletion"])
            where = Range(self._bound(item["start"]), self._bound(item["end"]))
            found.append(Change(Op.DELETE_RANGE, self._key, time=deletion.time, deletion=deletion, range=where))
        return found

    def _bound(self, bound: dict[str, Any]) -> Bound | None:
        return Bound(self._values(bound["values"]), bound["inclusive"]) if bound["values"] else None

    def _values(self, bound: Sequence[str | None]) -> tuple[Any, ...]:
        columns = self._schema.clustering[: len(bound)]
        return tuple(
            None if value is None else value_of(column.type, bytes.fromhex(value))
            for column, value in zip(columns, bound, strict=True)
        )

    def _row(self, row: Row) -> Change:
        key = dict(self._key)
        if row["clustering"] is not None:
            names = [column.name for column in self._schema.clustering]
            key.update(zip(names, self._values(row["clustering"]), strict=True))
        times = [cell["time"] for data in row["cells"].values() for cell in data.get("cells", [data])]
        times += [data["deletion"][0] for data in row["cells"].values() if data.get("deletion") is not None]
        deletion = None if row["deletion"] is None else Deletion(*row["deletion"])
        time = row["time"]
        if time is None:
            time = max(times) if times else None if deletion is None else deletion.time
        marker = None if row["time"] is None else Marker(None, _expiry(row))
        cells = {name: self._column(name, data, time) for name, data in row["cells"].items()}
        op = Op.INSERT if marker else Op.DELETE if deletion and not cells else Op.UPDATE
        return Change(op, key, cells, time, marker=marker, deletion=deletion)

    def _column(self, name: str, data: dict[str, Any], row_time: int | None) -> Cell:
        kind = self._types[name]
        if kind.kind is Kind.COUNTER:
            return _counter(data, row_time)
        if not kind.multi_cell:
            time = None if data["time"] == row_time else data["time"]
            if data["value"] is None:
                return Deleted(time, data["ldt"])
            return Set(value_of(kind, bytes.fromhex(data["value"])), time, _expiry(data))
        elements, removed = [], []
        for cell in data["cells"]:
            time = None if cell["time"] == row_time else cell["time"]
            path = path_of(kind, bytes.fromhex(cell["path"]))
            if cell["value"] is None:
                removed.append(Removed(path, time, cell["ldt"]))
                continue
            item = kind.elements[path] if kind.kind is Kind.USER else kind.item_type
            value = None if item is None else value_of(item, bytes.fromhex(cell["value"]))
            elements.append(Element(path, value, time, _expiry(cell)))
        replaced = None if data["deletion"] is None else Deletion(*data["deletion"])
        return Delta(replaced, tuple(elements), tuple(removed))


def _expiry(data: dict[str, Any]) -> Expiry | None:
    return Expiry(data["ttl"], data["ldt"]) if "ttl" in data else None


def _counter(data: dict[str, Any], row_time: int | None) -> Cell:
    time = None if data["time"] == row_time else data["time"]
    if data["value"] is None:
        return Deleted(time, data["ldt"])
    context = bytes.fromhex(data["value"])
    at = 2 + 2 * abs(struct.unpack_from(">h", context)[0])
    elements = []
    for shard in range(at, len(context), 32):
        clock, count = struct.unpack_from(">qq", context, shard + 16)
        elements.append(Element(uuid.UUID(bytes=context[shard : shard + 16]), (clock, count), time))
    return Delta(None, tuple(elements))


def path_of(kind: Type, data: bytes) -> Any:
    """What names an element of a non-frozen type."""
    if kind.kind is Kind.USER:
        return int.from_bytes(data, "big")
    assert kind.path_type is not None
    return value_of(kind.path_type, data)


def value_of(kind: Type, data: bytes) -> Any:
    """A value's bytes, as Cassandra's types write them, as Python."""
    if not data and kind.kind not in _MAY_BE_EMPTY:
        return None
    if kind.kind in _FIXED:
        (value,) = struct.unpack(_FIXED[kind.kind], data)
        return value
    match kind.kind:
        case Kind.TEXT | Kind.ASCII:
            return data.decode()
        case Kind.BYTES:
            return data
        case Kind.BOOLEAN:
            return data != b"\0"
        case Kind.VARINT:
            return int.from_bytes(data, "big", signed=True)
        case Kind.DECIMAL:
            (scale,) = struct.unpack_from(">i", data)
            return Decimal(int.from_bytes(data[4:], "big", signed=True)).scaleb(-scale, _EXACT)
        case Kind.UUID | Kind.TIMEUUID:
            return uuid.UUID(bytes=data)
        case Kind.INET:
            return ipaddress.ip_address(data)
        case Kind.DATE:
            return int.from_bytes(data, "big") - (1 << 31)
        case Kind.DURATION:
            return Duration(*_signed_vints(data))
    return _composite(kind, data)


def _composite(kind: Type, data: bytes) -> Any:
    if kind.kind is Kind.VECTOR:
        return _vector(kind, data)
    if kind.kind in (Kind.TUPLE, Kind.USER):
        parts = _parts(data, 0)
        values = [
            None if part is None else value_of(item, part) for item, part in zip(kind.elements, parts, strict=False)
        ]
        return tuple(values + [None] * (len(kind.elements) - len(values)))
    parts = _parts(data, 4)
    if kind.kind is Kind.MAP:
        key, item = kind.elements
        return tuple((_item(key, a), _item(item, b)) for a, b in zip(parts[::2], parts[1::2], strict=True))
    return tuple(_item(kind.elements[0], part) for part in parts)


def _item(kind: Type, data: bytes | None) -> Any:
    return None if data is None else value_of(kind, data)


def _parts(data: bytes, at: int) -> list[bytes | None]:
    """Values one after another, each after its length."""
    found: list[bytes | None] = []
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        found.append(None if length < 0 else data[at + 4 : at + 4 + length])
        at += 4 + max(length, 0)
    return found


def _vector(kind: Type, data: bytes) -> tuple[Any, ...]:
    (item,) = kind.elements
    size = _fixed_bytes(item)
    if size is not None:
        return tuple(value_of(item, data[at : at + size]) for at in range(0, len(data), size))
    found, at = [], 0
    while at < len(data):
        length, at = _vint(data, at)
        found.append(value_of(item, data[at : at + length]))
        at += length
    return tuple(found)


def _fixed_bytes(kind: Type) -> int | None:
    if kind.kind is Kind.VECTOR:
        size = _fixed_bytes(kind.elements[0])
        return None if size is None else size * kind.length
    return _ELEMENT_BYTES.get(kind.kind)


def _vint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number whose first byte's leading ones say how many bytes follow."""
    first = data[at]
    more = 8 - (first ^ 0xFF).bit_length()
    value = first & (0x7F >> more) if more < 8 else 0
    for byte in data[at + 1 : at + 1 + more]:
        value = value << 8 | byte
    return value, at + 1 + more


def _signed_vints(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        value, at = _vint(data, at)
        found.append(value >> 1 ^ -(value & 1))
    return found


def tidied(change: Change) -> Change:
    """Without what the row's own deletion, or a collection's, shadows; elements in a fixed order."""
    if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE):
        return change
    cells: dict[str, Cell] = {}
    floor = None if change.deletion is None else change.deletion.time
    for name, cell in change.cells.items():
        if isinstance(cell, Delta):
            delta = _tidied_delta(cell, change.time, floor)
            if delta != Delta():
                cells[name] = delta
        elif not _shadowed(cell.time, change.time, floor):
            cells[name] = cell
    marker = change.marker
    if marker is not None and _shadowed(marker.time, change.time, floor):
        marker = None
    op = Op.INSERT if marker is not None else Op.UPDATE if cells else Op.DELETE
    return replace(change, op=op, cells=cells, marker=marker)


def _tidied_delta(cell: Delta, time: int | None, floor: int | None) -> Delta:
    replaced = cell.replaced
    if replaced is not None and floor is not None and replaced.time <= floor:
        replaced = None
    least = max((one for one in (floor, replaced and replaced.time) if one is not None), default=None)
    elements = [element for element in cell.elements if not _shadowed(element.time, time, least)]
    removed = [element for element in cell.removed if not _shadowed(element.time, time, least)]
    return Delta(replaced, tuple(sorted(elements, key=repr)), tuple(sorted(removed, key=repr)))


def _shadowed(time: int | None, inherited: int | None, floor: int | None) -> bool:
    own = inherited if time is None else time
    return floor is not None and own is not None and own <= floor
