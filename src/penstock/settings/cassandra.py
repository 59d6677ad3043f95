"""Settings of capture from Cassandra: the node, the agent beside it, and snapshots."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from penstock.settings.section import Names, PassedOn, Section, tabled

# Where an agent keeps its state, below the directory of its logs, unless it is told another place.
AGENT_STATE = ".agent"


class SchemaFrom(StrEnum):
    """Where table definitions come from when the agent has none yet. Later ones come from the commit log itself."""

    DRIVER = "driver"
    LOG = "log"
    FILE = "file"


class TableChoice(Section):
    """What is chosen for the tables that a pattern names."""

    data_centres: Names = ()
    """Only nodes of these data centres capture the tables; empty means all."""


class CassandraSettings(Section):
    """The Cassandra node whose commit log is read."""

    config_file: Path | None = None
    """The node's cassandra.yaml. Directories and limits are taken from it; settings that contradict it are refused."""
    cdc_raw_directory: Path | None = None
    """The node's cdc_raw directory. Not needed when config_file is given."""
    commitlog_directory: Path | None = None
    """The node's commitlog directory; only read, and only with follow_commitlog."""
    follow_commitlog: bool = False
    """Also read the live segments in commitlog_directory. Useful for 3.11, whose segments reach cdc_raw late."""
    cdc_total_space_bytes: int | None = Field(default=None, ge=1)
    """The node's limit for cdc_raw, to report its use against. None: from config_file, or Cassandra's own default."""
    schema_from: SchemaFrom = SchemaFrom.DRIVER
    """Where table definitions come from at the first start: the node itself, the commit log alone, or schema_file."""
    schema_file: Path | None = None
    """Table definitions, as CQL text or JSON, for `schema_from = "file"`."""
    include: Names = ("*.*",)
    """Patterns `keyspace.table` of tables to capture. Only tables with `cdc = true` are, and never system tables."""
    exclude: Names = ()
    """Patterns of tables not to capture; they win over include."""
    tables: Annotated[dict[str, TableChoice], BeforeValidator(tabled)] = Field(default_factory=dict)
    """More choices for the tables that a pattern names; the first pattern that fits counts."""
    contact_points: Names = ()
    """Addresses for table definitions and snapshots: the node itself first, then others of its cluster. Empty: the
    node's own, from config_file."""
    port: int = Field(default=9042, ge=1, le=65535)
    """The CQL port of the contact points."""
    username: str | None = None
    """The user to log in as; none when the cluster asks for none."""
    password: SecretStr | None = None
    """The user's password. Better kept in password_file."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""
    tls: bool = False
    """Whether CQL connections use TLS."""
    tls_ca_file: Path | None = None
    """The certificates (PEM) that the node's must be signed by; none: the system's."""
    tls_certificate_file: Path | None = None
    """The client certificate (PEM), when the cluster asks for one."""
    tls_key_file: Path | None = None
    """The client certificate's private key (PEM)."""
    tls_trust_store_file: Path | None = None
    """A Java trust store (JKS, PKCS12) instead of tls_ca_file."""
    tls_trust_store_password: SecretStr | None = None
    """The trust store's password."""
    tls_key_store_file: Path | None = None
    """A Java key store (JKS, PKCS12) instead of tls_certificate_file and tls_key_file."""
    tls_key_store_password: SecretStr | None = None
    """The key store's password."""
    tls_verify_host: bool = True
    """Whether the node's certificate must name the address that was connected to."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    """How long to wait for the node when connecting."""
    keystore_file: Path | None = None
    """The key store (JCEKS, PKCS12) of an encrypted commit log."""
    keystore_password_file: Path | None = None
    """A file that holds the key store's password."""
    key_password_file: Path | None = None
    """A file that holds the password of the keys themselves, when it is another."""
    cluster: str = ""
    """The cluster's name, for the origin of changes; empty: asked of the node."""
    data_centre: str = ""
    """The node's data centre; empty: asked of the node."""
    local_data_centre: str | None = None
    """The data centre whose nodes are asked over CQL; none: that of the first contact point."""


class TailMode(StrEnum):
    """How close to the node's writes the agent reads."""

    WRITTEN = "written"
    SYNCED = "synced"


