"""Settings: one typed model, a section per part of the program.

A value comes from the first of these that has one: the caller (a command-line option), an environment variable
`PENSTOCK_SECTION__FIELD`, the TOML file, the default. Nothing is guessed and nothing is ignored: an unknown name is
refused, with the place it was found at and the nearest known name. The text under a field is its documentation;
docs/reference/settings.md is made from it.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from penstock.errors import InvalidSetting

# A variable is a setting when it has this prefix and a double underscore; PENSTOCK_NATIVE, for one, is not.
VARIABLE_PREFIX = "PENSTOCK_"


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        # A refused value may be a secret in the wrong place, so errors never show it.
        hide_input_in_errors=True,
    )


class Codec(StrEnum):
    """The Avro codecs of the change log's blocks."""

    NULL = "null"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    ZSTANDARD = "zstandard"


class Acknowledge(StrEnum):
    """When an append returns: after the sync (survives power loss) or after the write (survives a killed process)."""

    SYNCED = "synced"
    WRITTEN = "written"


class LogSettings(Section):
    """The change log of one table."""

    codec: Codec = Codec.NULL
    """How blocks are compressed."""
    acknowledge: Acknowledge = Acknowledge.SYNCED
    """When an append returns: `synced` survives power loss, `written` only a killed process."""
    file_bytes_max: int = Field(default=256 << 20, ge=4096)
    """A new file is begun when the current one has reached this size."""
    block_bytes_max: int = Field(default=16 << 20, ge=4096, le=1 << 30)
    """One block holds at most this much before compression; a larger batch is refused."""
    index_bytes: int = Field(default=64 << 20, ge=4096)
    """The index is synced each time that the log has grown by this much; recovery reads no more than this."""
    reserve_bytes: int = Field(default=32 << 20, ge=0)
    """Disk space that is set aside ahead of the log's end, which makes syncs faster; given back on close. 0: none."""


class RetentionSettings(Section):
    """When consumed files go, and when even unconsumed ones do. None means no cap."""

    bytes_max: int | None = Field(default=None, ge=0)
    """Files go, oldest first, when the log is larger than this, even those that a subscription still needs."""
    age_s_max: int | None = Field(default=None, ge=0)
    """Files go when their newest change is older than this, even those that a subscription still needs."""
    subscriber_expiry_s: int | None = Field(default=None, ge=1)
    """A subscription that has not committed for this long no longer holds files back. None: it always does."""


class ListenerSettings(Section):
    """The socket that pushes changes to local daemons."""

    host: str = "127.0.0.1"
    """The address to listen on. Any other than the loopback needs TLS and a token."""
    port: int = Field(default=7417, ge=0, le=65535)
    """The TCP port; 0 takes a free one."""
    path: Path | None = None
    """A Unix socket to listen on instead of host and port."""
    token_file: Path | None = None
    """A file with the token that clients must send. TCP needs one; on a Unix socket the file's rights may do."""
    tls_certificate_file: Path | None = None
    """The certificate chain (PEM). TLS is on when it is given."""
    tls_key_file: Path | None = None
    """The certificate's private key (PEM)."""
    clients_max: int = Field(default=256, ge=1)
    """Further clients are turned away."""
    client_buffer_bytes: int = Field(default=1 << 20, ge=4096)
    """What is kept in memory for one client; one that falls further behind is served from the log."""
    request_bytes_max: int = Field(default=64 << 10, ge=1024, le=1 << 20)
    """The largest frame that a client may send."""
    handshake_s: float = Field(default=5.0, gt=0)
    """A client that has not said within this time who it is and what it wants is cut off."""
    heartbeat_s: float = Field(default=10.0, gt=0)
    """A client that was sent nothing for this long is sent a heartbeat."""
    commit_interval_s: float = Field(default=0.05, ge=0)
    """One client's acknowledgements are made durable at most this often; those in between go together."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> ListenerSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        return self


FunctionPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]


class Settings(Section):
    """Everything that can be set."""

    log: LogSettings = LogSettings()
    """The change log of each table."""
    retention: RetentionSettings = RetentionSettings()
    """When files of the change log are deleted."""
    listener: ListenerSettings = ListenerSettings()
    """The socket that pushes changes to local daemons."""
    functions: dict[str, FunctionPath] = Field(default_factory=dict)
    """Python callables that filters may name, as `name = "module:callable"`."""


def load(file: str | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """The effective settings: the environment over the file over the defaults."""
    tree: dict[str, Any] = {} if file is None else _read_toml(file)
    origins: dict[tuple[str, ...], dict[str, str]] = {}
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
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise _refusal(error, file, origins) from error


def _read_toml(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"the settings file is not TOML: {error}", file=file) from error
    except UnicodeDecodeError as error:
        raise InvalidSetting("the settings file is not UTF-8 text", file=file, offset=error.start) from error
    except OSError as error:
        raise InvalidSetting(f"cannot read the settings file: {error.strerror}", file=file) from error


def _refusal(
    error: ValidationError, file: str | None, origins: dict[tuple[str, ...], dict[str, str]]
) -> InvalidSetting:
    """The first thing that is wrong, said in the user's own spelling."""
    first = error.errors(include_url=False, include_context=False)[0]
    path = tuple(str(part) for part in first["loc"])
    origin = origins.get(path[:2])
    if origin is None:
        # A rule over several fields has the section as its place: any variable of that section may be the cause.
        origin = next((o for p, o in origins.items() if p[:1] == path[:1] and len(path) == 1), None)
    place = origin or ({"file": file} if file is not None else {})
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
