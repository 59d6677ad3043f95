"""The node's own configuration, `cassandra.yaml`, as far as the agent goes by it, in every version's spelling.

Sizes and periods were `…_in_mb` and `…_in_ms` up to 4.0 and have units since 4.1 (`4096MiB`, `10s`); both are
understood. `node_directories` joins the file with the agent's settings: what both say must agree, because an agent that
reads another node's directory, or reports against a wrong limit, does harm in silence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import InvalidSetting
from penstock.settings import CassandraSettings
from penstock.system import extras

_QUANTITY = re.compile(r"\s*(\d+)\s*([A-Za-zµ]*)\s*", re.ASCII)
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
# Cassandra's own default for cdc_total_space: this, or an eighth of the volume when that is less.
_TOTAL_SPACE_DEFAULT = 4096 << 20
# The file of Cassandra 6 has some hundred kilobytes, nearly all of them comments.
_FILE_BYTES_MAX = 1 << 20
# No setting nests as deeply as this; the parser looks at all open brackets for every word.
_DEPTH_MAX = 50
# YAML lets a few lines that each merge the one before twice come to billions of entries, and writes numbers to the base
# of 60, of which long ones cost more than their length.
_MERGED_MAX = 10_000
_NUMBER_CHARS_MAX = 100


@dataclass(frozen=True, slots=True)
class KeyStoreFacts:
    """Where the keys of an encrypted commit log are."""

    file: str
    password: str
    type: str = "JCEKS"
    key_password: str | None = None


@dataclass(frozen=True, slots=True)
class CassandraYaml:
    """What the file says. None: it says nothing, and Cassandra's default holds."""

    file: str
    cdc_enabled: bool = False
    cdc_raw_directory: str | None = None
    commitlog_directory: str | None = None
    cdc_total_space_bytes: int | None = None
    cdc_block_writes: bool = True
    sync_period_s: float | None = None
    segment_bytes: int | None = None
    cluster_name: str | None = None
    native_transport_port: int | None = None
    rpc_address: str | None = None
    key_store: KeyStoreFacts | None = None


@dataclass(frozen=True, slots=True)
class NodeDirectories:
    """What settings and cassandra.yaml say together."""

    cdc_raw: str
    commitlog: str | None
    cdc_total_space_bytes: int
    # False from 4.1 on when asked for: then the node deletes the oldest segments instead of refusing writes.
    cdc_block_writes: bool = True


