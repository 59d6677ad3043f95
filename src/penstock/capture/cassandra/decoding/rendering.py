"""One change of the commit log as `penstock cassandra decode --json` prints it, and as a line for eyes.

The JSON is a contract (docs/guides/cassandra-decode.md). Values are those of `SELECT JSON`; times are microseconds
since 1970, and what expires has the second at which it does. Unlike the change record of a change log, every time is
written out, and the row's own time is there only when the row has one, so that an INSERT can be told from an UPDATE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from penstock.capture.cassandra.decoding import select_json
from penstock.model.change import Bound, Cell, Change, Deleted, Delta, Element, Expiry, Op, Range, Set
from penstock.model.schema import Column, TableSchema
from penstock.model.types import Kind, Type

_VALUE_MAX = 60


def record(change: Change, schema: TableSchema, segment: int) -> str:
    """The change as one line of JSON."""
    columns = schema.by_name
    key = ((name, select_json.value_text(columns[name].type, value)) for name, value in change.key.items())
    cells = ((name, _cell(columns[name].type, cell, change.time)) for name, cell in change.cells.items())
    fields = [
        ("keyspace", select_json.text(schema.table.keyspace)),
        ("table", select_json.text(schema.table.table)),
        ("op", f'"{change.op.value}"'),
        ("static", "true" if is_static(change, schema) else "false"),
        ("key", _object(key)),
        ("time", _number(row_time(change))),
        ("deletion_time", _number(None if change.deletion is None else change.deletion.time)),
        ("cells", _object(cells)),
        ("range", "null" if change.range is None else _range(change, schema.clustering)),
        ("origin", _origin(change, segment)),
    ]
    if change.marker is not None and change.marker.expiry is not None:
        fields[6:6] = _expiry(change.marker.expiry)
    return _object(fields)


def as_of_3_11(schema: TableSchema) -> TableSchema:
    """The table with types that are rendered as Cassandra 3.11 does."""
    columns = tuple(replace(column, type=select_json.as_of_3_11(column.type)) for column in schema.columns)
    return replace(schema, columns=columns)


def is_static(change: Change, schema: TableSchema) -> bool:
    """Whether the change concerns the static row of a partition."""
    if change.op not in (Op.INSERT, Op.UPDATE) or not schema.clustering:
        return False
    return all(column.name not in change.key for column in schema.clustering)


def row_time(change: Change) -> int | None:
    """The write time of the row itself, which an INSERT gives to it and an UPDATE does not."""
    if change.marker is None:
        return None
    return change.time if change.marker.time is None else change.marker.time


def _object(pairs: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join([f"{_name(name)}:{value}" for name, value in pairs]) + "}"


@lru_cache(maxsize=4096)
def _name(name: str) -> str:
    return select_json.text(name)


def _array(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)


def _expiry(expiry: Expiry | None) -> list[tuple[str, str]]:
    return [] if expiry is None else [("ttl", str(expiry.ttl_s)), ("expires", str(expiry.expires_s))]


def _cell(kind: Type, cell: Cell, time: int | None) -> str:
    if isinstance(cell, Set):
        stamp = ("time", _number(time if cell.time is None else cell.time))
        return _object([("value", select_json.value_text(kind, cell.value)), stamp, *_expiry(cell.expiry)])
    if isinstance(cell, Deleted):
        return _object([("deleted", "true"), ("time", _number(time if cell.time is None else cell.time))])
    if kind.kind is Kind.COUNTER:
        return _counter(cell, time)
    return _delta(kind, cell, time)


def _counter(delta: Delta, time: int | None) -> str:
    """The sum of the shards that the mutation has: the log carries no other replica's."""
    if not delta.elements:
        return _object(
            [("deleted", "true"), ("time", _number(time if delta.replaced is None else delta.replaced.time))]
        )
    times = [time if element.time is None else element.time for element in delta.elements]
    total = sum(element.value[1] for element in delta.elements)
    return _object([("value", str(total)), ("time", _number(max((t for t in times if t is not None), default=None)))])


def _delta(kind: Type, delta: Delta, time: int | None) -> str:
    fields = [("replaced", "false" if delta.replaced is None else "true")]
    if delta.replaced is not None:
        fields.append(("deletion_time", str(delta.replaced.time)))
    fields.append(("set", _array(_element(kind, element, time) for element in delta.elements)))
    fields.append(("removed", _array(_path(kind, removed.path) for removed in delta.removed)))
    return _object(fields)


