"""Connection: the CQL session to the node, for table definitions and snapshots.

The commit log is read from files and needs no connection. The driver is an extra of the package and slow to import, so
it is imported when the first connection is made.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from pydantic import SecretStr

from penstock.capture.cassandra.node import tls_stores
from penstock.errors import InvalidSetting, Unreachable
from penstock.settings import CassandraSettings
from penstock.settings.secrets import warn_if_open
from penstock.system import extras

if TYPE_CHECKING:
    from cassandra.cluster import Cluster, Session


@dataclass(frozen=True, slots=True)
class LocalNode:
    """What the node says about itself in `system.local`."""

    host_id: UUID
    data_centre: str
    cluster: str
    release_version: str
    rpc_address: str


class Connection:
    """An open session. Close it when done; closing twice is no error."""

    def __init__(self, cluster: Cluster, session: Session, first: str) -> None:
        self.session = session
        self._cluster = cluster
        self._first = first

    def local(self) -> LocalNode:
        """Who the first contact point is; whoever answered, when that one is down."""
        query = "SELECT host_id, data_center, cluster_name, release_version, rpc_address FROM system.local"
        try:
            addresses = {found[4][0] for found in socket.getaddrinfo(self._first, None, type=socket.SOCK_STREAM)}
            hosts = [host for host in self._cluster.metadata.all_hosts() if host.address in addresses and host.is_up]
            row = self.session.execute(query, host=hosts[0] if hosts else None).one()
        except driver_errors() as error:
            raise Unreachable(f"the node did not say who it is: {reason(error)}") from error
        return LocalNode(row.host_id, row.data_center, row.cluster_name, row.release_version, str(row.rpc_address))

    def close(self) -> None:
        self._cluster.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(settings: CassandraSettings) -> Connection:
    """Connect to a contact point. Raises Unreachable when none answers or the login is refused."""
    if not settings.contact_points:
        raise InvalidSetting("no node to connect to: cassandra.contact_points is empty")
    extras.need("a CQL connection", ("cassandra",))
    from cassandra import UnresolvableContactPoints
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
    from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy

    policy = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.local_data_centre or ""))
    profile = ExecutionProfile(load_balancing_policy=policy, request_timeout=settings.connect_timeout_s)
    points = ", ".join(settings.contact_points)
    try:
        cluster = Cluster(
            contact_points=list(settings.contact_points),
            port=settings.port,
            auth_provider=_auth_provider(settings),
            ssl_context=tls_context(settings),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=settings.connect_timeout_s,
            control_connection_timeout=settings.connect_timeout_s,
        )
    except UnresolvableContactPoints as error:
        raise Unreachable(f"no such host: {points}", port=settings.port) from error
    try:
        return Connection(cluster, cluster.connect(wait_for_all_pools=False), settings.contact_points[0])
    except driver_errors() as error:
        cluster.shutdown()
        raise Unreachable(f"no CQL connection to {points}: {reason(error)}", port=settings.port) from error
    except BaseException:
        cluster.shutdown()
        raise


def driver_errors() -> tuple[type[Exception], ...]:
    """What the driver raises when a node is down, slow, or refuses."""
    from cassandra import AuthenticationFailed, DriverException, RequestExecutionException
    from cassandra.cluster import NoHostAvailable

    return NoHostAvailable, AuthenticationFailed, DriverException, RequestExecutionException, OSError


def reason(error: Exception) -> str:
    """The driver's own words, in one line. They name addresses and states, never rows."""
    inner: Any = getattr(error, "errors", None)
    if isinstance(inner, dict) and inner:
        address, first = next(iter(inner.items()))
        return f"{address}: {' '.join(str(first).split())}"
    return " ".join(str(error).split()) or type(error).__name__


def read_secret(path: Path, what: str) -> str:
    """The one secret that a file holds; the line break at its end is not part of it."""
    warn_if_open(path)
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidSetting(f"cannot read {what}: {cause}", file=path) from error


def tls_context(settings: CassandraSettings) -> ssl.SSLContext | None:
    """The TLS rules of CQL connections; None without TLS."""
    if not settings.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca_file, cadata=_trusted(settings))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = settings.tls_verify_host
        if settings.tls_certificate_file is not None:
            context.load_cert_chain(settings.tls_certificate_file, settings.tls_key_file)
        if settings.tls_key_store_file is not None:
            store = tls_stores.read(settings.tls_key_store_file, _password(settings.tls_key_store_password))
            store.load_client(context, settings.tls_key_store_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(f"the TLS files of section cassandra cannot be used: {error}") from error
    return context


def _trusted(settings: CassandraSettings) -> bytes | None:
    """The certificates of the trust store; None leaves the choice to tls_ca_file or the system."""
    file = settings.tls_trust_store_file
    if file is None:
        return None
    certificates = tls_stores.read(file, _password(settings.tls_trust_store_password)).trusted
    if not certificates:
        raise InvalidSetting("the trust store holds no certificate to trust", file=file)
    return b"".join(certificates)


def _password(secret: SecretStr | None) -> str:
    return "" if secret is None else secret.get_secret_value()


def _auth_provider(settings: CassandraSettings) -> Any:
    from cassandra.auth import PlainTextAuthProvider

    if settings.username is None:
        return None
    if settings.password_file is not None:
        password = read_secret(settings.password_file, "cassandra.password_file")
    elif settings.password is not None:
        password = settings.password.get_secret_value()
    else:
        raise InvalidSetting("cassandra.username needs cassandra.password_file")
    return PlainTextAuthProvider(settings.username, password)
