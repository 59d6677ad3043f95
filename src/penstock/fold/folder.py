"""Folder: runs of encoded changes from all nodes become records, one bucket at a time.

What is done depends on the records that the sinks want. CHANGE: distinct changes, each once. AFTER and ALL: the rows'
states are kept, changes are joined to them, and a record is made of each change that altered anything, with the whole
row after it (and before it); what expires makes records too. docs/concepts/fold.md has the rules. Nothing is kept in
the folder itself: all that is remembered is in the bucket's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.fold import shelf
from penstock.fold.adapt import adapt, surviving
from penstock.fold.bucket import BucketState
from penstock.fold.by_log import LogFold
from penstock.fold.distinct import distinct, node_number
from penstock.fold.eras import Drop, Move, floors_of
from penstock.fold.rows import RowFold
from penstock.fold.source_order import climbing, source_order
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deletion, Op
from penstock.model.schema import Order, TableId, TableSchema
from penstock.records import keys
from penstock.records.keys import TIMELESS, Scan
from penstock.records.records import Records, images
from penstock.records.runs import Run
from penstock.settings import Copies, MergeSettings, RecordType

# The name of the node whose log has rows as a repair has read them from the source.
REPAIRED = "repaired"
# The number of the operation.
_TRUNCATE = 5
# Spreads the numbers of eras over the bits of a hash.
_ERA_FACTOR = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1
# A floor that no time is below of.
_BEFORE_ALL = -(1 << 63)


class Folder:
    """How to fold; the same for all buckets and batches of a pipeline."""

    def __init__(
        self,
        merge: MergeSettings,
        record: RecordType,
        *,
        every: bool,
        moves: Mapping[TableId, Move] | None = None,
        eras: Mapping[TableId, int] | None = None,
        newest: Mapping[TableId, TableSchema] | None = None,
        drops: Mapping[TableId, Sequence[Drop]] | None = None,
    ) -> None:
        """`moves` is what this batch changes about tables, `eras` the numbers of their eras; without: 0.

        `newest` has the last version of tables of which the batch has older ones, `drops` the drops of columns that it
        does not know of any more.
        """
        self._copies = merge.copies
        self._quorum = merge.quorum if merge.copies is Copies.QUORUM else 1
        self._window_s = merge.window_s
        self._forget_deleted_s = merge.forget_deleted_s
        self._record = record
        self._every = every
        self._moves = moves or {}
        self._eras = eras or {}
        self._newest = newest or {}
        self._drops = drops or {}

    def fold(self, runs: Sequence[Run], state: BucketState, *, now_s: int) -> Iterator[Records]:
        """The records of the runs, and of what expired until `now_s`, table by table.

        The runs are of the present era of their tables; what ends an era comes before them.
        """
        # Time does not go back for the state, whatever the clock says.
        state.now_s = max(now_s, state.expired_to)
        state.forget_deleted_s = self._forget_deleted_s
        tables: dict[TableId, list[Run]] = {}
        # Of copies the first one counts; by node, because runs may come in another order when a batch is done again. Of
        # one node they are taken as its log has them, because not every database gives its changes times.
        repairs: dict[TableId, list[Run]] = {}
        for run in sorted(runs, key=lambda run: (run.node, run.place)):
            if run.count:
                (repairs if run.node == REPAIRED else tables).setdefault(run.schema.table, []).append(run)
        # What concerns a whole table is told once, and any bucket will do.
        lead = state.bucket == 0
        if self._record is RecordType.CHANGE:
            for table in sorted(set(tables) | self._moves.keys()):
                if lead:
                    yield from self._beginning(table)
                for made in self._changes(tables.get(table, []), state):
                    told = made if lead else _without_truncations(made)
                    if len(told):
                        yield told if self._every else told.last()
            return
        known = set(state.tables()) - state.aside
        for table in sorted(known | set(tables) | set(repairs) | self._moves.keys()):
            several, repaired = tables.get(table, []), repairs.get(table, [])
            if table in self._moves:
                yield from self._move(table, state, lead=lead)
            elif not several and not repaired and not state.may_expire(table):
                continue
            rows = self._rows(table, several, repaired, state, lead=lead)
            if rows is not None and len(rows):
                yield rows

    def _beginning(self, table: TableId) -> Iterator[Records]:
        """The record that an era begins with, if one does."""
        move = self._moves.get(table)
        if move is not None and move.began_us:
            batch = avro.encode(move.schema, [_truncation(move)])
            none = None if self._record is RecordType.CHANGE else images(move.schema, avro.encode(move.schema, []), 0)
            after = None if none is None else none.take(pa.array([None], pa.int64()))
            before = after if self._record is RecordType.ALL else None
            ops, times = np.array([_TRUNCATE], np.uint8), np.array([move.began_us], np.int64)
            yield Records(move.schema, batch, after, before, pa.array(times), ops, times)

    def _move(self, table: TableId, state: BucketState, *, lead: bool) -> Iterator[Records]:
        """End the table's era, if another begins: its rows go, and where it is still the same table, one by one."""
        move = self._moves[table]
        if not move.began_us:
            return
        known = state.schemas(table)
        if known:
            same = known[-1].id == move.schema.id or not known[-1].id
            chain = _chain(known, [move.schema]) if same else [one for one in known if one.id == known[-1].id]
            fold = RowFold(chain, state, every=self._every, before=self._record is RecordType.ALL)
            rows = fold.begin_era(_truncation(move), move.schema, told=same)
            if rows is not None and len(rows):
                yield rows
        if lead:
            yield from self._beginning(table)

    def _changes(self, runs: list[Run], state: BucketState) -> Iterator[Records]:
        versions: dict[str, list[Run]] = {}
        for run in runs:
            versions.setdefault(run.schema.fingerprint, []).append(run)
        for several in sorted(versions.values(), key=lambda runs: runs[0].schema.order):
            scan, nodes = _scanned(several, self._eras.get(several[0].schema.table, 0))
            chosen = np.arange(len(scan))
            if scan.schema.ordered_by is Order.LOG:
                yield from self._in_order(scan, nodes, state)
                continue
            if scan.schema.id:
                # The eras say what a truncation means, and tell it once.
                chosen = np.flatnonzero(scan.ops != _TRUNCATE)
            if self._copies is not Copies.EACH:
                fresh = distinct(scan, nodes, state, quorum=self._quorum, window_s=self._window_s)
                chosen = fresh if len(chosen) == len(scan) else fresh[np.isin(fresh, chosen)]
            if len(chosen):
                yield _records_of(scan, chosen)

    def _in_order(self, scan: Scan, nodes: Any, state: BucketState) -> Iterator[Records]:
        """Changes that have places in their source's log, each place once."""
        places = source_order(ChangeBatch(scan.schema, len(scan), scan.rows))
        chosen = places.sorted()
        if self._copies is not Copies.EACH:
            places.mark(scan)
            fresh = distinct(scan, nodes, state, quorum=1, window_s=self._window_s)
            chosen = chosen[np.isin(chosen, fresh)]
        if len(chosen):
            versions = pa.array(_growing(scan, chosen, places.whens[chosen]), pa.int64())
            batch = ChangeBatch(scan.schema, len(chosen), scan.pick(chosen))
            yield Records(scan.schema, batch, None, None, versions, scan.ops[chosen], None)

    def _rows(
        self, table: TableId, runs: list[Run], repaired: list[Run], state: BucketState, *, lead: bool
    ) -> Records | None:
        known = state.schemas(table)
        if not runs and not repaired and not known and not state.shelves(table):
            return None
        runs, repaired = self._without_dropped(table, runs), self._without_dropped(table, repaired)
        told = [self._moves[table].schema] if table in self._moves else []
        told += [self._newest[table]] if table in self._newest else []
        chain = _chain(known, [*(run.schema for run in (*runs, *repaired)), *told])
        by_log = chain[-1].ordered_by is Order.LOG
        law = LogFold if by_log else RowFold
        floors = self._moves[table].floors if table in self._moves else {}
        shelf.forget(state, table, floors)
        fold = law(chain, state, every=self._every, before=self._record is RecordType.ALL, lead=lead, floors=floors)
        several = len({run.node for run in runs}) > 1
        whole = _joined(chain, (run.batch() for run in repaired)) if repaired else None
        if by_log:
            return fold.fold(_joined(chain, (run.batch() for run in runs)), repaired=whole)
        batches = self._with_shelf(self._batches(runs, state), chain[-1], state)
        return fold.fold(_joined(chain, batches), copies=several, repaired=whole)

    def _without_dropped(self, table: TableId, runs: list[Run]) -> list[Run]:
        """The runs without cells that drops took of which the last version does not know any more."""
        drops = self._drops.get(table)
        return [shelf.above(run, floors_of(drops, run.schema.altered)) for run in runs] if drops else runs

    @staticmethod
    def _with_shelf(batches: Iterable[ChangeBatch], schema: TableSchema, state: BucketState) -> Iterator[ChangeBatch]:
        """The batches, and what waited for columns that are there again; what is of dropped columns waits from now."""
        for batch in batches:
            times = shelf.drops(batch.schema, schema)
            if times:
                shelf.put(state, batch.schema, shelf.newer_changes(batch, times))
            yield batch
        yield from shelf.take(state, schema)

    def _batches(self, runs: list[Run], state: BucketState) -> Iterator[ChangeBatch]:
        """The changes that are joined: all of them, or with a quorum those that enough nodes have logged."""
        if self._quorum < 2:
            for run in runs:
                yield run.batch()
            return
        for records in self._changes(runs, state):
            yield records.changes


