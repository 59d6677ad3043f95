"""The fold of rows in the order of their source's log: the later change wins, and each change is one.

Nothing is a copy but what has the same place in the source's log, so a state remembers the place of its row's last
change, and what is not after it was folded before: the same batch again, or the same log as another agent captured it.
An insert, and a row that a snapshot read, say what the row is; an update says what it is from now on in the columns
that it has, and leaves the others, which the source did not send, as they are; a deletion ends it. States are rows like
those of the other law, with times that grow with each change: the commit's, or one more than the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from penstock.errors import InvalidSchema
from penstock.fold._join import Joiner
from penstock.fold.entries import Entries, joined_bytes
from penstock.fold.exact import Kept, Told
from penstock.fold.rows import RowFold
from penstock.fold.source_order import SourceOrder, climbing, source_order
from penstock.fold.ties import tie_of
from penstock.formats import avro
from penstock.formats.program import program
from penstock.merge.range_deletions import NEVER
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Deleted, Deletion, Marker, Op, Origin, Set
from penstock.records import keys
from penstock.records.keys import Scan
from penstock.records.records import Records

_HALF = np.uint64(32)
_TRUNCATE = 5
_GONE = (Op.DELETE, Op.DELETE_PARTITION)
_WHOLE = (Op.INSERT, Op.SNAPSHOT)


class LogFold(RowFold):
    """One table in one bucket and one batch."""

    def fold(self, batch: ChangeBatch, *, copies: bool = False, repaired: ChangeBatch | None = None) -> Records | None:
        """Let the rows follow the changes; the records of that. There are no copies to look for."""
        assert not copies
        if not self.schema.key:
            message = "a table without a key has no rows that could be told apart: deliver its changes instead"
            raise InvalidSchema(message, table=self.schema.table)
        if repaired is not None:
            raise InvalidSchema("rows of a table in log order are repaired by a snapshot", table=self.schema.table)
        scan = keys.scan(batch, content=False)
        if len(scan):
            self._keys = scan.state_keys()
            self._places = source_order(batch)
            self._fold(scan, self._new(self._places.sorted()))
        return self._records()

    def _fold(self, scan: Scan, order: Any) -> None:
        """Changes in order; a truncation ends what was before it."""
        cuts = np.flatnonzero(scan.ops[order] == _TRUNCATE)
        for part in np.split(order, cuts):
            if len(part) and scan.ops[part[0]] == _TRUNCATE:
                (change,) = avro.decode(ChangeBatch(self.schema, 1, scan.pick(part[:1])))
                self._truncate_rows(change)
                part = part[1:]
            exact = self._native(scan, part, set()) if len(part) else set()
            if exact:
                self._exact(scan, part, exact)

    def _new(self, order: Any) -> Any:
        """Without what the table's last truncation ended already."""
        if self.entry.truncation is None:
            return order
        last = source_order(avro.encode(self.schema, self.entry.states()[:1])).take(np.zeros(len(order), np.int64))
        return order[self._places.take(order).is_after(last)]

    # The native way.

    def _join(
        self, scan: Scan, rows: Any, grouped: tuple[Any, Any, Any], data: bytes, prior_starts: Any, priors: Entries
    ) -> list[int]:
        groups, chosen, group_keys = grouped
        ranks = np.zeros(int(groups.max()) + 1, np.int64)
        ranks[chosen] = np.arange(len(chosen))
        mine = ranks[groups[rows]]
        order = rows[np.argsort(mine, kind="stable")]
        mine = np.sort(mine, kind="stable")
        again = self._places.take(order).is_repeat()
        again[1:] &= mine[1:] == mine[:-1]
        order, mine = order[~again], mine[~again]
        floors = np.full(len(order), self.entry.version, np.int64)
        has = np.flatnonzero(prior_starts[mine] >= 0)
        if len(has):
            starts = np.sort(prior_starts[prior_starts >= 0])
            known = source_order(ChangeBatch(self.schema, len(priors), data))
            prior = known.take(np.searchsorted(starts, prior_starts[mine[has]]))
            floors[has] = prior.whens
            repeated = np.zeros(len(order), bool)
            repeated[has] = ~self._places.take(order[has]).is_after(prior)
            order, mine, floors = order[~repeated], mine[~repeated], floors[~repeated]
        bounds = np.searchsorted(mine, np.arange(len(chosen) + 1)).astype(np.int64)
        times = np.zeros(len(scan), np.int64)
        times[order] = climbing(mine, self._places.whens[order], floors)
        if not len(order):
            return []
        return self._follow(scan, times, order, bounds, group_keys, data, prior_starts, priors)

    def _joiner(self, room: int = 0) -> Joiner:
        none = np.zeros(len(self.schema.cells) + 1, np.uint8)
        floors = np.full(len(self.schema.cells) + 1, NEVER, np.int64)
        return Joiner(program(self.schema), none, floors, tie_of(self.schema), self.entry.version, room, by_log=True)

    # The exact way, for rows whose keys share a hash.

    def _exact(self, scan: Scan, rows: Any, partitions: set[int]) -> None:
        wide = np.array(sorted(partitions), np.uint64)
        mine = rows[np.isin(self._keys[rows] >> _HALF, wide)]
        found = self._keys[mine]
        places = self._places.take(mine)
        _, entries = self.state.find(self.chain, np.unique(found))
        states = self._decoded(entries)
        changes = avro.decode(ChangeBatch(self.schema, len(mine), scan.pick(mine)))
        told: list[Told] = []
        for number, (key, change) in enumerate(zip(found.tolist(), changes, strict=True)):
            told += self._next(states.setdefault(key, []), change, places.take(slice(number, number + 1)))
        self._told = True
        self.collector.add_told(told)
        self._put([Kept(key, several, 0, self._dead_s(several)) for key, several in states.items()])

    def _next(self, states: list[Change], change: Change, place: SourceOrder) -> Iterator[Told]:
        """Let one of the rows under a key follow a change."""
        at = next((number for number, state in enumerate(states) if state.key == change.key), None)
        before = None if at is None else states[at]
        floor = self.entry.version
        if before is not None:
            prior = source_order(avro.encode(self.schema, [before]))
            if not place.is_after(prior).all():
                return
            floor = int(prior.whens[0])
        time = max(int(place.whens[0]), floor + 1)
        after = followed(before, change, time)
        if at is None:
            states.append(after)
        else:
            states[at] = after
        yield Told(change, _living(after), _living(before), time)

    def _dead_s(self, states: list[Change]) -> int:
        return 0 if any(_living(state) is not None for state in states) else max(self.state.now_s, 1)

    # What concerns the whole table.

    def _truncate_rows(self, change: Change) -> None:
        """End all rows that were there before; each is told, then the truncation itself."""
        version = max(self.entry.version, change.when or 0)
        place = source_order(avro.encode(self.schema, [change]))
        for _, entries in self._sweep(self.chain):
            told: list[Told] = []
            kept: list[Kept] = []
            data, _ = joined_bytes(entries.rows)
            known = source_order(ChangeBatch(self.schema, int(entries.lows.sum()), data))
            ended_all = iter(place.take(np.zeros(len(known.whens), np.int64)).is_after(known).tolist())
            for key, states in self._decoded(entries).items():
                ends = list(islice(ended_all, len(states)))
                left = [state for state, ended in zip(states, ends, strict=True) if not ended]
                if len(left) < len(states):
                    kept.append(Kept(key, left, 0, self._dead_s(left) if left else 0))
                for state in (state for state, ended in zip(states, ends, strict=True) if ended):
                    version = max(version, state.capture_time or 0) + 1
                    if _living(state) is not None:
                        ended = Change(Op.DELETE, state.key, commit_time=change.commit_time, origin=change.origin)
                        told.append(Told(ended, None, state, version))
            self.collector.add_told(told)
            self._put(kept)
        self._told = True
        self._note(self.entry._replace(truncation=Deletion(version), version=version, origin=change.origin))
        if self.lead:
            self.collector.add_told([Told(change, None, None, version)])


def followed(state: Change | None, change: Change, time: int) -> Change:
    """The state of a row after a change: what the join kernel makes of it."""
    origin = _place_only(change.origin)
    if change.op in _GONE:
        deletion = Deletion(time)
        return Change(Op.DELETE, change.key, time=time, capture_time=time, deletion=deletion, origin=origin)
    cells: dict[str, Set | Deleted] = {}
    known: Mapping[str, Any] = {} if state is None or change.op in _WHOLE else state.cells
    for name, cell in (*known.items(), *change.cells.items()):
        cells[name] = Deleted(time) if isinstance(cell, Deleted) else Set(cell.value, time)
    return Change(Op.INSERT, change.key, cells, time=time, capture_time=time, marker=Marker(time), origin=origin)


def _place_only(origin: Origin) -> Origin:
    return Origin(transaction=origin.transaction, ordinal=origin.ordinal)


def _living(state: Change | None) -> Change | None:
    return None if state is None or state.marker is None else state