class AgentSettings(Section):
    """The agent that captures a source's changes, such as those of the Cassandra node beside it, to change logs."""

    directory: Path = Path("penstock-data")
    """Where the change logs and their catalog are, one directory per table."""
    state_directory: Path | None = None
    """Where the agent keeps its place and what it parked; none: `.agent` below directory."""
    node: str = ""
    """The node's name in the change logs; empty: its host id, asked of the node, what the logs to replay
    say, or this machine's name."""
    tail: TailMode = TailMode.WRITTEN
    """`written`: each entry, milliseconds after the write; `synced`: only what the node has made durable."""
    poll_active_s: float = Field(default=0.002, gt=0)
    """How long to wait before looking again after something was found."""
    poll_idle_s: float = Field(default=0.01, gt=0)
    """How long to wait before looking again when nothing is found for a while."""
    scan_s: float = Field(default=0.1, gt=0)
    """How often the directory is looked through for new segments, at the least."""
    chunk_bytes: int = Field(default=4 << 20, ge=4096, le=64 << 20)
    """So much is decoded before it is made durable, when there is a backlog."""
    place_interval_s: float = Field(default=0.5, ge=0)
    """The place in the commit log is saved at most this often; after a crash the agent reads again from it."""
    open_logs_max: int = Field(default=64, ge=1)
    """So many tables' logs are kept open; with more tables, those not written for longest are closed."""
    parked_bytes_max: int = Field(default=1 << 30, ge=1 << 20)
    """Entries that wait for their table's definition take at most this much disk; the agent stops before it loses."""
    transfer: str = "delete"
    """What is done with a processed segment: `delete`, `archive`, `keep`, or an own class as `module:Class`."""
    transfer_options: PassedOn = Field(default_factory=dict)
    """What an own class is given."""
    archive_directory: Path | None = None
    """Where `archive` puts processed segments."""
    error_directory: Path | None = None
    """Where segments go that could not be read as a whole; none: they stay in cdc_raw."""
    reprocess_errors: bool = False
    """Whether the segments in error_directory are read again at each start."""
    space_warning: float = Field(default=0.75, gt=0, le=1)
    """Warn when cdc_raw holds more than this part of its limit."""
    schema_refresh_s: float = Field(default=10.0, gt=0)
    """When entries of an unknown table or column come, the node is asked for definitions at most this often."""
    exclude_columns: Names = ()
    """Patterns `keyspace.table.column` of columns that never reach a change log; never keys."""
    masks: PassedOn = Field(default_factory=dict)
    """How values are hidden before they reach a change log, by pattern `keyspace.table.column`: `hash` (salted, stays
    comparable; text and bytes), `truncate:N` (text and bytes), or `null`; never keys, nor columns of several cells."""
    mask_salt: SecretStr | None = None
    """What hashes begin with, the same on every node. Better kept in mask_salt_file."""
    mask_salt_file: Path | None = None
    """A file that holds the salt."""
    listen: bool = False
    """Whether the agent also runs the listener of section `listener` on its logs."""


class SnapshotMode(StrEnum):
    """Which tables are copied as they are, besides reading their changes."""

    INITIAL = "initial"
    ALWAYS = "always"
    RESTART = "restart"
    NEVER = "never"


class Share(StrEnum):
    """Which part of each table an agent copies."""

    OWN = "own"
    ALL = "all"
    NONE = "none"


_READ_LEVELS = ("ALL", "QUORUM", "LOCAL_QUORUM", "EACH_QUORUM", "ONE", "TWO", "THREE", "LOCAL_ONE", "SERIAL")


def _read_level(value: object) -> object:
    """A consistency level in any case, as it is written in other programs' files too."""
    if isinstance(value, str) and value.strip().upper() not in (*_READ_LEVELS, "LOCAL_SERIAL"):
        raise ValueError(f"no such consistency level; known: {', '.join(_READ_LEVELS)}, LOCAL_SERIAL")
    return value.strip().upper() if isinstance(value, str) else value


Consistency = Annotated[str, BeforeValidator(_read_level)]


class SnapshotSettings(Section):
    """The copy of rows that were there before the agent began to read changes."""

    mode: SnapshotMode = SnapshotMode.INITIAL
    """`initial`: each table once, also tables found later; `always`: once more when CDC was off for a while; `restart`:
    once more at every start; `never`: only on request."""
    consistency: Consistency = "ALL"
    """The consistency level of the reads, by name; below ALL, rows that a replica missed may be missing."""
    share: Share = Share.OWN
    """`own`: what the agent's node is the first replica of, so that all agents together copy everything once; `all`:
    everything, for the one agent that does the work alone; `none`: nothing."""
    data_centres: Names = ()
    """With `share = "own"`: the data centres whose agents divide the tables among them; empty means all."""
    scan_interval_s: float = Field(default=10.0, gt=0)
    """How often to look for new tables."""
    workers: int = Field(default=4, ge=1, le=64)
    """How many token ranges are read at the same time."""
    splits: int = Field(default=16, ge=1, le=4096)
    """Into about so many token ranges a table is cut, for the workers to read."""
    page_rows: int = Field(default=5000, ge=1, le=100_000)
    """How many rows are asked for at once, at most; fewer when rows are large or the node is slow."""
    rows_per_s: float | None = Field(default=None, gt=0)
    """Read no faster than this, all workers together. None: as fast as it goes."""
    timeout_s: float = Field(default=60.0, gt=0)
    """How long to wait for one page before it is asked for again."""
    assume_inserted: bool = True
    """Whether rows count as INSERTed: CQL does not tell. A row that is, stays when its last value is deleted."""