def load(file: str) -> CassandraYaml:
    """Read the file. Raises InvalidSetting that names the line or the key."""
    extras.need("reading cassandra.yaml", ("cassandra",))
    import yaml

    try:
        with open(file, "rb") as opened:
            data = opened.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise InvalidSetting(f"cassandra.yaml has more than {_FILE_BYTES_MAX} bytes", file=file)
        content = _parse(data.decode("utf-8"))
    except OSError as error:
        raise InvalidSetting(f"cannot read cassandra.yaml: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise InvalidSetting("cassandra.yaml is not UTF-8 text", file=file, offset=error.start) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise InvalidSetting("cassandra.yaml is not YAML", file=file, line=line) from error
    if not isinstance(content, dict):
        raise InvalidSetting("cassandra.yaml holds no settings", file=file)
    return _understood(content, file)


def _parse(text: str) -> Any:
    """What the text says. Raises YAMLError, RecursionError or ValueError when it says nothing that makes sense."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        merged = 0

        def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
            if self.flow_level >= _DEPTH_MAX:
                raise yaml.scanner.ScannerError(None, None, "brackets nest too deeply", self.get_mark())
            super().fetch_flow_collection_start(token)

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            self.merged += len(node.value)
            if self.merged > _MERGED_MAX:
                raise yaml.constructor.ConstructorError(None, None, "too many entries", node.start_mark)

        def construct_number(self, node: yaml.ScalarNode) -> int | float:
            if len(node.value) > _NUMBER_CHARS_MAX:
                raise yaml.constructor.ConstructorError(None, None, "a number of too many digits", node.start_mark)
            whole = node.tag.endswith(":int")
            number: int | float = self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)
            return number

    for tag in ("int", "float"):
        Loader.add_constructor(f"tag:yaml.org,2002:{tag}", Loader.construct_number)
    return yaml.load(text, Loader)  # noqa: S506 - a safe loader with bounds


def node_directories(settings: CassandraSettings, node: CassandraYaml | None) -> NodeDirectories:
    """The directories and limits to go by. Raises InvalidSetting when the two disagree or leave something open."""
    if node is not None:
        if not node.cdc_enabled:
            message = "CDC is off on this node: set `cdc_enabled: true` and restart Cassandra"
            raise InvalidSetting(message, file=node.file)
        _agree(settings, node)
    raw = settings.cdc_raw_directory or (node.cdc_raw_directory if node else None)
    if raw is None:
        raise InvalidSetting("where is cdc_raw? Give cassandra.config_file or cassandra.cdc_raw_directory")
    if not os.path.isdir(raw):
        raise InvalidSetting("cdc_raw is not a directory; is this the node's machine?", directory=raw)
    if not os.access(raw, os.R_OK | os.X_OK):
        raise InvalidSetting("cdc_raw may not be read by this user", directory=raw)
    commitlog = settings.commitlog_directory or (node.commitlog_directory if node else None)
    if settings.follow_commitlog and (commitlog is None or not os.path.isdir(commitlog)):
        message = "follow_commitlog needs cassandra.commitlog_directory, or a config_file that names it"
        raise InvalidSetting(message, directory=commitlog)
    limit = settings.cdc_total_space_bytes or (node.cdc_total_space_bytes if node else None)
    return NodeDirectories(
        str(raw),
        None if commitlog is None else str(commitlog),
        default_total_space(str(raw)) if limit is None else limit,
        node.cdc_block_writes if node else True,
    )


def default_total_space(directory: str) -> int:
    """Cassandra's limit for cdc_raw when nobody has set one."""
    volume = os.statvfs(directory)
    return min(_TOTAL_SPACE_DEFAULT, volume.f_frsize * volume.f_blocks // 8)


def contact_points(settings: CassandraSettings, node: CassandraYaml | None) -> CassandraSettings:
    """The settings with a node to connect to: its own address from cassandra.yaml when none is given."""
    if settings.contact_points or node is None or node.rpc_address is None:
        return settings
    address = "127.0.0.1" if node.rpc_address in ("0.0.0.0", "::") else node.rpc_address  # noqa: S104 - only compared
    changes: dict[str, object] = {"contact_points": (address,)}
    if node.native_transport_port is not None and "port" not in settings.model_fields_set:
        changes["port"] = node.native_transport_port
    return settings.model_copy(update=changes)


def _agree(settings: CassandraSettings, node: CassandraYaml) -> None:
    """Refuse settings that say something else than the node's own file."""
    for name in ("cdc_raw_directory", "commitlog_directory"):
        ours, theirs = getattr(settings, name), getattr(node, name)
        if ours is not None and theirs is not None and os.path.realpath(ours) != os.path.realpath(theirs):
            raise _contradiction(f"cassandra.{name}", ours, theirs, node.file)
    pairs = (
        ("cassandra.cdc_total_space_bytes", settings.cdc_total_space_bytes, node.cdc_total_space_bytes),
        ("cassandra.cluster", settings.cluster or None, node.cluster_name),
        (
            "cassandra.port",
            settings.port if "port" in settings.model_fields_set else None,
            # Contact points may be other nodes, but one cluster has one port unless somebody took great pains.
            node.native_transport_port,
        ),
    )
    for name, ours, theirs in pairs:
        if ours is not None and theirs is not None and ours != theirs:
            raise _contradiction(name, ours, theirs, node.file)


def _contradiction(name: str, ours: object, theirs: object, file: str) -> InvalidSetting:
    message = f"setting {name} is {ours}, but the node's cassandra.yaml says {theirs}; leave the setting out"
    return InvalidSetting(message, file=file)


def _understood(content: Mapping[str, Any], file: str) -> CassandraYaml:
    return CassandraYaml(
        file,
        cdc_enabled=_flag(content, "cdc_enabled", False, file),
        cdc_raw_directory=_text(content, "cdc_raw_directory", file),
        commitlog_directory=_text(content, "commitlog_directory", file),
        cdc_total_space_bytes=_bytes(content, "cdc_total_space", file),
        cdc_block_writes=_flag(content, "cdc_block_writes", True, file),
        sync_period_s=_period(content, "commitlog_sync_period", file),
        segment_bytes=_bytes(content, "commitlog_segment_size", file),
        cluster_name=_text(content, "cluster_name", file),
        native_transport_port=_port(content, file),
        rpc_address=_text(content, "rpc_address", file),
        key_store=_key_store(content.get("transparent_data_encryption_options"), file),
    )


def _flag(content: Mapping[str, Any], key: str, default: bool, file: str) -> bool:
    value = content.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise InvalidSetting(f"{key} of cassandra.yaml is neither true nor false", file=file)
    return value


def _text(content: Mapping[str, Any], key: str, file: str) -> str | None:
    value = content.get(key)
    if isinstance(value, dict | list):
        raise InvalidSetting(f"{key} of cassandra.yaml is no text", file=file)
    return None if value is None else str(value)


def _port(content: Mapping[str, Any], file: str) -> int | None:
    value = content.get("native_transport_port")
    if value is not None and not isinstance(value, int):
        raise InvalidSetting("native_transport_port of cassandra.yaml is no number", file=file)
    return value


def _bytes(content: Mapping[str, Any], key: str, file: str) -> int | None:
    """A size under its new name, with a unit, or under its old one, in mebibytes."""
    for name, unit in ((key, "MiB"), (f"{key}_in_mb", "MiB")):
        number = _quantity(content.get(name), _BYTES, unit, name, file)
        # Zero stands for the default here.
        if number:
            return int(number)
    return None


def _period(content: Mapping[str, Any], key: str, file: str) -> float | None:
    for name in (key, f"{key}_in_ms"):
        number = _quantity(content.get(name), _SECONDS, "ms", name, file)
        if number is not None:
            return number
    return None


def _quantity(value: object, units: Mapping[str, float], default: str, key: str, file: str) -> float | None:
    if value is None:
        return None
    match = None if isinstance(value, dict | list) else _QUANTITY.fullmatch(str(value))
    unit = units.get(match[2] or default) if match is not None else None
    if match is None or unit is None:
        raise InvalidSetting(f"{key} of cassandra.yaml is no quantity with a unit that Cassandra knows", file=file)
    return int(match[1]) * unit


def _key_store(options: object, file: str) -> KeyStoreFacts | None:
    """The key store of transparent data encryption; None when it is off."""
    if not isinstance(options, dict) or options.get("enabled") is not True:
        return None
    providers = options.get("key_provider")
    provider = providers[0] if isinstance(providers, list) and providers else providers
    given = provider.get("parameters") if isinstance(provider, dict) else None
    parameters = given[0] if isinstance(given, list) and given else given
    if not isinstance(parameters, dict) or "keystore" not in parameters:
        raise InvalidSetting("transparent_data_encryption_options of cassandra.yaml name no keystore", file=file)
    return KeyStoreFacts(
        _text(parameters, "keystore", file) or "",
        _text(parameters, "keystore_password", file) or "",
        _text(parameters, "store_type", file) or "JCEKS",
        _text(parameters, "key_password", file),
    )