def _joined(chain: Sequence[TableSchema], batches: Iterable[ChangeBatch]) -> ChangeBatch:
    """Batches as one, of the last version of the schema."""
    schema = chain[-1]
    found = []
    for batch in batches:
        if batch.schema.fingerprint != schema.fingerprint:
            batch = adapt(batch, schema, surviving(chain, batch.schema, schema))
        found.append(batch)
    rows = found[0].rows if len(found) == 1 else b"".join(batch.rows for batch in found)
    return ChangeBatch(schema, sum(batch.count for batch in found), rows)


def _truncation(move: Move) -> Change:
    """The change that begins an era."""
    return Change(Op.TRUNCATE, time=move.began_us, deletion=Deletion(move.began_us))


def _without_truncations(records: Records) -> Records:
    """Without what another bucket tells: truncations come to all of them."""
    if records.ops is None or not (records.ops == _TRUNCATE).any():
        return records
    return records.take(np.flatnonzero(records.ops != _TRUNCATE))


def _scanned(runs: list[Run], era: int) -> tuple[Scan, Any]:
    """One scan of runs of one schema version, and per change the number of its node.

    What a change says is hashed with the number of its era: the same said again after a truncation is no copy.
    """
    rows = bytes(runs[0].rows) if len(runs) == 1 else b"".join(run.rows for run in runs)
    counts = [run.count for run in runs]
    scan = keys.scan(ChangeBatch(runs[0].schema, sum(counts), rows))
    if era:
        scan.hashes[:, keys.CONTENT_HIGH] ^= np.uint64(era * _ERA_FACTOR & _WORD)
        scan.hashes[:, keys.CONTENT_LOW] ^= np.uint64((era + 1) * _ERA_FACTOR & _WORD)
    return scan, np.repeat(np.array([node_number(run.node) for run in runs], np.int64), counts)


