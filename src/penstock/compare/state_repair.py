"""Repairing what a pipeline remembers of rows: else the next update of a row brings back what a repair has mended.

The source's rows, with the write times of their cells, are written to a log of the pipeline's own, which it reads as if
from one more node. It takes them for what they are: all that there is of a row up to the moment at which the source was
read. What the pipeline knows of later writes stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from penstock.compare.sides import SourceRows
from penstock.fold.folder import REPAIRED
from penstock.formats import avro
from penstock.log.names import directory_name
from penstock.log.table_log import TableLog
from penstock.merge.cql_value import partition_id
from penstock.merge.range_deletions import Place, row_place
from penstock.merge.row_state import PartitionState
from penstock.merge.table_state import TableState
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op
from penstock.model.schema import TableSchema
from penstock.records.row_changes import row_changes

# Clocks may differ by so much: writes of the last seconds before the source was read are not taken for read.
_SLACK_US = 10_000_000
_BATCH = 1000

_Name = tuple[bytes, Place]


def repair_state(source: SourceRows, keys: Sequence[pa.StructArray], began_us: int, directory: Path) -> int:
    """Let the pipeline with this directory of repaired rows know how the source has them; how many rows."""
    states = source.states()
    if states is None or not keys:
        return 0
    until_us = began_us - _SLACK_US
    # Rows that are read from the source now are of the table's present era.
    schema = replace(source.recorded, truncated_us=0, since_us=began_us)
    wanted = {_name(schema, change): change for some in keys for change in avro.decode(_named(source.schema, some))}
    found = [replace(change, commit_time=until_us) for change in _read(states, wanted, until_us)]
    with TableLog.open(str(directory / directory_name(schema.table)), schema, node=REPAIRED) as log:
        for first in range(0, len(found), _BATCH):
            log.append(avro.encode(schema, found[first : first + _BATCH]))
    return len(wanted)


def _named(schema: TableSchema, keys: pa.StructArray) -> ChangeBatch:
    return row_changes(schema, Op.DELETE, keys, times=pa.repeat(pa.scalar(0, pa.int64()), len(keys)))


def _name(schema: TableSchema, change: Change) -> _Name:
    values = tuple(change.key.get(column.name) for column in schema.clustering)
    place = () if None in values else row_place(schema.clustering, values)
    return partition_id(schema.partition, change.key), place


def _read(states: Iterator[TableState], wanted: dict[_Name, Change], until_us: int) -> Iterator[Change]:
    """The wanted rows as the source has them; one that it does not have is deleted."""
    missing = dict(wanted)
    for state in states:
        for name in [name for name in missing if name[0] in state.partitions]:
            identity, place = name
            partition = state.partitions[identity]
            row = partition.rows.get(place)
            one = PartitionState(partition.key)
            one.static = partition.static
            if row is not None:
                one.rows = {place: row}
            elif place:
                continue
            del missing[name]
            yield from (change for change in state.changes(one) if change.op is not Op.TRUNCATE)
    for change in missing.values():
        yield Change(Op.DELETE, change.key, time=until_us)
