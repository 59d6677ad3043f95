"""Choice of sinks: from the names in the settings to the sinks themselves, built-in or a user's own."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from penstock.errors import InvalidSetting, PenstockError, ToolMissing
from penstock.filters.functions import Functions, canonical_name
from penstock.model.spelling import did_you_mean
from penstock.pipeline.sinks.sink import Sink
from penstock.settings import Settings

# Where each built-in sink is, what it is made of, and the extra that brings its library.
_BUILT_IN = {
    "kafka": ("penstock.pipeline.sinks.kafka.kafka_sink", "KafkaSink", "kafka"),
    "search": ("penstock.pipeline.sinks.search.search_sink", "SearchSink", "spark"),
    "delta": ("penstock.pipeline.sinks.lakehouse.delta_sink", "DeltaSink", "delta"),
    "iceberg": ("penstock.pipeline.sinks.lakehouse.iceberg_sink", "IcebergSink", "iceberg"),
    "files": ("penstock.pipeline.sinks.files", "FilesSink", "spark"),
    "console": ("penstock.pipeline.sinks.console", "ConsoleSink", "spark"),
}


def make_sinks(settings: Settings) -> tuple[Sink, ...]:
    """The sinks that the settings name, in that order."""
    names = settings.pipeline.sinks
    if not names:
        raise InvalidSetting(f"no sink is named; known: {', '.join(_BUILT_IN)}", setting="pipeline.sinks")
    if len(set(names)) != len(names):
        raise InvalidSetting("a sink is named twice", setting="pipeline.sinks")
    return tuple(_make(name, settings) for name in names)


def _make(name: str, settings: Settings) -> Sink:
    own = settings.pipeline.own_sinks.get(name)
    if own is not None:
        own_kind = Functions.load({name: own})[canonical_name(name)]
        try:
            made = own_kind(settings.pipeline.own_sink_options.get(name, {}))
        except PenstockError:
            raise
        except Exception as error:
            # What it says may hold what it was given, which may be a secret.
            raise InvalidSetting(
                f"{own} cannot be made: {type(error).__name__}", setting=f"pipeline.own_sinks.{name}"
            ) from error
        if not isinstance(made, Sink):
            raise InvalidSetting(f"{own} is no Sink", setting=f"pipeline.own_sinks.{name}")
        return made
    if name not in _BUILT_IN:
        known = [*_BUILT_IN, *settings.pipeline.own_sinks]
        raise InvalidSetting(f"no such sink: {name[:40]!r}{did_you_mean(name, known)}", setting="pipeline.sinks")
    module, attribute, extra = _BUILT_IN[name]
    try:
        kind: Callable[..., Sink] = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ToolMissing(
            f"the sink {name} needs the library {error.name}; install it with: pip install 'penstock[{extra}]'"
        ) from error
    return kind(getattr(settings, name))
