"""How an agent begins: whose node it is, where its files are, what its tables look like.

The first start needs table definitions from somewhere, by default the node itself. Every later start has them from the
saved place, so that it does not matter then whether the node is up.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from penstock.capture.cassandra.node import cassandra_yaml
from penstock.capture.cassandra.node.cassandra_yaml import CassandraYaml, NodeDirectories
from penstock.capture.cassandra.node.connection import Connection, read_secret
from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.errors import CorruptCheckpoint, InvalidSetting, Unreachable
from penstock.log import sealed
from penstock.log.refusal import refused
from penstock.settings import CassandraSettings, SchemaFrom, Settings
from penstock.system.files import Files

log = structlog.get_logger()

NODE = "node.json"

# How long to wait before a node that was lost is asked again.
_ASK_AGAIN_S = 0.5

Connect = Callable[[], Connection]
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class NodeName:
    """Who the node is, for the change logs' headers."""

    node: str
    data_centre: str
    cluster: str = ""


def node_facts(settings: CassandraSettings) -> tuple[CassandraSettings, NodeDirectories, CassandraYaml | None]:
    """The settings completed by the node's own file, and the directories that both agree on."""
    file = settings.config_file
    node = None if file is None else cassandra_yaml.load(str(file))
    return cassandra_yaml.contact_points(settings, node), cassandra_yaml.node_directories(settings, node), node


def open_keys(settings: CassandraSettings, node: CassandraYaml | None) -> KeyStore | None:
    """The keys of an encrypted commit log: from the settings, else from where the node has them."""
    if settings.keystore_file is not None:
        if settings.keystore_password_file is None:
            raise InvalidSetting("cassandra.keystore_file needs cassandra.keystore_password_file")
        password = read_secret(settings.keystore_password_file, "cassandra.keystore_password_file")
        own = settings.key_password_file
        key_password = None if own is None else read_secret(own, "cassandra.key_password_file")
        return KeyStore.open(str(settings.keystore_file), password, key_password=key_password)
    if node is not None and node.key_store is not None:
        found = node.key_store
        return KeyStore.open(found.file, found.password, key_password=found.key_password)
    return None


def ask(
    connect: Connect, question: Callable[[Connection], Answer], *, patience_s: float, stop: threading.Event
) -> Answer:
    """What the node answers over a connection of its own.

    A node that has accepted a connection and is then lost, as one that its peers take for down while it starts, is
    asked again for as long as `patience_s`. One that accepts none is not waited for.
    """
    deadline: float | None = None
    while True:
        try:
            with connect() as connection:
                deadline = deadline or time.monotonic() + patience_s
                return question(connection)
        except Unreachable as error:
            if deadline is None or time.monotonic() >= deadline or stop.wait(_ASK_AGAIN_S):
                raise
            log.warning("the node was lost and is asked again", error=str(error))


def first_schemas(settings: CassandraSettings, connect: Connect, stop: threading.Event) -> Schemas:
    """Table definitions for an agent that has none yet. Raises Unreachable when the node is to tell and does not."""
    schemas = Schemas()
    if settings.schema_from is SchemaFrom.FILE:
        from penstock.capture.cassandra.schema import file as schema_file

        if settings.schema_file is None:
            raise InvalidSetting('cassandra.schema_from = "file" needs cassandra.schema_file')
        for table in schema_file.load(str(settings.schema_file)):
            schemas.add(table)
    elif settings.schema_from is SchemaFrom.DRIVER:
        if not settings.contact_points:
            message = "table definitions come from the node, but cassandra.contact_points names none"
            raise InvalidSetting(f'{message}; or set cassandra.schema_from to "log" or "file"')
        patience_s = settings.connect_timeout_s
        schemas.load(ask(connect, lambda node: schema_query.read_rows(node.session), patience_s=patience_s, stop=stop))
    return schemas


def know_truncations(schemas: Schemas, settings: CassandraSettings, connect: Connect, stop: threading.Event) -> None:
    """Take in what the node notes of truncations: the log may have lost the segment in which one was written down.

    A node that is down now is not waited for: it truncates nothing, and what it did while nobody read its log is in it,
    or was in segments without changes of captured tables.
    """
    if settings.schema_from is not SchemaFrom.DRIVER or not settings.contact_points:
        return
    try:
        found = ask(connect, lambda node: schema_query.read_truncations(node.session), patience_s=0, stop=stop)
    except Unreachable as error:
        log.warning("truncations not asked for", error=str(error))
        return
    for table_id, truncation in found.items():
        schemas.truncate(table_id, truncation)


def node_name(files: Files, directory: str, settings: Settings, connect: Connect, stop: threading.Event) -> NodeName:
    """Who the node is: as the settings say, else as noted before, else as the node itself says."""
    node, centre, cluster = settings.agent.node, settings.cassandra.data_centre, settings.cassandra.cluster
    known = _load_name(files, directory)
    if known is None and settings.cassandra.schema_from is SchemaFrom.DRIVER and not (node and centre and cluster):
        patience_s = settings.cassandra.connect_timeout_s
        local = ask(connect, Connection.local, patience_s=patience_s, stop=stop)
        known = NodeName(str(local.host_id), local.data_centre, local.cluster)
    if known is None:
        known = NodeName(socket.gethostname(), "")
    name = NodeName(node or known.node, centre or known.data_centre, cluster or known.cluster)
    _save_name(files, directory, name)
    return name


def _load_name(files: Files, directory: str) -> NodeName | None:
    path = f"{directory}/{NODE}"
    try:
        if not files.exists(path):
            return None
        content = sealed.read(files, path)
        return NodeName(str(content["node"]), str(content["data_centre"]), str(content["cluster"]))
    except (ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"the node's name is damaged: {error}", file=path) from error
    except OSError as error:
        raise refused(error, "reading the node's name", path) from error


def _save_name(files: Files, directory: str, name: NodeName) -> None:
    if _load_name(files, directory) == name:
        return
    content = {"format": 1, "node": name.node, "data_centre": name.data_centre, "cluster": name.cluster}
    try:
        sealed.write(files, directory, NODE, content)
    except OSError as error:
        raise refused(error, "noting the node's name", directory) from error
