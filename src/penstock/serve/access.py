"""Access: who may connect to a server of ours, and how the connection is kept private.

The rules are the same for every server: the loopback needs no TLS, any other address does; a token is kept as its
digest only and compared in a time that does not depend on what was given.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from pathlib import Path

from penstock.errors import InvalidSetting
from penstock.settings.secrets import warn_if_open
from penstock.system.addresses import is_loopback

_TOKEN_BYTES_MAX = 4096
_TOKEN_LENGTH_MIN = 16


class Token:
    """A secret that clients must show. Only its digest is kept."""

    def __init__(self, token: bytes) -> None:
        self._digest = hashlib.sha256(token).digest()

    @classmethod
    def read(cls, file: Path) -> Token:
        """The token that a file holds; white space around it is not part of it."""
        warn_if_open(file)
        try:
            with file.open("rb") as opened:
                token = opened.read(_TOKEN_BYTES_MAX + 1).strip()
        except OSError as error:
            raise InvalidSetting(f"cannot read the token: {error.strerror}", file=file) from error
        if not _TOKEN_LENGTH_MIN <= len(token) <= _TOKEN_BYTES_MAX:
            raise InvalidSetting(f"a token has {_TOKEN_LENGTH_MIN} to {_TOKEN_BYTES_MAX} bytes", file=file)
        return cls(token)

    def matches(self, given: str) -> bool:
        """Compare digests, which takes the same time whatever was given."""
        digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest()
        return hmac.compare_digest(digest, self._digest)


def tls_context(host: str | None, certificate_file: Path | None, key_file: Path | None) -> ssl.SSLContext | None:
    """The TLS rules of a server, or None when it needs none. `host` is None for a Unix socket."""
    if certificate_file is None:
        if host is not None and not is_loopback(host):
            raise InvalidSetting("listening beyond the loopback needs TLS", host=host)
        return None
    if key_file is not None:
        warn_if_open(key_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate_file, key_file)
    except OSError as error:
        reason = error.strerror or "not a certificate and its key"
        raise InvalidSetting(f"cannot use the certificate: {reason}", file=certificate_file) from error
    return context
