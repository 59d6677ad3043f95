"""Settings: one typed model, a section per part of the program.

The text under a field is its documentation; docs/reference/settings.md is made from it. `load` gives the effective
settings of a file and the environment. A section is imported when a name of it is first used: describing all of them
takes longer than a process of Spark lives that reads a few changes, and that needs one section.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from penstock.settings.choices import Acknowledge, Codec, OnLoss
    from penstock.settings.loading import Loaded, build, known_names, load, read_toml, trace
    from penstock.settings.log import LogSettings, RetentionSettings
    from penstock.settings.model import Settings
    from penstock.settings.pipeline import (
        Copies,
        MergeSettings,
        OnTrouble,
        PipelineSettings,
        RecordType,
        SchemaPolicy,
        TransformSettings,
    )
    from penstock.settings.section import Section
    from penstock.settings.serve import HttpSettings, ListenerSettings
    from penstock.settings.source import ReplaySettings, SourceKind, SourceSettings

_SECTIONS = {
    "cassandra": (
        "AgentSettings",
        "CassandraSettings",
        "SchemaFrom",
        "Share",
        "SnapshotMode",
        "SnapshotSettings",
        "TableChoice",
        "TailMode",
    ),
    "choices": (
        "Acknowledge",
        "Codec",
        "OnLoss",
    ),
    "loading": (
        "Loaded",
        "build",
        "known_names",
        "load",
        "read_toml",
        "trace",
    ),
    "log": (
        "LogSettings",
        "RetentionSettings",
    ),
    "model": ("Settings",),
    "pipeline": (
        "Copies",
        "MergeSettings",
        "OnTrouble",
        "PipelineSettings",
        "RecordType",
        "SchemaPolicy",
        "TransformSettings",
    ),
    "section": ("Section",),
    "serve": (
        "HttpSettings",
        "ListenerSettings",
    ),
    "source": (
        "ReplaySettings",
        "SourceKind",
        "SourceSettings",
    ),
}
_SECTION_OF = {name: section for section, names in _SECTIONS.items() for name in names}

__all__ = [
    "Acknowledge",
    "AgentSettings",
    "CassandraSettings",
    "Codec",
    "Copies",
    "HttpSettings",
    "ListenerSettings",
    "Loaded",
    "LogSettings",
    "MergeSettings",
    "OnLoss",
    "OnTrouble",
    "PipelineSettings",
    "RecordType",
    "ReplaySettings",
    "RetentionSettings",
    "SchemaFrom",
    "SchemaPolicy",
    "Section",
    "Settings",
    "Share",
    "SnapshotMode",
    "SnapshotSettings",
    "SourceKind",
    "SourceSettings",
    "TableChoice",
    "TailMode",
    "TransformSettings",
    "build",
    "known_names",
    "load",
    "read_toml",
    "trace",
]


def __getattr__(name: str) -> Any:
    """Python calls this for a name that is not here yet."""
    section = _SECTION_OF.get(name)
    if section is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{section}"), name)
    return found
