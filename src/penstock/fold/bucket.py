"""BucketState: what a pipeline knows of one bucket of keys, as it was before a micro-batch, plus what the batch adds.

The state is a stack of immutable runs; the newest entry of a key counts. A task reads it, puts new entries on top and
calls `finish`, which writes them as one more run (or merges the newest runs with them, so that there are never many).
Nothing that a task writes is visible before the driver commits the batch, so a batch that is done again starts from the
same state and gives the same records.
"""

from __future__ import annotations

import builtins
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from penstock.fold import manifest as manifests
from penstock.fold.adapt import adapt_rows, surviving
from penstock.fold.entries import Content, Entries, concat, empty_rows, merged_order, nothing
from penstock.fold.manifest import BucketRuns
from penstock.fold.state_file import Piece, Run, RunId, open_runs, write_run
from penstock.model.schema import TableId, TableSchema
from penstock.settings import MergeSettings

# The directory of the run files.
RUNS = "runs"
# So many runs of about the same size are merged to one.
_MERGED_RUNS_MIN = 4
# Runs smaller than this count as equals: to merge them costs less than to look into each.
_SMALL_ENTRIES = 1 << 10
# Entries of one piece of a merged run: what a merge holds in memory at a time.
_PIECE_ENTRIES = 1 << 17


class Kept(NamedTuple):
    """What a task wrote: the file's name (empty: nothing was new), its entries and bytes, and the driver's token."""

    file: str
    rows: int
    bytes: int
    token: builtins.bytes


