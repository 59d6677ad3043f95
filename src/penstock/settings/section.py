"""Section: a group of settings, and the kinds of value that many of them have."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from penstock.system.addresses import refusal


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        # A refused value may be a secret in the wrong place, so errors never show it.
        hide_input_in_errors=True,
    )

    @field_validator("*")
    @classmethod
    def _paths_are_paths(cls, value: Any) -> Any:
        """An address of a store, given where a path belongs, is refused."""
        return _path(value) if isinstance(value, Path) else value

    @field_validator("*", mode="before")
    @classmethod
    def _units(cls, value: Any, info: ValidationInfo) -> Any:
        """Sizes and times may be written with their unit."""
        name = info.field_name or ""
        field = cls.model_fields.get(name)
        kinds = set() if field is None else set(get_args(field.annotation))
        # Of a text or a path, `none` may be the name.
        optional = NoneType in kinds and bool(kinds & {int, float})
        return in_unit_of(name, value, optional=optional)


def _listed(value: object) -> object:
    """A variable can only hold text, so a list is written there with commas, or as JSON when names have commas."""
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("["):
        return _parsed(value, "a list")
    return [part.strip() for part in value.split(",") if part.strip()]


def _parsed(text: str, what: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{what} as JSON was expected") from None


def tabled(value: object) -> object:
    """A variable can only hold text, so a table is written there as a JSON object."""
    if not isinstance(value, str):
        return value
    found = _parsed(value, "a table")
    if not isinstance(found, dict):
        raise ValueError("a table as JSON was expected")
    return found


def flat(value: object) -> object:
    """A table of texts. Names with points in them are tables inside tables in TOML, unless they are quoted; numbers and
    truth values need no quotes.
    """
    value = tabled(value)
    if not isinstance(value, dict):
        return value
    out: dict[str, object] = {}
    for name, given in value.items():
        if isinstance(given, dict):
            inner = flat(given)
            assert isinstance(inner, dict)
            out |= {f"{name}.{rest}": part for rest, part in inner.items()}
        elif isinstance(given, bool):
            out[str(name)] = str(given).lower()
        else:
            out[str(name)] = str(given) if isinstance(given, int | float) else given
    return out


def _path(value: Path) -> Path:
    reason = refusal(str(value))
    if reason is not None:
        raise ValueError(reason)
    return value


def _paths(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        _path(Path(value))
    return values


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Directories = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_paths)]


# Settings of something else, handed on by their own names.
PassedOn = Annotated[dict[str, str], BeforeValidator(flat)]

FunctionPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
# Callables by a name, or by a pattern, whose point needs no quotes either.
FunctionPaths = Annotated[dict[str, FunctionPath], BeforeValidator(flat)]


# Units: sizes and times as people write them, `10GiB` or `5s`, in the unit that a setting's name has.
#
# The name says which: `bytes` in it is a size, `s` a number of seconds, `ms` of milliseconds, `hours` of hours. A
# bare number counts in that unit, so what was written before units were known means what it meant.

_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-zµ]+)", re.ASCII)
_BYTES = {"b": 1}
for _power, _letter in enumerate("kmgt", 1):
    # A letter alone is what Java and Spark mean by it: powers of 1024.
    _BYTES |= {_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
# The part of a setting's name that is its unit, what that is worth, and the units that may be written instead.
_KINDS = {
    "bytes": (1, _BYTES, "a size as 10GiB, 512MiB or 65536"),
    "ms": (10**6, _NANOSECONDS, "a time as 500ms, 5s or 5000"),
    "s": (10**9, _NANOSECONDS, "a time as 500ms, 5s, 10m, 12h, 7d or 300"),
    "hours": (3600 * 10**9, _NANOSECONDS, "a time as 12h, 7d or 168"),
}
_NOTHING = frozenset(("none", "off"))


def in_unit_of(name: str, value: object, *, optional: bool) -> object:
    """The value in the unit of the setting `name`; one without a unit as it is. `none` turns an optional number off.

    Raises ValueError on an amount whose unit is not known.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if optional and text.lower() in _NOTHING:
        return None
    kind = next((_KINDS[part] for part in name.split("_") if part in _KINDS), None)
    if kind is None:
        return value
    amount = _AMOUNT.fullmatch(text)
    if amount is None:
        return value
    worth, units, example = kind
    factor = units.get(amount[2].lower())
    if factor is None:
        raise ValueError(f"unknown unit; write {example}")
    exact = float(amount[1]) * factor / worth if "." in amount[1] else int(amount[1]) * factor / worth
    return int(exact) if exact == int(exact) else exact
