"""Settings: one typed model, a section per part of the program.

The text under a field is its documentation; docs/reference/settings.md is made from it. `load` gives the effective
settings of a file and the environment.
"""

from penstock.settings.cassandra import (
    AgentSettings,
    CassandraSettings,
    SchemaFrom,
    Share,
    SnapshotMode,
    SnapshotSettings,
    TableChoice,
    TailMode,
)
from penstock.settings.loading import build, known_names, load
from penstock.settings.log import Acknowledge, Codec, LogSettings, RetentionSettings
from penstock.settings.model import Settings
from penstock.settings.pipeline import (
    Copies,
    MergeSettings,
    OnLoss,
    PipelineSettings,
    RecordType,
    SchemaPolicy,
    TransformSettings,
)
from penstock.settings.section import Section
from penstock.settings.serve import HttpSettings, ListenerSettings

__all__ = [
    "Acknowledge",
    "AgentSettings",
    "CassandraSettings",
    "Codec",
    "Copies",
    "HttpSettings",
    "ListenerSettings",
    "LogSettings",
    "MergeSettings",
    "OnLoss",
    "PipelineSettings",
    "RecordType",
    "RetentionSettings",
    "SchemaFrom",
    "SchemaPolicy",
    "Section",
    "Settings",
    "Share",
    "SnapshotMode",
    "SnapshotSettings",
    "TableChoice",
    "TailMode",
    "TransformSettings",
    "build",
    "known_names",
    "load",
]
