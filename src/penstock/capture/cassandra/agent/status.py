"""CassandraStatus: what an agent beside a Cassandra node can say about itself, besides what every agent can."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.capture.status import AgentStatus, Check


@dataclass(frozen=True, slots=True)
class CassandraStatus(AgentStatus):
    """One look at an agent beside a Cassandra node. Counts are since it was started unless a name says otherwise."""

    # The segment that is being read, and the logical position reached in it; -1 when there is none.
    segment: str | None = None
    position: int = -1
    # The place that is safe on disk: what was read before it will not be read again.
    saved_segment: str | None = None
    saved_position: int = -1
    mutations: int = 0
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
    cdc_raw_bytes: int = 0
    # The node's limit for cdc_raw; None when it is not known.
    cdc_raw_bytes_max: int | None = None
    cdc_raw_segments: int = 0
    # Whether the node answered over CQL when it was last asked; None when it never was.
    queryable: bool | None = None

    def source_checks(self) -> tuple[Check, ...]:
        """How the node and its directory are."""
        limit = self.cdc_raw_bytes_max
        full = limit is not None and self.cdc_raw_bytes >= limit
        gone = self.queryable is False
        checks = [
            Check("cdc_raw", not full, "cdc_raw is full: the node refuses writes to its CDC tables" if full else None),
            Check("cassandra", not gone, "the node does not answer over CQL" if gone else None),
        ]
        if self.cdc_gaps:
            where = ", ".join(sorted(self.cdc_gaps))
            checks.append(Check("cdc", True, f"CDC was off for a while; copy what was written then: {where}"))
        return tuple(checks)
