"""Settings: one typed model, a section per part of the program.

A value comes from the first of these that has one: the caller (a command-line option), an environment variable
`PENSTOCK_SECTION__FIELD`, the TOML file, the default. Nothing is guessed and nothing is ignored: an unknown name is
refused, with the place it was found at and the nearest known name. The text under a field is its documentation;
docs/reference/settings.md is made from it.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from penstock.errors import InvalidSetting

# A variable is a setting when it has this prefix and a double underscore; PENSTOCK_NATIVE, for one, is not.
VARIABLE_PREFIX = "PENSTOCK_"


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        # A refused value may be a secret in the wrong place, so errors never show it.
        hide_input_in_errors=True,
    )


class Codec(StrEnum):
    """The Avro codecs of the change log's blocks."""

    NULL = "null"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    ZSTANDARD = "zstandard"


class Acknowledge(StrEnum):
    """When an append returns: after the sync (survives power loss) or after the write (survives a killed process)."""

    SYNCED = "synced"
    WRITTEN = "written"


class LogSettings(Section):
    """The change log of one table."""

    codec: Codec = Codec.NULL
    """How blocks are compressed."""
    acknowledge: Acknowledge = Acknowledge.SYNCED
    """When an append returns: `synced` survives power loss, `written` only a killed process."""
    file_bytes_max: int = Field(default=256 << 20, ge=4096)
    """A new file is begun when the current one has reached this size."""
    block_bytes_max: int = Field(default=16 << 20, ge=4096, le=1 << 30)
    """One block holds at most this much before compression; a larger batch is refused."""
    index_bytes: int = Field(default=64 << 20, ge=4096)
    """The index is synced each time that the log has grown by this much; recovery reads no more than this."""
    reserve_bytes: int = Field(default=32 << 20, ge=0)
    """Disk space that is set aside ahead of the log's end, which makes syncs faster; given back on close. 0: none."""


class RetentionSettings(Section):
    """When consumed files go, and when even unconsumed ones do. None means no cap."""

    bytes_max: int | None = Field(default=None, ge=0)
    """Files go, oldest first, when the log is larger than this, even those that a subscription still needs."""
    age_s_max: int | None = Field(default=None, ge=0)
    """Files go when their newest change is older than this, even those that a subscription still needs."""
    subscriber_expiry_s: int | None = Field(default=None, ge=1)
    """A subscription that has not committed for this long no longer holds files back. None: it always does."""


class ListenerSettings(Section):
    """The socket that pushes changes to local daemons."""

    host: str = "127.0.0.1"
    """The address to listen on. Any other than the loopback needs TLS and a token."""
    port: int = Field(default=7417, ge=0, le=65535)
    """The TCP port; 0 takes a free one."""
    path: Path | None = None
    """A Unix socket to listen on instead of host and port."""
    token_file: Path | None = None
    """A file with the token that clients must send. TCP needs one; on a Unix socket the file's rights may do."""
    tls_certificate_file: Path | None = None
    """The certificate chain (PEM). TLS is on when it is given."""
    tls_key_file: Path | None = None
    """The certificate's private key (PEM)."""
    clients_max: int = Field(default=256, ge=1)
    """Further clients are turned away."""
    client_buffer_bytes: int = Field(default=1 << 20, ge=4096)
    """What is kept in memory for one client; one that falls further behind is served from the log."""
    request_bytes_max: int = Field(default=64 << 10, ge=1024, le=1 << 20)
    """The largest frame that a client may send."""
    handshake_s: float = Field(default=5.0, gt=0)
    """A client that has not said within this time who it is and what it wants is cut off."""
    heartbeat_s: float = Field(default=10.0, gt=0)
    """A client that was sent nothing for this long is sent a heartbeat."""
    commit_interval_s: float = Field(default=0.05, ge=0)
    """One client's acknowledgements are made durable at most this often; those in between go together."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> ListenerSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        return self


def _listed(value: object) -> object:
    """A variable can only hold text, so a list is written there with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


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
    tables: dict[str, TableChoice] = Field(default_factory=dict)
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
    """The agent that runs beside a Cassandra node and writes its changes to change logs."""

    directory: Path = Path("penstock-data")
    """Where the change logs and their catalog are, one directory per table."""
    state_directory: Path | None = None
    """Where the agent keeps its place and what it parked; none: `.agent` below directory."""
    node: str = ""
    """The node's name in the change logs; empty: its host id, asked of the node, or this machine's name."""
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
    transfer_options: dict[str, str] = Field(default_factory=dict)
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
    listen: bool = False
    """Whether the agent also runs the listener of section `listener` on its logs."""


