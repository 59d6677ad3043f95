"""What is done of a table's snapshot: durable, so that a restart goes on inside the table.

Each table has one small sealed file. It says which run this is, which parts of the ring are copied (`covered`), and
which splits are still to be read (`pending`); a split that was read in part begins behind the part. The file is
replaced after pages whose rows are durable in the change log, a few times a second: what was read in between is read
again after a crash.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.capture.cassandra.snapshot.ring import TokenRange, joined, width, without
from penstock.errors import CorruptCheckpoint, UnsupportedFormat
from penstock.log import names, sealed
from penstock.log.refusal import refused
from penstock.model.schema import TableId
from penstock.system.files import Files, make_durable_directory

FORMAT = 1
SUFFIX = ".snapshot"
# A state with ten thousand splits is smaller than this.
BYTES_MAX = 4 << 20


@dataclass(slots=True)
class TableState:
    """How far the snapshot of one table is. Mutable; whoever shares it between threads guards it."""

    table: TableId
    # A table that is dropped and created again has another id, and is another table.
    table_id: uuid.UUID
    run: int = 1
    rows: int = 0
    started_us: int = 0
    # None while there is something to read.
    finished_us: int | None = None
    pending: list[TokenRange] = field(default_factory=list)
    covered: list[TokenRange] = field(default_factory=list)
    # Whether CDC was seen switched off since the run began: what was written meanwhile is not in the commit log.
    lapsed: bool = False
    # Whether somebody asked for this run: it goes on even when snapshots are switched off.
    requested: bool = False
    partitions_estimate: int | None = None

    @property
    def fraction(self) -> float:
        """The part of the run's token ranges that is done."""
        left = width(self.pending)
        return width(self.covered) / (width(self.covered) + left) if left else 1.0

    def begin(self, splits: Iterable[TokenRange], now_us: int, *, requested: bool = False) -> None:
        """Start a new run over these splits."""
        self.run += 1
        self.rows = 0
        self.started_us = now_us
        self.finished_us = None
        self.pending = list(splits)
        self.covered = []
        self.lapsed = False
        self.requested = requested

    def extend(self, splits: Iterable[TokenRange]) -> None:
        """Further splits for the run, also for one that was finished."""
        self.pending += splits
        if self.pending:
            self.finished_us = None

    def missing(self, ranges: Iterable[TokenRange]) -> list[TokenRange]:
        """The part of these ranges that is neither copied nor about to be."""
        return without(ranges, [*self.covered, *self.pending])

    def advance(self, split: TokenRange, reached: int, rows: int) -> TokenRange | None:
        """All up to and including token `reached` of a pending split is done; what is left of the split."""
        self.rows += rows
        index = self.pending.index(split)
        self.covered = joined([*self.covered, TokenRange(split.start, min(reached, split.end))])
        if reached >= split.end:
            del self.pending[index]
            return None
        rest = TokenRange(reached, split.end)
        self.pending[index] = rest
        return rest

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "keyspace": self.table.keyspace,
            "table": self.table.table,
            "id": str(self.table_id),
            "run": self.run,
            "rows": self.rows,
            "started": self.started_us,
            "finished": self.finished_us,
            "lapsed": self.lapsed,
            "requested": self.requested,
            "partitions_estimate": self.partitions_estimate,
            "pending": [list(one) for one in self.pending],
            "covered": [list(one) for one in self.covered],
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TableState:
        """The inverse. Raises KeyError, TypeError or ValueError on anything else."""
        return cls(
            table=TableId(content["keyspace"], content["table"]),
            table_id=uuid.UUID(content["id"]),
            run=int(content["run"]),
            rows=int(content["rows"]),
            started_us=int(content["started"]),
            finished_us=content["finished"],
            lapsed=bool(content["lapsed"]),
            requested=bool(content["requested"]),
            partitions_estimate=content["partitions_estimate"],
            pending=[TokenRange(int(start), int(end)) for start, end in content["pending"]],
            covered=[TokenRange(int(start), int(end)) for start, end in content["covered"]],
        )


class StateDirectory:
    """The files of all tables, for the one agent that owns the directory; anyone may read them."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.directory = directory

    def create(self) -> None:
        try:
            make_durable_directory(self._files, self.directory)
        except OSError as error:
            raise refused(error, "making the snapshot's directory", self.directory) from error

    def load_all(self) -> dict[TableId, TableState]:
        """Every table's state. A file that cannot be trusted is an error that names it, never a new start."""
        try:
            found = self._files.list(self.directory)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise refused(error, "listing the snapshot's state", self.directory) from error
        states = [self._load(f"{self.directory}/{name}") for name in sorted(found) if name.endswith(SUFFIX)]
        return {state.table: state for state in states if state is not None}

    def load(self, table: TableId) -> TableState | None:
        """One table's state; None when its snapshot never began."""
        return self._load(f"{self.directory}/{_name(table)}")

    def _load(self, path: str) -> TableState | None:
        try:
            content = sealed.read(self._files, path, BYTES_MAX)
            if content.get("format") != FORMAT:
                version = content.get("format")
                raise UnsupportedFormat(f"snapshot state format {version!r}; this version reads {FORMAT}", file=path)
            return TableState.from_json(content)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise refused(error, "reading the snapshot's state", path) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint(
                f"the snapshot's state is not readable: {error}; without the file the table is copied anew", file=path
            ) from error

    def save(self, state: TableState) -> None:
        """Make it durable; after any error the file holds the old state or the new one."""
        name = _name(state.table)
        try:
            sealed.write(self._files, self.directory, name, state.to_json())
        except OSError as error:
            raise refused(error, "saving the snapshot's state", f"{self.directory}/{name}") from error

    def forget(self, table: TableId) -> None:
        """The table is gone."""
        path = f"{self.directory}/{_name(table)}"
        try:
            if self._files.exists(path):
                self._files.unlink(path)
                self._files.sync_directory(self.directory)
        except OSError as error:
            raise refused(error, "removing the snapshot's state", path) from error


def _name(table: TableId) -> str:
    return names.directory_name(table) + SUFFIX
