"""Records as lines of JSON: what the file and console sinks write.

A record of type CHANGE is exactly what formats/json.py makes of the change. Records of type AFTER and ALL have the
operation, times and origin of the change that made them, its key, a version that grows with every change of the row,
and the whole row before (ALL) and after; `null` says that there is no row. Lines are made a column at a time.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.formats.arrow import to_arrow
from penstock.formats.json_columns import (
    Form,
    field,
    items_of,
    join_lists,
    mask,
    members,
    quote,
    render,
    wrap,
)
from penstock.model.batch import ChangeBatch
from penstock.model.schema import Column, TableSchema
from penstock.model.types import INT32, Kind, Type
from penstock.records.records import Records
from penstock.settings import RecordType

Parts = list[tuple[str, pa.Array]]

_NO_TEXT = pa.scalar(None, pa.string())
_ABSENT, _SET, _DELETED = range(3)


def lines(records: Records, record: RecordType) -> pa.Array:
    """One JSON object per record, without line ends."""
    return change_lines(records.changes) if record is RecordType.CHANGE else _row_lines(records, record)


def key_text(changes: ChangeBatch) -> pa.Array:
    """The key of each change as an object."""
    names = frozenset(column.name for column in changes.schema.key)
    return _key(changes.schema, to_arrow(changes, names))


def row_text(schema: TableSchema, rows: pa.StructArray) -> pa.Array:
    """Whole rows as objects; null where there is no row."""
    parts = [
        (column.name, render(column.type, field(rows, at), Form.PENSTOCK).fill_null("null"))
        for at, column in enumerate(schema.columns)
    ]
    return mask(rows, members(parts, len(rows)))


def _row_lines(records: Records, record: RecordType) -> pa.Array:
    schema = records.schema
    names = frozenset(column.name for column in schema.key)
    batch = to_arrow(records.changes, names)
    parts = [*_times(batch), ("version", records.versions.cast(pa.string())), ("key", _key(schema, batch))]
    if record is RecordType.ALL and records.before is not None:
        parts.append(("before", row_text(schema, records.before).fill_null("null")))
    if records.after is not None:
        parts.append(("after", row_text(schema, records.after).fill_null("null")))
    return members([*parts, ("origin", _origin(batch))])


def change_lines(changes: ChangeBatch) -> pa.Array:
    """Each change as the JSON that formats/json.py has for it."""
    schema = changes.schema
    batch = to_arrow(changes)
    cells = _column(batch, "cells")
    touched = [] if cells is None else [(c.name, _cell(c, field(cells, at))) for at, c in enumerate(schema.cells)]
    parts = [*_times(batch), ("key", _key(schema, batch)), ("cells", members(touched, batch.num_rows))]
    marker, deletion, span = (_column(batch, name) for name in ("marker", "deletion", "range"))
    parts.append(("marker", mask(marker, members(_numbers(marker)))))
    parts.append(("deletion", mask(deletion, members(_numbers(deletion)))))
    parts.append(("range", mask(span, members([(end, _bound(schema, span, end)) for end in ("start", "end")]))))
    before = _column(batch, "before")
    if before is not None:
        old = [(c.name, _old(c, field(before, at))) for at, c in enumerate(schema.columns)]
        parts.append(("before", mask(before, members(old))))
    return members([*parts, ("origin", _origin(batch))])


def _column(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    index = batch.schema.get_field_index(name)
    return None if index < 0 else batch.column(index)


def _times(batch: pa.RecordBatch) -> Parts:
    parts: Parts = [("op", quote(batch.column("op").cast(pa.string())))]
    return parts + [(name, batch.column(name).cast(pa.string())) for name in ("time", "commit_time", "capture_time")]


def _key(schema: TableSchema, batch: pa.RecordBatch) -> pa.Array:
    key = _column(batch, "key")
    if key is None:
        return pa.repeat(pa.scalar("{}"), batch.num_rows)
    return members([(c.name, render(c.type, field(key, at), Form.PENSTOCK)) for at, c in enumerate(schema.key)])


def _numbers(struct: pa.StructArray) -> Parts:
    """The members of a struct of numbers."""
    return [(struct.type.field(at).name, field(struct, at).cast(pa.string())) for at in range(struct.type.num_fields)]


def _origin(batch: pa.RecordBatch) -> pa.Array:
    origin = batch.column("origin")
    parts: Parts = []
    for at in range(origin.type.num_fields):
        name, found = origin.type.field(at).name, field(origin, at)
        if pa.types.is_struct(found.type):
            inner = [
                ("domain", quote(field(found, 0))),
                ("sequence", field(found, 1).cast(pa.string())),
                ("id", quote(field(found, 2))),
            ]
            parts.append((name, mask(found, members(inner))))
        else:
            text = pa.types.is_string(found.type)
            parts.append((name, quote(found) if text else found.cast(pa.string())))
    # The transaction stands last, as in formats/json.py.
    parts.sort(key=lambda part: part[0] == "transaction")
    made = members(parts)
    return pc.if_else(pc.equal(made, "{}"), _NO_TEXT, made)


def _bound(schema: TableSchema, span: pa.StructArray, end: str) -> pa.Array:
    bound = pc.struct_field(span, [end])
    inclusive = pc.if_else(pc.struct_field(bound, ["inclusive"]), "true", "false")
    parts: Parts = []
    if schema.clustering:
        values = pc.struct_field(bound, ["values"])
        parts = [(c.name, render(c.type, field(values, at), Form.PENSTOCK)) for at, c in enumerate(schema.clustering)]
    return mask(bound, members([("values", members(parts, len(bound))), ("inclusive", inclusive)]))


def _old(column: Column, old: pa.StructArray) -> pa.Array:
    return mask(old, render(column.type, field(old, 0), Form.PENSTOCK).fill_null("null"))


def _cell(column: Column, cell: pa.StructArray) -> pa.Array:
    """What happened to one column; null where nothing did."""
    state = pc.struct_field(cell, ["state"])
    stamp = [(name, pc.struct_field(cell, [name]).cast(pa.string())) for name in ("time", "ttl_s", "expires_s")]
    value = render(column.type, pc.struct_field(cell, ["value"]), Form.PENSTOCK).fill_null("null")
    made = pc.if_else(pc.equal(state, _SET), members([("value", value), *stamp]), _NO_TEXT)
    if pc.any(pc.equal(state, _DELETED)).as_py():
        gone: Parts = [("deleted", pa.repeat(pa.scalar("true"), len(cell))), stamp[0]]
        gone.append(("local_s", pc.struct_field(cell, ["local_s"]).cast(pa.string())))
        made = pc.if_else(pc.equal(state, _DELETED), members(gone), made)
    if column.type.multi_cell and pc.any(pc.greater(state, _DELETED)).as_py():
        made = pc.if_else(pc.greater(state, _DELETED), _delta(column.type, pc.struct_field(cell, ["delta"])), made)
    return made


def _delta(type_: Type, delta: pa.StructArray) -> pa.Array:
    replaced, elements, removed = (pc.struct_field(delta, [name]) for name in ("replaced", "elements", "removed"))
    written, gone = items_of(elements), items_of(removed)
    stamps = [(name, pc.struct_field(written, [name]).cast(pa.string())) for name in ("time", "ttl_s", "expires_s")]
    parts: Parts = [("path", _path(type_, pc.struct_field(written, ["path"])))]
    if type_.kind is Kind.USER:
        parts.append(("value", _field_value(type_, pc.struct_field(written, ["value"]))))
    elif type_.item_type is not None:
        value = render(type_.item_type, pc.struct_field(written, ["value"]), Form.PENSTOCK)
        parts.append(("value", value.fill_null("null")))
    without: Parts = [("path", _path(type_, pc.struct_field(gone, ["path"])))]
    without += [(name, pc.struct_field(gone, [name]).cast(pa.string())) for name in ("time", "local_s")]
    return members(
        [
            ("replaced", mask(replaced, members(_numbers(replaced)))),
            ("set", join_lists(elements, members([*parts, *stamps], len(written)), elements.offsets)),
            ("removed", join_lists(removed, members(without, len(gone)), removed.offsets)),
        ]
    )


def _path(type_: Type, paths: pa.Array) -> pa.Array:
    if type_.path_type is not None:
        return render(type_.path_type, paths, Form.PENSTOCK)
    if not type_.names:
        return render(INT32, paths, Form.PENSTOCK)
    return quote(pc.take(pa.array(type_.names, pa.string()), paths))


def _field_value(type_: Type, values: pa.StructArray) -> pa.Array:
    """The element of a user type is the whole type with only the written field filled."""
    fields = [render(element, field(values, at), Form.PENSTOCK) for at, element in enumerate(type_.elements)]
    return pc.coalesce(*fields, pa.scalar("null")) if fields else wrap(mask(values, _nulls(len(values))), "", "")


def _nulls(length: int) -> pa.Array:
    return pa.repeat(pa.scalar("null"), length)