@dataclass(slots=True)
class BucketState:
    """One bucket. `runs` are those of the last committed batch, oldest first."""

    directory: str
    bucket: int
    batch: int
    runs: tuple[RunId, ...] = ()
    # Up to which second expiries were delivered, and the batch's own second.
    expired_to: int = 0
    now_s: int = 0
    # Tables that this batch leaves as they are, and of tables that others have left so, up to where theirs expired.
    aside: frozenset[TableId] = frozenset()
    expired: Mapping[TableId, int] = field(default_factory=dict)
    # How long a row that is gone is remembered, so that late copies of older writes stay covered.
    forget_deleted_s: int = MergeSettings().forget_deleted_s
    # What this batch added, by table and content, oldest first.
    _fresh: dict[tuple[TableId, Content], list[Entries]] = field(default_factory=dict)
    _open: list[Run] | None = None
    # Pieces of the runs by table and content, newest first.
    _index: dict[tuple[TableId, Content], list[Piece]] = field(default_factory=dict)

    @staticmethod
    def open(state_directory: str, bucket: int, batch: int) -> BucketState:
        """A bucket as it was before a batch."""
        before = manifests.before(state_directory, batch)
        known = (before.state.get(bucket) if before else None) or BucketRuns()
        directory = os.path.join(state_directory, RUNS)
        return BucketState(directory, bucket, batch, known.runs, known.expired_to, known.expired_to)

    def opened(self) -> list[Run]:
        if self._open is None:
            self._open = open_runs(self.directory, self.bucket, self.runs)
            for run in reversed(self._open):
                for piece in run.pieces:
                    self._index.setdefault((piece.schema.table, piece.content), []).append(piece)
        return self._open

    def put(self, entries: Entries) -> None:
        """Add entries of this batch; they hide older ones with the same keys."""
        if len(entries):
            self._fresh.setdefault((entries.table, entries.content), []).append(entries)

    def tables(self) -> list[TableId]:
        """The tables that have rows in the state."""
        self.opened()
        return sorted({table for table, content in (*self._index, *self._fresh) if content is Content.ROWS})

    def schemas(self, table: TableId) -> list[TableSchema]:
        """The versions of a table's schema that the state is written with, oldest first."""
        found: dict[tuple[str, str], TableSchema] = {}
        for source in reversed(self._sources(table, Content.ROWS)):
            found.setdefault((source.schema.fingerprint, source.schema.id), source.schema)
        return sorted(found.values(), key=lambda schema: schema.order)

    def _sources(self, table: TableId, content: Content) -> list[Piece | Entries]:
        """Pieces of a table, newest first; pieces of one run do not overlap."""
        self.opened()
        key = (table, content)
        return [*reversed(self._fresh.get(key, [])), *self._index.get(key, ())]

    def find(self, chain: Sequence[TableSchema], keys: Any, *, ordered: bool = True) -> tuple[Any, Entries]:
        """The rows under these keys (sorted and unique): which keys have any, and their entries in that order.

        The entries are of the last schema of `chain`. Unless they must be `ordered`, both come as they were found.
        """
        schema = chain[-1]
        missing = np.ones(len(keys), bool)
        hits: list[Any] = []
        found: list[Entries] = []
        for source in self._sources(schema.table, Content.ROWS):
            start, stop = _span(source, keys)
            numbers = start + np.flatnonzero(missing[start:stop])
            if not len(numbers):
                continue
            wanted = keys[numbers]
            entries = source.entries() if isinstance(source, Piece) else source
            places = np.searchsorted(entries.keys, wanted)
            places[places == len(entries)] = 0
            there = entries.keys[places] == wanted
            if there.any():
                hits.append(numbers[there])
                found.append(_adapted(entries.take(places[there]), chain))
                missing[numbers[there]] = False
        if not found:
            return np.zeros(0, np.int64), nothing(Content.ROWS, schema)
        numbers, merged = hits[0], found[0]
        if len(found) > 1:
            numbers, merged = np.concatenate(hits), concat(found, schema)
            if ordered:
                order = np.argsort(numbers)
                numbers, merged = numbers[order], merged.take(order)
        alive = np.flatnonzero(merged.lows > 0)
        return (numbers, merged) if len(alive) == len(merged) else (numbers[alive], merged.take(alive))

    def find_range(self, chain: Sequence[TableSchema], first: Any, last: Any) -> Entries:
        """The rows with keys from `first` to `last`, in the order of their keys."""
        schema = chain[-1]
        pieces = []
        for source in self._sources(schema.table, Content.ROWS):
            if isinstance(source, Piece) and (last < source.first or first > source.last):
                continue
            entries = source.entries() if isinstance(source, Piece) else source
            start = int(np.searchsorted(entries.keys, first))
            stop = int(np.searchsorted(entries.keys, last, side="right"))
            if stop > start:
                pieces.append(_adapted(entries.slice(start, stop), chain))
        return _newest(pieces, schema)

    def has_wide(self, table: TableId) -> bool:
        """Whether any partition, or the table itself, has an entry of its own."""
        for source in self._sources(table, Content.ROWS):
            wide = source.wide if isinstance(source, Piece) else bool((source.keys & 0xFFFFFFFF == 0).any())
            if wide:
                return True
        return False

    def may_expire(self, table: TableId) -> bool:
        """Whether the state has anything of a table that expires until this batch; cheap where it has not."""
        for source in self._sources(table, Content.ROWS):
            if not isinstance(source, Piece) or 0 < source.due_first <= self.now_s:
                return True
        return False

    def expired_since(self, table: TableId) -> int:
        """Up to which second a table's expiries were delivered."""
        return self.expired.get(table, self.expired_to)

    def due(self, table: TableId, now_s: int) -> Any:
        """The keys of entries that may have something that expired since the last batch, sorted."""
        since_s = self.expired_since(table)
        out = []
        for source in self._sources(table, Content.ROWS):
            if isinstance(source, Piece) and not 0 < source.due_first <= now_s:
                continue
            entries = source.entries() if isinstance(source, Piece) else source
            out.append(entries.keys[(entries.due > since_s) & (entries.due <= now_s)])
        return np.unique(np.concatenate(out)) if out else np.zeros(0, np.uint64)

    def shelves(self, table: TableId) -> list[Entries]:
        """Changes to columns that the table did not have, by the version of the schema that has them."""
        found: dict[tuple[str, str], list[Entries]] = {}
        for source in self._sources(table, Content.SHELF):
            entries = source.entries() if isinstance(source, Piece) else source
            found.setdefault((entries.schema.fingerprint, entries.schema.id), []).append(entries)
        newest = [_newest(pieces, pieces[0].schema, Content.SHELF) for pieces in found.values()]
        living = [entries.take(np.flatnonzero(entries.lows > 0)) for entries in newest]
        return sorted(filter(len, living), key=lambda entries: entries.schema.order)

    def count(self, table: TableId) -> int:
        """How many entries the state has of a table at most."""
        sources = self._sources(table, Content.ROWS)
        return sum(source.count if isinstance(source, Piece) else len(source) for source in sources)

    def seen(self, table: TableId, highs: Any, lows: Any) -> tuple[Any, Any]:
        """Remembered changes among these hashes (sorted by `highs`): their places in `highs`, and their nodes."""
        hits: list[Any] = []
        nodes: list[Any] = []
        for source in self._sources(table, Content.SEEN):
            start, stop = _span(source, highs)
            if stop == start:
                continue
            entries = source.entries() if isinstance(source, Piece) else source
            starts = np.searchsorted(entries.keys, highs[start:stop])
            # Most are new, and need not be looked for any further.
            found = np.flatnonzero(entries.keys[np.minimum(starts, len(entries) - 1)] == highs[start:stop])
            if not len(found):
                continue
            starts = starts[found]
            sizes = np.searchsorted(entries.keys, highs[start + found], side="right") - starts
            asked = start + np.repeat(found, sizes)
            places = np.arange(len(asked)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(starts, sizes)
            same = entries.lows[places] == lows[asked]
            hits.append(asked[same])
            nodes.append(entries.dead[places[same]])
        if not hits:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate(hits), np.concatenate(nodes)

    def finish(self) -> Kept:
        """Write what the batch added; it is visible when the driver has committed the token."""
        runs = list(self.opened())
        fresh = sum(len(entries) for several in self._fresh.values() for entries in several)
        merged = _merged_runs([run.id.entries for run in runs], fresh) if fresh else 0
        kept, older = runs[: len(runs) - merged], runs[len(runs) - merged :]
        for run in older:
            run.verify()
        name = f"b{self.bucket:05d}-{self.batch:012d}"
        made = None
        if self._fresh:
            made = write_run(self.directory, name, self._merge(older, whole=not kept))
        ids = tuple(run.id for run in kept) + ((made,) if made else ())
        token = json.dumps(BucketRuns(ids, max(self.now_s, self.expired_to), self._next_due()).to_json()).encode()
        self._fresh = {}
        return Kept(made.file, made.entries, made.bytes, token) if made else Kept("", 0, 0, token)

    def _next_due(self) -> int:
        """The first second after this batch at which something may expire; 0 when nothing does."""
        found: list[int] = []
        pieces = [p for (_, content), several in self._index.items() if content is Content.ROWS for p in several]
        fresh = [e for (_, content), several in self._fresh.items() if content is Content.ROWS for e in several]
        sources: list[Piece | Entries] = [*pieces, *fresh]
        for source in sources:
            if isinstance(source, Piece) and (source.due_first == 0 or source.due_first > self.now_s):
                found += [source.due_first] if source.due_first else []
                continue
            entries = source.entries() if isinstance(source, Piece) else source
            later = entries.due[entries.due > self.now_s]
            found += [int(later.min())] if len(later) else []
        return min(found, default=0)

    def _merge(self, runs: Sequence[Run], *, whole: bool) -> Iterator[Entries]:
        """The newest entries of these runs and of this batch, piece by piece."""
        groups: dict[tuple[TableId, Content, str], list[Piece | Entries]] = {}
        sources: Iterator[Piece | Entries] = itertools.chain(
            (entries for several in self._fresh.values() for entries in reversed(several)),
            (piece for run in reversed(runs) for piece in run.pieces),
        )
        for source in sources:
            schema, content = source.schema, source.content
            # A change on the shelf can only be written down with the columns that it is of.
            mark = f"{schema.fingerprint}/{schema.id}" if content is Content.SHELF else ""
            groups.setdefault((schema.table, content, mark), []).append(source)
        for (table, content, _), several in sorted(groups.items()):
            yield from self._merge_group(table, content, several, whole=whole)

    def _merge_group(
        self, table: TableId, content: Content, sources: Sequence[Piece | Entries], *, whole: bool
    ) -> Iterator[Entries]:
        """The newest entries of pieces of one kind, newest first."""
        versions = self.schemas(table) if content is Content.ROWS else [sources[0].schema]
        opened = [source.entries() if isinstance(source, Piece) else source for source in sources]
        for first, last in _ranges(opened):
            parts = []
            for entries in opened:
                start = int(np.searchsorted(entries.keys, first))
                stop = int(np.searchsorted(entries.keys, last, side="right"))
                if stop > start:
                    parts.append(_adapted(entries.slice(start, stop), versions))
            yield self._kept(_newest(parts, versions[-1], content), whole=whole)

    def _kept(self, entries: Entries, *, whole: bool) -> Entries:
        """Without what need not be remembered any longer; entries that hide older ones stay until those are here."""
        if entries.content is Content.SEEN:
            keep = entries.due > self.now_s
        elif whole:
            # What is on the shelf is never dead.
            forgotten = (entries.dead > 0) & (entries.dead + self.forget_deleted_s <= self.now_s)
            keep = (entries.lows > 0) & ~forgotten
        else:
            return entries
        return entries if keep.all() else entries.take(np.flatnonzero(keep))


def _span(source: Piece | Entries, keys: Any) -> tuple[int, int]:
    """Which of the sorted keys can be in a piece."""
    if not isinstance(source, Piece):
        return 0, len(keys)
    first, last = np.uint64(source.first), np.uint64(source.last)
    return int(np.searchsorted(keys, first)), int(np.searchsorted(keys, last, side="right"))


def _merged_runs(sizes: list[int], fresh: int) -> int:
    """How many of the newest runs to merge with the fresh entries: each not much greater than all newer ones."""
    total = max(fresh, _SMALL_ENTRIES)
    merged = 0
    for size in reversed(sizes):
        if size > 2 * total:
            break
        total += size
        merged += 1
    return merged if merged >= _MERGED_RUNS_MIN - 1 else 0


def _ranges(sources: Sequence[Entries]) -> Iterator[tuple[Any, Any]]:
    """Ranges of keys that together hold all entries, with a bounded number of entries each."""
    total = sum(map(len, sources))
    parts = -(-total // _PIECE_ENTRIES)
    largest = max(sources, key=len)
    cuts = [largest.keys[len(largest) * part // parts] for part in range(1, parts)]
    first = np.uint64(0)
    for cut in cuts:
        if cut > first:
            yield first, cut - np.uint64(1)
            first = cut
    yield first, np.uint64(0xFFFFFFFFFFFFFFFF)


def _newest(pieces: list[Entries], schema: TableSchema, content: Content = Content.ROWS) -> Entries:
    """Of each key the entry of the first piece that has it; of seen changes every different one."""
    if not pieces:
        return nothing(content, schema)
    if len(pieces) == 1:
        return pieces[0]
    both = concat(pieces, schema)
    if content is Content.SEEN and both.dead.any():
        order = np.lexsort((both.dead, both.lows, both.keys))
        keys, lows, nodes = both.keys[order], both.lows[order], both.dead[order]
        first = np.ones(len(order), bool)
        first[1:] = (keys[1:] != keys[:-1]) | (lows[1:] != lows[:-1]) | (nodes[1:] != nodes[:-1])
        return both.take(order[first])
    lows = both.lows if content is Content.SEEN else both.keys
    return both.take(merged_order(list(map(len, pieces)), both.keys, lows))


def _gone(entries: Entries, schema: TableSchema) -> Entries:
    """Entries of another table that had the name: nothing is left of them."""
    if entries.content is Content.SEEN:
        return replace(entries, schema=schema)
    none = np.zeros(len(entries), np.int64)
    return Entries(entries.content, schema, entries.keys, none.astype(np.uint64), none, none, empty_rows(len(entries)))


def _adapted(entries: Entries, chain: Sequence[TableSchema]) -> Entries:
    schema = chain[-1]
    if entries.schema is schema:
        return entries
    if entries.schema.id and schema.id and entries.schema.id != schema.id:
        return _gone(entries, schema)
    if entries.schema.fingerprint == schema.fingerprint:
        return entries
    if entries.content is Content.SEEN:
        # Hashes of changes mean the same under every version.
        return replace(entries, schema=schema)
    keep = surviving(chain, entries.schema, schema)
    rows = adapt_rows(entries.rows, entries.lows, entries.schema, schema, keep)
    return Entries(entries.content, schema, entries.keys, entries.lows, entries.due, entries.dead, rows)
