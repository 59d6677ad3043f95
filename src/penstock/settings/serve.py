"""Settings of what listens: the socket for local daemons and the HTTP endpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from penstock.settings.secrets import is_reference
from penstock.settings.section import Names, Section, tabled


def _tables(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        keyspace, point, table = pattern.partition(".")
        if not (keyspace and point and table):
            raise ValueError(f"not a pattern of tables: {pattern!r}; patterns look like shop.* or shop.orders")
    return patterns


def _resolved(token: SecretStr) -> SecretStr:
    """A table in a variable is text until it is parsed, which is after references were looked for."""
    if is_reference(token.get_secret_value()):
        raise ValueError("a reference inside a variable is not followed; give the tokens in the settings file")
    return token


TablePatterns = Annotated[Names, AfterValidator(_tables)]


class ListenerTokenSettings(Section):
    """One token of the listener, and what it opens."""

    token: Annotated[SecretStr, AfterValidator(_resolved)]
    """The token itself, as a reference: `"${file:…}"`, `"${env:…}"` or `"${command:…}"`. At least 16 bytes."""
    read: TablePatterns = ()
    """Patterns `keyspace.table` of tables whose changes it may read."""
    subscribe: TablePatterns = ()
    """Patterns of tables at which it may have subscriptions: make them and commit."""


class HttpTokenSettings(ListenerTokenSettings):
    """One token of the HTTP server, and what it opens."""

    monitor: bool = False
    """Whether it may ask how the process is: ping, health, buildinfo and metrics, which name all tables."""
    read: TablePatterns = ()
    """Patterns `keyspace.table` of tables whose logs it may read. Only these are in the list of logs."""
    subscribe: TablePatterns = ()
    """Patterns of tables at which it may list, make, commit, move and drop subscriptions, whatever their names."""
    snapshot: TablePatterns = ()
    """Patterns of tables that it may have copied again."""
    retain: bool = False
    """Whether it may run retention, which deletes files of all logs."""


class ListenerSettings(Section):
    """The socket that pushes changes to local daemons."""

    host: str = "127.0.0.1"
    """The address to listen on. Any other than the loopback needs TLS and a token."""
    port: int = Field(default=7417, ge=0, le=65535)
    """The TCP port; 0 takes a free one."""
    path: Path | None = None
    """A Unix socket to listen on instead of host and port."""
    token_file: Path | None = None
    """A file with the token that clients must send, which opens all tables. TCP needs this or tokens; on a Unix socket
    the file's rights may do."""
    tokens: Annotated[dict[str, ListenerTokenSettings], BeforeValidator(tabled)] = Field(default_factory=dict)
    """Further tokens by a name of your choice, each with the tables that it opens."""
    tls_certificate_file: Path | None = None
    """The certificate chain (PEM). TLS is on when it is given."""
    tls_key_file: Path | None = None
    """The certificate's private key (PEM)."""
    clients_max: int = Field(default=256, ge=1)
    """Connections at a time, counted before TLS. Further clients take the place of one that is still silent, or are
    turned away."""
    clients_per_address_max: int = Field(default=128, ge=1)
    """How many of them one address may have; of IPv6 one /64 network. The loopback counts as many addresses."""
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


class HttpSettings(Section):
    """The agent's HTTP endpoints: ping, health, buildinfo and metrics for monitoring, logs for readers elsewhere."""

    enabled: bool = True
    """Whether there is an HTTP server at all."""
    host: str = "127.0.0.1"
    """The address to listen on. Any other than the loopback needs TLS and a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The TCP port; 0 takes a free one."""
    token_file: Path | None = None
    """A file with the token that clients must send as `Authorization: Bearer …`. It opens everything. On the loopback
    there need be none."""
    tokens: Annotated[dict[str, HttpTokenSettings], BeforeValidator(tabled)] = Field(default_factory=dict)
    """Further tokens by a name of your choice, each with its rights."""
    tls_certificate_file: Path | None = None
    """The certificate chain (PEM). TLS is on when it is given."""
    tls_key_file: Path | None = None
    """The certificate's private key (PEM)."""
    clients_max: int = Field(default=32, ge=1)
    """Connections at a time, counted before TLS. Further clients take the place of one that is still silent; when none
    is, they are told how the process is (ping, health, buildinfo, metrics) in a few places of their own and nothing
    else."""
    clients_per_address_max: int = Field(default=24, ge=1)
    """How many of them one address may have; of IPv6 one /64 network. The loopback counts as many addresses."""
    request_s: float = Field(default=5.0, gt=0)
    """A client that has not sent its request within this time is cut off, and so is one that is idle for it."""
    logs: bool = True
    """Whether the change logs can be read and subscribed to under `/logs`, by who has a token with that right."""
    logs_without_token: bool = False
    """Let everyone on this machine read the logs, when there is no token at all."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> HttpSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        return self
