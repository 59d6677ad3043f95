"""Section: a group of settings, and the kinds of value that many of them have."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints, ValidationInfo, field_validator

from penstock.settings.units import in_unit_of


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        # A refused value may be a secret in the wrong place, so errors never show it.
        hide_input_in_errors=True,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _units(cls, value: Any, info: ValidationInfo) -> Any:
        """Sizes and times may be written with their unit."""
        name = info.field_name or ""
        field = cls.model_fields.get(name)
        optional = field is not None and NoneType in get_args(field.annotation)
        return in_unit_of(name, value, optional=optional)


def _listed(value: object) -> object:
    """A variable can only hold text, so a list is written there with commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]


FunctionPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