def _records_of(scan: Scan, chosen: Any) -> Records:
    """Changes as records, in the order of their write times where all of them have one."""
    times = scan.times[chosen]
    timed = not (scan.flags[chosen] & TIMELESS).any()
    if timed:
        chosen = chosen[scan.ordered(chosen, np.zeros(len(chosen), np.int64))]
        times = scan.times[chosen]
    batch = ChangeBatch(scan.schema, len(chosen), scan.pick(chosen))
    versions = pa.array(_growing(scan, chosen, times), pa.int64())
    return Records(scan.schema, batch, None, None, versions, scan.ops[chosen], times if timed else None)


def _growing(scan: Scan, chosen: Any, times: Any) -> Any:
    """Versions: the times, made to grow within each row."""
    groups, _ = scan.group_by_key()
    groups = groups[chosen]
    order = np.argsort(groups, kind="stable")
    groups, ordered = groups[order], times[order]
    if not ((groups[1:] == groups[:-1]) & (ordered[1:] <= ordered[:-1])).any():
        return times
    versions = np.empty(len(chosen), np.int64)
    versions[order] = climbing(groups, ordered, np.full(len(groups), _BEFORE_ALL))
    return versions


def _chain(known: list[TableSchema], given: list[TableSchema]) -> list[TableSchema]:
    """All versions of a table's schema that are around, in order; equal ones once."""
    found: dict[str, TableSchema] = {}
    for schema in [*known, *given]:
        other = found.get(schema.fingerprint)
        if other is None or schema.order > other.order:
            found[schema.fingerprint] = schema
    return sorted(found.values(), key=lambda schema: schema.order)
