"""Choice of sinks: from the names in the settings to the sinks themselves, built-in or a user's own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from penstock.deliver.sink import Sink
from penstock.errors import InvalidSetting, PenstockError
from penstock.filters.functions import Functions, canonical_name
from penstock.model.spelling import did_you_mean
from penstock.settings import Settings
from penstock.system import extras

_OWN = "pipeline.own_sinks"
# Where each built-in sink is, what it is made of, and the extras that bring its library.
_BUILT_IN = {
    "kafka": ("penstock.deliver.kafka.sink", "KafkaSink", ("kafka",)),
    "search": ("penstock.deliver.search.sink", "SearchSink", ()),
    "delta": ("penstock.deliver.delta.sink", "DeltaSink", ("delta",)),
    "iceberg": ("penstock.deliver.iceberg.sink", "IcebergSink", ("iceberg",)),
    "files": ("penstock.deliver.files.sink", "FilesSink", ()),
    "console": ("penstock.deliver.console.sink", "ConsoleSink", ()),
}


def make_sinks(settings: Settings) -> tuple[Sink, ...]:
    """The sinks that the settings name, in that order."""
    names = settings.pipeline.sinks
    if not names:
        raise InvalidSetting(f"no sink is named; known: {', '.join(_BUILT_IN)}", setting="pipeline.sinks")
    if len(set(names)) != len(names):
        raise InvalidSetting("a sink is named twice", setting="pipeline.sinks")
    return tuple(_make(name, settings) for name in names)


def _make_own(name: str, path: str, options: Mapping[str, object]) -> Sink:
    """A user's sink. Whatever its code raises is told as what it is, and where it was named."""
    setting = f"pipeline.own_sinks.{name}"
    kind = Functions.load({name: path}, _OWN)[canonical_name(name)]
    try:
        made = kind(options)
    except PenstockError:
        raise
    except Exception as error:
        # What it says may hold what it was given, which may be a secret.
        raise InvalidSetting(f"{path} failed: {type(error).__name__}", setting=setting) from error
    if not isinstance(made, Sink):
        raise InvalidSetting(f"{path} is no Sink", setting=setting)
    return made


def _make(name: str, settings: Settings) -> Sink:
    own = settings.pipeline.own_sinks.get(name)
    if own is not None:
        return _make_own(name, own, settings.pipeline.own_sink_options.get(name, {}))
    if name not in _BUILT_IN:
        known = [*_BUILT_IN, *settings.pipeline.own_sinks]
        raise InvalidSetting(f"no such sink: {name[:40]!r}{did_you_mean(name, known)}", setting="pipeline.sinks")
    module, attribute, needed = _BUILT_IN[name]
    extras.need(f"the sink {name}", needed)
    kind: Callable[..., Sink] = getattr(importlib.import_module(module), attribute)
    return kind(getattr(settings, name))
