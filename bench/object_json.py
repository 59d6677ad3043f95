"""Changes as JSON objects, one Python object at a time: peer and judge of the kernel that makes lines of rows.

This is how Penstock rendered changes before that kernel, and what docs/formats/change-record.md describes. Values are
those of `formats.json.value_json`, which has tests of its own.
"""

from __future__ import annotations

from typing import Any

from penstock.formats.json import value_json
from penstock.model.change import (
    NO_ORIGIN,
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Origin,
    Set,
)
from penstock.model.schema import TableSchema
from penstock.model.types import Kind, Type

Json = Any


def to_json(change: Change, schema: TableSchema) -> dict[str, Json]:
    """The whole change; what it does not have is left out."""
    columns = schema.by_name
    out: dict[str, Json] = {"op": change.op.value}
    for name in ("time", "commit_time", "capture_time"):
        _put(out, name, getattr(change, name))
    out["key"] = {name: value_json(columns[name].type, value) for name, value in change.key.items()}
    out["cells"] = {name: _cell(columns[name].type, cell) for name, cell in change.cells.items()}
    if change.marker is not None:
        out["marker"] = _marker(change.marker)
    if change.deletion is not None:
        out["deletion"] = _deletion(change.deletion)
    if change.range is not None:
        ends = {"start": change.range.start, "end": change.range.end}
        out["range"] = {end: _bound(schema, bound) for end, bound in ends.items() if bound is not None}
    if change.before is not None:
        out["before"] = {name: value_json(columns[name].type, value) for name, value in change.before.items()}
    if change.origin != NO_ORIGIN:
        out["origin"] = _origin(change.origin)
    return out


def _put(out: dict[str, Json], name: str, value: Json) -> None:
    if value is not None:
        out[name] = value


def _cell(type_: Type, cell: Cell) -> dict[str, Json]:
    if isinstance(cell, Set):
        return _stamped({"value": value_json(type_, cell.value)}, cell.time, cell.expiry)
    if isinstance(cell, Deleted):
        out: dict[str, Json] = {"deleted": True}
        _put(out, "time", cell.time)
        _put(out, "local_s", cell.local_s)
        return out
    return _delta(type_, cell)


def _stamped(out: dict[str, Json], time: int | None, expiry: Expiry | None) -> dict[str, Json]:
    _put(out, "time", time)
    if expiry is not None:
        out["ttl_s"] = expiry.ttl_s
        out["expires_s"] = expiry.expires_s
    return out


def _delta(type_: Type, delta: Delta) -> dict[str, Json]:
    out: dict[str, Json] = {}
    if delta.replaced is not None:
        out["replaced"] = _deletion(delta.replaced)
    out["set"] = [_element(type_, element) for element in delta.elements]
    out["removed"] = []
    for removed in delta.removed:
        gone = {"path": _path(type_, removed.path)}
        _put(gone, "time", removed.time)
        _put(gone, "local_s", removed.local_s)
        out["removed"].append(gone)
    return out


def _element(type_: Type, element: Element) -> dict[str, Json]:
    out = {"path": _path(type_, element.path)}
    if type_.kind is Kind.USER:
        out["value"] = value_json(type_.elements[element.path], element.value)
    elif type_.item_type is not None:
        out["value"] = value_json(type_.item_type, element.value)
    return _stamped(out, element.time, element.expiry)


def _path(type_: Type, path: Any) -> Json:
    """A list's cell id, a user type's field name, a set's element, a map's key or a counter's shard."""
    return type_.names[path] if type_.path_type is None else value_json(type_.path_type, path)


def _marker(marker: Marker) -> dict[str, Json]:
    return _stamped({}, marker.time, marker.expiry)


def _deletion(deletion: Deletion) -> dict[str, Json]:
    out: dict[str, Json] = {"time": deletion.time}
    _put(out, "local_s", deletion.local_s)
    return out


def _bound(schema: TableSchema, bound: Bound) -> dict[str, Json]:
    pairs = zip(schema.clustering, bound.values, strict=False)
    values = {column.name: value_json(column.type, value) for column, value in pairs}
    return {"values": values, "inclusive": bound.inclusive}


def _origin(origin: Origin) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for name in ("node", "data_centre", "file", "position", "ordinal"):
        _put(out, name, getattr(origin, name))
    if origin.transaction is not None:
        out["transaction"] = origin.transaction._asdict()
    return out
