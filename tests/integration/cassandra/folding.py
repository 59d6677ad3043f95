"""Segments to rows: decode a node's files, fold each table's changes, and say what the node should say.

Changes carry the schema of their place in the log. To fold them into the table as it is in the end, keys go by their
place, columns that were dropped leave, with the cells that were older than the drop when the column came back, and
values of user types that have grown since get their new fields.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.capture.cassandra.decoding import select_json
from penstock.capture.cassandra.decoding.decoder import Counts, Decoder, MemoryParking
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, SegmentReader
from penstock.capture.cassandra.segments.segment import segment_name
from penstock.errors import CorruptSegment
from penstock.formats import avro
from penstock.merge.range_deletions import row_place
from penstock.merge.row_state import EXPIRING, TOMBSTONE, CellState, CounterState, RowState
from penstock.merge.table_state import TableState, visible
from penstock.model.change import Cell, Change, Deleted, Delta, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type
from tests.integration.cassandra.answers import Answer, Stamp, parsed, quoted


@dataclass
class Decoded:
    """What came out of some segments: changes by table, in log order, each with its schema."""

    schemas: Schemas
    changes: dict[TableId, list[tuple[TableSchema, Change]]]
    counts: Counts
    parking: MemoryParking
    damage: list[Damage]


def segments(*directories: Path) -> list[Path]:
    """The segments of these directories, oldest first, each once."""
    found = {}
    for directory in directories:
        for path in directory.iterdir():
            name = segment_name(path.name)
            if name is not None:
                found[name.id] = path
    return [path for _, path in sorted(found.items())]


def decode(
    paths: Iterable[Path],
    *,
    captures: Callable[[CassandraTable], bool],
    schemas: Schemas | None = None,
    keys: KeyStore | None = None,
) -> Decoded:
    """Decode whole files, as they are now."""
    schemas = schemas or Schemas()
    parking = MemoryParking()
    decoder = Decoder(schemas, captures=captures, parking=parking)
    changes: dict[TableId, list[tuple[TableSchema, Change]]] = defaultdict(list)
    damage: list[Damage] = []
    for path in paths:
        try:
            reader = SegmentReader(str(path), keys=keys)
        except CorruptSegment:
            # A segment that was made just now has no header yet.
            assert not path.read_bytes().strip(b"\0")
            continue
        with reader:
            decoder.begin(reader.header, path.name)
            for section in reader.sections():
                if isinstance(section, Damage):
                    damage.append(section)
                else:
                    decoder.decode(section)
        for batch in decoder.take():
            changes[batch.schema.table] += [(batch.schema, change) for change in avro.decode(batch)]
    return Decoded(schemas, changes, decoder.counts, parking, damage + decoder.damage)


def fold(table: CassandraTable, changes: Iterable[tuple[TableSchema, Change]]) -> TableState:
    state = TableState(table.schema)
    for schema, change in changes:
        state.apply(adapted(change, schema, table))
    return state


def adapted(change: Change, schema: TableSchema, table: CassandraTable) -> Change:
    """A change as the table's last definition has it."""
    if schema == table.schema and not table.dropped:
        return change
    names = dict(
        zip((c.name for c in schema.key), (c.name for c in table.schema.key), strict=True),
    )
    key = {names[name]: value for name, value in change.key.items()}
    cells: dict[str, Cell] = {}
    for name, cell in change.cells.items():
        column = table.schema.by_name.get(name)
        if column is None:
            continue
        dropped = table.dropped.get(name)
        kept = cell if dropped is None else _after(cell, change.time, dropped.time_us)
        if kept is not None:
            cells[name] = _grown_cell(kept, column.type)
    return dataclasses.replace(change, key=key, cells=cells)


def _after(cell: Cell, time: int | None, dropped_us: int) -> Cell | None:
    """What is left of a cell when its column was dropped at that time and added again."""

    def young(own: int | None) -> bool:
        stamp = own if own is not None else time
        return stamp is not None and stamp > dropped_us

    if isinstance(cell, Delta):
        replaced = cell.replaced if cell.replaced is not None and cell.replaced.time > dropped_us else None
        elements = tuple(one for one in cell.elements if young(one.time))
        removed = tuple(one for one in cell.removed if young(one.time))
        return Delta(replaced, elements, removed) if replaced or elements or removed else None
    return cell if young(cell.time) else None


def _grown_cell(cell: Cell, kind: Type) -> Cell:
    if isinstance(cell, Set):
        return cell._replace(value=_grown(cell.value, kind))
    if isinstance(cell, Deleted) or kind.kind is Kind.COUNTER:
        return cell
    elements = []
    for element in cell.elements:
        if kind.kind is Kind.USER:
            item: Type | None = kind.elements[element.path]
        else:
            item = kind.item_type
        path = element.path if kind.path_type is None else _grown(element.path, kind.path_type)
        elements.append(element._replace(path=path, value=_grown(element.value, item) if item else None))
    return cell._replace(elements=tuple(elements))


def _grown(value: Any, kind: Type) -> Any:
    """A value with the fields that its user types got later, as nulls."""
    if value is None:
        return None
    match kind.kind:
        case Kind.USER | Kind.TUPLE:
            values = tuple(_grown(item, part) for item, part in zip(value, kind.elements, strict=False))
            return values + (None,) * (len(kind.elements) - len(values))
        case Kind.LIST | Kind.SET | Kind.VECTOR:
            return tuple(_grown(item, kind.elements[0]) for item in value)
        case Kind.MAP:
            return tuple((_grown(k, kind.elements[0]), _grown(v, kind.elements[1])) for k, v in value)
        case _:
            return value