class HttpSettings(Section):
    """The HTTP endpoints for monitoring: ping, health, buildinfo, metrics."""

    enabled: bool = True
    """Whether there is an HTTP server at all."""
    host: str = "127.0.0.1"
    """The address to listen on. Any other than the loopback needs TLS and a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The TCP port; 0 takes a free one."""
    token_file: Path | None = None
    """A file with the token that clients must send as `Authorization: Bearer …`. On the loopback there need be none."""
    tls_certificate_file: Path | None = None
    """The certificate chain (PEM). TLS is on when it is given."""
    tls_key_file: Path | None = None
    """The certificate's private key (PEM)."""
    clients_max: int = Field(default=32, ge=1)
    """Further clients are turned away."""
    request_s: float = Field(default=5.0, gt=0)
    """A client that has not sent its request within this time is cut off, and so is one that is idle for it."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> HttpSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        return self


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


FunctionPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


class Settings(Section):
    """Everything that can be set."""

    log: LogSettings = LogSettings()
    """The change log of each table."""
    retention: RetentionSettings = RetentionSettings()
    """When files of the change log are deleted."""
    listener: ListenerSettings = ListenerSettings()
    """The socket that pushes changes to local daemons."""
    cassandra: CassandraSettings = CassandraSettings()
    """The Cassandra node whose commit log is read."""
    agent: AgentSettings = AgentSettings()
    """The agent that runs beside a Cassandra node."""
    snapshot: SnapshotSettings = SnapshotSettings()
    """The copy of rows that were there before the agent began to read changes."""
    http: HttpSettings = HttpSettings()
    """The HTTP endpoints for monitoring."""
    functions: dict[str, FunctionPath] = Field(default_factory=dict)
    """Python callables that filters may name, as `name = "module:callable"`."""


def load(file: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The effective settings: the environment over the file over the defaults."""
    return build({} if file is None else _read_toml(file), environ, file=file)


def build(
    tree: dict[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    file: str | None = None,
    origins: Mapping[tuple[str, ...], dict[str, object]] | None = None,
) -> Settings:
    """The effective settings: the environment over `tree`, which came from `file`, over the defaults.

    `origins` says for sections and fields of the tree where in the file they stand, for errors.
    """
    origins = dict(origins or {})
    for variable, value in sorted((os.environ if environ is None else environ).items()):
        name = variable.removeprefix(VARIABLE_PREFIX)
        # An empty variable is one that is not set, as shells and service managers mean it.
        if name == variable or "__" not in name or not value:
            continue
        section, field = name.lower().split("__", 1)
        group = tree.setdefault(section, {})
        if isinstance(group, dict):
            group[field] = value
            origins[section, field] = {"variable": variable}
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise _refusal(error, file, origins) from error


def _read_toml(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"the settings file is not TOML: {error}", file=file) from error
    except UnicodeDecodeError as error:
        raise InvalidSetting("the settings file is not UTF-8 text", file=file, offset=error.start) from error
    except OSError as error:
        raise InvalidSetting(f"cannot read the settings file: {error.strerror}", file=file) from error


def _refusal(
    error: ValidationError, file: str | None, origins: Mapping[tuple[str, ...], dict[str, object]]
) -> InvalidSetting:
    """The first thing that is wrong, said in the user's own spelling."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = tuple(str(part) for part in first["loc"])
    origin = origins.get(path[:2])
    if origin is None:
        # A rule over several fields has the section as its place: any variable of that section may be the cause.
        candidates = (o for p, o in origins.items() if p[:1] == path[:1] and len(path) == 1)
        origin = next((o for o in candidates if "variable" in o), None)
    place: dict[str, object] = origin or ({"file": file} if file is not None else {})
    key = ".".join(path)
    if first["type"] == "extra_forbidden":
        return InvalidSetting(f"unknown setting {key}; {_advice(path)}", **place)
    reason = first["msg"].removeprefix("Value error, ")
    return InvalidSetting(f"setting {key}: {reason[:1].lower()}{reason[1:]}", **place)


def _advice(path: tuple[str, ...]) -> str:
    known = known_names()
    scope = [name for name in known if name.startswith(f"{path[0]}.")] if len(path) > 1 else list(Settings.model_fields)
    # A field written without its section, or in another's, has the very name; a typo has nearly the name.
    fields = {name.rsplit(".", 1)[-1]: name for name in reversed(known)}
    near = difflib.get_close_matches(path[-1], [name.rsplit(".", 1)[-1] for name in scope], n=1)
    if path[-1] in fields:
        return f"did you mean {fields[path[-1]]}?"
    if near:
        return f"did you mean {'.'.join((*path[:-1], near[0]))}?"
    return f"known here: {', '.join(scope or Settings.model_fields)}"


def known_names() -> list[str]:
    """Every setting as `section.field`."""
    names = []
    for section, field in Settings.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, Section):
            names += [f"{section}.{name}" for name in group.model_fields]
        else:
            names.append(section)
    return names
