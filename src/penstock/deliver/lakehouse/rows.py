"""Records as rows of a lakehouse table: columns in the target's types, keys apart, and what does not fit set aside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.deliver.dead_letter import dead_letter
from penstock.deliver.lakehouse.evolution import TargetShape, places
from penstock.deliver.lakehouse.values import fit, out_of_range, to_lake
from penstock.deliver.sink import DeadLetter
from penstock.formats.arrow import to_arrow
from penstock.records.records import Records


@dataclass(slots=True)
class Poison:
    """Records that a table cannot hold: which (a NumPy mask), and the column of each."""

    mask: Any
    columns: dict[int, str]

    @classmethod
    def none(cls, count: int) -> Poison:
        """Of so many records, none."""
        return cls(np.zeros(count, bool), {})

    def moved(self, by: int, count: int) -> Poison:
        """The same of records that are the last ones of `count`."""
        mask = np.zeros(count, bool)
        mask[by:] = self.mask
        return Poison(mask, {number + by: column for number, column in self.columns.items()})


def key_columns(records: Records, target: TargetShape) -> list[pa.Array]:
    """The key of each record, in the target's types; deletions have it as well as rows."""
    schema = records.schema
    where = places(schema, target)
    if records.after is not None and not records.after.null_count:
        # Every row is there, and has its key.
        found = {column.name: records.after.field(at) for at, column in enumerate(schema.columns)}
    else:
        names = [column.name for column in schema.key]
        keys = to_arrow(records.changes, names).column("key")
        found = {name: keys.field(name) for name in names}
    return [
        fit(to_lake(found[column.name], column.type), target.schema.field(where[column.name]).type)
        for column in schema.key
        if column.name in where
    ]


def is_of_another_table(records: Records, target: TargetShape) -> bool:
    """Whether records are of a table that was dropped before the one that the target follows was made.

    All that may still come of it is that its rows are gone, and they are gone from the target already.
    """
    return target.note.is_of_another_table(records.schema)


def of_rows(records: Records) -> Any:
    """Which records (a NumPy mask) are of a row that the table can have, and not of a partition, a range or the table.

    A partition that has static values and no rows is shown as a row without clustering values, as SELECT shows it.
    """
    return ~records.wide()


def lake_rows(records: Records, target: TargetShape, there: Any) -> tuple[pa.Table, Poison]:
    """The rows after the changes, where `there` is true, in the target's columns; and what it cannot hold."""
    assert records.after is not None
    after = records.after if there.all() else records.after.filter(pa.array(there))
    poison = Poison.none(len(records))
    numbers = np.flatnonzero(there)
    where = places(records.schema, target)
    arrays, fields = [], []
    for index, column in enumerate(records.schema.columns):
        if column.name not in where:
            continue
        values = after.field(index)
        outside = out_of_range(values, column.type)
        if outside is not None:
            poison.mask[numbers[outside]] = True
            poison.columns.update(dict.fromkeys(numbers[outside].tolist(), column.name))
        wanted = target.schema.field(where[column.name])
        arrays.append(fit(to_lake(values, column.type), wanted.type))
        fields.append(wanted)
    return pa.table(arrays, schema=pa.schema(fields)), poison


def complete_rows(records: Records, target: TargetShape) -> tuple[pa.Table, Any, Poison]:
    """A row for each record, of which one that is gone has only its key; which are of a row; what does not fit."""
    assert records.after is not None
    rows, poison = lake_rows(records, target, np.ones(len(records), bool))
    if records.after.null_count:
        # Below a null row, Arrow may keep values that mean nothing.
        there = records.after.is_valid()
        poison.mask &= there.to_numpy(zero_copy_only=False)
        poison.columns = {number: name for number, name in poison.columns.items() if poison.mask[number]}
        columns = [pc.if_else(there, one.combine_chunks(), pa.scalar(None, one.type)) for one in rows.columns]
        rows = pa.table(columns, schema=rows.schema)
    where = places(records.schema, target)
    names = [where[column.name] for column in records.schema.key if column.name in where]
    for name, values in zip(names, key_columns(records, target), strict=True):
        rows = rows.set_column(rows.schema.get_field_index(name), target.schema.field(name), values)
    return rows, of_rows(records), poison


def dead_letters(records: Records, poison: Poison, sink: str) -> Iterator[DeadLetter]:
    """The records that were set aside, as a dead-letter store keeps them."""
    for number, column in sorted(poison.columns.items()):
        yield dead_letter(
            sink, records, number, f"column {column}: a time beyond what microseconds in 64 bits can hold"
        )
