"""CQL's own types by name: what each means as a logical type. Statements and Cassandra's schema tables share them."""

from __future__ import annotations

from penstock.model import types
from penstock.model.types import Type, Unit

NATIVE: dict[str, Type] = {
    "ascii": types.ASCII,
    "bigint": types.INT64,
    "blob": types.BYTES,
    "boolean": types.BOOLEAN,
    "counter": types.COUNTER,
    "date": types.DATE,
    "decimal": types.DECIMAL,
    "double": types.FLOAT64,
    "duration": types.duration(Unit.NS),
    "float": types.FLOAT32,
    "inet": types.INET,
    "int": types.INT32,
    "smallint": types.INT16,
    "text": types.TEXT,
    "time": types.time(Unit.NS),
    "timestamp": types.timestamp(Unit.MS),
    "timeuuid": types.TIMEUUID,
    "tinyint": types.INT8,
    "uuid": types.UUID,
    "varchar": types.TEXT,
    "varint": types.VARINT,
}
# How many types each composite takes; None: one or more.
COMPOSITE: dict[str, int | None] = {"frozen": 1, "list": 1, "set": 1, "map": 2, "tuple": None, "vector": 1}
