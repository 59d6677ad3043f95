"""Erasure: takes rows or partitions out of all that a stopped pipeline keeps, and looks that none is left.

That is the fold's state, dead letters, the pipeline's own logs of replayed and repaired rows, and Spark's scratch. In
the state an erased row becomes an entry that is gone: the hash of its key, and nothing else, until runs are merged. Run
files are written anew beside the old ones, then the manifests that name them are replaced, then the old ones go: a kill
leaves each manifest with the runs that it names, and the next run does the rest. Hashes of changes that were seen stay
until their time is over: they are one-way, and without them a late copy would be delivered again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import InvalidInput, PenstockError, StorageError
from penstock.fold import manifest as manifests
from penstock.fold.bucket import RUNS
from penstock.fold.entries import Content, Entries, binary_array, joined_bytes
from penstock.fold.manifest import BucketRuns, Manifest
from penstock.fold.state_file import Run, RunId, write_run
from penstock.log import erasure
from penstock.log.forgotten import TELLING_BYTES, Target, Wanted
from penstock.log.names import TEMPORARY, directory_name
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline import scratch
from penstock.pipeline.checkpoint import REPAIRED, REPLAYED, SCRATCH
from penstock.pipeline.dead_letters import DeadLetterStore, StoredLetter
from penstock.pipeline.driver_lock import DriverLock
from penstock.system.files import OsFiles

Targets = Callable[[TableSchema], Sequence[Target]]
# How many rows are left of an entry, and the rows.
_Rest = tuple[int, bytes]

_STATE = "state"
_SCAN_BYTES = 8 << 20


@dataclass(slots=True)
class StateReport:
    """What was done to a pipeline's own files, or, in a dry run, would be."""

    directory: str
    # Entries of the state, in all runs that the kept manifests name.
    entries: int = 0
    runs: int = 0
    letters: int = 0
    # Changes in the logs of replayed and repaired rows.
    changes: int = 0
    # What was found when all was read again.
    left: int = 0
    # Files that have the bytes of a key in another place.
    lookalikes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.left

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.directory,
            "state_entries": self.entries,
            "runs": self.runs,
            "dead_letters": self.letters,
            "changes": self.changes,
            "left": self.left,
            "lookalikes": self.lookalikes,
            "complete": self.complete,
        }


def erase(
    directory: Path, letters: Path, table: TableId, targets: Targets, *, now_us: int, dry_run: bool = False
) -> StateReport:
    """Take the targets out of the checkpoint in `directory` and the dead letters in `letters`.

    `targets` gives them by the newest schema that is found. PipelineLocked while a driver runs: stop it first.
    """
    if not (directory / "pipeline.json").exists():
        raise InvalidInput("there is no checkpoint of a pipeline here", directory=directory)
    lock = DriverLock.take(directory, now_us)
    try:
        return _Run(directory, DeadLetterStore(letters), table).run(targets, dry_run=dry_run)
    except OSError as error:
        raise StorageError(f"cannot erase rows: {error.strerror}", directory=directory) from error
    finally:
        lock.release()


