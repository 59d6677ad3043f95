"""Repair: the rows that a comparison found to differ are made what the source has now, through the target's own sink.

Both sides are read again and only the keys in question kept, so that nothing is written for a row that has become right
meanwhile. The sink's writer and commit do the rest, as a batch of a pipeline of its own, so that whatever the target
knows of versions, keys and transactions stays true. Then the same keys are compared again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from penstock.compare.comparison import (
    DOUBLED,
    KEY,
    Difference,
    Kind,
    Progress,
    Range,
    Ranges,
    Report,
    compare,
    differences,
)
from penstock.compare.repair_records import repair_records
from penstock.compare.sides import IMAGE, SourceRows, TargetRows, WithImages
from penstock.compare.state_repair import repair_state
from penstock.deliver.sink import Sink, Task, Writer
from penstock.errors import DeliveryFailed
from penstock.model.change import Op
from penstock.system.clock import Clock, SystemClock

log = structlog.get_logger()

# What the first attempt leaves, as where a target remembers that a row was deleted, is tried once more.
_ATTEMPTS = 2
# So often the target may change under our hands before that is an error.
_CONFLICTS_MAX = 5


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of the rows that differed."""

    # Those that were right when they were looked at again; nothing was written for them.
    settled: int
    repaired: int
    # How the same keys compare now.
    left: Report
    # The rows that the pipeline was told of, so that its next record of them is right as well.
    remembered: int = 0


def repair(
    source: SourceRows,
    target: TargetRows,
    report: Report,
    *,
    pipeline: str,
    clock: Clock | None = None,
    keep: int = 100_000,
    progress: Progress = lambda *_: None,
    remembered: Path | None = None,
) -> Repaired:
    """Repair the rows of the report that still differ.

    `remembered` is where the pipeline of the target reads repaired rows, which it would else have wrong again.
    """
    clock = clock or SystemClock()
    work = _Repair(source, target, report, f"{pipeline}.repair", clock, keep, progress)
    first, left = work.run()
    told = 0
    if remembered is not None:
        told = repair_state(source, work.keys, clock.now_us(), remembered)
    # A row may have become right and then wrong again while we looked.
    return Repaired(max(0, report.total - first), max(0, first - left.total), left, told)


