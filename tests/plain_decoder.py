"""The commit-log decoder with kernels that run as plain Python, beside the compiled one in the same process."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.segment import SegmentHeader
from tests.pure_python import second_copy

_PACKAGES = ("penstock.formats", "penstock.capture.cassandra")


class Modules(NamedTuple):
    """One set of the modules."""

    package: ModuleType
    decoder: ModuleType
    schema: ModuleType
    table: ModuleType


class FixedClock:
    """The same moment for ever, so that two decoders write the same capture time."""

    def now_us(self) -> int:
        return 1_700_000_000_000_000

    def monotonic(self) -> float:
        return 0.0


def compiled() -> Modules:
    """The modules that everyone uses: compiled where there is a compiler."""
    package = _PACKAGES[1]
    names = ("decoding", "decoding.decoder", "schema.schemas", "schema.table")
    return Modules(*[importlib.import_module(f"{package}.{name}") for name in names])


@cache
def plain() -> Modules:
    """A second copy of the modules. Objects of one side must not be given to the other, but for plain tuples."""
    pure = second_copy(_PACKAGES, compiled)
    assert not pure.package.native
    return pure


def decoder_of(modules: Modules, tables: Iterable[CassandraTable], format_: int) -> tuple[Any, Any]:
    """A decoder of one side with these tables, at the begin of a segment, and its parking."""
    schemas = modules.schema.Schemas()
    for table in tables:
        schemas.add(modules.table.CassandraTable.from_json(table.to_json()))
    parking = modules.decoder.MemoryParking()
    made = modules.decoder.Decoder(
        schemas,
        captures=lambda table: table.schema.table.keyspace == "ks",
        parking=parking,
        clock=FixedClock(),
    )
    made.begin(SegmentHeader(format_, 5, 42), f"CommitLog-{format_}-5.log")
    return made, parking
