"""The fold of rows: changes of one table in one bucket are joined to the rows' states, and records are made of it.

Most rows go the native way (`_join`): their changes touch plain cells only, and nothing is known of their partition but
its rows. The others go the exact way (`exact`), by partition. Both read prior states from the bucket's state, put new
ones there, and give the same result; a property test holds them to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.fold import shelf
from penstock.fold._join import Joiner
from penstock.fold.bucket import BucketState
from penstock.fold.collector import Collector, News
from penstock.fold.entries import TABLE_KEY, Entries, binary_array, joined_bytes, partition_range
from penstock.fold.exact import ExactFold, Kept, Told
from penstock.fold.narrowing import narrow, showing
from penstock.fold.table_entry import TableEntry
from penstock.fold.ties import tie_of
from penstock.formats import avro
from penstock.formats._kernel import RowReader
from penstock.formats.program import program
from penstock.merge.cql_value import one_spelling
from penstock.merge.dropped import without_older
from penstock.merge.range_deletions import NEVER, greater
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deletion, Op
from penstock.model.schema import Role, TableSchema
from penstock.records import keys
from penstock.records.keys import COMPLEX, START, STATIC, TAIL, WHOLE, Scan, view
from penstock.records.records import Records

_HALF = np.uint64(32)
_UPDATE, _DELETE, _DELETE_PARTITION, _DELETE_RANGE, _TRUNCATE = 1, 2, 3, 4, 5
# How many entries of the state are looked at together when a whole table is deleted.
_SWEEP_ENTRIES = 1 << 14


class RowFold:
    """One table in one bucket and one batch. `chain` has the versions of its schema; the last one counts."""

    def __init__(
        self,
        chain: Sequence[TableSchema],
        state: BucketState,
        *,
        every: bool,
        before: bool,
        lead: bool = True,
        floors: Mapping[str, int] | None = None,
    ) -> None:
        """`lead`: this bucket tells what concerns the table as a whole, so that only one does.

        `floors`: by column the time up to which cells that are in the state went with a drop that the last version of
        the schema does not know of any more.
        """
        self.chain = chain
        self.lead = lead
        self._passed = floors or {}
        self.schema = chain[-1]
        self.state = state
        self.every = every
        self.before = before
        self.collector = Collector(self.schema, state.now_s, before=before)
        self.wide = state.has_wide(self.schema.table)
        self.entry = self._entry() if self.wide else TableEntry()
        self.floor = NEVER if self.entry.truncation is None else self.entry.truncation.time
        self._told = False
        self._simple = not self.schema.clustering
        cells = self.schema.cells
        self.complex = any(column.type.multi_cell for column in cells)
        self._statics = frozenset(column.name for column in cells if column.role is Role.STATIC)
        # Where a collection was dropped and added again, what its elements are depends on their times.
        again = any(column.dropped_us is not None and column.type.multi_cell for column in cells)
        self._plain = not again and all(one_spelling(column.type) for column in self.schema.clustering)

    def fold(self, batch: ChangeBatch, *, copies: bool = True, repaired: ChangeBatch | None = None) -> Records | None:
        """Join the changes, after what expired since the last batch; the records of both.

        Last of all, rows that a repair has read from the source take the place of what is known of them up to then.

        `copies` says that changes may be there several times, as when they come from several nodes: then it pays to
        look at what they say at once. Else that is done when two of a row have the same time.
        """
        self._drop_columns()
        self._expire()
        self._batch = batch
        self._content = copies
        scan = keys.scan(batch, content=copies)
        if len(scan):
            self._keys = scan.state_keys()
            rows = np.flatnonzero(scan.ops != _TRUNCATE)
            exact = self._exact_partitions(scan, rows)
            if len(rows):
                exact = self._native(scan, rows, exact)
            if exact:
                self._exact(self._with_content(scan), rows, exact)
            self._truncate(scan)
        if repaired is not None:
            self._repair(repaired)
        return self._records()

    def _records(self) -> Records | None:
        # The native way gives the last records of its rows by itself; what comes beside it may be of the same rows.
        alone = self.collector.parts == 1 and not self._told
        return self.collector.records(every=self.every, single=alone and not self.every)

    def _with_content(self, scan: Scan) -> Scan:
        """The scan with hashes of what the changes say."""
        if self._content:
            return scan
        self._content = True
        # What was found so far is found again, in the same places.
        scan.hashes[:] = keys.scan(self._batch).hashes
        return scan

    # The native way.

    def _exact_partitions(self, scan: Scan, rows: Any) -> set[int]:
        """The upper halves of the keys of partitions that must go the exact way."""
        whole = len(rows) == len(scan)
        flags = scan.flags if whole else scan.flags[rows]
        ops = scan.ops if whole else scan.ops[rows]
        partitions = (self._keys if whole else self._keys[rows]) >> _HALF
        if not self._plain:
            return set(np.unique(partitions).tolist())
        odd = (flags & WHOLE == 0) | (flags & (STATIC | COMPLEX) != 0) | (ops == _DELETE_RANGE)
        if not self._simple:
            odd |= ops == _DELETE_PARTITION
        if self.complex:
            # A deletion of a row reaches into its collections.
            odd |= (flags & keys.DELETING != 0) | (ops == _DELETE) | (ops == _DELETE_PARTITION)
        found = set(np.unique(partitions[odd]).tolist()) if odd.any() else set()
        if self.wide:
            headers = np.unique(partitions) << _HALF
            hits, _ = self.state.find(self.chain, headers)
            found |= set((headers[hits] >> _HALF).tolist())
        return found

    def _native(self, scan: Scan, rows: Any, exact: set[int]) -> set[int]:
        """Join what can be joined as bytes; the partitions that cannot, with those that turned out so."""
        if exact:
            wide = np.array(sorted(exact), np.uint64)
            rows = rows[~np.isin(self._keys[rows] >> _HALF, wide)]
        if not len(rows):
            return exact
        groups, firsts = scan.group_by_key()
        chosen = np.arange(len(firsts)) if len(rows) == len(scan) else np.unique(groups[rows])
        group_keys = self._keys[firsts[chosen]]
        order = np.argsort(group_keys)
        chosen, group_keys = chosen[order], group_keys[order]
        twins = group_keys[1:] == group_keys[:-1]
        bad = set((group_keys[1:][twins] >> _HALF).tolist())
        if not bad:
            bad = self._joined(scan, rows, (groups, chosen, group_keys))
        return self._native(scan, rows, exact | bad) if bad else exact

    def _joined(self, scan: Scan, rows: Any, grouped: tuple[Any, Any, Any]) -> set[int]:
        """Join groups of changes to what the state has of their rows; or the partitions where that is not one row."""
        group_keys = grouped[2]
        # What is told of the rows before needs the priors in order; else the order does not matter.
        places, priors = self.state.find(self.chain, group_keys, ordered=self.before or self.complex)
        several = priors.lows != 1
        if several.any():
            return set((group_keys[places[several]] >> _HALF).tolist())
        data, starts = joined_bytes(priors.rows)
        prior_starts = np.full(len(group_keys), -1, np.int64)
        prior_starts[places] = starts[:-1]
        clashes = self._join(scan, rows, grouped, data, prior_starts, priors)
        return set((group_keys[clashes] >> _HALF).tolist())

    def _join(
        self, scan: Scan, rows: Any, grouped: tuple[Any, Any, Any], data: bytes, prior_starts: Any, priors: Entries
    ) -> list[int]:
        """Join, and keep what came of it; or nothing, but the groups whose prior state is another row's."""
        groups, chosen, group_keys = grouped
        order, bounds = self._order(scan, rows, groups, chosen)
        return self._follow(scan, scan.times, order, bounds, group_keys, data, prior_starts, priors)

    def _follow(
        self,
        scan: Scan,
        times: Any,
        order: Any,
        bounds: Any,
        group_keys: Any,
        data: bytes,
        prior_starts: Any,
        priors: Entries,
    ) -> list[int]:
        """Join changes that are in order, with these times; the groups whose prior state is another row's."""
        records = np.zeros((len(order) if self.every else len(group_keys), 4), np.int64)
        altered = np.zeros((len(group_keys), 4), np.int64)
        # Unless every record is wanted, the states can hardly take more than what they are made of. What of it is not
        # needed is never touched.
        joiner = self._joiner(len(scan.rows) + len(data))
        joiner.join(
            scan.reader,
            view(scan.places),
            view(scan.marks),
            view(times),
            view(order),
            view(bounds),
            RowReader(data),
            view(prior_starts),
            self.floor,
            self.state.now_s,
            self.every,
            view(records),
            view(altered),
        )
        records = records[: joiner.records]
        altered = altered[: joiner.rows]
        if joiner.clashes or not len(records):
            return joiner.clashes
        states = joiner.out.give()
        ends = np.concatenate(([0], records[:, 2]))
        numbers = np.arange(len(records))
        befores = np.full(len(records), -1, np.int64)
        extra, extra_count = b"", 0
        if self.before:
            extra, extra_count, befores = self._befores(records, altered, prior_starts, data, priors)
        news = self._news(scan, np.ascontiguousarray(records[:, 0]), records[:, 1])
        self.collector.add(news, [states, extra], len(records) + extra_count, numbers, befores)
        kept = binary_array(ends, states)
        if self.every:
            kept = kept.take(altered[:, 1])
        due, alive = altered[:, 2], altered[:, 3]
        if self.complex:
            due = self._with_prior_due(altered, prior_starts, priors, due)
        dead = np.where(alive > 0, 0, max(self.state.now_s, 1))
        ones = np.ones(len(altered), np.uint64)
        self.state.put(Entries.of_rows(self.schema, group_keys[altered[:, 0]], ones, due, dead, kept))
        return []

    def _order(self, scan: Scan, rows: Any, groups: Any, chosen: Any) -> tuple[Any, Any]:
        """The changes by group, in the order of time and each once, and where each group begins among them."""
        ranks = np.zeros(int(groups.max()) + 1, np.int64)
        ranks[chosen] = np.arange(len(chosen))
        whole = len(rows) == len(scan)
        mine = ranks[groups if whole else groups[rows]]
        found = scan.in_time(rows, mine, len(chosen))
        if found is not None:
            return found[0] if whole else rows[found[0]], found[1]
        scan = self._with_content(scan)
        order = scan.ordered(rows, mine)
        order = order[~scan.repeated(rows[order], mine[order])]
        bounds = np.searchsorted(mine[order], np.arange(len(chosen) + 1)).astype(np.int64)
        return rows[order], bounds

    @staticmethod
    def _news(scan: Scan, chosen: Any, versions: Any) -> News:
        """These changes; where a partition is one row, its deletion is told as the row's own."""
        ops = scan.ops[chosen]
        times = None if (scan.flags[chosen] & keys.TIMELESS).any() else scan.times[chosen]
        wide = ops == _DELETE_PARTITION

        def changes() -> bytes:
            rows = scan.pick(chosen)
            if not wide.any():
                return rows
            # A picked row is as long as it was, with a seal of one byte; the operation stands in its first byte.
            lengths = scan.places[chosen, TAIL] + 1 - scan.places[chosen, START]
            starts = np.cumsum(lengths) - lengths
            data = np.frombuffer(rows, np.uint8).copy()
            data[starts[wide]] = 2 * _DELETE
            return data.tobytes()

        return News(changes, versions, np.where(wide, np.uint8(_DELETE), ops), times)

    @staticmethod
    def _with_prior_due(altered: Any, prior_starts: Any, priors: Entries, due: Any) -> Any:
        """Elements of collections may expire too; when, only the entry knew: asking too early does no harm."""
        numbers = np.cumsum(prior_starts >= 0) - 1
        groups = altered[:, 0]
        had = np.where(prior_starts[groups] >= 0, priors.due[numbers[groups]] if len(priors) else 0, 0)
        return np.where(had > 0, np.where(due > 0, np.minimum(due, had), had), due)

    def _befores(
        self, records: Any, altered: Any, prior_starts: Any, data: bytes, priors: Entries
    ) -> tuple[bytes, int, Any]:
        """The states before: of the record before in the same row, or the prior one, which come after all records'."""
        befores = records[:, 3].copy()
        numbers = np.cumsum(prior_starts >= 0) - 1
        lasts = altered[:, 1]
        owners = np.searchsorted(lasts, np.arange(len(records)))
        groups = altered[owners, 0]
        first = befores < 0
        had = prior_starts[groups] >= 0
        befores[first] = np.where(had[first], numbers[groups[first]] + len(records), -1)
        return data, len(priors), befores

    def _joiner(self, room: int = 0) -> Joiner:
        cells = self.schema.cells
        multi = np.zeros(len(cells) + 1, np.uint8)
        floors = np.full(len(cells) + 1, NEVER, np.int64)
        for index, column in enumerate(cells):
            multi[index] = column.type.multi_cell
            if column.dropped_us is not None:
                floors[index] = column.dropped_us
        return Joiner(program(self.schema), multi, floors, tie_of(self.schema), self.entry.version, room)

    # The exact way.

    def _exact(self, scan: Scan, rows: Any, partitions: set[int]) -> None:
        wide = np.array(sorted(partitions), np.uint64)
        all_keys = self._keys
        mine = rows[np.isin(all_keys[rows] >> _HALF, wide)]
        mine = mine[scan.ordered(mine, all_keys[mine] >> _HALF)]
        mine = mine[~scan.repeated(mine, all_keys[mine])]
        changes = avro.decode(ChangeBatch(self.schema, len(mine), scan.pick(mine)))
        changed_keys = all_keys[mine]
        _, found = self.state.find(self.chain, np.unique(np.concatenate([changed_keys, wide << _HALF])))
        near = self._by_partition(self._decoded(found))
        cuts = np.append(np.searchsorted(changed_keys >> _HALF, wide), len(mine)).tolist()
        folds: list[ExactFold] = []
        told: list[Told] = []
        for number, partition in enumerate(wide.tolist()):
            span = range(cuts[number], cuts[number + 1])
            fold = self._loaded(partition, near.get(partition, {}), [changes[index] for index in span])
            for index in span:
                told += fold.apply(changes[index], int(changed_keys[index]), partition << 32)
            folds.append(fold)
        self._keep(folds, told)

    def _repair(self, batch: ChangeBatch) -> None:
        """Whole rows, each with the time up to which it says everything as that of its commit."""
        scan = keys.scan(batch)
        found = scan.state_keys().tolist()
        folds: dict[int, ExactFold] = {}
        told: list[Told] = []
        for key, change in zip(found, avro.decode(batch), strict=True):
            partition = key >> 32
            if partition not in folds:
                folds[partition] = fold = self._exact_fold()
                for known, several in self._decoded(
                    self.state.find_range(self.chain, *partition_range(partition))
                ).items():
                    fold.load(known, several)
            told += folds[partition].repair(change, key, partition << 32)
        self._keep(folds.values(), told)

    @staticmethod
    def _by_partition(states: dict[int, list[Change]]) -> dict[int, dict[int, list[Change]]]:
        out: dict[int, dict[int, list[Change]]] = {}
        for key, several in states.items():
            out.setdefault(key >> 32, {})[key] = several
        return out

    def _loaded(self, partition: int, near: dict[int, list[Change]], changes: list[Change]) -> ExactFold:
        """An exact fold with what the state has of the partition, as far as the changes can touch it.

        `near` are the entries of the changed rows and of the partition itself.
        """
        fold = self._exact_fold()
        reach = not self._plain or any(
            (change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE) and not self._simple)
            or not self._statics.isdisjoint(change.cells)
            for change in changes
        )
        shared = any(not self._statics.isdisjoint(state.cells) for state in near.get(partition << 32, []))
        if reach or shared:
            near = self._decoded(self.state.find_range(self.chain, *partition_range(partition)))
        for key, several in near.items():
            fold.load(key, several)
        return fold

    def _decoded(self, entries: Entries) -> dict[int, list[Change]]:
        data, _ = joined_bytes(entries.rows)
        counts = entries.lows.astype(np.int64)
        changes = avro.decode(ChangeBatch(entries.schema, int(counts.sum()), data))
        out: dict[int, list[Change]] = {}
        at = 0
        for key, count in zip(entries.keys.tolist(), counts.tolist(), strict=True):
            out[key] = changes[at : at + count]
            at += count
        return out

    def _keep(self, folds: Iterable[ExactFold], told: list[Told]) -> None:
        self._told = self._told or bool(told)
        self.collector.add_told(told)
        self._put([kept for fold in folds for kept in fold.kept()])

    def _exact_fold(self) -> ExactFold:
        return ExactFold(self.schema, self.state.now_s, self.entry.truncation, self.entry.version)

    def _put(self, kept: list[Kept], schema: TableSchema | None = None) -> None:
        if not kept:
            return
        schema = schema or self.schema
        encoded = avro.encode(schema, [state for one in kept for state in one.states])
        starts = np.frombuffer(avro.row_offsets(schema, encoded.rows, encoded.count), np.int64)
        counts = np.array([len(one.states) for one in kept], np.int64)
        bounds = np.concatenate(([0], np.cumsum(counts)))
        self.state.put(
            Entries.of_rows(
                schema,
                np.array([one.key for one in kept], np.uint64),
                counts,
                np.array([one.due_s for one in kept], np.int64),
                np.array([one.dead_s for one in kept], np.int64),
                binary_array(starts[bounds], bytes(encoded.rows)),
            )
        )

    # What concerns the whole table.

    def _entry(self) -> TableEntry:
        _, found = self.state.find(self.chain, np.array([TABLE_KEY], np.uint64))
        return TableEntry.of(self._decoded(found).get(TABLE_KEY, []))

    def _note(self, entry: TableEntry, schema: TableSchema | None = None) -> None:
        self.entry = entry
        self._put([Kept(TABLE_KEY, entry.states(), 0, 0)], schema)

    def begin_era(self, change: Change, schema: TableSchema, *, told: bool) -> Records | None:
        """Forget all rows, because the table's era has ended; the records of that, if they are to be told.

        `schema` is what the table looks like now. It may be another table, whose rows have nothing to do with these.
        """
        version = self.entry.version
        for _, entries in self._sweep(self.chain):
            fold = self._exact_fold()
            for key, several in self._decoded(entries).items():
                fold.load(key, several)
            gone = list(fold.clear(change))
            self._keep([fold], gone if told else [])
            version = max(version, fold.version)
        shelf.clear(self.state, schema)
        self._note(TableEntry(None, version), schema)
        return self.collector.records(every=self.every, single=False)

    def _drop_columns(self) -> None:
        """Let no row show what columns held that were dropped since the state was last written, or live by it.

        Cells that are newer than the drop of a column which is gone wait on the shelf.
        """
        mine = ("", self.schema.id) if self.schema.id else ()
        known = [one for one in self.state.schemas(self.schema.table) if not mine or one.id in mine]
        floors = _floors(known[-1], self.schema) if known else {}
        if not known or not (floors or self._passed):
            return
        waiting = shelf.drops(known[-1], self.schema)
        waiting = {name: max(time, self._passed.get(name, time)) for name, time in waiting.items()}
        for (first, last), entries in self._sweep(known):
            data, _ = joined_bytes(entries.rows)
            batch = ChangeBatch(known[-1], int(entries.lows.sum()), data)
            shelf.put(self.state, known[-1], shelf.newer_changes(batch, waiting))
            now = self.state.find_range(self.chain, first, last)
            single = self._single_rows(entries)
            alone, others = np.flatnonzero(single), np.flatnonzero(~single)
            self._narrow(entries.take(alone), now.take(alone), floors)
            self._narrow_exactly(entries.take(others), now.take(others))
        # The state is of the new version now, also when no row has changed.
        self._note(self.entry)

    def _single_rows(self, entries: Entries) -> Any:
        """Which entries are one row each, with nothing in its partition that shows in it."""
        if not self._plain or self._passed:
            return np.zeros(len(entries), bool)
        partitions = entries.keys >> _HALF
        wide = partitions[entries.keys & np.uint64(0xFFFFFFFF) == 0]
        return (entries.lows == 1) & ~np.isin(partitions, wide)

    def _narrow(self, then: Entries, now: Entries, floors: dict[str, int | None]) -> None:
        """Take dropped columns from rows that stand by themselves.

        The entries are the same ones, of the version of the schema before and of the one now.
        """
        chosen = np.flatnonzero(showing(then, self.state.now_s, floors)) if len(then) else np.zeros(0, np.int64)
        if not len(chosen):
            return
        back = {name: floor for name, floor in floors.items() if floor is not None}
        made = narrow(now.take(chosen), back, self.schema.last_drop, self.entry.version, self.state.now_s)
        numbers = np.arange(len(chosen))
        extra = made.before if self.before else b""
        befores = numbers + len(chosen) if self.before else np.full(len(chosen), -1, np.int64)
        count = 2 * len(chosen) if self.before else len(chosen)
        afters = np.where(made.entries.dead > 0, -1, numbers)
        self.collector.add(made.news, [made.after, extra], count, afters, befores)
        self.state.put(made.entries)
        self._told = True

    def _narrow_exactly(self, then: Entries, now: Entries) -> None:
        before = ExactFold(then.schema, self.state.now_s, self.entry.truncation)
        fold = self._exact_fold()
        for one, entries, floors in ((before, then, {}), (fold, now, self._passed)):
            for key, several in self._decoded(entries).items():
                one.load(key, [without_older(state, floors) for state in several])
        self._keep([fold], list(fold.drop_columns(before, self._passed)))

    def _truncate(self, scan: Scan) -> None:
        """Tables of sources that know no eras: a truncation is a deletion of everything up to its write time."""
        rows = np.flatnonzero(scan.ops == _TRUNCATE)
        if not len(rows) or self.schema.id:
            return
        for change in avro.decode(ChangeBatch(self.schema, len(rows), scan.pick(rows))):
            deletion = change.deletion or Deletion(change.time or 0)
            grown = greater(self.entry.truncation, deletion)
            if grown == self.entry.truncation:
                continue
            for _, entries in self._sweep(self.chain):
                fold = self._exact_fold()
                for key, several in self._decoded(entries).items():
                    fold.load(key, several)
                self._keep([fold], list(fold.truncate(change)))
            self._note(self.entry._replace(truncation=grown))
            if self.lead:
                self._told = True
                self.collector.add_told([Told(change, None, None, deletion.time)])

    def _sweep(self, chain: Sequence[TableSchema]) -> Iterator[tuple[tuple[Any, Any], Entries]]:
        """All that the state has of the table, under the last version of `chain`.

        Some whole partitions come at a time, with the first and the last of their keys.
        """
        parts = max(1, self.state.count(self.schema.table) // _SWEEP_ENTRIES)
        edges = [(1 << 32) * part // parts for part in range(parts + 1)]
        for low, high in pairwise(edges):
            first, last = partition_range(low)[0], partition_range(high - 1)[1]
            first = max(first, np.uint64(1))
            entries = self.state.find_range(chain, first, last)
            if len(entries):
                yield (first, last), entries

    # What time takes away.

    def _expire(self) -> None:
        now_s, since_s = self.state.now_s, self.state.expired_since(self.schema.table)
        due = self.state.due(self.schema.table, now_s)
        if not len(due):
            return
        _, entries = self.state.find(self.chain, due)
        entries = entries.take(np.flatnonzero((entries.due > since_s) & (entries.due <= now_s)))
        if not len(entries):
            return
        if self.complex or self._statics or not (entries.lows == 1).all():
            self._expire_exactly(entries, since_s)
            return
        data, starts = joined_bytes(entries.rows)
        table = np.zeros((len(entries), 6), np.int64)
        joiner = self._joiner()
        first = np.ascontiguousarray(starts[:-1])
        joiner.expire(RowReader(data), view(first), since_s, now_s, view(table))
        table = table[: joiner.records]
        if not len(table):
            return
        states = joiner.out.give()
        numbers = np.arange(len(table))
        extra = data if self.before else b""
        befores = table[:, 0] + len(table) if self.before else np.full(len(table), -1, np.int64)
        count = len(table) + (len(entries) if self.before else 0)
        ops = np.where(table[:, 5] > 0, np.uint8(_UPDATE), np.uint8(_DELETE))
        changes = joiner.news.take()
        news = News(lambda: changes, table[:, 1], ops, None)
        self.collector.add(news, [states, extra], count, numbers, befores)
        kept = binary_array(np.concatenate(([0], table[:, 2])), states)
        dead = np.where(table[:, 5] > 0, 0, now_s)
        ones = np.ones(len(table), np.uint64)
        self.state.put(Entries.of_rows(self.schema, entries.keys[table[:, 0]], ones, table[:, 4], dead, kept))

    def _expire_exactly(self, entries: Entries, since_s: int) -> None:
        near = self._by_partition(self._decoded(entries))
        folds: list[ExactFold] = []
        told: list[Told] = []
        for partition, states in near.items():
            fold = self._exact_fold()
            if self._statics:
                states = self._decoded(self.state.find_range(self.chain, *partition_range(partition)))
            for key, several in states.items():
                fold.load(key, several)
            told += fold.expire(since_s)
            folds.append(fold)
        self._keep(folds, told)


def _floors(old: TableSchema, new: TableSchema) -> dict[str, int | None]:
    """The columns of which rows of one version can have cells that mean nothing in the next.

    Of a column that was dropped and added again, up to which write time; None: the column is gone, and all are.
    """
    out: dict[str, int | None] = {}
    for column in old.cells:
        now = new.by_name.get(column.name)
        if now is None or (now.dropped_us is not None and now.dropped_us != column.dropped_us):
            out[column.name] = None if now is None else now.dropped_us
    return out