def _element(kind: Type, element: Element, time: int | None) -> str:
    item = _item_type(kind, element.path)
    value = "null" if item is None else select_json.value_text(item, element.value)
    stamp = ("time", _number(time if element.time is None else element.time))
    return _object([("path", _path(kind, element.path)), ("value", value), stamp, *_expiry(element.expiry)])


def _item_type(kind: Type, path: Any) -> Type | None:
    return kind.elements[path] if kind.kind is Kind.USER else kind.item_type


def _path(kind: Type, path: Any) -> str:
    """A list's cell id, a user type's field name, a set's element or a map's key."""
    named = kind.path_type
    return select_json.text(kind.names[path]) if named is None else select_json.value_text(named, path)


def _range(change: Change, clustering: tuple[Column, ...]) -> str:
    assert change.range is not None
    ends = {"start": change.range.start, "end": change.range.end}
    return _object((name, _bound(end, clustering)) for name, end in ends.items())


def _bound(bound: Bound | None, clustering: tuple[Column, ...]) -> str:
    if bound is None:
        return "null"
    pairs = zip(clustering, bound.values, strict=False)
    values = _array(select_json.value_text(column.type, value) for column, value in pairs)
    return _object([("values", values), ("inclusive", "true" if bound.inclusive else "false")])


def _origin(change: Change, segment: int) -> str:
    file = "null" if change.origin.file is None else select_json.text(change.origin.file)
    return _object([("file", file), ("position", _number(change.origin.position)), ("segment", str(segment))])


def summary(change: Change, schema: TableSchema) -> tuple[str, str]:
    """Key and cells of a change as short text: `a=1` was set, `-a` deleted, `a+=`, `a-=` added to or taken from."""
    columns = schema.by_name
    key = " ".join(f"{name}={_short(columns[name].type, value)}" for name, value in change.key.items())
    parts = []
    if change.deletion is not None and change.op in (Op.INSERT, Op.UPDATE):
        parts.append("-row")
    if change.range is not None:
        parts.append(_range_text(change.range, schema.clustering))
    for name, cell in change.cells.items():
        parts += _cell_text(name, columns[name].type, cell)
    if change.marker is not None and change.marker.expiry is not None:
        parts.append(f"(row ttl {change.marker.expiry.ttl_s}s)")
    return key, " ".join(parts)


def _cell_text(name: str, kind: Type, cell: Cell) -> list[str]:
    if isinstance(cell, Set):
        ttl = f"(ttl {cell.expiry.ttl_s}s)" if cell.expiry is not None else ""
        return [f"{name}={_short(kind, cell.value)}{ttl}"]
    if isinstance(cell, Deleted):
        return [f"-{name}"]
    if kind.kind is Kind.COUNTER and cell.elements:
        return [f"{name}={sum(element.value[1] for element in cell.elements)}"]
    out = []
    added = ",".join(_pair(kind, element) for element in cell.elements)
    if cell.replaced is not None:
        out.append(f"{name}={_cut('{' + added + '}')}" if added else f"-{name}")
    elif added:
        out.append(f"{name}+={_cut('{' + added + '}')}")
    if cell.removed:
        removed = ",".join(_cut(_path(kind, gone.path)) for gone in cell.removed)
        out.append(f"{name}-={_cut('{' + removed + '}')}")
    return out


def _pair(kind: Type, element: Element) -> str:
    path = _cut(_path(kind, element.path))
    item = _item_type(kind, element.path)
    return path if item is None else f"{path}:{_short(item, element.value)}"


def _range_text(found: Range, clustering: tuple[Column, ...]) -> str:
    left = "[" if found.start is not None and found.start.inclusive else "("
    right = "]" if found.end is not None and found.end.inclusive else ")"
    return f"{left}{_bound_text(found.start, clustering)} … {_bound_text(found.end, clustering)}{right}"


def _bound_text(bound: Bound | None, clustering: tuple[Column, ...]) -> str:
    if bound is None:
        return ""
    return ",".join(_short(column.type, value) for column, value in zip(clustering, bound.values, strict=False))


def _short(kind: Type, value: Any) -> str:
    return _cut(select_json.value_text(kind, value))


def _cut(value: str) -> str:
    return value if len(value) <= _VALUE_MAX else f"{value[: _VALUE_MAX - 1]}…"
