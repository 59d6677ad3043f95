"""`penstock config`: what the settings are and where each comes from, and whether what they name can start."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import SecretStr

from penstock.cli import output
from penstock.cli.agent import ConfigArgument
from penstock.cli.output import JsonOption
from penstock.cli.pipeline import trace_settings
from penstock.errors import InvalidSetting, PenstockError
from penstock.settings import Section, Settings, SourceKind

if TYPE_CHECKING:
    from penstock.settings import Loaded

app = typer.Typer(
    help="Settings: what they are, where each comes from, and whether they can work.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

HIDDEN = "**********"
# Tables that are handed on have secrets under names of their own, and addresses have logins in them.
_SECRET = re.compile(r"pass|pwd|secret|token|credential|api.?key|access.?key|private|jaas|salt", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)\S+@")


@app.command("show")
def show(
    config: ConfigArgument,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that are not defaults.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the effective settings and where each comes from. Secrets are hidden."""
    loaded = trace_settings(config)
    rows = [row for row in _rows(loaded) if not changed or row["origin"] != "default"]
    if json:
        for row in rows:
            output.emit(row)
        return
    output.table(("setting", "value", "from"), ((row["setting"], _text(row["value"]), row["origin"]) for row in rows))


def _rows(loaded: Loaded) -> Iterator[dict[str, Any]]:
    for section in Settings.model_fields:
        group = getattr(loaded.settings, section)
        fields = type(group).model_fields if isinstance(group, Section) else group
        for field in fields:
            value = getattr(group, field) if isinstance(group, Section) else group[field]
            origin = loaded.origins.get((section, field))
            yield {"setting": f"{section}.{field}", "value": plain(value, field), "origin": _origin(origin)}


def _origin(place: Mapping[str, object] | None) -> str:
    return "default" if place is None else ", ".join(f"{name} {value}" for name, value in place.items())


def plain(value: Any, name: str = "") -> Any:
    """A setting's value for people and programs, without what is secret in it."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, Section):
        return {field: plain(getattr(value, field), field) for field in type(value).model_fields}
    if isinstance(value, Mapping):
        return {key: plain(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one, name) for one in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, str):
        return value
    return HIDDEN if _SECRET.search(name) and not name.endswith(("_file", "_function")) else _LOGIN.sub("…@", value)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_text(one)}" for name, one in value.items()) or "-"
    return ", ".join(map(_text, value)) or "-" if isinstance(value, list) else str(value)


@app.command("check")
def check(config: ConfigArgument, json: JsonOption = False) -> None:
    """Say what would start and what is missing for it. Exit code 1 when something is. Nothing is started or changed."""
    loaded = trace_settings(config)
    found = list(_findings(loaded))
    for part, what, problem in found:
        if json:
            output.emit({"part": part, "starts": what, "problem": None if problem is None else str(problem)})
        elif problem is None:
            output.line(f"{part}: {output.plain(what)}")
        else:
            output.line(f"{part}: CANNOT START: {output.plain(str(problem))}")
    output.flush()
    if any(problem is not None for _, _, problem in found):
        raise typer.Exit(1)


def _findings(loaded: Loaded) -> Iterator[tuple[str, str, PenstockError | None]]:
    """What would start, each with the first thing that keeps it from that."""
    settings = loaded.settings
    sections = {path[0] for path in loaded.origins}
    parts: list[tuple[str, str, Callable[[Settings], None]]] = []
    if sections & {"cassandra", "agent", "source"}:
        parts.append(("agent", _agent_facts(settings), _check_agent))
    if settings.pipeline.sinks:
        parts.append(("pipeline", _pipeline_facts(settings), _check_pipeline))
    if not parts:
        error = InvalidSetting("nothing would start: there is neither a section cassandra nor pipeline.sinks")
        yield "settings", "nothing", error
    for name, facts, looked_at in parts:
        problem: PenstockError | None = None
        try:
            output.log_level("info")
            output.log_form()
            looked_at(settings)
        except PenstockError as error:
            problem = error
        yield name, facts, problem


def _agent_facts(settings: Settings) -> str:
    http = f"; HTTP on {settings.http.host}:{settings.http.port}" if settings.http.enabled else ""
    return f"captures to {settings.agent.directory}{http}"


def _pipeline_facts(settings: Settings) -> str:
    sources = [_LOGIN.sub("…@", one) for one in (*settings.pipeline.logs, *settings.pipeline.agents)]
    return f"delivers {', '.join(sources)} to {', '.join(settings.pipeline.sinks)} on {settings.pipeline.master}"


def _check_agent(settings: Settings) -> None:
    from penstock.capture.cassandra.agent import beginning
    from penstock.capture.column_masks import ColumnMasks
    from penstock.capture.replay.source import check as check_replay
    from penstock.filters.functions import Functions
    from penstock.serve.access import http_tokens, tls_context

    check_replay(settings)
    if settings.source.kind is SourceKind.CASSANDRA:
        cassandra, _, yaml = beginning.node_facts(settings.cassandra)
        beginning.open_keys(cassandra, yaml)
    Functions.load(settings.functions)
    ColumnMasks(settings.agent)
    _check_writable(settings.agent.directory, "agent.directory")
    http = settings.http
    if not http.enabled:
        return
    http_tokens(http)
    tls_context(http.host, http.tls_certificate_file, http.tls_key_file)


def _check_pipeline(settings: Settings) -> None:
    from penstock.pipeline import preflight

    preflight.check(settings)
    _check_writable(settings.pipeline.checkpoint_directory, "pipeline.checkpoint_directory")


def _check_writable(directory: Path, setting: str) -> None:
    """A directory that is there can be written to; one that is not can be made."""
    there = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    if not there.is_dir():
        raise InvalidSetting("this is no directory", setting=setting, file=there)
    if not os.access(there, os.W_OK | os.X_OK):
        raise InvalidSetting("this user may not write here", setting=setting, directory=there)
