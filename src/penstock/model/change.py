"""Change: one row's change, or the deletion of a partition, a range or a table.

A Change keeps each source's own truth. A column that is not in `cells` was not touched; a column set to null is not
the same as a deleted one; an append to a collection is not an overwrite. Times are microseconds since 1970 unless a
name says otherwise. A cell's own `time` is None when it is the change's `time`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple


class Op(StrEnum):
    """What happened. `snapshot` is a row read by a first copy, not written just now."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    DELETE_PARTITION = "delete_partition"
    DELETE_RANGE = "delete_range"
    TRUNCATE = "truncate"
    SNAPSHOT = "snapshot"


class Expiry(NamedTuple):
    """Time to live as written, and the second at which it ends."""

    ttl_s: int
    expires_s: int


class Deletion(NamedTuple):
    """A deletion's write time, and the second at which the replica noted it."""

    time: int
    local_s: int | None = None


class Set(NamedTuple):
    """A cell that now has this value; the value is None where the source stored a null."""

    value: Any
    time: int | None = None
    expiry: Expiry | None = None


class Deleted(NamedTuple):
    """A cell that was deleted."""

    time: int | None = None
    local_s: int | None = None


class Element(NamedTuple):
    """An element of a non-frozen collection that was written.

    The path is the map key, the set's element, the list's cell id (a timeuuid) or the user type's field index; a set's
    element has no value.
    """

    path: Any
    value: Any = None
    time: int | None = None
    expiry: Expiry | None = None


class Removed(NamedTuple):
    """An element of a non-frozen collection that was removed."""

    path: Any
    time: int | None = None
    local_s: int | None = None


class Delta(NamedTuple):
    """What happened to a non-frozen collection or user type.

    `replaced` is the deletion of all it held before, when the write was an overwrite or a deletion of the whole.
    """

    replaced: Deletion | None = None
    elements: tuple[Element, ...] = ()
    removed: tuple[Removed, ...] = ()


Cell = Set | Deleted | Delta


class Marker(NamedTuple):
    """The row's own liveness, which an INSERT writes and an UPDATE does not."""

    time: int | None = None
    expiry: Expiry | None = None


class Bound(NamedTuple):
    """One end of a range: values of the first clustering columns."""

    values: tuple[Any, ...]
    inclusive: bool


class Range(NamedTuple):
    """A range in the table's clustering order: with DESC the start is the greater value. None is an open end."""

    start: Bound | None
    end: Bound | None


class Transaction(NamedTuple):
    """A source's transaction. Within one domain, sequences never fall in log order.

    MariaDB: domain = the GTID's domain, sequence = its sequence number. PostgreSQL: sequence = the commit LSN.
    """

    domain: str
    sequence: int
    id: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a change comes from, in the source's own coordinates."""

    node: str | None = None
    data_centre: str | None = None
    file: str | None = None
    position: int | None = None
    transaction: Transaction | None = None
    # The place inside the mutation or transaction: with the fields above it makes the change's stable identity.
    ordinal: int | None = None


NO_ORIGIN = Origin()


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `key` has no clustering columns when the change concerns a whole partition or its static row."""

    op: Op
    key: Mapping[str, Any] = field(default_factory=dict)
    cells: Mapping[str, Cell] = field(default_factory=dict)
    # The write time, which cells and marker inherit.
    time: int | None = None
    # When the source committed, and when Penstock read it.
    commit_time: int | None = None
    capture_time: int | None = None
    marker: Marker | None = None
    # Of the row, the partition, the range or the table; a row's deletion and newer cells may stand together.
    deletion: Deletion | None = None
    range: Range | None = None
    # Old values by column name, as far as the source gives them.
    before: Mapping[str, Any] | None = None
    origin: Origin = NO_ORIGIN

    @property
    def when(self) -> int | None:
        """The time that `seek by time` goes by: the commit's, else the write's, else the capture's."""
        for time in (self.commit_time, self.time, self.capture_time):
            if time is not None:
                return time
        return None
