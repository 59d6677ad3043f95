"""Options of the source: what `spark.read.format("penstock").option(…)` takes, checked before anything is read.

Spark hands options over as text with names in any case. An unknown name is refused, because a mistyped limit that is
ignored would be noticed only when it is needed. docs/reference/spark-source.md describes each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from penstock.errors import InvalidSetting
from penstock.model.change import Op
from penstock.model.schema import TableId
from penstock.pipeline.source.held import NOTHING, Held
from penstock.settings.choices import OnLoss
from penstock.system import json_text
from penstock.system.addresses import has_login, keeps_secrets, refusal

RUNS, FLAT = "runs", "flat"
EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"
_SIZE = re.compile(r"(\d{1,15})\s*([kmg]?)b?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Retention:
    """What commits of a subscription go by of `RetentionSettings`.

    It is without what checks settings, which takes a process of Spark longer to import than to use.
    """

    bytes_max: int | None = None
    age_s_max: int | None = None
    subscriber_expiry_s: int | None = None
    keep_s: int = 86_400
    keep_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options, typed. Field names are the option names in snake case, or in Spark's camel case."""

    # Where the logs are.
    path: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    token_file: str | None = None
    tls_ca_file: str | None = None
    # Which changes.
    shape: str = FLAT
    table: TableId | None = None
    log: str = ""
    include: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    operations: tuple[Op, ...] = ()
    columns: tuple[str, ...] | None = None
    schema_version: int | None = None
    starting: str | int = EARLIEST
    # How they are read.
    buckets: int = 1
    distinct: bool = False
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = 512 << 20
    max_files_per_trigger: int | None = None
    partition_bytes: int = 16 << 20
    linger_s: float = 0.0
    subscription: str | None = None
    retention: Retention | None = None
    wake: str | None = None
    held: Held = NOTHING
    on_loss: OnLoss = OnLoss.FAIL
    retry_s: float = 30.0

    def wants(self, table: TableId) -> bool:
        """Whether changes of the table are asked for."""
        if self.table is not None:
            return table == self.table
        name = str(table)
        return any(fnmatchcase(name, one) for one in self.include) and not any(
            fnmatchcase(name, one) for one in self.exclude
        )


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Options as Spark gives them."""
    known = {field.name.replace("_", ""): field.name for field in fields(SourceOptions)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        key = known.get(name.lower().replace("_", ""))
        if key is None:
            raise InvalidSetting(f"the source has no option {name[:60]!r}; it has {', '.join(sorted(known.values()))}")
        try:
            values[key] = _READ[key](text.strip())
        except ValueError as error:
            raise InvalidSetting(f"option {name}: {error}") from None
    options = SourceOptions(**values)
    _check(options)
    return options


def _check(options: SourceOptions) -> None:
    if not options.path and not options.agents:
        raise InvalidSetting("the source needs option path (directories of logs) or agents (their addresses)")
    for path in options.path:
        if (reason := refusal(path)) is not None:
            raise InvalidSetting(f"option path: {reason}")
    if options.shape == FLAT and options.table is None:
        raise InvalidSetting("the source needs option table, as in keyspace.table; or shape = runs for many tables")
    if options.shape == RUNS and (options.columns is not None or options.operations):
        raise InvalidSetting("options columns and operations are for the flat shape")
    if options.starting == COMMITTED and options.subscription is None:
        raise InvalidSetting("starting = committed needs option subscription")
    for address in options.agents:
        if not address.startswith(("https://", "http://")):
            raise InvalidSetting("an agent's address begins with https:// or http://")
        if has_login(address):
            raise InvalidSetting("a login does not belong into an agent's address; the token is in token_file")
        if options.token_file is not None and not keeps_secrets(address):
            raise InvalidSetting(
                "the token would be sent in the clear; use https:// beyond this machine", agent=address
            )


def _names(text: str) -> tuple[str, ...]:
    """Names with commas between them, or a JSON list of names, which may have commas of their own."""
    if not text.startswith("["):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    found = json_text.parse(text)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("a JSON list of texts, or texts with commas between them")
    return tuple(found)


def _table(text: str) -> TableId:
    keyspace, dot, table = text.partition(".")
    if not (keyspace and dot and table):
        raise ValueError("tables are written keyspace.table")
    return TableId(keyspace, table)


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text.lower()

    return read


def _bounded(least: int, greatest: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= greatest:
            raise ValueError(f"a whole number of {least} to {greatest}")
        return int(text)

    return read


def _limit(text: str) -> int | None:
    return _bounded(0, 1 << 62)(text) or None


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("a number of bytes, as 64m or 67108864")
    return int(match[1]) * _FACTORS[match[2].lower()]


def _size_limit(text: str) -> int | None:
    return _size(text) or None


def _partition(text: str) -> int:
    size = _size(text)
    if size < 1 << 16:
        raise ValueError("at least 64k")
    return size


def _time(text: str) -> int:
    """Microseconds since 1970, or a time in ISO form (UTC when it has no zone)."""
    if text.isascii() and text.lstrip("-").isdecimal():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("microseconds since 1970, or a time as 2026-01-31T12:00:00Z") from None
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    whole = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400 + whole.seconds) * 1_000_000 + whole.microseconds


def _operations(text: str) -> tuple[Op, ...]:
    try:
        return tuple(Op(name.lower()) for name in _names(text))
    except ValueError:
        raise ValueError(f"some of {', '.join(Op)}") from None


def _starting(text: str) -> str | int:
    return text.lower() if text.lower() in (EARLIEST, LATEST, COMMITTED) else _time(text)


def _loss(text: str) -> OnLoss:
    try:
        return OnLoss(text.lower())
    except ValueError:
        raise ValueError(f"one of {', '.join(OnLoss)}") from None


def _retention(text: str) -> Retention:
    try:
        found = Retention(**json_text.parse(text))
        for name, value in asdict(found).items():
            least = 1 if name == "subscriber_expiry_s" else 0
            if (value is not None or name == "keep_s") and (type(value) is not int or value < least):
                raise ValueError("no such number")
    except (ValueError, TypeError):
        names = ", ".join(field.name for field in fields(Retention))
        raise ValueError(f"a JSON object with {names}, or {{}}") from None
    return found


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 86_400:
        raise ValueError("seconds, 0 to 86400")
    return seconds


_READ: dict[str, Callable[[str], Any]] = {
    "path": _names,
    "agents": _names,
    "token_file": str,
    "tls_ca_file": str,
    "shape": _one_of(RUNS, FLAT),
    "table": _table,
    "log": str,
    "include": _names,
    "exclude": _names,
    "nodes": _names,
    "operations": _operations,
    "columns": _names,
    "schema_version": _bounded(1, 1 << 31),
    "starting": _starting,
    "buckets": _bounded(1, 4096),
    "distinct": lambda text: _one_of("true", "false")(text) == "true",
    "max_rows_per_trigger": _limit,
    "max_bytes_per_trigger": _size_limit,
    "max_files_per_trigger": _limit,
    "partition_bytes": _partition,
    "subscription": str,
    "retention": _retention,
    "wake": str,
    "held": Held.from_text,
    "on_loss": _loss,
    "linger_s": _seconds,
    "retry_s": _seconds,
}
