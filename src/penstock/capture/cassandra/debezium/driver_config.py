"""How Debezium's files say where the cluster is: the Java driver's application.conf, and the older SSL file.

Both are reduced to settings of section `cassandra`. Contact points, the local data centre, the login and the TLS files
matter here; the driver's other keys tune a driver that is not used and are only named. A PEM file may stand where Java
has a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.capture.cassandra.debezium import hocon, java_properties
from penstock.capture.cassandra.node import tls_stores
from penstock.errors import InvalidSetting

_ROOT = "datastax-java-driver."
_PLAIN_LOGIN = ("PlainTextAuthProvider", "com.datastax.oss.driver.internal.core.auth.PlainTextAuthProvider")
_DEFAULT_TLS = ("DefaultSslEngineFactory", "com.datastax.oss.driver.internal.core.ssl.DefaultSslEngineFactory")
_POINTS = "basic.contact-points"
_DATA_CENTRE = "basic.load-balancing-policy.local-datacenter"
_BUNDLE = "basic.cloud.secure-connect-bundle"
_LOGIN = "advanced.auth-provider"
_TLS = "advanced.ssl-engine-factory"
# What is read, or refused; any other key of the file has no effect.
DRIVER_KEYS = (
    _POINTS,
    _DATA_CENTRE,
    _BUNDLE,
    f"{_LOGIN}.class",
    f"{_LOGIN}.username",
    f"{_LOGIN}.password",
    f"{_TLS}.class",
    f"{_TLS}.hostname-validation",
    f"{_TLS}.truststore-path",
    f"{_TLS}.truststore-password",
    f"{_TLS}.keystore-path",
    f"{_TLS}.keystore-password",
)
SSL_KEYS = (
    "trustStore.location",
    "trustStore.password",
    "trustStore.type",
    "keyStore.location",
    "keyStore.password",
    "keyStore.type",
)
_SSL_IGNORED = ("keyManager.algorithm", "trustManager.algorithm", "cipherSuites")


@dataclass(frozen=True, slots=True)
class Connecting:
    """Settings of section `cassandra`, and the keys of the file that mean nothing here."""

    file: Path | None
    # May hold the password.
    settings: Mapping[str, Any] = field(repr=False)
    ignored: tuple[str, ...] = ()

    @classmethod
    def from_points(cls, points: Iterable[str], place: Mapping[str, object]) -> Connecting:
        """Contact points as `host` or `host:port`."""
        hosts: list[str] = []
        ports: set[int] = set()
        for point in filter(None, map(str.strip, points)):
            host, port = _divide(point)
            if port is not None:
                if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                    raise InvalidSetting("a contact point is written as host or host:port", **place)
                ports.add(int(port))
            hosts.append(host)
        if not hosts:
            raise InvalidSetting("there is no contact point", **place)
        if len(ports) > 1:
            raise InvalidSetting("all contact points must have the same port", **place)
        found: dict[str, Any] = {"contact_points": tuple(hosts)}
        if ports:
            found["port"] = ports.pop()
        return cls(None, found)


def read_driver_config(file: Path, environ: Mapping[str, str]) -> Connecting:
    """What the driver's application.conf says."""
    document = hocon.read(file, environ)
    settings: dict[str, Any] = {}

    def text(key: str) -> str | None:
        return document.text(_ROOT + key)

    def place(key: str) -> dict[str, object]:
        return {"file": file, "line": document.line(_ROOT + key), "key": key}

    if text(_BUNDLE) is not None:
        raise InvalidSetting("cloud bundles are not supported: name contact points and PEM files", **place(_BUNDLE))
    points = document.texts(_ROOT + _POINTS)
    if points:
        settings.update(Connecting.from_points(points, place(_POINTS)).settings)
    data_centre = text(_DATA_CENTRE)
    if data_centre is not None:
        settings["local_data_centre"] = data_centre
    login = text(f"{_LOGIN}.class")
    if login is not None:
        if login not in _PLAIN_LOGIN:
            raise InvalidSetting("only PlainTextAuthProvider is supported", **place(f"{_LOGIN}.class"))
        settings["username"], settings["password"] = text(f"{_LOGIN}.username"), text(f"{_LOGIN}.password")
    engine = text(f"{_TLS}.class")
    if engine is not None:
        if engine not in _DEFAULT_TLS:
            raise InvalidSetting("only DefaultSslEngineFactory is supported", **place(f"{_TLS}.class"))
        settings["tls"] = True
        settings["tls_verify_host"] = text(f"{_TLS}.hostname-validation") != "false"
        settings |= _trusted(text(f"{_TLS}.truststore-path"), text(f"{_TLS}.truststore-password"))
        settings |= _client(text(f"{_TLS}.keystore-path"), text(f"{_TLS}.keystore-password"))
    known = {_ROOT + key for key in DRIVER_KEYS}
    ignored = tuple(path.removeprefix(_ROOT) for path in document.paths() if path not in known)
    return Connecting(file, settings, ignored)


def read_ssl_config(file: Path) -> Connecting:
    """What the file of `cassandra.ssl.config.path` says."""
    ignored = []
    found = java_properties.read(file)
    for key, entry in found.items():
        if key in _SSL_IGNORED:
            ignored.append(key)
        elif key not in SSL_KEYS:
            known = ", ".join((*SSL_KEYS, *_SSL_IGNORED))
            raise InvalidSetting(f"unknown property; known here: {known}", file=file, line=entry.line, property=key)

    def text(key: str) -> str | None:
        return found[key].value.strip() if key in found else None

    settings: dict[str, Any] = {"tls": True}
    settings |= _trusted(text("trustStore.location"), text("trustStore.password"))
    settings |= _client(text("keyStore.location"), text("keyStore.password"))
    return Connecting(file, settings, tuple(ignored))


def _trusted(store: str | None, password: str | None) -> dict[str, Any]:
    """The certificates to trust: a Java store, or a PEM file in its place."""
    if not store:
        return {}
    if tls_stores.is_pem(Path(store)):
        return {"tls_ca_file": store}
    return {"tls_trust_store_file": store, "tls_trust_store_password": password}


def _client(store: str | None, password: str | None) -> dict[str, Any]:
    """The client's certificate and key: a Java store, or one PEM file with both in its place."""
    if not store:
        return {}
    if tls_stores.is_pem(Path(store)):
        return {"tls_certificate_file": store}
    return {"tls_key_store_file": store, "tls_key_store_password": password}


def _divide(point: str) -> tuple[str, str | None]:
    """Host and port. An IPv6 address with a port stands in brackets."""
    if point.startswith("["):
        host, _, rest = point[1:].partition("]")
        return host, rest.removeprefix(":") or None
    host, colon, port = point.rpartition(":")
    if not colon or ":" in host:
        return point, None
    return host, port