class _Run:
    """One run, under the driver's lock."""

    def __init__(self, directory: Path, store: DeadLetterStore, table: TableId) -> None:
        self._directory = directory
        self._state = str(directory / _STATE)
        self._runs = str(directory / _STATE / RUNS)
        self._store = store
        self._table = table
        self.report = StateReport(str(directory))

    def run(self, targets: Targets, *, dry_run: bool) -> StateReport:
        logs = [self._directory / part / directory_name(self._table) for part in (REPLAYED, REPAIRED)]
        if not dry_run:
            self._sweep()
        kept = [manifests.read(self._state, batch) for batch in manifests.batches(self._state)]
        letters = list(self._store.letters(table=str(self._table)))
        schemas = [*self._schemas(kept), *(stored.letter.schema for stored in letters)]
        for log in filter(_is_log, logs):
            self.report.changes += erasure.erase(str(log), targets, dry_run=dry_run).before.changes
        if schemas:
            chosen = targets(max(schemas, key=lambda schema: schema.order))
            self._erase_state(kept, chosen, dry_run=dry_run)
            self._erase_letters(letters, chosen, dry_run=dry_run)
            if not dry_run:
                self._look_again(chosen)
        if dry_run:
            return self.report
        for log in filter(_is_log, logs):
            self.report.left += erasure.erase(str(log), targets, dry_run=True).before.changes
        if (self._directory / SCRATCH).exists():
            scratch.prepare(self._directory / SCRATCH)
        return self.report

    # The state.

    def _schemas(self, kept: Sequence[Manifest]) -> Iterator[TableSchema]:
        for run in {run.file: run for manifest in kept for run in manifest.runs()}.values():
            yield from (piece.schema for piece in self._open(run).pieces if piece.schema.table == self._table)

    def _open(self, run: RunId) -> Run:
        return Run(os.path.join(self._runs, run.file), run)

    def _erase_state(self, kept: Sequence[Manifest], targets: Sequence[Target], *, dry_run: bool) -> None:
        made: dict[str, RunId] = {}
        for run in {run.file: run for manifest in kept for run in manifest.runs()}.values():
            opened = self._open(run)
            hits = self._hits(opened, targets)
            if not hits:
                continue
            self.report.runs += 1
            self.report.entries += sum(map(len, hits.values()))
            if dry_run:
                continue
            opened.verify()
            pieces = (_without(piece.entries(), hits.get(piece.number, {})) for piece in opened.pieces)
            new = write_run(self._runs, run.file.rpartition("-")[0], pieces)
            assert new is not None, "no entry is left out"
            made[run.file] = new
        if made:
            for manifest in kept:
                self._replace(manifest, made)
            self._sweep()

    def _hits(self, run: Run, targets: Sequence[Target]) -> dict[int, dict[int, _Rest]]:
        """By piece and entry, what stays of the entries that have such rows: nothing, or rows of the same hash."""
        out: dict[int, dict[int, _Rest]] = {}
        for piece in run.pieces:
            if piece.schema.table != self._table or piece.content is Content.SEEN:
                continue
            wanted = Wanted(piece.schema, targets)
            entries = piece.entries()
            data, starts = joined_bytes(entries.rows)
            if not any(pattern in data for pattern in wanted.patterns):
                continue
            for at in range(len(entries)):
                rows, count = data[starts[at] : starts[at + 1]], int(entries.lows[at])
                gone, _, _ = wanted.look(rows, count)
                if gone:
                    rest = count - len(gone), wanted.rest(rows, count, gone)
                    out.setdefault(piece.number, {})[at] = rest
        return out

    def _replace(self, manifest: Manifest, made: dict[str, RunId]) -> None:
        """Let a manifest name the new runs; it is the old one or the new one at any moment."""
        state = {
            number: BucketRuns(tuple(made.get(run.file, run) for run in bucket.runs), bucket.expired_to, bucket.due_s)
            for number, bucket in manifest.state.items()
        }
        text = manifests.text(Manifest(manifest.batch, manifest.buckets, state))
        path = manifests.path(self._state, manifest.batch)
        files = OsFiles()
        file = files.open(path + TEMPORARY, write=True, create=True)
        try:
            file.truncate(0)
            file.pwrite(text, 0)
            file.sync()
        finally:
            file.close()
        files.rename(path + TEMPORARY, path)
        files.sync_directory(self._state)

    def _sweep(self) -> None:
        """Remove the runs that no manifest names, of batches that were never committed too: those are done again."""
        named = {
            run.file for batch in manifests.batches(self._state) for run in manifests.read(self._state, batch).runs()
        }
        for directory, keep in ((self._runs, named), (self._state, None)):
            if not os.path.isdir(directory):
                continue
            for name in os.listdir(directory):
                if name.endswith((".tmp", ".draft")) or (keep is not None and name not in keep):
                    os.unlink(os.path.join(directory, name))
            OsFiles().sync_directory(directory)

    # Dead letters.

    def _erase_letters(self, letters: Iterable[StoredLetter], targets: Sequence[Target], *, dry_run: bool) -> None:
        gone = [stored.id for stored in letters if self._is_meant(stored, targets)]
        self.report.letters += len(gone)
        if gone and not dry_run:
            self._store.remove(gone)

    @staticmethod
    def _is_meant(stored: StoredLetter, targets: Sequence[Target]) -> bool:
        wanted = Wanted(stored.letter.schema, targets)
        try:
            return bool(wanted.look(stored.letter.row, 1)[0])
        except PenstockError:
            # One that cannot be decoded: nobody can say that it is not of such a row, when it has the key's bytes.
            return any(pattern in stored.letter.row for pattern in wanted.patterns)

    # Looking again.

    def _look_again(self, targets: Sequence[Target]) -> None:
        kept = [manifests.read(self._state, batch) for batch in manifests.batches(self._state)]
        for run in {run.file: run for manifest in kept for run in manifest.runs()}.values():
            opened = self._open(run)
            opened.verify()
            self.report.left += sum(map(len, self._hits(opened, targets).values()))
        letters = self._store.letters(table=str(self._table))
        self.report.left += sum(self._is_meant(stored, targets) for stored in letters)
        patterns: set[bytes] = set()
        for schema in {*self._schemas(kept)}:
            patterns |= {one for one in Wanted(schema, targets).patterns if len(one) >= TELLING_BYTES}
        places = (path for path in sorted(self._directory.rglob("*")) if path.is_file() and not path.is_symlink())
        self.report.lookalikes = [str(path.relative_to(self._directory)) for path in places if _has(path, patterns)]


def _is_log(directory: Path) -> bool:
    return (directory / "log.json").exists()


def _without(entries: Entries, changed: dict[int, _Rest]) -> Entries:
    """The entries with what is left of some of them; an entry of which nothing is left is gone."""
    if not changed:
        return entries
    data, starts = joined_bytes(entries.rows)
    parts = [changed[at][1] if at in changed else data[starts[at] : starts[at + 1]] for at in range(len(entries))]
    lows, due, dead = (np.array(column) for column in (entries.lows, entries.due, entries.dead))
    for at, (count, _) in changed.items():
        lows[at] = count
        if not count:
            due[at] = dead[at] = 0
    bounds = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    return Entries(
        entries.content, entries.schema, np.array(entries.keys), lows, due, dead, binary_array(bounds, b"".join(parts))
    )


def _has(path: Path, patterns: Iterable[bytes]) -> bool:
    """Whether a file has one of these bytes anywhere."""
    longest = max(map(len, patterns), default=0)
    if not longest:
        return False
    with path.open("rb") as file:
        tail = b""
        while data := file.read(_SCAN_BYTES):
            data = tail + data
            if any(pattern in data for pattern in patterns):
                return True
            tail = data[-longest:]
    return False
