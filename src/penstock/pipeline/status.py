"""Status: what a running pipeline has done, table by table, for the terminal, metrics and tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.deliver import outages
from penstock.deliver.outages import Outage
from penstock.pipeline.outcome import Outcome
from penstock.pipeline.troubles import Trouble

# Rates are averages over about so many seconds.
_RATE_S = 10.0
# What a pipeline does between its start and its end.
RUNS = "runs"


@dataclass(slots=True)
class TableStatus:
    """One table: copies that were read, records that were delivered, and how old the newest change was by then."""

    copies: int = 0
    records: int = 0
    newest_us: int | None = None
    lag_ms: float | None = None
    rate: float = 0.0


@dataclass(slots=True)
class SinkStatus:
    """One sink: records and bytes that it took, and records that it will never take; whether its target is away."""

    records: int = 0
    bytes: int = 0
    dead: int = 0
    # How often tasks tried again, and for how long they have been waiting now.
    retries: int = 0
    down_s: float = 0.0
    # By table: how many of its columns the target does not get.
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class TroubleStatus:
    """A table that is left out while the others go on: why, and for how long."""

    error: str
    reason: str
    since_us: int
    for_s: float = 0.0
    # How often it was tried again, and when it is by itself; None: it waits for someone, or for the next start.
    tries: int = 0
    next_us: int | None = None
    # Whether it takes part again, and the batch that shows whether it is well is still to come.
    returning: bool = False


@dataclass(slots=True)
class PipelineStatus:
    """A snapshot of all figures."""

    running: bool = False
    # What it does now, in words.
    stage: str = "begins"
    batch: int = -1
    batches: int = 0
    batch_ms: float = 0.0
    failures: int = 0
    # Why the last batch failed, while it has not succeeded yet, or which target tasks wait for.
    waiting: str | None = None
    state_rows: int = 0
    state_bytes: int = 0
    tables: dict[str, TableStatus] = field(default_factory=dict)
    sinks: dict[str, SinkStatus] = field(default_factory=dict)
    # Tables that something is wrong with.
    troubles: dict[str, TroubleStatus] = field(default_factory=dict)

    @property
    def records(self) -> int:
        return sum(table.records for table in self.tables.values())

    @property
    def copies(self) -> int:
        return sum(table.copies for table in self.tables.values())


class StatusBoard:
    """Takes the outcomes of batches and gives the status; used by several threads."""

    def __init__(self) -> None:
        self._status = PipelineStatus()
        self._mutex = threading.Lock()
        self._seen = time.monotonic()
        self._outages: Path | None = None
        # What waited before this moment does so no longer: a task that was killed cannot say so.
        self._none_waits_s = time.time()

    def watch(self, directory: Path) -> None:
        """Look here for tasks that wait for a target."""
        self._outages = directory

    def read(self) -> PipelineStatus:
        """The figures as they are now."""
        found = [] if self._outages is None else outages.read(self._outages)
        with self._mutex:
            tables = {name: replace(table) for name, table in self._status.tables.items()}
            sinks = {name: replace(sink) for name, sink in self._status.sinks.items()}
            status = replace(self._status, tables=tables, sinks=sinks, troubles=self._troubles())
            for outage in found:
                self._add_outage(status, outage)
            return status

    def in_trouble(self, troubles: Iterable[Trouble]) -> None:
        """The tables that are left out now."""
        with self._mutex:
            self._status.troubles = {
                str(one.table): TroubleStatus(
                    one.error, one.reason, one.since_us, tries=one.tries, next_us=one.next_us, returning=not one.held
                )
                for one in sorted(troubles, key=lambda one: one.table)
            }

    def _troubles(self) -> dict[str, TroubleStatus]:
        now_s = time.time()
        found = self._status.troubles.items()
        return {name: replace(one, for_s=max(0.0, now_s - one.since_us / 1e6)) for name, one in found}

    def _add_outage(self, status: PipelineStatus, outage: Outage) -> None:
        sink = status.sinks.setdefault(outage.sink, SinkStatus())
        sink.retries += outage.retries
        if outage.since_s is None or outage.since_s < self._none_waits_s or not status.running:
            return
        sink.down_s = max(sink.down_s, time.time() - outage.since_s)
        status.waiting = f"{outage.sink} for {sink.down_s:,.0f} s: {outage.reason}"

    def leaves_out(self, sink: str, columns: Mapping[str, Sequence[str]]) -> None:
        """Columns that a target does not get, by table."""
        if columns:
            with self._mutex:
                found = self._status.sinks.setdefault(sink, SinkStatus())
                found.left_out = {table: len(names) for table, names in columns.items()}

    def does(self, what: str) -> None:
        """What it does now, in words."""
        with self._mutex:
            self._status.stage = what

    def began(self) -> None:
        with self._mutex:
            self._status.running = True

    def ended(self) -> None:
        with self._mutex:
            self._status.running = False

    def failed(self, reason: str) -> None:
        with self._mutex:
            self._status.failures += 1
            self._status.waiting = reason

    def delivered(self, batch: int, outcomes: Iterable[Outcome], passed_s: float, now_us: int) -> None:
        """A batch is done."""
        with self._mutex:
            status = self._status
            self._none_waits_s = time.time()
            now = time.monotonic()
            since, self._seen = max(1e-6, now - self._seen), now
            status.batch, status.batches, status.waiting = batch, status.batches + 1, None
            status.batch_ms = passed_s * 1000
            done: dict[str, int] = {}
            for outcome in outcomes:
                if outcome.kind == "table":
                    self._count_table(outcome, now_us)
                    done[outcome.name] = done.get(outcome.name, 0) + outcome.count
                elif outcome.kind == "sink":
                    sink = status.sinks.setdefault(outcome.name, SinkStatus())
                    sink.records += outcome.count
                    sink.bytes += outcome.size
                elif outcome.kind == "dead":
                    status.sinks.setdefault(outcome.name, SinkStatus()).dead += outcome.count
            weight = min(1.0, since / _RATE_S)
            for name, table in status.tables.items():
                table.rate += weight * (done.get(name, 0) / since - table.rate)

    def holds(self, rows: int, size: int) -> None:
        """How much the fold remembers."""
        with self._mutex:
            self._status.state_rows, self._status.state_bytes = rows, size

    def _count_table(self, outcome: Outcome, now_us: int) -> None:
        table = self._status.tables.setdefault(outcome.name, TableStatus())
        table.records += outcome.count
        table.copies += outcome.size
        newest = json.loads(outcome.data)["newest_us"]
        if newest is not None:
            table.newest_us = max(newest, table.newest_us or newest)
            table.lag_ms = max(0.0, (now_us - newest) / 1000)
