"""What Debezium's connector for Cassandra says of the place that a change comes from: its `source` block.

This file is all that knows of the connector. Another one is a file with the same three functions, and a line in
`events.CONNECTORS`. A source that has no file of its own gets these fields, under its own name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.envelopes import _tree, connect
from penstock.envelopes.connect import Schema, plain
from penstock.envelopes.contract import Batch, EventChoice, Tops
from penstock.envelopes.layout import Node
from penstock.formats._rows import Input
from penstock.formats.change_columns import ChangeColumns
from penstock.model.change import Op
from penstock.model.schema import TableSchema

_SNAPSHOT_OP = list(Op).index(Op.SNAPSHOT)
# Debezium has 32 bits for it.
_POSITION_MAX = (1 << 31) - 1
_SNAPSHOT = ("false",) * 6 + ("true",)
_SNAPSHOT_SCHEMA = Schema(
    connect.STRING,
    "io.debezium.data.Enum",
    1,
    parameters=(("allowed", "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"),),
)


def source(schema: TableSchema, choice: EventChoice, connector: str) -> list[Node]:
    """The fields of `source`."""
    text, number = plain(connect.STRING, optional=False), plain(connect.INT64)

    def constant(name: str, value: str | None, shape: Schema = text) -> Node:
        return Node(_tree.CONST, shape, name=name, constant=value)

    def time(name: str, factor: int, divisor: int, shape: Schema, top: str = "when") -> Node:
        return Node(_tree.INT, shape, (top,), name, factor=factor, divisor=divisor)

    return [
        constant("version", choice.version),
        constant("connector", connector),
        constant("name", choice.prefix),
        time("ts_ms", 1, 1000, plain(connect.INT64, optional=False)),
        Node(_tree.WORD, _SNAPSHOT_SCHEMA, ("op",), "snapshot", words=_SNAPSHOT),
        constant("db", "NULL"),
        constant("sequence", None, plain(connect.STRING)),
        time("ts_us", 1, 1, number),
        time("ts_ns", 1000, 1, number, "when_ns"),
        constant("cluster", choice.cluster),
        Node(_tree.STRING, text, ("file",), "file"),
        Node(_tree.INT, plain(connect.INT32, optional=False), ("pos",), "pos"),
        constant("keyspace", schema.table.keyspace),
        constant("table", schema.table.table),
    ]


def transaction() -> Node:
    """The standard envelope's block about the transaction, which Cassandra has none of."""
    fields = [("id", plain(connect.STRING, optional=False))]
    fields += [(name, plain(connect.INT64, optional=False)) for name in ("total_order", "data_collection_order")]
    return Node(_tree.CONST, connect.struct("event.block", fields, 1, optional=True))


def arrays(batch: Batch) -> Tops:
    """What of a batch the fields name: the commit log's file, and the place in it."""
    return {"file": _file(batch.columns, batch.ops), "pos": _position(batch.columns, batch.ops)}


def _file(columns: ChangeColumns, ops: Any) -> pa.StringArray | Input:
    snapshot = ops == _SNAPSHOT_OP
    path = ("origin", "file")
    if not snapshot.any() and columns.is_complete(path):
        return columns.input(path)
    return pc.if_else(pa.array(snapshot), "", pc.fill_null(columns.array(path), ""))


def _position(columns: ChangeColumns, ops: Any) -> pa.Int64Array | Input:
    """The position; one that does not fit, and that of a snapshot's row, is -1."""
    path = ("origin", "position")
    snapshot = ops == _SNAPSHOT_OP
    found = columns.longs(path)
    if found is None:
        found = pc.fill_null(columns.array(path), -1).to_numpy(zero_copy_only=False)
    elif len(found) and found.max() <= _POSITION_MAX and not snapshot.any():
        return columns.input(path)
    return pa.array(np.where((found > _POSITION_MAX) | snapshot, -1, found), pa.int64())
