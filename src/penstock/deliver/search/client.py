"""The HTTP client: plain requests to the nodes of one cluster, which Elasticsearch and OpenSearch answer alike.

A connection is kept open and made anew when it breaks; a node that does not answer is followed by the next of the
list. Nothing is repeated here: whoever asks knows what may be sent twice. Logins and certificates are read where the
sink is made, on the driver, so that workers need no such files.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import InvalidSetting, PenstockError, Retry
from penstock.settings.secrets import warn_if_open
from penstock.settings.sinks import SearchSettings
from penstock.system import json_text

_PORT = 9200
# Larger than any answer that is worth reading.
_ANSWER_BYTES_MAX = 256 << 20
_GZIP_LEVEL = 1


class NoAnswer(PenstockError):
    """The request got no answer; it may have been carried out all the same."""

    retry = Retry.TIMED
    hint = "Check that the search cluster is up and that search.urls name its nodes."


@dataclass(frozen=True, slots=True)
class Answer:
    """What a node said."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON; an empty object when it is none, as a proxy's page."""
        try:
            return json_text.parse(self.body)
        except ValueError:
            return {}

    def reason(self) -> str:
        """What went wrong, in the target's words: the type of its error, which never shows a document."""
        answer = self.json()
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(error, dict):
            causes = error.get("root_cause") or [error]
            return str(causes[0].get("type", error.get("type", "unknown error")))[:200]
        return f"HTTP status {self.status}"


@dataclass(frozen=True, slots=True)
class Access:
    """How to get in: travels to the tasks, and shows no secret when printed."""

    urls: tuple[str, ...]
    timeout_s: float
    gzip: bool
    authorization: str | None = field(repr=False, default=None)
    certificates: str | None = field(repr=False, default=None)
    verify_host: bool = True

    @classmethod
    def of(cls, settings: SearchSettings) -> Access:
        return cls(
            urls=settings.urls,
            timeout_s=settings.timeout_s,
            gzip=settings.gzip,
            authorization=_authorization(settings),
            certificates=_content(settings.tls_ca_file, "search.tls_ca_file"),
            verify_host=settings.tls_verify_host,
        )


def _authorization(settings: SearchSettings) -> str | None:
    api_key = _content(settings.api_key_file, "search.api_key_file")
    if settings.api_key is not None:
        api_key = settings.api_key.get_secret_value()
    if api_key is not None:
        return f"ApiKey {api_key.strip()}"
    if settings.username is None:
        return None
    password = _content(settings.password_file, "search.password_file") or ""
    password = password.rstrip("\r\n")
    if settings.password is not None:
        password = settings.password.get_secret_value()
    return "Basic " + base64.b64encode(f"{settings.username}:{password}".encode()).decode()


def _content(file: Path | None, setting: str) -> str | None:
    if file is None:
        return None
    if not setting.endswith("ca_file"):
        warn_if_open(file)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"cannot read the file of {setting}", file=file) from error


class Client:
    """One connection at a time to one of the nodes."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._turn = 0
        self._connection: http.client.HTTPConnection | None = None
        self._prefix = ""

    @property
    def place(self) -> str:
        """The node that is asked now."""
        return self._access.urls[self._turn]

    def request(self, method: str, path: str, content: object = None) -> Answer:
        """Ask with a JSON body, or with none."""
        body = None if content is None else json.dumps(content).encode()
        return self._send(method, path, body, "application/json")

    def bulk(self, path: str, body: bytes) -> Answer:
        """Send the lines of a bulk request."""
        return self._send("POST", path, body, "application/x-ndjson")

    def _send(self, method: str, path: str, body: bytes | None, kind: str) -> Answer:
        headers = {"Accept": "application/json"}
        if self._access.authorization is not None:
            headers["Authorization"] = self._access.authorization
        if body is not None:
            headers["Content-Type"] = kind
            if self._access.gzip:
                body = gzip.compress(body, _GZIP_LEVEL)
                headers["Content-Encoding"] = "gzip"
        place = self.place
        try:
            connection = self._connect()
            connection.request(method, self._prefix + path, body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.read(_ANSWER_BYTES_MAX))
            if not response.isclosed():
                raise http.client.HTTPException("the answer is too long")
        except (OSError, http.client.HTTPException) as error:
            self.close()
            self._turn = (self._turn + 1) % len(self._access.urls)
            if isinstance(error, ssl.SSLCertVerificationError):
                raise NoAnswer(f"the node's certificate is refused: {error.verify_message}", url=place) from error
            raise NoAnswer(f"no answer: {_words(error)}", url=place) from error
        return answer

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is not None:
            return self._connection
        parts = urlsplit(self.place)
        host, port = parts.hostname or "", parts.port or _PORT
        self._prefix = parts.path.rstrip("/")
        if parts.scheme == "https":
            context = ssl.create_default_context(cadata=self._access.certificates)
            context.check_hostname = self._access.verify_host
            self._connection = http.client.HTTPSConnection(host, port, timeout=self._access.timeout_s, context=context)
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=self._access.timeout_s)
        return self._connection


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "not within search.timeout_s"
    text = error.strerror if isinstance(error, OSError) else None
    return text or type(error).__name__
