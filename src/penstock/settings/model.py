"""Settings: everything that can be set, a section per part of the program."""

from __future__ import annotations

from pydantic import Field

from penstock.settings.cassandra import AgentSettings, CassandraSettings, SnapshotSettings
from penstock.settings.kafka import KafkaSettings
from penstock.settings.log import LogSettings, RetentionSettings
from penstock.settings.pipeline import MergeSettings, PipelineSettings, TransformSettings
from penstock.settings.section import FunctionPath, Section
from penstock.settings.serve import HttpSettings, ListenerSettings
from penstock.settings.sinks import ConsoleSettings, DeltaSettings, FilesSettings, IcebergSettings, SearchSettings
from penstock.settings.source import ReplaySettings, SourceSettings


class Settings(Section):
    """Everything that can be set."""

    log: LogSettings = LogSettings()
    """The change log of each table."""
    retention: RetentionSettings = RetentionSettings()
    """When files of the change log are deleted."""
    listener: ListenerSettings = ListenerSettings()
    """The socket that pushes changes to local daemons."""
    source: SourceSettings = SourceSettings()
    """Where changes come from."""
    cassandra: CassandraSettings = CassandraSettings()
    """The Cassandra node whose commit log is read."""
    replay: ReplaySettings = ReplaySettings()
    """Change logs that are captured again."""
    agent: AgentSettings = AgentSettings()
    """The agent that captures changes."""
    snapshot: SnapshotSettings = SnapshotSettings()
    """The copy of rows that were there before the agent began to read changes."""
    http: HttpSettings = HttpSettings()
    """The HTTP endpoints for monitoring."""
    pipeline: PipelineSettings = PipelineSettings()
    """The pipeline on Spark."""
    merge: MergeSettings = MergeSettings()
    """How the replicas' copies of one change become one."""
    transform: TransformSettings = TransformSettings()
    """What is done to records before they are delivered."""
    kafka: KafkaSettings = KafkaSettings()
    """Kafka topics."""
    search: SearchSettings = SearchSettings()
    """Elasticsearch or OpenSearch."""
    delta: DeltaSettings = DeltaSettings()
    """Delta tables."""
    iceberg: IcebergSettings = IcebergSettings()
    """Iceberg tables."""
    files: FilesSettings = FilesSettings()
    """Parquet or JSON files."""
    console: ConsoleSettings = ConsoleSettings()
    """Records on the terminal."""
    functions: dict[str, FunctionPath] = Field(default_factory=dict)
    """Python callables that filters may name, as `name = "module:callable"`."""
