"""Loading: the effective settings of a file and the environment.

A value comes from the first of these that has one: the caller (a command-line option), an environment variable
`PENSTOCK_SECTION__FIELD`, the TOML file, the default. Nothing is guessed and nothing is ignored: an unknown name is
refused, with the place it was found at and the nearest known name.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock.errors import InvalidSetting
from penstock.settings.model import Settings
from penstock.settings.secrets import resolve
from penstock.settings.section import Section

# A variable is a setting when it has this prefix and a double underscore; PENSTOCK_NATIVE, for one, is not.
VARIABLE_PREFIX = "PENSTOCK_"
# No setting is this deep; the parser takes the square of the time for a key of many parts.
_DOTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective settings, and for each that is not a default where it was set: a variable, or a place in a file."""

    settings: Settings
    origins: Mapping[tuple[str, ...], dict[str, object]]


def load(file: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The effective settings: the environment over the file over the defaults."""
    return trace({} if file is None else read_toml(file), environ, file=file).settings


def build(
    tree: dict[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    file: str | None = None,
    origins: Mapping[tuple[str, ...], dict[str, object]] | None = None,
) -> Settings:
    """The settings of `trace`, without where each comes from."""
    return trace(tree, environ, file=file, origins=origins).settings


def trace(
    tree: dict[str, Any],
    environ: Mapping[str, str] | None = None,
    *,
    file: str | None = None,
    origins: Mapping[tuple[str, ...], dict[str, object]] | None = None,
) -> Loaded:
    """The effective settings: the environment over `tree`, which came from `file`, over the defaults.

    `origins` says for sections and fields of the tree where in the file they stand, where that is known.
    """
    given = {(section, field) for section, group in tree.items() if isinstance(group, dict) for field in group}
    origins = {**({} if file is None else {key: {"file": file} for key in given}), **(origins or {})}
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
        tree = resolve(tree, os.environ if environ is None else environ)
        return Loaded(Settings.model_validate(tree), origins)
    except ValidationError as error:
        raise _refusal(error, file, origins) from error
    except RecursionError as error:
        raise InvalidSetting("settings nest too deeply", file=file) from error


def read_toml(file: str) -> dict[str, Any]:
    """A settings file as it stands."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        if any(line.partition("=")[0].count(".") > _DOTS_MAX for line in text.splitlines() if line.lstrip()[:1] != "#"):
            raise InvalidSetting("settings nest too deeply", file=file)
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"the settings file is not TOML: {error}", file=file) from error
    except RecursionError as error:
        raise InvalidSetting("settings nest too deeply", file=file) from error
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
