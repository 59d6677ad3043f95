"""Forgotten: which rows somebody wants erased, and how to find them among encoded changes.

A target is the beginning of a key: all partition columns, and as many clustering columns as are given. The bytes of the
partition key stand in every row of the partition, so most rows are passed by a search for bytes; those that have them
are decoded and compared value by value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.errors import InvalidInput
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op
from penstock.model.schema import TableSchema
from penstock.model.types import Kind, Type

# Shorter bytes of a key stand in other values by chance; longer ones hardly.
TELLING_BYTES = 8
# Op and the seven nulls that stand before the key in a row that says nothing else.
_BEFORE_KEY = 8


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be forgotten: the values of the first key columns, at least of all partition columns."""

    values: tuple[Any, ...]


def target(schema: TableSchema, key: Mapping[str, Any]) -> Target:
    """What a key means; `key` has values by column name. InvalidInput when it is not the beginning of one."""
    names = [column.name for column in schema.key]
    given = [name for name in names if name in key]
    unknown = sorted(set(key) - set(names))
    if unknown:
        raise InvalidInput(f"no key column of the table: {', '.join(unknown)}; its key is {', '.join(names)}")
    if given != names[: len(given)] or len(given) < max(1, len(schema.partition)):
        raise InvalidInput(
            f"a key has values of all partition columns, then of the clustering columns in their order: "
            f"{', '.join(names)}",
            table=schema.table,
        )
    if any(key[name] is None for name in given):
        raise InvalidInput("no value of a key is null", table=schema.table)
    return Target(tuple(key[name] for name in given))


class Wanted:
    """The targets, as one version of the table writes them."""

    def __init__(self, schema: TableSchema, targets: Sequence[Target]) -> None:
        self.schema = schema
        self._names = [column.name for column in schema.key]
        self._partitions = len(schema.partition)
        self._targets = targets
        self._plain = not any(_has_spellings(column.type) for column in schema.partition)
        self.patterns = [self._pattern(one) for one in targets]

    def _pattern(self, one: Target) -> bytes:
        """The bytes of the partition key, which stand in every row of it. InvalidValue when its types are others.

        No bytes, which stand everywhere, where one number may be written in several ways: then every row is decoded.
        """
        given = dict(zip(self._names[: self._partitions], one.values, strict=False))
        row = bytes(avro.encode(self.schema, [Change(Op.UPDATE, given)]).rows)
        if not self._plain:
            return b""
        return row[_BEFORE_KEY : len(row) - len(self.schema.clustering) - len(self.schema.cells) - 2]

    def look(self, data: bytes, count: int) -> tuple[list[int], int, bool]:
        """Which changes of these rows are meant, how many ranges stay, and whether bytes of a key stand elsewhere."""
        hits: list[int] = []
        ranges, lookalike = 0, False
        if not any(pattern in data for pattern in self.patterns):
            return hits, ranges, lookalike
        starts, tails = avro.bounds(self.schema, data, count)
        for at in range(count):
            row = data[starts[at] : tails[at]]
            near = [one for one, pattern in zip(self._targets, self.patterns, strict=True) if pattern in row]
            if not near:
                continue
            change = avro.decode(ChangeBatch(self.schema, 1, row + b"\0"))[0]
            near = [one for one in near if self._plain or self._is_spelled(one, change)]
            if any(self._means(one, change) for one in near):
                hits.append(at)
            elif any(self._bounds(one, change) for one in near):
                ranges += 1
            elif not any(self._same(one.values[: self._partitions], self._key(change)) for one in near):
                lookalike |= any(pattern in row and len(pattern) >= TELLING_BYTES for pattern in self.patterns)
        return hits, ranges, lookalike

    def rest(self, data: bytes, count: int, gone: Sequence[int]) -> bytes:
        """The rows without these."""
        starts = avro.row_offsets(self.schema, data, count)
        return b"".join(data[starts[at] : starts[at + 1]] for at in range(count) if at not in gone)

    def _key(self, change: Change) -> tuple[Any, ...]:
        return tuple(change.key.get(name) for name in self._names)

    def _is_spelled(self, one: Target, change: Change) -> bool:
        """Whether decimals of the partition key are the very ones: 1.0 and 1.00 are two partitions."""
        pairs = zip(one.values[: self._partitions], self._key(change), strict=False)
        return all(not isinstance(mine, Decimal) or str(mine) == str(other) for mine, other in pairs)

    def _means(self, one: Target, change: Change) -> bool:
        if self._same(one.values, self._key(change)):
            return True
        if change.range is None or not self._same(one.values[: self._partitions], self._key(change)):
            return False
        # A range of nothing but what is meant.
        rest = one.values[self._partitions :]
        ends = (change.range.start, change.range.end)
        return all(end is not None and self._same(rest, end.values) for end in ends)

    def _bounds(self, one: Target, change: Change) -> bool:
        rest = one.values[self._partitions :]
        if change.range is None or not rest or not self._same(one.values[: self._partitions], self._key(change)):
            return False
        ends = (change.range.start, change.range.end)
        return any(end is not None and self._same(rest, end.values) for end in ends)

    @staticmethod
    def _same(values: Sequence[Any], key: Sequence[Any]) -> bool:
        """Whether a key begins with these values. Two spellings of a number, as 1.0 and 1.00, are one."""
        if len(key) < len(values):
            return False
        return all(one == other or (one != one and other != other) for one, other in zip(values, key, strict=False))


def _has_spellings(type_: Type) -> bool:
    """Whether a source may write one value of a type as different bytes: numbers with leading zeros."""
    return type_.kind in (Kind.VARINT, Kind.DECIMAL) or any(map(_has_spellings, type_.elements))
