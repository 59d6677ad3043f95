"""A Debezium configuration of the Cassandra connector, read unchanged and turned into Penstock's settings.

Every property is mapped to a setting, kept for the pipeline that sends changes on, accepted without effect, or refused
with what to do instead; `debezium_table` has the list and docs/reference/debezium.md shows it. All properties without
effect go into one warning. A refusal names the file, the line and the property and never shows a value, which may be a
secret in the wrong place. Environment variables win over the file, as they do over a TOML file.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock import settings as settings_module
from penstock.capture.cassandra.debezium import java_properties
from penstock.capture.cassandra.debezium.driver_config import Connecting, read_driver_config, read_ssl_config
from penstock.capture.cassandra.debezium.java_properties import Property
from penstock.capture.cassandra.debezium.table import BLACK_HOLE, EXACT, SOURCE_PREFIX, Kind, Known, Status, find
from penstock.errors import InvalidSetting
from penstock.settings import Settings

# What a file that names no node means, in Debezium and in its driver.
_CONTACT_POINTS = ("127.0.0.1",)
_DRIVER_CONFIG = "application.conf"
# Below offset.backing.store.dir, so that nothing of Debezium's is touched.
_DIRECTORY = "penstock"
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_PYTHON_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_CONNECTOR_CLASS = re.compile(r"io\.debezium\.connector\.(cassandra|dse)\.\w+", re.ASCII)


class Kept(Mapping[str, str]):
    """Properties for the pipeline, by name. Some are passwords, so that only the names can be printed."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Kept({', '.join(self._values)})"


