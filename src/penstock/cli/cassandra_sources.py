"""Where the commands about Cassandra's files get table definitions and keys from."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from penstock.capture.cassandra.node import cassandra_yaml
from penstock.capture.cassandra.node.connection import Connection, connect, read_secret
from penstock.capture.cassandra.schema import file as schema_file
from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.errors import InvalidInput
from penstock.settings import CassandraSettings

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:\s\[\]]+))(?::(\d{1,5}))?", re.ASCII)
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|TiB)?", re.ASCII)
_UNITS = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_CQL_PORT = 9042


@dataclass(frozen=True, slots=True)
class Contact:
    """How to reach a node."""

    address: str | None = None
    username: str | None = None
    password_file: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    tls_any_host: bool = False


@dataclass(frozen=True, slots=True)
class KeyStoreFiles:
    """The key store of an encrypted log, and the files with its passwords."""

    file: str | None = None
    password_file: str | None = None
    key_password_file: str | None = None


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host`, `host:port`, `[ipv6]:port` or a bare IPv6 address."""
    if _is_ipv6(text.strip()):
        return text.strip(), _CQL_PORT
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not 0 < int(match[3] or _CQL_PORT) < 1 << 16:
        raise InvalidInput(f"not an address: {text[:60]!r}; it looks like host, host:9042 or [::1]:9042")
    return match[1] or match[2], int(match[3] or _CQL_PORT)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def parse_size(text: str) -> int:
    """`4096MiB` in bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise InvalidInput(f"not a size: {text[:60]!r}; it looks like 4096MiB")
    return int(match[1]) * _UNITS[match[2]]


def known_schemas(file: str | None, data_directory: str | None, contact: Contact) -> Schemas:
    """What is known before the first segment is read."""
    known = Schemas()
    if file is not None:
        ids = schema_file.ids_in(data_directory) if data_directory is not None else None
        for table in schema_file.load(file, ids=ids):
            known.add(table)
    elif data_directory is not None:
        raise InvalidInput("--data-dir needs --schema: it only tells the ids of the tables there")
    if contact.address is not None:
        with _connected(contact, contact.address) as connection:
            known.load(schema_query.read_rows(connection.session))
    elif contact != Contact():
        raise InvalidInput("a user or TLS needs --contact-point")
    return known


def _connected(contact: Contact, address: str) -> Connection:
    host, port = parse_address(address)
    return connect(
        CassandraSettings(
            contact_points=(host,),
            port=port,
            username=contact.username,
            password_file=_path(contact.password_file),
            tls=contact.tls or contact.tls_ca is not None or contact.tls_certificate is not None,
            tls_ca_file=_path(contact.tls_ca),
            tls_certificate_file=_path(contact.tls_certificate),
            tls_key_file=_path(contact.tls_key),
            tls_verify_host=not contact.tls_any_host,
        )
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def key_store(files: KeyStoreFiles, yaml: str | None) -> KeyStore | None:
    """The key store that was named, or else the one that the node's own cassandra.yaml names."""
    if files.file is not None:
        if files.password_file is None:
            raise InvalidInput("--keystore needs --keystore-password-file")
        password = read_secret(Path(files.password_file), "the key store's password")
        key_password = None
        if files.key_password_file is not None:
            key_password = read_secret(Path(files.key_password_file), "the keys' password")
        return KeyStore.open(files.file, password, key_password=key_password)
    if files != KeyStoreFiles():
        raise InvalidInput("a key store's password needs --keystore")
    facts = cassandra_yaml.load(yaml).key_store if yaml is not None else None
    return None if facts is None else KeyStore.open(facts.file, facts.password, key_password=facts.key_password)
