"""Projection: records with other columns than their table has: some left out, some masked, some with other names.

It works on Arrow columns and encodes the changes again under the new schema, so every sink sees an ordinary table and
needs to know nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.formats.arrow import arrow_schema, from_arrow, to_arrow
from penstock.formats.masks import Mask
from penstock.model.schema import Column, TableSchema
from penstock.records.records import Records, row_type


@dataclass(frozen=True, slots=True)
class Projection:
    """One version of a table, and what it becomes. `sources` has the old column of each new one."""

    schema: TableSchema
    target: TableSchema
    sources: dict[str, str]
    masks: dict[str, Mask]

    @classmethod
    def make(
        cls, schema: TableSchema, target: TableSchema, kept: dict[str, Column], masks: dict[str, Mask]
    ) -> Projection:
        """`kept` has the columns that stay, by their old names; `target` has them under the new ones."""
        return cls(schema, target, {column.name: old for old, column in kept.items()}, masks)

    def apply(self, records: Records) -> Records:
        old = to_arrow(records.changes, self.sources.values())
        wanted = arrow_schema(self.target)
        arrays = [self._top(old, field) for field in wanted]
        batch = pa.RecordBatch.from_arrays(arrays, schema=wanted)
        return replace(
            records,
            schema=self.target,
            source=from_arrow(self.target, batch),
            after=self._rows(records.after),
            before=self._rows(records.before),
            # A mask can give several rows the same key.
            single=records.single and not self.masks,
        )

    def _top(self, old: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name not in ("key", "cells", "before", "range"):
            return old.column(field.name)
        return self._named(old.column(field.name), field.type, field.name)

    def _named(self, found: pa.StructArray, type_: pa.StructType, part: str) -> pa.StructArray:
        """A struct whose fields are columns, with the new ones; of a range the structs that are further down."""
        if part == "range":
            return self._range(found, type_)
        children = []
        for field in type_:
            child = found.field(self.sources[field.name])
            mask = self.masks.get(self.sources[field.name])
            if mask is not None:
                child = _masked(child, field.type, mask, plain=part == "key")
            children.append(child)
        return _struct(children, type_, found)

    def _range(self, found: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
        ends = []
        for end in type_:
            bound = found.field(end.name)
            parts = [
                bound.field(part.name)
                if part.name != "values"
                else _struct(
                    [bound.field("values").field(self.sources[f.name]) for f in part.type],
                    part.type,
                    bound.field("values"),
                )
                for part in end.type
            ]
            ends.append(_struct(parts, end.type, bound))
        return _struct(ends, type_, found)

    def _rows(self, rows: pa.StructArray | None) -> pa.StructArray | None:
        if rows is None:
            return None
        type_ = row_type(self.target)
        children = []
        for field in type_:
            child = rows.field(self.sources[field.name])
            mask = self.masks.get(self.sources[field.name])
            children.append(child if mask is None else mask.apply(child))
        return _struct(children, type_, rows)


def _masked(child: pa.Array, type_: pa.DataType, mask: Mask, *, plain: bool) -> pa.Array:
    """A key's value is masked as it is; a cell's or an old value stands in a struct."""
    if plain:
        return mask.apply(child)
    parts = [
        mask.apply(child.field(field.name)) if field.name == "value" else child.field(field.name) for field in type_
    ]
    return _struct(parts, type_, child)


def _struct(children: list[pa.Array], type_: pa.StructType, like: pa.StructArray) -> pa.StructArray:
    absent = like.is_null() if like.null_count else None
    fields = [field.with_type(child.type) for field, child in zip(type_, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=absent)
