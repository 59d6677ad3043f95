"""Comparison: which keys of two sides differ, with memory bounded however large the table is.

Both sides give rows of the same columns. Each row goes to the range that the hash of its key falls into, in a file per
range and side; then range after range is sorted by key and compared as a whole, and only where a range differs are its
rows looked at one by one.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput

_RANGES = 64
_KEY = "\x00key"


class Side(Protocol):
    """One of the two: a source or a target."""

    # For messages.
    name: str

    def key(self) -> Sequence[str]:
        """The names of the key columns."""

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
    """What a comparison found. Differences beyond the limit are counted and not kept."""

    source_rows: int = 0
    target_rows: int = 0
    ranges: int = 0
    ranges_different: int = 0
    counts: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    differences: list[Difference] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not any(self.counts.values())


def compare(
    source: Side,
    target: Side,
    *,
    ranges: int = _RANGES,
    keep: int = 100_000,
    progress: Callable[[str, int, int], None] = lambda *_: None,
) -> Report:
    """Compare all rows. `progress` is told the step, how much of it is done, and how much there is (0: not known)."""
    report = Report(ranges=ranges)
    with tempfile.TemporaryDirectory(prefix="penstock-compare-") as scratch:
        wanted = _Spool(Path(scratch) / "source", source, ranges)
        report.source_rows = wanted.fill(lambda done: progress(f"reading {source.name}", done, 0))
        found = _Spool(Path(scratch) / "target", target, ranges, like=wanted.schema)
        report.target_rows = found.fill(lambda done: progress(f"reading {target.name}", done, 0))
        for number in range(ranges):
            progress("comparing", number, ranges)
            if _compare_range(wanted.table(number), found.table(number), report, keep):
                report.ranges_different += 1
        progress("comparing", ranges, ranges)
    return report


class _Spool:
    """The rows of one side, in one file per range."""

    def __init__(self, directory: Path, side: Side, ranges: int, like: pa.Schema | None = None) -> None:
        directory.mkdir()
        self._directory = directory
        self._side = side
        self._ranges = ranges
        self.schema = like

    def fill(self, progress: Callable[[int], None]) -> int:
        writers: dict[int, Any] = {}
        rows = 0
        try:
            for batch in self._side.batches():
                keyed = self._keyed(batch)
                rows += keyed.num_rows
                hashes = _hashes(keyed.column(_KEY)) % self._ranges
                for number in np.unique(hashes):
                    part = keyed.filter(pa.array(hashes == number))
                    if number not in writers:
                        path = self._directory / f"{number}.arrow"
                        writers[number] = pa.ipc.new_file(str(path), keyed.schema)
                    writers[number].write_batch(part)
                progress(rows)
        finally:
            for writer in writers.values():
                writer.close()
        return rows

    def table(self, number: int) -> pa.Table | None:
        path = self._directory / f"{number}.arrow"
        if not path.exists():
            return None
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all().combine_chunks().sort_by(_KEY)

    def _keyed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.schema is None:
            self.schema = batch.schema
        missing = [name for name in self.schema.names if name not in batch.schema.names]
        if missing:
            raise InvalidInput(f"{self._side.name} has no column {missing[0]}")
        chosen = batch.select(self.schema.names).cast(self.schema)
        keys = key_text(chosen, self._side.key())
        fields = [pa.field(_KEY, pa.string()), *chosen.schema]
        return pa.RecordBatch.from_arrays([keys, *chosen.columns], schema=pa.schema(fields))


def key_text(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """The key of each row as a JSON array; equal texts mean equal keys."""
    rows = batch.select(list(names)).to_pylist()
    return pa.array(
        [json.dumps([_plain(row[name]) for name in names], ensure_ascii=False) for row in rows], pa.string()
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _hashes(keys: pa.Array) -> Any:
    """A hash per text that is the same in every process."""
    return np.fromiter((zlib.crc32(key.encode()) for key in keys.to_pylist()), np.uint32, len(keys))


def _compare_range(source: pa.Table | None, target: pa.Table | None, report: Report, keep: int) -> bool:
    """Compare one range; whether anything in it differs."""
    if source is None and target is None:
        return False
    if source is None or target is None:
        kind, side = (Kind.EXTRA, target) if source is None else (Kind.MISSING, source)
        assert side is not None
        for key in side.column(_KEY).to_pylist():
            _note(report, keep, Difference(kind, key))
        return True
    if source.equals(target):
        return False
    before = sum(report.counts.values())
    _compare_rows(source, target, report, keep)
    return sum(report.counts.values()) > before


def _compare_rows(source: pa.Table, target: pa.Table, report: Report, keep: int) -> None:
    ours, theirs = source.column(_KEY), target.column(_KEY)
    for key in ours.filter(pc.invert(pc.is_in(ours, value_set=theirs))).to_pylist():
        _note(report, keep, Difference(Kind.MISSING, key))
    for key in theirs.filter(pc.invert(pc.is_in(theirs, value_set=ours))).to_pylist():
        _note(report, keep, Difference(Kind.EXTRA, key))
    doubled = theirs.value_counts()
    twice = pc.struct_field(doubled, [0]).filter(pc.greater(pc.struct_field(doubled, [1]), 1)).to_pylist()
    for key in twice:
        _note(report, keep, Difference(Kind.EXTRA, key, ("the row is there more than once",)))
    common = pc.and_(
        pc.is_in(theirs, value_set=ours), pc.invert(pc.is_in(theirs, value_set=pa.array(twice, pa.string())))
    )
    mine = source.filter(pc.is_in(ours, value_set=theirs.filter(common)))
    _bisect(mine.combine_chunks(), target.filter(common).combine_chunks(), report, keep)


def _bisect(source: pa.Table, target: pa.Table, report: Report, keep: int) -> None:
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
            _note(report, keep, Difference(Kind.DIFFERENT, ours.column(_KEY)[0].as_py(), changed))


def _same(one: pa.Scalar, other: pa.Scalar) -> bool:
    """Equal values; NaN equals itself here, which Arrow's comparison of tables does not say."""
    return bool(one.equals(other)) or repr(one.as_py()) == repr(other.as_py())


def _note(report: Report, keep: int, difference: Difference) -> None:
    report.counts[difference.kind] += 1
    if len(report.differences) < keep:
        report.differences.append(difference)