class _Repair:
    def __init__(
        self,
        source: SourceRows,
        target: TargetRows,
        report: Report,
        pipeline: str,
        clock: Clock,
        keep: int,
        progress: Progress,
    ) -> None:
        self._source = source
        self._target = target
        self._sink: Sink = target.sink(report)
        self._only = np.unique(np.frombuffer(report.hashes, np.uint64)) if report.hashes else np.zeros(0, np.uint64)
        self._ranges = report.ranges
        self._pipeline = pipeline
        self._clock = clock
        self._keep = keep
        self._progress = progress
        self._batch = 0
        # The keys of what was written and deleted.
        self.keys: list[pa.StructArray] = []

    def run(self) -> tuple[int, Report]:
        """How many rows differed when they were looked at again, and what is left."""
        first: int | None = None
        for attempt in range(_ATTEMPTS):
            found, written = self._until_committed(attempt)
            first = found.total if first is None else max(first, found.total)
            if not written:
                return first, found
        assert first is not None
        left = compare(
            self._source,
            self._target,
            ranges=self._ranges,
            keep=self._keep,
            only=self._only,
            progress=self._told("comparing again"),
        )
        return first, left

    def _until_committed(self, attempt: int) -> tuple[Report, int]:
        for _ in range(_CONFLICTS_MAX):
            try:
                return self._attempt(attempt)
            except DeliveryFailed as error:
                log.warning("repair is done again", target=self._target.name, reason=error.message)
        return self._attempt(attempt)

    def _attempt(self, attempt: int) -> tuple[Report, int]:
        """Look again and write what differs; what was found, and how many rows were written or deleted."""
        report = Report(ranges=self._ranges)
        written = 0
        told = self._told("looking again" if attempt == 0 else "comparing again")
        source = WithImages(self._source)
        with Ranges(source, self._target, ranges=self._ranges, only=self._only, progress=told) as spread:
            report.source_rows, report.target_rows = spread.source_rows, spread.target_rows
            # A batch must have a greater number than any before it.
            self._batch = max(self._batch + 1, self._clock.now_us())
            self._sink.prepare([self._source.schema])
            task = Task(self._pipeline, self._batch, 0, self._batch)
            with self._sink.writer(task) as writer:
                for one in spread:
                    found = differences(one)
                    report.note(found, self._keep)
                    written += self._write(writer, one, found, attempt)
                payload = writer.finish().payload
            if written:
                self._sink.commit(task.pipeline, task.batch, [payload] if payload else [])
        return report, written

    def _write(self, writer: Writer, one: Range, found: list[Difference], attempt: int) -> int:
        written = self._write_doubled(writer, one, found, attempt)
        for kind in Kind:
            keys = pa.array(
                [each.key for each in found if each.kind is kind and DOUBLED not in each.columns], pa.string()
            )
            if not len(keys):
                continue
            ours, theirs = (
                None if side is None else side.filter(pc.is_in(side.column(KEY), keys))
                for side in (one.source, one.target)
            )
            if kind is Kind.EXTRA:
                assert theirs is not None
                written += self._target.delete(writer, theirs, self._batch)
                gone = self._target.keys(theirs)
                self.keys += [] if gone is None else [gone]
                continue
            assert ours is not None
            if kind is Kind.DIFFERENT and one.spelled:
                assert theirs is not None
                ours, theirs = self._as_spelled_there(ours, theirs, one.spelled)
            rows: Any = ours.column(IMAGE).combine_chunks()
            self.keys.append(rows)
            versions = self._target.versions(kind, theirs, len(rows), attempt, self._batch)
            writer.write(repair_records(self._source.schema, Op.INSERT, rows, rows, versions))
            written += len(rows)
        return written

    def _as_spelled_there(self, ours: pa.Table, theirs: pa.Table, spelled: frozenset[str]) -> tuple[pa.Table, pa.Table]:
        """Rows under the keys as the target spells them, as the pipeline does; those where that cannot be are left."""
        names = sorted(spelled)
        same = np.array(
            [ours.select(names).slice(at, 1).equals(theirs.select(names).slice(at, 1)) for at in range(len(ours))]
        )
        if same.all():
            return ours, theirs
        known = self._target.own_keys(theirs)
        if known is None:
            return ours.filter(pa.array(same)), theirs.filter(pa.array(same))
        keys, fits = known
        images: Any = ours.column(IMAGE).combine_chunks()
        own = {name: keys.field(name) for name in keys.type.names}
        fields = [own.get(field.name, images.field(field.name)) for field in images.type]
        rows = pa.StructArray.from_arrays(fields, fields=list(images.type))
        kept = pa.array(same | fits)
        at = ours.column_names.index(IMAGE)
        return ours.set_column(at, IMAGE, rows).filter(kept), theirs.filter(kept)

    def _write_doubled(self, writer: Writer, one: Range, found: list[Difference], attempt: int) -> int:
        """Of rows that are there more than once all are deleted, and one is written as the source has it."""
        keys = pa.array([each.key for each in found if DOUBLED in each.columns], pa.string())
        if not len(keys):
            return 0
        assert one.target is not None
        theirs = _first_of_each(one.target.filter(pc.is_in(one.target.column(KEY), keys)), one.spelled)
        ours = None if one.source is None else one.source.filter(pc.is_in(one.source.column(KEY), keys))
        if not self._target.take_out(writer, theirs):
            # What the source has of them is missing then, and is written with the next attempt.
            return self._target.delete(writer, theirs, self._batch)
        kept = pa.array([], pa.string()) if ours is None else ours.column(KEY)
        written = self._target.delete(writer, theirs.filter(pc.invert(pc.is_in(theirs.column(KEY), kept))), self._batch)
        if ours is not None and ours.num_rows:
            rows: Any = ours.column(IMAGE).combine_chunks()
            versions = self._target.versions(Kind.DIFFERENT, None, len(rows), attempt, self._batch)
            writer.write(repair_records(self._source.schema, Op.INSERT, rows, rows, versions))
            written += len(rows)
        return written

    def _told(self, step: str) -> Progress:
        return lambda name, done, total: self._progress(f"{step}: {name}", done, total)


def _first_of_each(rows: pa.Table, spelled: frozenset[str]) -> pa.Table:
    """Rows, each key once in each of its spellings."""
    first: dict[str, int] = {}
    for at, key in enumerate(rows.select([KEY, *sorted(spelled)]).to_pylist()):
        first.setdefault(repr(key), at)
    return rows.take(pa.array(first.values(), pa.int64()))
