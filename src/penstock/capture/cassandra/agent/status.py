"""AgentStatus: what an agent can say about itself at any moment, as plain numbers.

The HTTP endpoints, the metrics and the command line all show this one dataclass, so that they never disagree. It is
taken as a whole by `Agent.status` and never changes afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.log.survey import LogFigures
from penstock.system.timing import Durations


class SnapshotProgress(Protocol):
    """What the status needs of a snapshot's own."""

    @property
    def running(self) -> bool: ...

    @property
    def failure(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One look at an agent. Counts are since it was started unless a name says otherwise."""

    node: str
    data_centre: str
    started_time_us: int
    # Whether the tail is being read; False before the start, after the stop and after a failure.
    running: bool = False
    # Why the agent has stopped, or None.
    failure: str | None = None
    # What it waits for just now, such as room on the disk; None when it waits for nothing but writes.
    waiting: str | None = None
    # The segment that is being read, and the logical position reached in it; -1 when there is none.
    segment: str | None = None
    position: int = -1
    # The place that is safe on disk: what was read before it will not be read again.
    saved_segment: str | None = None
    saved_position: int = -1
    mutations: int = 0
    changes: int = 0
    # Mutations of tables that are not captured.
    skipped: int = 0
    # Entries that were parked, and how many of them wait still; their bytes on disk.
    parked: int = 0
    parked_waiting: int = 0
    parked_bytes: int = 0
    # Damaged places that were left out, each named in the log.
    damaged: int = 0
    segments_done: int = 0
    # Segments that were damaged inside, of an unknown format or not readable.
    segments_failed: int = 0
    # Segments that went before they were read to the end, while nobody held them open.
    segments_lost: int = 0
    # How often a table had CDC off for a while, by `keyspace.table`: its log lacks what was written then.
    cdc_gaps: Mapping[str, int] = field(default_factory=dict)
    # Files in cdc_raw that are neither segments nor their index.
    foreign_files: int = 0
    appended_bytes: int = 0
    # Changes by `keyspace.table`.
    table_changes: Mapping[str, int] = field(default_factory=dict)
    # Subscriptions' checkpoints that cannot be read, by the log's directory: they hold files until a cap takes them.
    unreadable_checkpoints: Mapping[str, int] = field(default_factory=dict)
    cdc_raw_bytes: int = 0
    # The node's limit for cdc_raw; None when it is not known.
    cdc_raw_bytes_max: int | None = None
    cdc_raw_segments: int = 0
    # Bytes of segments in cdc_raw that lie behind the one being read.
    lag_bytes: int = 0
    # How old the oldest write is that was seen and is not durable in the change log yet; 0 when all is done.
    lag_s: float = 0.0
    # Write time of the newest change that was captured, and when it was captured.
    last_write_time_us: int | None = None
    last_capture_time_us: int | None = None
    # Whether the node answered over CQL when it was last asked; None when it never was.
    queryable: bool | None = None
    # How long batches took until they were durable in a log, and how long the disk took to sync them.
    append_durations: Durations = field(default_factory=Durations)
    sync_durations: Durations = field(default_factory=Durations)
    # The size of each log and how far its subscriptions are, by the name of its directory.
    logs: Mapping[str, LogFigures] = field(default_factory=dict)
    # Changes that caps of retention took, by log and subscription; the empty name: the log had none.
    lost_changes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    # Clients of the listener; None when it does not listen.
    listener_clients: int | None = None
    # When this look was taken.
    time_us: int = 0
    snapshot: SnapshotProgress | None = None

    @property
    def healthy(self) -> bool:
        """Whether the agent does its work: the tail runs, and nothing has failed."""
        return self.running and self.failure is None
