"""Settings of the choice of a source, and of the source `replay`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from penstock.model.schema import Order
from penstock.settings.section import Names, Section


class SourceKind(StrEnum):
    """Kinds of sources."""

    CASSANDRA = "cassandra"
    REPLAY = "replay"


class SourceSettings(Section):
    """Where changes come from."""

    kind: SourceKind = SourceKind.CASSANDRA
    """`cassandra`: the commit log of the node in section `cassandra`; `replay`: the change logs in section `replay`."""


class ReplaySettings(Section):
    """Change logs that are captured again, with `source.kind = "replay"`."""

    directory: Path | None = None
    """The directory of the logs, one directory per table in it, as an agent writes them. It is only read."""
    follow: bool = True
    """Whether to go on with what is added to the logs; if not, the agent ends when all is read."""
    ordered_by: Order | None = None
    """What decides between two changes of a row: `write_time` or `log`. None: what each table's log says."""
    include: Names = ("*.*",)
    """Patterns `keyspace.table` of tables to capture."""
    exclude: Names = ()
    """Patterns of tables not to capture; they win over include."""