def differences(table: CassandraTable, state: TableState, answer: Answer) -> list[str]:
    """What the folded rows and the node's answer do not agree on, in words; nothing when they agree."""
    schema, now_s = state.schema, answer.seconds[1]
    spelled = select_json.as_of_3_11 if answer.number < (4, 0) else _as_it_is
    ours = {}
    for row in visible(state, now_s):
        texts = {c.name: select_json.value_text(spelled(c.type), row[c.name]) for c in schema.columns}
        if not table.view or _marked(state, row, now_s):
            ours[_key(parsed(_row_text(texts, list(texts))), schema)] = texts, _cells(state, row, now_s)
    out = []
    for text, stamps in zip(answer.rows, answer.stamps, strict=True):
        values = parsed(text)
        key = _key(values, schema)
        if key not in ours:
            out.append(f"missing row {key}: {text[:200]}")
            continue
        texts, cells = ours.pop(key)
        # A table with COMPACT STORAGE has columns that nobody sees.
        if _row_text(texts, list(values)) != text:
            out.append(f"{key}: {_row_text(texts, list(values))[:200]}, not {text[:200]}")
        for name, stamp in stamps.items():
            out += [f"{key} {name}: {said}" for said in _stamp_differences(cells[name], stamp, answer.seconds)]
    return out + [f"invented row {key}" for key in ours]


def _as_it_is(kind: Type) -> Type:
    return kind


def _row_text(texts: Mapping[str, str], names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{_name(name)}: {texts[name]}" for name in names) + "}"


def _name(name: str) -> str:
    return select_json.text(name if name == name.lower() else quoted(name))


def _key(values: Mapping[str, Any], schema: TableSchema) -> str:
    return str([values[column.name] for column in schema.key if values.get(column.name) is not None])


def _marked(state: TableState, row: Mapping[str, Any], now_s: int) -> bool:
    """A view's row is there as long as its marker lives, whatever its cells say."""
    found = _row_state(state, row)
    return found is not None and found.marker is not None and _alive(found.marker, now_s)


def _row_state(state: TableState, row: Mapping[str, Any]) -> RowState | None:
    partition = state.partition(row)
    assert partition is not None
    place = tuple(row[column.name] for column in state.schema.clustering)
    return None if None in place else partition.rows.get(row_place(state.schema.clustering, place))


def _cells(
    state: TableState, row: Mapping[str, Any], now_s: int
) -> dict[str, list[CellState | None] | CellState | None]:
    partition = state.partition(row)
    assert partition is not None
    found = _row_state(state, row)
    out: dict[str, list[CellState | None] | CellState | None] = {}
    for column in state.schema.cells:
        owner = partition.static if column.role is Role.STATIC else found
        out[column.name] = None if owner is None else _cells_of(owner, column, now_s)
    return out


def _cells_of(owner: RowState, column: Column, now_s: int) -> list[CellState | None] | CellState | None:
    complex_ = owner.complexes.get(column.name)
    if complex_ is None:
        cell = owner.cells.get(column.name)
        return cell if cell is not None and _alive(cell, now_s) else None
    if isinstance(complex_, CounterState):
        if complex_.total() is None:
            return None
        return max((cell for _, cell in complex_.elements.values()), key=lambda cell: cell.time)
    living = {key: (path, cell) for key, (path, cell) in complex_.elements.items() if _alive(cell, now_s)}
    if not living:
        return None
    if column.type.kind is Kind.USER:
        fields = dict(living.values())
        return [fields.get(index) for index in range(len(column.type.elements))]
    return [cell for _, (_, cell) in sorted(living.items())]


def _alive(cell: CellState, now_s: int) -> bool:
    return cell.kind != TOMBSTONE and (cell.kind != EXPIRING or now_s < cell.second)


def _stamp_differences(
    cells: list[CellState | None] | CellState | None, stamp: Stamp, seconds: tuple[int, int]
) -> Iterable[str]:
    if isinstance(cells, list):
        if not isinstance(stamp.written, list) or not isinstance(stamp.ttl, list) or len(cells) != len(stamp.written):
            yield f"{len(cells)} elements, not {stamp}"
            return
        for index, cell in enumerate(cells):
            for text in _stamp_differences(cell, Stamp(stamp.written[index], stamp.ttl[index]), seconds):
                yield f"element {index}: {text}"
        return
    written = None if cells is None else cells.time
    if written != stamp.written:
        yield f"written at {written}, not {stamp.written}"
    expires = cells.second if cells is not None and cells.kind == EXPIRING else None
    if (expires is None) != (stamp.ttl is None):
        yield f"expires at {expires}, not in {stamp.ttl} s"
    elif expires is not None and isinstance(stamp.ttl, int) and not seconds[0] <= expires - stamp.ttl <= seconds[1]:
        yield f"expires at {expires}, not in {stamp.ttl} s between {seconds}"


def chosen(ids: Iterable[uuid.UUID]) -> Callable[[CassandraTable], bool]:
    wanted = set(ids)
    return lambda table: table.id in wanted
