"""Settings of the data pipeline: what it reads, how it merges copies, and what it does to records."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from penstock.settings.choices import OnLoss
from penstock.settings.section import Directories, FunctionPaths, Names, PassedOn, Section, tabled
from penstock.system.addresses import has_login, keeps_secrets


class RecordType(StrEnum):
    """What a record says: the changed values only, the whole row after the change, or the row before and after."""

    CHANGE = "change"
    AFTER = "after"
    ALL = "all"


class SchemaPolicy(StrEnum):
    """What a sink does when a table's schema changes: follow it, go on without new columns, or stop."""

    EVOLVE = "evolve"
    IGNORE = "ignore"
    FAIL = "fail"


class OnTrouble(StrEnum):
    """What stops when something is wrong with one table: the table alone, or the pipeline."""

    TABLE = "table"
    FAIL = "fail"


class PipelineSettings(Section):
    """The pipeline on Spark that merges the change logs of all nodes and delivers them."""

    name: str = Field(default="penstock", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")
    """The pipeline's name: of its subscription in each log, of its transactions in the targets, and in metrics."""
    checkpoint_directory: Path = Path("penstock-pipeline")
    """Where the pipeline keeps its place and its state. It belongs to this pipeline alone, and all workers reach it."""
    logs: Directories = ()
    """Directories of change logs on this machine, as `agent.directory` has them."""
    agents: Names = ()
    """Agents that serve their logs over HTTP, as `https://node1:8000`."""
    agents_token_file: Path | None = None
    """A file with the token that the agents want."""
    agents_ca_file: Path | None = None
    """The certificates (PEM) that the agents' must be signed by; none: the system's."""
    include: Names = ("*.*",)
    """Patterns `keyspace.table` of tables to deliver."""
    exclude: Names = ()
    """Patterns of tables not to deliver; they win over include."""
    sinks: Names = ()
    """The targets, by the names of their sections: kafka, search, delta, iceberg, files, console, or own ones."""
    own_sinks: FunctionPaths = Field(default_factory=dict)
    """Own sinks that may be named in sinks, as `name = "module:Class"`."""
    own_sink_options: Annotated[dict[str, PassedOn], BeforeValidator(tabled)] = Field(default_factory=dict)
    """What own sinks are given, by their names."""
    trigger_s: float = Field(default=0.1, ge=0)
    """How often to look for new changes, at the least; a batch that takes longer is followed by the next at once."""
    linger_s: float = Field(default=2.0, ge=0, le=86_400)
    """Where many tables change all the time, batches begin less often, so that each table gives more at a time and
    costs less: until batches take two fifths of the time, but no more than 10 ms apart for every table, and than this.
    Changes that come after a pause are taken at once, only a burst of thousands is waited for, up to half a second.
    0: nothing waits."""
    rows_per_batch: int = Field(default=500_000, ge=1)
    """A micro-batch takes at most about so many changes, of all nodes together."""
    bytes_per_batch: int = Field(default=256 << 20, ge=1 << 16)
    """A micro-batch takes at most about so many bytes of log."""
    buckets: int | None = Field(default=None, ge=1, le=4096)
    """Into so many parts keys are divided, each done by one task; fixed when the pipeline first starts. None: one per
    core of local Spark then, or 16 on a cluster."""
    on_loss: OnLoss = OnLoss.FAIL
    """When retention has removed changes that were not read yet: `fail` with the gap, `skip` it and say so, or ask the
    agents for a `snapshot` of the table and go on behind the gap."""
    on_trouble: OnTrouble = OnTrouble.TABLE
    """When a table's log is damaged, or a target refuses the table: stop that `table` alone, with its position kept, or
    `fail`, which ends the pipeline. A table that has stopped is tried again by `penstock pipeline retry`, when the
    pipeline starts, and by itself where time may help."""
    master: str = "local[*]"
    """Where Spark runs, when the pipeline starts it: `local[*]`, `spark://…`, `k8s://…`."""
    spark: PassedOn = Field(default_factory=dict)
    """Spark's own settings, by their names."""
    scratch_directory: Path | None = None
    """Where Spark keeps what does not last, as shuffles: a directory of this pipeline alone, which only its user may
    enter, and which is emptied when it starts. None: `scratch` below checkpoint_directory. On a cluster it is the
    driver's; the workers' is for the cluster to say."""
    dead_letter_directory: Path | None = None
    """Where records go that a target will never take; none: below checkpoint_directory."""
    group_read: bool = False
    """Whether users of the pipeline's group may read the tables and files that the sinks delta, iceberg and files make
    from then on; otherwise they are the pipeline's user's alone. Checkpoint, state, dead letters and scratch stay
    closed. In a process of your own, as a notebook, its umask says it instead."""
    http_port: int | None = Field(default=None, ge=0, le=65535)
    """The TCP port of /ping, /health, /buildinfo and /metrics of the pipeline; the rest is as in section http. None: no
    HTTP server; 0: a free port."""
    retry_s: float = Field(default=1.0, gt=0)
    """After a failed batch, wait this long before the first retry; later ones wait longer, up to a minute."""
    retries: int | None = Field(default=None, ge=0)
    """So many failures in a row end the pipeline; None: it goes on. Errors that no retry helps end it at once."""
    stop_s: float = Field(default=30.0, ge=0)
    """A pipeline that is told to end has this long to finish the batch that is under way. Then the batch is given up,
    as when a target is away, and done again at the next start."""

    @model_validator(mode="after")
    def _own_sinks_are_new(self) -> PipelineSettings:
        taken = {"kafka", "search", "delta", "iceberg", "files", "console", "fold"} & set(self.own_sinks)
        if taken:
            raise ValueError(f"own_sinks: {', '.join(sorted(taken))} is the name of a built-in sink or of the fold")
        return self

    @model_validator(mode="after")
    def _tokens_stay_secret(self) -> PipelineSettings:
        if any(map(has_login, self.agents)):
            raise ValueError("agents: a login does not belong into an address; the token is in agents_token_file")
        if self.agents_token_file is not None and not all(map(keeps_secrets, self.agents)):
            raise ValueError("agents: the token would be sent in the clear; use https:// beyond this machine")
        return self


class Copies(StrEnum):
    """Which of a change's copies are passed on: one of them, each of them, or one when enough nodes have logged it."""

    ONE = "one"
    EACH = "each"
    QUORUM = "quorum"


class MergeSettings(Section):
    """How the copies that several replicas have of one change become one."""

    copies: Copies = Copies.ONE
    """`one`: a change is passed on once, whoever logged it first; `each`: every replica's copy; `quorum`: once, when
    `quorum` different nodes have logged it."""
    quorum: int = Field(default=2, ge=1)
    """With `copies = "quorum"`: so many nodes."""
    window_s: int = Field(default=3 * 3600, ge=1)
    """How long a change is remembered, so that a late copy of it is not passed on again. Cassandra's hints may bring
    copies as late as `max_hint_window`, which is three hours."""
    forget_deleted_s: int = Field(default=10 * 24 * 3600, ge=1)
    """How long a row that is gone is remembered, so that a late copy of an older write does not bring it back. Not less
    than the tables' `gc_grace_seconds`, whose default in Cassandra is ten days."""
    state_bytes_max: int | None = Field(default=None, ge=1 << 20)
    """The pipeline stops before it commits a batch with which its state would take more disk than this. None: no
    limit."""


class TransformSettings(Section):
    """What is done to records between the merge and the sinks. Tables and columns are named by patterns."""

    skipped_operations: Names = ()
    """Operations that are not delivered: insert, update, delete, delete_partition, delete_range, truncate, snapshot, or
    Debezium's letters c, i, u, d, r, t."""
    include_columns: Names = ()
    """Patterns `keyspace.table.column`; when there are any, only these columns and the keys are delivered."""
    exclude_columns: Names = ()
    """Patterns `keyspace.table.column` of columns not to deliver, as Debezium's field.exclude.list; never keys."""
    filters: PassedOn = Field(default_factory=dict)
    """Conditions by pattern `keyspace.table`, in the language of CREATE CDC_LOG … WHERE. With whole rows they are asked
    of the row after the change; a row that no longer fulfils its condition is delivered as a delete."""
    masks: PassedOn = Field(default_factory=dict)
    """How values are hidden, by pattern `keyspace.table.column`: `hash` (salted, stays comparable), `truncate:N`, or
    `null`."""
    mask_salt: SecretStr | None = None
    """What hashes begin with. Better kept in mask_salt_file."""
    mask_salt_file: Path | None = None
    """A file that holds the salt."""
    renames: PassedOn = Field(default_factory=dict)
    """New names of columns, by `keyspace.table.column`."""
    routes: PassedOn = Field(default_factory=dict)
    """New names of tables, by pattern `keyspace.table`, as `other` or `keyspace.other`; `{keyspace}` and `{table}`
    stand for the old names."""
    functions: FunctionPaths = Field(default_factory=dict)
    """Python callables by pattern `keyspace.table`. Each is given an Arrow record batch of whole rows and returns one
    of the same columns and rows."""
    dataframe_functions: FunctionPaths = Field(default_factory=dict)
    """The same over pandas DataFrames: each is given one of whole rows, with Arrow's types, and returns one of the same
    columns and rows."""