@dataclass(frozen=True, slots=True)
class DebeziumConfig:
    """What a file says: settings for the agent, properties for the pipeline, and what the operator should know."""

    settings: Settings = field(repr=False)
    pipeline: Kept
    warnings: tuple[str, ...]
    # What the settings are built of, before the environment, and where in the file it stands.
    tree: Mapping[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    origins: Mapping[tuple[str, ...], dict[str, object]] = field(default_factory=dict, repr=False)


def is_properties(path: str) -> bool:
    """Whether a configuration file is one of Debezium's rather than Penstock's own."""
    return path.lower().endswith(".properties")


def read(path: str | Path, environ: Mapping[str, str] | None = None) -> DebeziumConfig:
    """Read a file. Raises InvalidSetting with file, line and property when something in it cannot be used."""
    return _Reader(Path(path), os.environ if environ is None else environ).read()


class _Reader:
    def __init__(self, file: Path, environ: Mapping[str, str]) -> None:
        self._file = file
        self._environ = environ
        # Properties by the name that Debezium's connector itself knows them by.
        self._found: dict[str, Property] = {}
        self._pipeline: dict[str, str] = {}
        self._ignored: list[str] = []
        self._warnings: list[str] = []
        self._tree: dict[str, dict[str, Any]] = {}
        self._origins: dict[tuple[str, ...], dict[str, object]] = {}

    def read(self) -> DebeziumConfig:
        for key, found in java_properties.read(self._file).items():
            self._found[key.removeprefix(SOURCE_PREFIX)] = found
        converters = self._converters()
        for name, found in self._found.items():
            if name.startswith(converters):
                self._pipeline[name] = found.value
            else:
                self._take(name, found)
        self._connecting()
        self._transfer()
        self._directory()
        self._set("agent.tail", "synced", self._found.get("commit.log.real.time.processing.enabled"))
        if self._ignored:
            self._warnings.insert(0, f"properties without effect: {', '.join(self._ignored)}")
        tree = {section: dict(values) for section, values in self._tree.items()}
        built = settings_module.build(tree, self._environ, file=str(self._file), origins=self._origins)
        return DebeziumConfig(built, Kept(self._pipeline), tuple(self._warnings), self._tree, self._origins)

    def _converters(self) -> tuple[str, ...]:
        """Prefixes of the properties that belong to value converters, whose names the file itself chooses."""
        listed = self._found.get("converters")
        names = [] if listed is None else [name.strip() for name in listed.value.split(",")]
        return tuple(f"{name}." for name in names if name)

    def _take(self, name: str, found: Property) -> None:
        """Do with one property what the table says."""
        known = find(name)
        if known is None:
            near = difflib.get_close_matches(name, EXACT, n=1)
            advice = f"did you mean {near[0]}?" if near else "docs/reference/debezium.md lists all that are known"
            raise self._wrong(found, f"unknown property; {advice}")
        if known.status is Status.REFUSED:
            raise self._wrong(found, f"this property is not supported: {known.note}")
        self._check(known, found)
        if known.status is Status.IGNORED:
            self._ignored.append(found.key)
        elif known.status is Status.PIPELINE:
            self._keep(known, name, found.value)
        elif name in _SIMPLE:
            self._set(known.settings[0], _SIMPLE[name](found.value.strip()), found)
        elif name == "connector.class" and not _CONNECTOR_CLASS.fullmatch(found.value.strip()):
            raise self._wrong(found, "only Debezium's Cassandra connector is known; this is another one")

    def _keep(self, known: Known, name: str, value: str) -> None:
        now = known.now
        if known.is_prefix and now:
            now = now[:-1] + name.removeprefix(known.name[:-1])
        # A file that has both the old and the new name means the new one.
        if not now or now not in self._found:
            self._pipeline[now or name] = value

    def _check(self, known: Known, found: Property) -> None:
        value = found.value.strip()
        if known.kind is Kind.BOOLEAN:
            good = value.lower() in ("true", "false")
        elif known.kind in (Kind.WHOLE, Kind.POSITIVE):
            good = bool(_NUMBER.fullmatch(value)) and int(value) >= (known.kind is Kind.POSITIVE)
        elif known.kind is Kind.CHOICE:
            good = value.lower() in (choice.lower() for choice in known.choices)
        else:
            good = True
        if not good:
            wanted = f"one of {', '.join(known.choices)}" if known.choices else f"{known.kind}"
            raise self._wrong(found, f"the value must be {wanted}")

    # What several properties say together.

    def _connecting(self) -> None:
        """Contact points, login and TLS, from the driver's file or from the properties that came before it."""
        hosts = self._found.get("cassandra.hosts")
        if hosts is not None:
            self._connect(Connecting.from_points(hosts.value.split(","), self._place(hosts)), hosts)
        enabled, path = self._found.get("cassandra.ssl.enabled"), self._found.get("cassandra.ssl.config.path")
        if path is not None and enabled is not None and _boolean(enabled.value):
            self._connect(read_ssl_config(Path(path.value.strip())), path)
        driver = self._found.get("cassandra.driver.config.file")
        file = Path(_DRIVER_CONFIG if driver is None else driver.value.strip())
        # Debezium looks for its default beside itself and does without when there is none.
        if driver is not None or file.is_file():
            self._connect(read_driver_config(file, self._environ), driver)
        self._tree.setdefault("cassandra", {}).setdefault("contact_points", _CONTACT_POINTS)

    def _connect(self, connecting: Connecting, found: Property | None) -> None:
        for name, value in connecting.settings.items():
            self._set(f"cassandra.{name}", value, found)
        if connecting.ignored:
            self._warnings.append(f"keys without effect in {connecting.file}: {', '.join(connecting.ignored)}")

    def _transfer(self) -> None:
        """What becomes of processed segments."""
        relocation = self._found.get("commit.log.relocation.dir")
        chosen = self._found.get("commit.log.transfer.class")
        enabled = self._found.get("commit.log.post.processing.enabled")
        if relocation is not None:
            below = Path(relocation.value.strip())
            self._set("agent.error_directory", str(below / "error"), relocation)
            self._set("agent.archive_directory", str(below / "archive"), relocation)
        if enabled is not None and not _boolean(enabled.value):
            if relocation is None:
                raise self._wrong(enabled, "processed segments are to stay, but commit.log.relocation.dir is missing")
            self._set("agent.transfer", "archive", enabled)
        elif chosen is not None and chosen.value.strip() != BLACK_HOLE:
            self._own_transfer(chosen)

    def _own_transfer(self, chosen: Property) -> None:
        name = chosen.value.strip()
        if not _PYTHON_CLASS.fullmatch(name):
            raise self._wrong(
                chosen,
                "Java transfer classes do not run here: write a Python class with the same duty and name it as "
                "module:Class, or set commit.log.post.processing.enabled=false to keep processed segments",
            )
        prefix = "commit.log.transfer."
        options = {key.removeprefix(prefix): p.value for key, p in self._found.items() if key.startswith(prefix)}
        options.pop("class")
        self._set("agent.transfer", name, chosen)
        self._set("agent.transfer_options", options, chosen)

    def _directory(self) -> None:
        """Where the logs go; Debezium insists on the property too."""
        found = self._found.get("offset.backing.store.dir")
        if found is not None and found.value.strip():
            self._set("agent.directory", str(Path(found.value.strip()) / _DIRECTORY), found)
        elif not self._environ.get("PENSTOCK_AGENT__DIRECTORY"):
            raise InvalidSetting("offset.backing.store.dir is missing: the logs are kept below it", file=self._file)

    def _set(self, setting: str, value: object, found: Property | None) -> None:
        section, name = setting.split(".")
        self._tree.setdefault(section, {})[name] = value
        self._origins[section, name] = {"file": self._file} if found is None else self._place(found)

    def _place(self, found: Property) -> dict[str, object]:
        return {"file": self._file, "line": found.line, "property": found.key}

    def _wrong(self, found: Property, message: str) -> InvalidSetting:
        return InvalidSetting(message, **self._place(found))


def _boolean(value: str) -> bool:
    return value.strip().lower() == "true"


def _seconds(milliseconds: str) -> float:
    return int(milliseconds) / 1000


# Properties whose value becomes that of one setting.
_SIMPLE: dict[str, Callable[[str], object]] = {
    "snapshot.mode": str.lower,
    "snapshot.consistency": str.upper,
    "snapshot.scan.interval.ms": _seconds,
    "schema.refresh.interval.ms": _seconds,
    "http.port": int,
    "quarkus.http.port": int,
    "cassandra.config": lambda value: value.removeprefix("file://"),
    "cassandra.node.id": str,
    "commit.log.error.reprocessing.enabled": _boolean,
    "cassandra.port": int,
    "cassandra.username": str,
    "cassandra.password": str,
    "cassandra.ssl.enabled": _boolean,
}
