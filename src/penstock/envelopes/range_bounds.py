"""Both ends of range tombstones as arrays: the kind of bound, and for each clustering value its name, text and type."""

from __future__ import annotations

import ipaddress
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.envelopes.values import MARSHAL
from penstock.formats import avro
from penstock.formats.json import DAY_S, UNITS_PER_S, value_json
from penstock.model.batch import ChangeBatch
from penstock.model.change import Bound
from penstock.model.schema import Column, TableSchema
from penstock.model.types import Kind, Type
from penstock.records.records import pick

_MARSHAL = "org.apache.cassandra.db.marshal."
_VALUE = pa.struct([pa.field(name, pa.string()) for name in ("name", "value", "type")])
RANGE = pa.struct([pa.field("method", pa.string()), pa.field("values", pa.list_(_VALUE))])


def range_bounds(schema: TableSchema, changes: ChangeBatch, found: pa.StructArray) -> dict[str, pa.Array]:
    """Both ends for all changes of a batch, null where there is none. `found` is the batch's column of ranges."""
    rows = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
    ranges = found.take(pa.array(rows, pa.int64()))
    ends = [end for name in ("start", "end") if (end := _bounds(schema, ranges.field(name), name.upper())) is not None]
    if len(ends) < 2:
        ends = _one_by_one(schema, pick(changes, pa.array(rows, pa.int64())))
    # Which of the ranges each change has.
    places = np.full(len(found), -1, np.int64)
    places[rows] = np.arange(len(rows))
    indices = pa.array(places, pa.int64(), mask=places < 0)
    return {name: end.take(indices) for name, end in zip(("_range_start", "_range_end"), ends, strict=True)}


def _bounds(schema: TableSchema, bounds: pa.StructArray, end: str) -> pa.StructArray | None:
    """One end of every range; None when a value needs an object to be made of it."""
    columns, rows = schema.clustering, len(bounds)
    if not columns:
        return None
    there = bounds.is_valid().to_numpy(zero_copy_only=False)
    counts = np.where(there, bounds.field("count").to_numpy(zero_copy_only=False), 0)
    # Row by row, and of each row the columns that its bound has.
    given = np.arange(len(columns)) < counts[:, None]
    texts = []
    for number, column in enumerate(columns):
        values = bounds.field("values").field(column.name)
        written = bound_texts(column.type, values)
        if written is None or (given[:, number] & values.is_null().to_numpy(zero_copy_only=False)).any():
            return None
        texts.append(written)
    numbers = np.broadcast_to(np.arange(len(columns)), given.shape)[given]
    chosen = numbers * rows + np.broadcast_to(np.arange(rows)[:, None], given.shape)[given]
    names, types = [column.name for column in columns], [_marshal(column) for column in columns]
    parts = [
        pa.array(names, pa.string()).take(pa.array(numbers, pa.int64())),
        pa.concat_arrays(texts).take(pa.array(chosen, pa.int64())),
        pa.array(types, pa.string()).take(pa.array(numbers, pa.int64())),
    ]
    starts = pa.array(np.concatenate(([0], np.cumsum(counts))), pa.int32())
    values = pa.ListArray.from_arrays(starts, pa.StructArray.from_arrays(parts, fields=list(_VALUE)))
    inclusive = bounds.field("inclusive").to_numpy(zero_copy_only=False)
    methods = pa.array([_method(False, end), _method(True, end)], pa.string()).take(
        pa.array(inclusive.astype(np.int64), pa.int64())
    )
    return pa.StructArray.from_arrays([methods, values], fields=list(RANGE), mask=pa.array(~there, pa.bool_()))


def _one_by_one(schema: TableSchema, changes: ChangeBatch) -> list[pa.StructArray]:
    starts: list[Any] = []
    ends: list[Any] = []
    for change in avro.decode(changes):
        starts.append(None if change.range is None else _bound(schema, change.range.start, "START"))
        ends.append(None if change.range is None else _bound(schema, change.range.end, "END"))
    return [pa.array(starts, RANGE), pa.array(ends, RANGE)]


def _bound(schema: TableSchema, bound: Bound | None, end: str) -> dict[str, Any] | None:
    if bound is None:
        return None
    pairs = zip(schema.clustering, bound.values, strict=False)
    values = [
        {"name": column.name, "value": bound_text(column.type, value), "type": _marshal(column)}
        for column, value in pairs
    ]
    return {"method": _method(bound.inclusive, end), "values": values}


def _method(inclusive: bool, end: str) -> str:
    return f"{'INCL' if inclusive else 'EXCL'}_{end}_BOUND"


def _marshal(column: Column) -> str:
    name = f"{_MARSHAL}{MARSHAL.get(column.type.kind, 'Bytes')}Type"
    return f"{_MARSHAL}ReversedType({name})" if column.descending else name


# Ends of range tombstones as text: a clustering value as Cassandra's own types print it, which is what Debezium
# takes.
#
# Cassandra prints a timestamp with a `T`, bytes without `0x`, an IPv6 address with all its groups, and floats as Java
# does. A frozen collection, a tuple or a user type in a clustering column is the one exception: it stays JSON.

# Java writes an exponent below the first and from the second on.
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
_INTEGERS = frozenset({Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64})
# The days since 1970 that have a date with four digits for the year.
_DAYS = range(-719_162, 2_932_897)


def bound_text(type_: Type, value: Any) -> str:
    """One clustering value of a bound."""
    kind = type_.kind
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return _float(value, single=kind is Kind.FLOAT32)
    if kind is Kind.INET:
        return _address(str(value))
    text = str(value_json(type_, value))
    return text.replace(" ", "T", 1) if kind is Kind.TIMESTAMP else text


def bound_texts(type_: Type, values: pa.Array) -> pa.StringArray | None:
    """Many of them at once, where the type is one for which that is easy; None where it is not."""
    kind = type_.kind
    if kind is Kind.TEXT:
        return values
    if kind in _INTEGERS:
        return values.cast(pa.string())
    if kind is Kind.DATE and _have_dates(values.cast(pa.int32()), 1):
        return values.cast(pa.string())
    if kind is Kind.TIMESTAMP and type_.unit is not None:
        numbers = values.cast(pa.int64())
        if _have_dates(numbers, DAY_S * UNITS_PER_S[type_.unit]):
            written = numbers.cast(pa.timestamp(type_.unit.value)).cast(pa.string())
            return pc.binary_join_element_wise(pc.replace_substring(written, " ", "T"), "Z", "")
    return None


def _have_dates(numbers: pa.Array, per_day: int) -> bool:
    """Whether all of them have a date that has four digits for its year."""
    found = numbers.drop_null().to_numpy(zero_copy_only=False)
    return not len(found) or (int(found.min()) // per_day in _DAYS and int(found.max()) // per_day in _DAYS)


def _float(value: float, *, single: bool) -> str:
    """The shortest digits that stand for this number, and at least one behind the point."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        return np.format_float_positional(np.float32(value) if single else np.float64(value), trim="0")
    sign, digits, exponent = Decimal(str(np.float32(value)) if single else repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent + len(digits) - 1}"


def _address(text: str) -> str:
    """Java does not shorten runs of zeros."""
    address = ipaddress.ip_address(text)
    if address.version == 4:
        return text
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
