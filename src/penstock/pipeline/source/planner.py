"""Planner: what the driver does for a batch or a stream, without Spark.

It looks at all logs, decides how far the next batch goes, and divides that into portions of about the same size, so
that hundreds of small tables make one task and one large table makes many. Each table of a batch costs something
however little it gives, so where many tables change all the time, batches may be told to linger: they then begin less
often, and each table gives more at a time. A batch as such costs something too, so a burst after a pause is taken as a
whole, unless it lasts. What was delivered the planner commits to the subscription in each log, seldom enough not to be
felt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.errors import ChangesLost, CorruptCheckpoint, PenstockError
from penstock.log.subscription import Start
from penstock.log.watermark import Watermark
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.pipeline.source.admission import Limits, admit
from penstock.pipeline.source.backlog import Backlog, by_hand, earliest, is_new, reach_at
from penstock.pipeline.source.held import SetBack, naming
from penstock.pipeline.source.options import COMMITTED, EARLIEST, LATEST, SourceOptions
from penstock.pipeline.source.places import Address, Place, places
from penstock.pipeline.source.portions import Piece, by_node, together
from penstock.pipeline.source.reach import BEGINNING, Reach
from penstock.settings.choices import OnLoss
from penstock.telemetry import Logger

log = Logger()

# A subscription is moved when a file of its log is done, and else no more often than this.
COMMIT_S = 10.0
# So many agents are asked at the same time.
ASKED_MAX = 16
# How much longer batches are apart for each table beyond the first, at the most and as far as the options let them
# linger. A table costs a batch one to two milliseconds.
TABLE_S = 0.01
# Where tables cost less than that, or the machine is quicker, batches need not be so far apart: they linger until
# batches take this share of the time.
BUSY_SHARE = 0.4
# As long as so many changes come between two looks, a batch after a pause waits for more, but no longer than this.
BURST_ROWS = 1_000
BURST_S = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """A log at the time of the last look."""

    place: Place
    address: Address
    mark: Watermark


@dataclass(slots=True)
class _Committed:
    reach: Reach
    when: float


# Looks at a backlog and how far it is to be taken, and may say less, or refuse it; less is no answer any more when the
# batch is already planned.
Check = Callable[[Backlog, Reach, bool], Reach]


def _any(_: Backlog, end: Reach, __: bool) -> Reach:
    return end


def _look(place: Place) -> dict[str, tuple[Address, Watermark]]:
    return place.look()


class Planner:
    """The logs of one query. For one thread."""

    def __init__(
        self,
        options: SourceOptions,
        *,
        found: Sequence[Place] | None = None,
        check: Check = _any,
        holds: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._places = list(places(options) if found is None else found)
        asked = len(options.agents)
        self._pool = ThreadPoolExecutor(min(asked, ASKED_MAX), "penstock-look") if asked > 1 else None
        self._check = check
        # Whether the subscription is made, so that retention waits for this query.
        self._holds = holds and options.subscription is not None
        self._monotonic = monotonic
        self._turn = 0
        # When the last batch was planned, and whether it took all that there was.
        self._batch_at = -math.inf
        self._took_all = True
        # How long it took until the query asked for more; None while it is under way.
        self._busy_s: float | None = 0.0
        # Until when the next one waits, whatever else comes.
        self._lingers_to = -math.inf
        # When there was last nothing new, and how many changes waited at the last look.
        self._idle_at = -math.inf
        self._waiting = 0
        # What a query that reads what is there and then ends may read.
        self._target: dict[str, Reach] | None = None
        self._gone: set[str] = set()
        # Up to where the agents were asked for copies of what a log has lost.
        self._asked: dict[str, Position] = {}
        self._committed: dict[str, _Committed] = {}
        self._delivered: dict[str, Reach] = {}
        self._seen: dict[str, Seen] = {}
        self._held = options.held
        self._set_back = SetBack(options.held)
        # Tables of logs that this query has seen, for what is told of a log that is gone.
        self._tables: dict[str, TableId] = {}

    def look(self) -> dict[str, Seen]:
        """Every log that is wanted."""
        # Agents are asked all at once, so that the time does not grow with their number.
        looks = map(_look, self._places) if self._pool is None else self._pool.map(_look, self._places)
        self._seen = {
            log_id: Seen(place, address, mark)
            for place, found in zip(self._places, looks, strict=True)
            for log_id, (address, mark) in found.items()
        }
        self._tables |= {log_id: seen.address.table for log_id, seen in self._seen.items()}
        return self._seen

    def initial(self) -> dict[str, Reach]:
        """Where a new query begins in each log."""
        with naming(self._addresses):
            return {log_id: self._begin(seen, self._options.starting) for log_id, seen in self.look().items()}

    def freeze(self) -> None:
        """Read nothing that comes later than now."""
        self._target = {log_id: Reach.of(seen.mark) for log_id, seen in self.look().items()}

    def end(self) -> dict[str, Reach]:
        """The end of every log."""
        return {log_id: Reach.of(seen.mark) for log_id, seen in self.look().items()}

    def latest(self, start: Mapping[str, Reach], limits: Limits) -> dict[str, Reach]:
        """How far the next batch goes. The same as `start` when there is nothing new."""
        with naming(self._addresses):
            return self._latest(start, limits)

    def _latest(self, start: Mapping[str, Reach], limits: Limits) -> dict[str, Reach]:
        now = self._monotonic()
        if self._busy_s is None:
            self._busy_s = now - self._batch_at
        if now < self._lingers_to and self._target is None:
            # To look at hundreds of logs costs something too.
            return dict(start)
        seen = self.look()
        out = self._still_there(start)
        left = self._held.tables | self._set_back.apply(out)
        for log_id, before in out.items():
            # What an earlier run of the query delivered, it committed; only what moves is committed again.
            self._committed.setdefault(log_id, _Committed(before, -COMMIT_S))
        begun: dict[str, Reach] = {}
        news: list[tuple[Seen, Reach, Reach]] = []
        for log_id, one in seen.items():
            mark = self._mark(log_id, one)
            if mark is None:
                continue
            reach = start.get(log_id)
            if reach is None:
                # A table that is new, or a node that joined: it is read from its beginning.
                reach = begun[log_id] = self._begin(one, EARLIEST)
            if one.address.table in left:
                continue
            if is_new(reach, mark, lambda one=one: one.place.reader(one.address)):  # type: ignore[misc]
                news.append((one, reach, Reach.of(mark)))
        if self._lingers(news):
            return out
        out |= begun
        backlogs = [self._backlog(one, reach, end) for one, reach, end in news]
        self._set_back.planned(backlog.address.log_id for backlog in backlogs)
        for backlog, end in zip(backlogs, admit(backlogs, limits, self._turn), strict=True):
            out[backlog.address.log_id] = self._check(backlog, backlog.within_era(end), False)
        self._turn += 1
        if backlogs:
            self._batch_at, self._waiting, self._busy_s = self._monotonic(), 0, None
            self._took_all = all(out[one.address.log_id].last >= one.end.last for one in backlogs)
        return out

    def _lingers(self, news: Sequence[tuple[Seen, Reach, Reach]]) -> bool:
        """Whether the next batch begins later, for it to have more."""
        now = self._monotonic()
        before, self._waiting = self._waiting, sum(end.rows - start.rows for _, start, end in news)
        if not news:
            self._idle_at = now
        if not news or not self._took_all or self._target is not None:
            return False
        longest = self._options.linger_s
        paused = self._idle_at >= self._batch_at
        if paused and self._waiting - before >= BURST_ROWS and now - self._idle_at < min(longest, BURST_S):
            return True
        tables = len({one.address.table for one, _, _ in news})
        # More tables can only make it later.
        self._lingers_to = self._batch_at + min(longest, (tables - 1) * TABLE_S, (self._busy_s or 0.0) / BUSY_SHARE)
        return now < self._lingers_to

    def partitions(self, start: Mapping[str, Reach], end: Mapping[str, Reach]) -> list[list[Piece]]:
        """What to read between two offsets, divided among tasks."""
        with naming(self._addresses):
            return self._partitions(start, end)

    def _partitions(self, start: Mapping[str, Reach], end: Mapping[str, Reach]) -> list[list[Piece]]:
        missing = [log_id for log_id in end if log_id not in self._seen and log_id not in self._held.logs]
        seen = self.look() if missing or not self._seen else self._seen
        backlogs = []
        for log_id, until in end.items():
            one = seen.get(log_id)
            if self._set_back.unread(log_id):
                continue
            if one is None:
                if log_id not in self._held.logs and start.get(log_id) != until:
                    self._lost_log(log_id)
                continue
            begin = start.get(log_id) or earliest(one.place.reader(one.address))
            if begin.last < until.last:
                backlogs.append(self._backlog(one, begin, until))
                self._check(backlogs[-1], until, True)
        divide = together if self._options.distinct else by_node
        return divide(backlogs, self._options.buckets, self._options.partition_bytes)

    def commit(self, end: Mapping[str, Reach]) -> None:
        """Everything up to `end` is delivered."""
        name = self._options.subscription
        self._delivered = self._set_back.delivered(end)
        if name is None:
            return
        now = self._monotonic()
        for log_id, reach in self._delivered.items():
            done = self._committed.get(log_id) or _Committed(BEGINNING, -COMMIT_S)
            if reach.last <= done.reach.last:
                continue
            if reach.last.file > done.reach.last.file or now - done.when >= COMMIT_S:
                self._commit_one(log_id, name, reach, now)

    def close(self) -> None:
        """Commit what is still to be committed, and close the logs."""
        name = self._options.subscription
        for log_id, reach in self._delivered.items() if name is not None else ():
            done = self._committed.get(log_id)
            if done is None or done.reach.last < reach.last:
                self._commit_one(log_id, str(name), reach, self._monotonic())
        if self._pool is not None:
            self._pool.shutdown()
        for place in self._places:
            place.close()

    def _commit_one(self, log_id: str, name: str, reach: Reach, now: float) -> None:
        seen = self._seen.get(log_id)
        if seen is None:
            return
        try:
            seen.place.commit(seen.address, name, reach.last)
        except PenstockError as error:
            # It only holds files back for longer; the batch itself is delivered. The next batch tries again.
            log.warning("subscription not moved", table=str(seen.address.table), log=log_id, error=str(error))
        else:
            self._committed[log_id] = _Committed(reach, now)

    def _mark(self, log_id: str, seen: Seen) -> Watermark | None:
        if self._target is None:
            return seen.mark
        reach = self._target.get(log_id)
        if reach is None:
            return None
        return Watermark(seen.mark.epoch, reach.file, reach.next, reach.last, reach.rows)

    def _begin(self, seen: Seen, starting: str | int) -> Reach:
        reader = seen.place.reader(seen.address)
        if starting == LATEST:
            reach = Reach.of(seen.mark)
        elif starting == COMMITTED:
            assert self._options.subscription is not None
            position = seen.place.subscribe(seen.address, self._options.subscription, "earliest")
            return reach_at(seen.address, reader, position)
        elif isinstance(starting, int):
            reach = reach_at(seen.address, reader, reader.seek_time(starting))
        else:
            reach = earliest(reader)
        if self._holds:
            assert self._options.subscription is not None
            start: Start = "latest" if starting == LATEST else "earliest"
            seen.place.subscribe(seen.address, self._options.subscription, start)
        return reach

    def _backlog(self, seen: Seen, start: Reach, end: Reach) -> Backlog:
        skip = self._options.on_loss is not OnLoss.FAIL
        backlog = Backlog(seen.address, seen.place.reader(seen.address), start, end, skip_loss=skip)
        if backlog.lost is not None:
            log.warning("changes lost", **{key: str(value) for key, value in backlog.lost.place.items()})
            if self._options.on_loss is OnLoss.SNAPSHOT:
                self._ask_snapshot(seen, backlog)
        return backlog

    def _ask_snapshot(self, seen: Seen, gap: Backlog) -> None:
        """Have a table copied again by every agent, since each copies a part.

        The subscription then moves behind the gap, which says that this was done: a batch that is tried again and again
        asks once. A crash in between asks once more.
        """
        address, name, through = seen.address, self._options.subscription, gap.start.last
        done = self._asked.get(address.log_id, BEGINNING.last)
        if name is not None:
            done = max(done, seen.place.subscribe(address, name, "earliest"))
        if done >= through:
            return
        asked = sum(place.ask_snapshot(address.table) for place in self._places)
        if not asked:
            assert gap.lost is not None
            why = f"{gap.lost.message}, and no agent here copies tables; {by_hand(address.table)}"
            raise ChangesLost(why, **gap.lost.place)
        if name is not None:
            seen.place.commit(address, name, through)
        self._asked[address.log_id] = through
        log.warning("snapshot asked for", table=str(address.table), agents=asked)

    def _still_there(self, start: Mapping[str, Reach]) -> dict[str, Reach]:
        """The logs of an offset, without those that are not wanted any more."""
        out = {}
        for log_id, reach in start.items():
            if log_id in self._seen or log_id in self._held.logs:
                out[log_id] = reach
            elif (trouble := self._unreadable(log_id)) is not None:
                raise trouble
            elif any(place.has(log_id) for place in self._places):
                # It is there, but the query was started again without its table.
                continue
            elif not self._seen or not any(known in self._seen for known in start):
                raise CorruptCheckpoint(
                    "the query's checkpoint belongs to other logs: none of them is here", log=log_id
                )
            else:
                self._lost_log(log_id)
        return out

    def _unreadable(self, log_id: str) -> PenstockError | None:
        return next((found for place in self._places if (found := place.unreadable(log_id)) is not None), None)

    def _addresses(self) -> list[Address]:
        return [seen.address for seen in self._seen.values()]

    def _lost_log(self, log_id: str) -> None:
        if self._options.on_loss is not OnLoss.SKIP:
            table = self._tables.get(log_id)
            raise ChangesLost("a log that this query was reading is gone, and what it held", log=log_id, table=table)
        if log_id not in self._gone:
            self._gone.add(log_id)
            log.warning("log gone", log=log_id)
