"""Envelope: one table's records as the keys and values of Kafka records, in the serialisations that were chosen.

What the events are, the chosen envelope says (`contract`); here they are written. This is made once per schema version
and used for every batch. It reads the arrays of a batch, works out what a
record does not say itself (its operation for consumers, its time), and lets the kernels write. Records that a type of
the consumer's cannot hold are named with the reason. Among whole rows the deletion of a range has no event, because
each row's own deletion has one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.envelopes.cloudevents import cloudevents
from penstock.envelopes.compilation import Rendered, Rendering
from penstock.envelopes.contract import Asked, Batch, Contract, EventChoice
from penstock.envelopes.events import debezium
from penstock.envelopes.identity import identities_of
from penstock.envelopes.layout import Arrays
from penstock.envelopes.protobuf_schema import FieldNumbers
from penstock.envelopes.range_bounds import RANGE, range_bounds
from penstock.formats._rows import Input
from penstock.formats.arrays import repeated
from penstock.formats.arrow import change_columns
from penstock.formats.change_columns import ChangeColumns
from penstock.model.change import Op
from penstock.model.schema import TableSchema
from penstock.records.records import Records, op_numbers
from penstock.settings.kafka import EnvelopeKind, Serialisation

_INSERT, _UPDATE, _DELETE, _DELETE_PARTITION, _DELETE_RANGE, _TRUNCATE, _SNAPSHOT = range(len(Op))
_NS_MAX = ((1 << 63) - 1) // 1000
# About so much is written before it is handed on; of the first events nobody knows yet how large they are.
_EVENTS_BYTES = 8 << 20
_FIRST_EVENTS = 256
# Of a change, what its event says beside its key and cells.
_PARTS = frozenset({"origin", "deletion"})
_PARTS_WITH_RANGES = _PARTS | {"range"}


@dataclass(frozen=True, slots=True)
class Wire:
    """How one side of a record is written: the serialisation, what stands in front, and the numbers of its fields."""

    serialisation: Serialisation
    header: bytes = b""
    numbers: FieldNumbers | None = None
    # Where a registry shows the schema.
    schema_url: str | None = None


@dataclass(slots=True)
class Events:
    """The events of some records, from the number `first` on. A refused record has no bytes."""

    first: int
    keys: Rendered
    values: Rendered
    # Where a change comes from: node, file, position and ordinal, joined by colons, and a mark.
    identities: Rendered
    # Per record: whether it is the deletion of a row or partition; whether there is no event for it.
    deletes: Any
    skipped: Any
    # Per record: whether it has no key, as the truncation of a table.
    keyless: Any
    # By the number of the record among these.
    refused: dict[int, str]
    # The envelope's own headers, by name, as binary arrays; the same for all records are `Envelope.fixed_headers`.
    headers: list[tuple[str, pa.BinaryArray]]


_ENVELOPES: dict[EnvelopeKind, Callable[[Asked], Contract]] = {
    EnvelopeKind.DEBEZIUM: debezium,
    EnvelopeKind.CLOUDEVENTS: cloudevents,
}


def contract_of(
    schema: TableSchema,
    choice: EventChoice,
    *,
    rows: bool,
    before: bool,
    shown: TableSchema | None = None,
    values: Serialisation = Serialisation.JSON,
) -> Contract:
    """What the chosen envelope is of one table whose values are written so, before a registry has numbered them."""
    return _contract(Asked(schema, shown or schema, choice, rows, before, values))


def _contract(asked: Asked) -> Contract:
    return _ENVELOPES[asked.choice.envelope](asked)


class Envelope:
    """Writes the events of one version of a table's schema."""

    def __init__(
        self,
        schema: TableSchema,
        choice: EventChoice,
        key: Wire,
        value: Wire,
        *,
        rows: bool = False,
        before: bool = False,
        partial_keys: bool = True,
        shown: TableSchema | None = None,
    ) -> None:
        asked = Asked(schema, shown or schema, choice, rows, before, value.serialisation, value.schema_url)
        self._contract = _contract(asked)
        self._schema = schema
        self._rows = rows
        self._before = before
        self._partial_keys = partial_keys
        self._key = Rendering(self._contract.key, key.serialisation, key.header, key.numbers)
        self._value = Rendering(self._contract.value, value.serialisation, value.header, value.numbers)
        around = self._contract.around
        self._around = None if around is None else Rendering(around, Serialisation.AVRO)

    @property
    def fixed_headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that every event has."""
        return self._contract.fixed_headers

    def render(self, records: Records, now_us: int, mark: bytes = b"") -> Iterator[Events]:
        """The events of a batch, some at a time; the same batch at the same time gives the same bytes.

        Identities end with `mark`.
        """
        ops = op_numbers(records.changes) if records.ops is None else records.ops
        ranges = not self._rows and bool((ops == _DELETE_RANGE).any())
        columns = change_columns(records.changes, _PARTS_WITH_RANGES if ranges else _PARTS)
        count = len(columns)
        deletion = _deletion(columns)
        when = _when(columns, ops, deletion, now_us)
        tops: dict[str, pa.Array | Input] = {
            "op": pa.array(ops, pa.int8()),
            "deletion": deletion,
            "now": repeated(now_us, 1, pa.int64()),
            "when": when,
            "when_ns": _with_nanoseconds(when),
        }
        skipped = np.zeros(count, bool)
        row_ops = ops
        if self._rows:
            assert records.after is not None
            row_ops = self._row_ops(records, ops)
            tops |= {"after": records.after, "row_op": pa.array(row_ops, pa.int8())}
            if self._before:
                tops["before"] = records.before if records.before is not None else _none(records.after)
            skipped = (row_ops == _DELETE_RANGE) | ((row_ops == _DELETE_PARTITION) & (not self._partial_keys))
            deletes = (row_ops == _DELETE) | (row_ops == _DELETE_PARTITION)
        else:
            if ranges:
                tops |= range_bounds(self._schema, records.changes, columns.array(("range",)))
            deletes = (ops == _DELETE) | (ops == _DELETE_PARTITION)
        keyless = (ops == _TRUNCATE) | (not self._schema.key)
        arrays = Arrays(tops, columns, None if ranges else _no_ranges(count))
        arrays.add(self._contract.arrays(Batch(records, columns, ops, row_ops, keyless, when), arrays))
        inputs = self._key.bind(arrays), self._value.bind(arrays)
        identities = identities_of(self._schema, columns)
        least = _least_bytes(records)
        first = 0
        while first < count:
            some = min(self._some(least), count - first)
            keys, values = self._key.render(inputs[0], first, some), self._value.render(inputs[1], first, some)
            part = slice(first, first + some)
            refused = dict(keys.refused) | dict(values.refused)
            if self._around is not None:
                values = _surrounded(self._around, values, arrays, first, some)
            headers = [(name, arrays.array(top)[part].cast(pa.binary())) for name, top in self._contract.headers]
            places = array("i", bytes(4 * (some + 1)))
            named = Rendered(identities.write(first, some, mark, places), places)
            yield Events(first, keys, values, named, deletes[part], skipped[part], keyless[part], refused, headers)
            first += some

    def _some(self, least: int) -> int:
        """So many records that their events do not take much memory, as far as this can be told before."""
        size = self._value.record_bytes
        return max(1, _EVENTS_BYTES // max(size, least)) if size else _FIRST_EVENTS

    def _row_ops(self, records: Records, ops: Any) -> Any:
        """What happened to the row as a consumer of whole rows sees it."""
        assert records.after is not None
        gone = records.after.is_null().to_numpy(zero_copy_only=False)
        single = (ops != _DELETE_PARTITION) & (ops != _DELETE_RANGE) & (ops != _TRUNCATE)
        made = ops.copy()
        made[single & gone] = _DELETE
        alive = single & ~gone & (ops != _SNAPSHOT)
        made[alive & (ops == _DELETE)] = _UPDATE
        if self._before and records.before is not None:
            new = records.before.is_null().to_numpy(zero_copy_only=False)
            made[alive & new] = _INSERT
            made[alive & ~new] = _UPDATE
        return made


def _surrounded(around: Rendering, values: Rendered, arrays: Arrays, first: int, count: int) -> Rendered:
    """Written values as the bytes `data` of what stands around them. What was refused stays without any bytes."""
    made = around.render(around.bind(arrays.cut({"data": values.to_arrow()}, first, count)), 0, count)
    if values.refused:
        gone = np.zeros(count, bool)
        gone[[number for number, _ in values.refused]] = True
        kept = pc.if_else(pa.array(gone), pa.scalar(b"", pa.binary()), made.to_arrow())
        _, offsets, data = kept.buffers()
        made = Rendered(memoryview(data), array("i", memoryview(offsets).cast("i")[: count + 1]))
    return made


def _least_bytes(records: Records) -> int:
    """What an event of these records will hardly be smaller than, on the average."""
    held: int = len(records.changes.rows)
    held += sum(rows.nbytes for rows in (records.after, records.before) if rows is not None)
    return held // max(len(records), 1)


def _none(like: pa.StructArray) -> pa.StructArray:
    return pa.nulls(len(like), like.type)


# Ranges of so many changes that have none, which most batches have in common.
_absent_ranges: tuple[int, Arrays] = (-1, Arrays({}))


def _no_ranges(count: int) -> Arrays:
    global _absent_ranges
    if count > _absent_ranges[0]:
        length = max(count, 2 * _absent_ranges[0])
        nulls = pa.nulls(length, RANGE)
        _absent_ranges = length, Arrays({"_range_start": nulls, "_range_end": nulls})
    return _absent_ranges[1]


def _deletion(columns: ChangeColumns) -> pa.Int64Array:
    """The times of deletions, null where there is none: the field itself is never null."""
    if not columns.is_written(("deletion",)):
        return pa.nulls(len(columns), pa.int64())
    found = columns.array(("deletion",))
    valid = found.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(found.field("time").to_numpy(zero_copy_only=False), pa.int64(), mask=~valid)


def _when(columns: ChangeColumns, ops: Any, deletion: pa.Int64Array, now_us: int) -> pa.Int64Array:
    """The time of `source`: a deletion's own, the reading of a snapshot's row, else the write's."""
    first = time = columns.array(("time",))
    deleted = (ops >= _DELETE) & (ops <= _TRUNCATE)
    if deleted.any():
        first = pc.if_else(pa.array(deleted), pc.coalesce(deletion, time), first)
    snapshot = ops == _SNAPSHOT
    if snapshot.any():
        first = pc.if_else(pa.array(snapshot), pc.coalesce(columns.array(("capture_time",)), time), first)
    if not first.null_count:
        return first
    others = [columns.array((name,)) for name in ("commit_time", "capture_time")]
    return pc.coalesce(first, *others, pa.scalar(now_us, pa.int64()))


def _with_nanoseconds(when: pa.Int64Array) -> pa.Int64Array:
    """Writers may give any time. One that has no place in nanoseconds is the last that has."""
    found = when.to_numpy()
    if not len(found) or (found.max() <= _NS_MAX and found.min() >= -_NS_MAX):
        return when
    return pa.array(np.clip(found, -_NS_MAX, _NS_MAX), pa.int64())
