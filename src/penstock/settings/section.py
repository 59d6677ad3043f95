"""Section: a group of settings, and the kinds of value that many of them have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, StringConstraints, field_validator

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


def _listed(value: object) -> object:
    """A variable can only hold text, so a list is written there with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


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


FunctionPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
