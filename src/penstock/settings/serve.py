"""Settings of what listens: the socket for local daemons and the HTTP endpoints."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from penstock.settings.section import Section


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
    """A file with the token that clients must send as `Authorization: Bearer …`. On the loopback there need be none."""
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
    """Whether the change logs can be read and subscribed to under `/logs`, by who has the token."""
    logs_without_token: bool = False
    """Let everyone on this machine read the logs, when there is no token_file."""

    @model_validator(mode="after")
    def _tls_is_whole(self) -> HttpSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        return self
