"""How a target table's columns follow the source's: what is added, widened, or kept apart.

A source column goes to the target column of its name when that one can hold its values, now or after it was widened. A
column that was dropped stays, null in new rows. One that comes back with a type that does not fit goes to a new column
(`name__2`, `name__3`, …): what the old one holds keeps its meaning. Where a column goes is a function of the two
schemas alone, so tasks and driver agree about it without talking.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.errors import SchemaRefused
from penstock.model.schema import TableSchema
from penstock.pipeline.sinks.lakehouse.types import check_names, lake_schema, merged
from penstock.settings import SchemaPolicy


@dataclass(slots=True)
class Evolution:
    """What a source schema asks of a target: its columns afterwards, and what changed."""

    schema: pa.Schema
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    # Columns of the source that found no place because the policy is to ignore them.
    ignored: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.added or self.widened)


def _candidates(name: str) -> list[str]:
    return [name, *(f"{name}__{number}" for number in range(2, 100))]


def places(source: TableSchema, target: pa.Schema) -> dict[str, str]:
    """Where each column of the source goes: source name → target name; columns without a place are left out."""
    found = {}
    for wanted in lake_schema(source):
        for name in _candidates(wanted.name):
            index = target.get_field_index(name)
            if index < 0:
                break
            if merged(target.field(index).type, wanted.type) == target.field(index).type:
                found[wanted.name] = name
                break
    return found


def evolve(source: TableSchema, target: pa.Schema, policy: SchemaPolicy, fixed: frozenset[str]) -> Evolution:
    """What `target` becomes so that rows of `source` fit. Columns in `fixed` (keys, partitions) never change type."""
    out = Evolution(target)
    check_names(lake_schema(source), source.table)
    known = places(source, target)
    for wanted in lake_schema(source):
        is_key = source.by_name[wanted.name] in source.key
        if known.get(wanted.name) == wanted.name or (wanted.name in known and not is_key):
            continue
        if is_key:
            raise SchemaRefused(
                "a key column is missing in the target, or has another type there",
                table=source.table,
                column=wanted.name,
                type=wanted.type,
            )
        if policy is SchemaPolicy.FAIL:
            raise SchemaRefused("the target has no place for a column", table=source.table, column=wanted.name)
        if policy is SchemaPolicy.IGNORE:
            out.ignored.append(wanted.name)
            continue
        _make_place(out, wanted, fixed)
    check_names(out.schema, source.table)
    return out


def _make_place(out: Evolution, wanted: pa.Field, fixed: frozenset[str]) -> None:
    for name in _candidates(wanted.name):
        index = out.schema.get_field_index(name)
        if index < 0:
            out.schema = out.schema.append(pa.field(name, wanted.type))
            out.added.append(name)
            return
        both = merged(out.schema.field(index).type, wanted.type)
        if both is not None and name not in fixed:
            out.schema = out.schema.set(index, out.schema.field(index).with_type(both))
            out.widened.append(name)
            return
