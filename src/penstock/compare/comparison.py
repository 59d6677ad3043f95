"""Comparison: which keys of two sides differ, with memory bounded however large the table is.

Both sides give rows of the same columns. Each row goes to the range that the hash of its key falls into, in a file per
range and side; then range after range is sorted by key and compared as a whole, and only where a range differs are its
rows looked at one by one.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.compare.spelling import Spelling
from penstock.errors import InvalidInput

_RANGES = 64
KEY = "\x00key"
# Columns whose names begin with this travel with their rows and are not compared.
_CARRIED = "\x00"
Progress = Callable[[str, int, int], None]


class Side(Protocol):
    """One of the two: a source or a target."""

    # For messages.
    name: str

    def key(self) -> Sequence[str]:
        """The names of the key columns."""

    def spelled(self) -> Mapping[str, Spelling]:
        """Columns that tell rows apart by value and not by spelling (spelling.py): equal keys are enough for them."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in columns that are the same on both sides, in any order."""


class Kind(StrEnum):
    """How a row differs."""

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs: its key as text, and where both sides have it, the columns that are not the same."""

    kind: Kind
    key: str
    columns: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """What a comparison found. Differences beyond the limit are counted, and of their keys only the hashes are kept."""

    source_rows: int = 0
    target_rows: int = 0
    ranges: int = 0
    ranges_different: int = 0
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    differences: list[Difference] = field(default_factory=list)
    hashes: array[int] = field(default_factory=lambda: array("Q"), repr=False, compare=False)

    @property
    def same(self) -> bool:
        return not any(self.counts.values())

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def note(self, found: Sequence[Difference], keep: int) -> None:
        """Add what one range has."""
        self.ranges_different += bool(found)
        for difference in found:
            self.counts[difference.kind] += 1
            self.hashes.append(key_hash(difference.key))
        self.differences += found[: max(0, keep - len(self.differences))]


def compare(
    source: Side,
    target: Side,
    *,
    ranges: int = _RANGES,
    keep: int = 100_000,
    only: Any = None,
    progress: Progress = lambda *_: None,
) -> Report:
    """Compare all rows, or `only` those whose keys have these hashes (a sorted NumPy array).

    `progress` is told the step, how much of it is done, and how much there is (0: not known).
    """
    report = Report(ranges=ranges)
    with Ranges(source, target, ranges=ranges, only=only, progress=progress) as spread:
        report.source_rows, report.target_rows = spread.source_rows, spread.target_rows
        for one in spread:
            report.note(differences(one), keep)
    return report


class Range(NamedTuple):
    """The rows of both sides whose keys fall into one range, sorted by key; None: the side has none."""

    source: pa.Table | None
    target: pa.Table | None
    # Columns in which the two sides may differ, because the key says the same.
    spelled: frozenset[str] = frozenset()


class Ranges:
    """Both sides, spread over ranges of keys on disk while the context is open."""

    def __init__(
        self,
        source: Side,
        target: Side,
        *,
        ranges: int = _RANGES,
        only: Any = None,
        progress: Progress = lambda *_: None,
    ) -> None:
        self._source, self._target = source, target
        self._ranges = ranges
        self._only = only
        self._progress = progress
        self._scratch = tempfile.TemporaryDirectory(prefix="penstock-compare-")
        self._spools: list[_Spool] = []
        self.source_rows = 0
        self.target_rows = 0

    def __enter__(self) -> Self:
        try:
            self._fill()
        except BaseException:
            self._scratch.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scratch.cleanup()

    def _fill(self) -> None:
        """Read the target first: a row that it has is then never newer than what the source says of it."""
        directory = Path(self._scratch.name)
        found = _Spool(directory / "target", self._target, self._ranges, self._only)
        self.target_rows = found.fill(lambda done: self._progress(f"reading {self._target.name}", done, 0))
        wanted = _Spool(directory / "source", self._source, self._ranges, self._only)
        self.source_rows = wanted.fill(lambda done: self._progress(f"reading {self._source.name}", done, 0))
        found.fit(wanted.schema)
        self._spools = [wanted, found]

    def __iter__(self) -> Iterator[Range]:
        wanted, found = self._spools
        for number in range(self._ranges):
            self._progress("comparing", number, self._ranges)
            yield Range(wanted.table(number), found.table(number), frozenset(self._target.spelled()))
        self._progress("comparing", self._ranges, self._ranges)


class _Spool:
    """The rows of one side, in one file per range."""

    def __init__(self, directory: Path, side: Side, ranges: int, only: Any) -> None:
        directory.mkdir()
        self._directory = directory
        self._side = side
        self._ranges = ranges
        self._only = only
        # Of what was read; None when there was nothing.
        self.schema: pa.Schema | None = None

    def fill(self, progress: Callable[[int], None]) -> int:
        writers: dict[int, Any] = {}
        rows = 0
        try:
            for batch in self._side.batches():
                keyed = batch.add_column(0, KEY, key_text(batch, self._side.key(), self._side.spelled()))
                self.schema = keyed.schema
                hashes = _hashes(keyed.column(KEY))
                if self._only is not None:
                    chosen = np.isin(hashes, self._only)
                    keyed, hashes = keyed.filter(pa.array(chosen)), hashes[chosen]
                rows += keyed.num_rows
                numbers = hashes % np.uint64(self._ranges)
                for number in np.unique(numbers).tolist():
                    part = keyed.filter(pa.array(numbers == number))
                    if number not in writers:
                        path = self._directory / f"{number}.arrow"
                        writers[number] = pa.ipc.new_file(str(path), keyed.schema)
                    writers[number].write_batch(part)
                progress(rows)
        finally:
            for writer in writers.values():
                writer.close()
        return rows

    def fit(self, other: pa.Schema | None) -> None:
        """Give the columns that the other side has, in its types and order."""
        if other is None or self.schema is None:
            return
        wanted = [field for field in other if not field.name.startswith(_CARRIED)]
        missing = [field.name for field in wanted if field.name not in self.schema.names]
        if missing:
            raise InvalidInput(f"{self._side.name} has no column {missing[0]}")
        carried = [field for field in self.schema if _is_carried(field.name)]
        self.schema = pa.schema([self.schema.field(KEY), *wanted, *carried])

    def table(self, number: int) -> pa.Table | None:
        path = self._directory / f"{number}.arrow"
        if not path.exists():
            return None
        assert self.schema is not None
        with pa.memory_map(str(path)) as file:
            found = pa.ipc.open_file(file).read_all().combine_chunks().sort_by(KEY)
        return found.select(self.schema.names).cast(self.schema)


def _is_carried(name: str) -> bool:
    return name.startswith(_CARRIED) and name != KEY


def key_text(
    batch: pa.RecordBatch, names: Sequence[str], spelled: Mapping[str, Spelling] = MappingProxyType({})
) -> pa.Array:
    """The key of each row as a JSON array; equal texts mean equal keys. Some columns may be spelled in several ways."""
    columns = [_readable(batch.column(name)).to_pylist() for name in names]
    for at, name in enumerate(names):
        if name in spelled:
            columns[at] = list(map(spelled[name], columns[at]))
    return pa.array(
        [json.dumps([_plain(value) for value in key], ensure_ascii=False) for key in zip(*columns, strict=True)],
        pa.string(),
    )


def _readable(values: pa.Array) -> pa.Array:
    """Times and dates as text, for Python's own do not reach as far."""
    if pa.types.is_date(values.type):
        return values.cast(pa.string())
    if not pa.types.is_timestamp(values.type):
        return values
    return values.cast(pa.timestamp(values.type.unit)).cast(pa.string())


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def key_hash(key: str) -> int:
    """The hash of a key's text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


def _hashes(keys: pa.Array) -> Any:
    return np.fromiter((key_hash(key) for key in keys.to_pylist()), np.uint64, len(keys))


DOUBLED = "the row is there more than once"


def differences(one: Range) -> list[Difference]:
    """The rows of a range that differ."""
    source, target = (None if side is None else _compared(side, one.spelled) for side in (one.source, one.target))
    if target is None:
        return [] if source is None else [Difference(Kind.MISSING, key) for key in source.column(KEY).to_pylist()]
    if source is None:
        source = target.slice(0, 0)
    return [] if source.equals(target) else list(_compare_rows(source, target))


def _compared(side: pa.Table, spelled: frozenset[str]) -> pa.Table:
    return side.select([name for name in side.column_names if not _is_carried(name) and name not in spelled])


def _compare_rows(source: pa.Table, target: pa.Table) -> Iterator[Difference]:
    ours, theirs = source.column(KEY), target.column(KEY)
    for key in ours.filter(pc.invert(pc.is_in(ours, value_set=theirs))).to_pylist():
        yield Difference(Kind.MISSING, key)
    counted = theirs.value_counts()
    twice = pc.struct_field(counted, [0]).filter(pc.greater(pc.struct_field(counted, [1]), 1))
    double = pc.is_in(theirs, value_set=twice)
    for key in twice.to_pylist():
        yield Difference(Kind.EXTRA, key, (DOUBLED,))
    for key in theirs.filter(pc.invert(pc.or_(double, pc.is_in(theirs, value_set=ours)))).to_pylist():
        yield Difference(Kind.EXTRA, key)
    common = pc.and_(pc.is_in(theirs, value_set=ours), pc.invert(double))
    mine = source.filter(pc.is_in(ours, value_set=theirs.filter(common)))
    yield from _bisect(mine.combine_chunks(), target.filter(common).combine_chunks())


def _bisect(source: pa.Table, target: pa.Table) -> Iterator[Difference]:
    """Both have the same keys in the same order: find the rows that differ by halves."""
    waiting = [(0, source.num_rows)]
    while waiting:
        start, count = waiting.pop()
        ours, theirs = source.slice(start, count), target.slice(start, count)
        if count == 0 or ours.equals(theirs):
            continue
        if count > 1:
            half = count // 2
            waiting += [(start + half, count - half), (start, half)]
            continue
        changed = tuple(name for name in ours.column_names if not _same(ours.column(name)[0], theirs.column(name)[0]))
        if changed:
            yield Difference(Kind.DIFFERENT, ours.column(KEY)[0].as_py(), changed)


def _same(one: pa.Scalar, other: pa.Scalar) -> bool:
    """Equal values; NaN equals itself here, which Arrow's comparison of tables does not say."""
    if one.equals(other):
        return True
    try:
        return repr(one.as_py()) == repr(other.as_py())
    except (OverflowError, ValueError):
        # A time beyond Python's, which is never NaN.
        return False
