"""SnapshotStatus: what a snapshot can say about itself at any moment, as plain numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.model.schema import TableId


class Stage(StrEnum):
    """Where the snapshot of one table is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table's snapshot. Rows are those of this run, over all starts of the agent."""

    table: TableId
    stage: Stage
    run: int
    rows: int
    splits_left: int
    # The part of the token ranges that is done, from 0 to 1.
    fraction: float
    # How many partitions this node's own estimate gives the table; None when it gives none.
    partitions_estimate: int | None
    started_us: int
    finished_us: int | None


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """One look at the snapshots of an agent."""

    mode: str
    # Whether a table is being copied just now.
    running: bool = False
    # Whether there is nothing left to copy.
    completed: bool = False
    # Whether it ended before all was copied; `failure` says why unless it was simply stopped.
    aborted: bool = False
    failure: str | None = None
    # What it waits for just now, such as a replica that is down; None when it does not wait.
    waiting: str | None = None
    # How often it had to wait and try again.
    retries: int = 0
    tables_total: int = 0
    tables_remaining: int = 0
    # Seconds in which tables were copied.
    duration_s: float = 0.0
    # By `keyspace.table`: rows that were read in the latest run.
    rows: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[TableProgress, ...] = ()
