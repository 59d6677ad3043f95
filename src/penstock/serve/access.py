"""Access: who may connect to a server of ours, what they may do there, and how the connection is kept private.

The rules are the same for every server: the loopback needs no TLS, any other address does; a token is kept as its
digest only and compared in a time that does not depend on what was given. The token of `token_file` opens everything,
one of `tokens` what it has the rights for.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from penstock.errors import AccessDenied, InvalidSetting
from penstock.model.schema import TableId
from penstock.settings import HttpSettings, ListenerSettings
from penstock.settings.secrets import warn_if_open
from penstock.system.addresses import is_loopback

_TOKEN_BYTES_MAX = 4096
_TOKEN_LENGTH_MIN = 16


class Right(StrEnum):
    """What a token may be good for. All but the first and the last are given by table."""

    MONITOR = "monitor"
    READ = "read"
    SUBSCRIBE = "subscribe"
    SNAPSHOT = "snapshot"
    RETAIN = "retain"


class Rights:
    """What somebody may do here: rights, each with the tables that it is for."""

    def __init__(self, granted: Mapping[Right, Sequence[str]]) -> None:
        """`granted` has patterns `keyspace.table`. Neither half of one reaches over the point between them."""
        self._granted = {
            right: [tuple(pattern.split(".", 1)) for pattern in patterns] for right, patterns in granted.items()
        }

    def allow(self, right: Right, table: TableId | None = None) -> bool:
        """Whether they have a right, and if a table is given, whether it is for this one."""
        patterns = self._granted.get(right, [])
        if table is None:
            return bool(patterns)
        return any(fnmatchcase(table.keyspace, one) and fnmatchcase(table.table, other) for one, other in patterns)

    def require(self, right: Right, table: TableId | None = None) -> None:
        """AccessDenied, with the name of the right, when it is missing."""
        if not self.allow(right, table):
            raise AccessDenied(f"this token lacks the right {right}", table=table)


_ALL_TABLES = ("*.*",)
EVERYTHING = Rights(dict.fromkeys(Right, _ALL_TABLES))
MONITORING = Rights({Right.MONITOR: _ALL_TABLES})


class Tokens:
    """The secrets that clients may show, and what each opens. Only their digests are kept."""

    def __init__(self, tokens: Iterable[tuple[str, bytes, Rights]]) -> None:
        """Each token with the name of the setting that it comes from."""
        self._rights: dict[bytes, Rights] = {}
        settings: dict[bytes, str] = {}
        for setting, token, rights in tokens:
            if not _TOKEN_LENGTH_MIN <= len(token) <= _TOKEN_BYTES_MAX:
                raise InvalidSetting(f"a token has {_TOKEN_LENGTH_MIN} to {_TOKEN_BYTES_MAX} bytes", setting=setting)
            digest = _digest(token)
            if digest in settings:
                raise InvalidSetting("two tokens are the same", setting=setting, other=settings[digest])
            settings[digest] = setting
            self._rights[digest] = rights

    def rights(self, given: str) -> Rights | None:
        """What a client may do that shows this; None when it is no token.

        Its digest is compared with those of all tokens, which takes the same time whatever was given.
        """
        digest = _digest(given.encode("utf-8", "surrogatepass"))
        found = None
        for known, rights in self._rights.items():
            if hmac.compare_digest(digest, known):
                found = rights
        return found


def read_tokens(settings: HttpSettings | ListenerSettings, section: str) -> Tokens | None:
    """The tokens of a server; None when its settings name none."""
    found = []
    if settings.token_file is not None:
        found.append((f"{section}.token_file", read_token(settings.token_file), EVERYTHING))
    for name, one in settings.tokens.items():
        setting = f"{section}.tokens.{name}"
        granted = {right: _patterns(getattr(one, right, ())) for right in Right}
        if not any(granted.values()):
            raise InvalidSetting("this token has no right: give it read, or another", setting=setting)
        found.append((setting, one.token.get_secret_value().strip().encode(), Rights(granted)))
    return Tokens(found) if found else None


def http_tokens(settings: HttpSettings) -> Tokens | None:
    """The tokens of an HTTP server, which beyond the loopback has some."""
    tokens = read_tokens(settings, "http")
    if tokens is None and not is_loopback(settings.host):
        raise InvalidSetting("listening beyond the loopback needs http.token_file or http.tokens", host=settings.host)
    return tokens


def read_token(file: Path) -> bytes:
    """The token that a file holds; white space around it is not part of it."""
    warn_if_open(file)
    try:
        with file.open("rb") as opened:
            return opened.read(_TOKEN_BYTES_MAX + 1).strip()
    except OSError as error:
        raise InvalidSetting(f"cannot read the token: {error.strerror}", file=file) from error


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _patterns(given: bool | tuple[str, ...]) -> tuple[str, ...]:
    """A right that is not given by table is one for all of them."""
    if isinstance(given, bool):
        return _ALL_TABLES if given else ()
    return given


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
