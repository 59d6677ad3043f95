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
class Check:
    """How one part of a source is. A message without harm is told, and alarms nobody."""

    name: str
    healthy: bool
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """One look at an agent. Counts are since it was started unless a name says otherwise."""

    node: str
    data_centre: str
    started_time_us: int
    # Whether the source is being read; False before the start, after the stop and after a failure.
    running: bool = False
    # Why the agent has stopped, or None.
    failure: str | None = None
    # What it waits for just now, such as room on the disk; None when it waits for nothing but writes.
    waiting: str | None = None
    changes: int = 0
    appended_bytes: int = 0
    # Changes by `keyspace.table`.
    table_changes: Mapping[str, int] = field(default_factory=dict)
    # Subscriptions' checkpoints that cannot be read, by the log's directory: they hold files until a cap takes them.
    unreadable_checkpoints: Mapping[str, int] = field(default_factory=dict)
    # Bytes that the source has and that were not read yet, as far as it can tell.
    lag_bytes: int = 0
    # How old the oldest write is that was seen and is not durable in the change log yet; 0 when all is done.
    lag_s: float = 0.0
    # Write time of the newest change that was captured, and when it was captured.
    last_write_time_us: int | None = None
    last_capture_time_us: int | None = None
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

    def source_checks(self) -> tuple[Check, ...]:
        """How the source's parts are, beside the agent itself and its logs."""
        return ()

    @property
    def healthy(self) -> bool:
        """Whether the agent does its work: the source is read, and nothing has failed."""
        return self.running and self.failure is None


@dataclass(frozen=True, slots=True)
class SourceStatus(AgentStatus):
    """One look at an agent that runs a `Source`, with what that has to say."""

    source: str = ""
    # What the source counts, by the names of metrics; and how its parts are.
    figures: Mapping[str, float | int] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    def source_checks(self) -> tuple[Check, ...]:
        return self.checks
