"""A pipeline's fold without Spark: runs of several nodes, split into buckets, folded batch by batch into a target.

The target keeps the last row of each key, as a sink with one document per row does, and checks that versions grow.
"""

from __future__ import annotations

import importlib
import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from types import ModuleType
from typing import Any
from uuid import UUID

from penstock.fold.bucket import BucketState
from penstock.fold.folder import Folder
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.merge.cql_value import _unscaled, _varint
from penstock.model.change import Change, Op
from penstock.model.schema import TableSchema
from penstock.model.types import Kind, Type
from penstock.records import keys
from penstock.records._groups import Contents
from penstock.records.records import Records
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType
from tests.pure_python import second_copy

WIDE = (Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE)


def runs_of(
    schema: TableSchema, node: str, changes: Sequence[Change], buckets: int, known: Contents | None = None
) -> list[Run]:
    """The changes as one node logged them, without those that say what is known."""
    batch = avro.encode(schema, changes)
    return [Run(schema, node, part.bucket, part.count, part.rows) for part in keys.split(batch, buckets, known)]


class Target:
    """Whole rows by key, and every record in the order of delivery."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}
        self.versions: dict[Any, int] = {}
        self.changes: list[Change] = []
        self.befores: dict[Any, Any] = {}

    def write(self, records: Records) -> None:
        changes = avro.decode(records.changes)
        self.changes += changes
        if records.after is None:
            return
        afters = records.after.to_pylist()
        befores = [None] * len(records) if records.before is None else records.before.to_pylist()
        versions = records.versions.to_pylist()
        for change, after, before, version in zip(changes, afters, befores, versions, strict=True):
            if change.op in WIDE:
                assert after is None
                continue
            key = tuple(hashable(change.key.get(column.name)) for column in records.schema.key)
            assert version > self.versions.get(key, -(1 << 63)), "a version must grow"
            self.versions[key] = version
            self.befores[key] = before
            if after is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = after


class Pipeline:
    """Folds batches as a pipeline does, with a commit after each; any batch can be done again."""

    def __init__(
        self,
        directory: str,
        buckets: int,
        record: RecordType,
        *,
        every: bool = True,
        merge: MergeSettings | None = None,
    ) -> None:
        self.store = StateStore(directory, buckets)
        self.folder = Folder(merge or MergeSettings(), record, every=every)
        self.batch = 0

    def fold(self, runs: Sequence[Run], now_s: int, *, commit: bool = True) -> list[Records]:
        out: list[Records] = []
        tokens = {}
        for bucket in range(self.store.buckets):
            state = BucketState.open(self.store.directory, bucket, self.batch)
            mine = [run for run in runs if run.bucket == bucket]
            out += list(self.folder.fold(mine, state, now_s=now_s))
            tokens[bucket] = state.finish().token
        if commit:
            self.store.commit(self.batch, tokens)
            self.batch += 1
        return out


def hashable(value: Any) -> Any:
    """A key's value as targets know it: by its bytes, so that 1.0 is not 1.00, and a NaN is itself."""
    if isinstance(value, Decimal):
        return value.as_tuple()
    if isinstance(value, float):
        return struct.pack(">d", value)
    return tuple(hashable(item) for item in value) if isinstance(value, (list, tuple)) else value


def plain(kind: Type, value: Any) -> Any:
    """A value as Arrow's `to_pylist` gives it."""
    if value is None:
        return None
    of = kind.kind
    if of is Kind.DECIMAL:
        assert isinstance(value, Decimal)
        unscaled, scale = _unscaled(value)
        return {"unscaled": _varint(unscaled), "scale": scale}
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if of in (Kind.LIST, Kind.SET):
        return [plain(kind.elements[0], item) for item in value]
    if of is Kind.MAP:
        return [(plain(kind.elements[0], k), plain(kind.elements[1], v)) for k, v in value]
    if of is Kind.USER:
        return {name: plain(e, v) for name, e, v in zip(kind.names, kind.elements, value, strict=True)}
    return value


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own; NaN is equal to itself."""
    return sorted(repr({k: "NaN" if isinstance(v, float) and math.isnan(v) else v for k, v in r.items()}) for r in rows)


def expected(schema: TableSchema, rows: list[dict[str, Any]]) -> list[str]:
    """Rows of `merge.table_state.visible` in the same form."""
    return comparable([{c.name: plain(c.type, row[c.name]) for c in schema.columns} for row in rows])


@cache
def plain_python() -> ModuleType:
    """This module over a second copy of the fold, with kernels that run as plain Python."""
    packages = ("penstock.formats", "penstock.records", "penstock.fold", "tests.folding")
    return second_copy(packages, lambda: importlib.import_module("tests.folding"))


def as_installed() -> ModuleType:
    """This module over the fold that everyone uses."""
    return importlib.import_module("tests.folding")
