"""Registry: the schemas of keys and values, in a schema registry that speaks Confluent's interface.

A subject is a topic with `-key` or `-value` behind it. Registering what is there already gives the number that it has,
so doing it twice changes nothing. A registry that does not answer is a reason to try again; one that refuses a schema
is not, and the error names the subject and the version that stands in the way.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.errors import DeliveryFailed, InvalidSetting, SchemaUnfit, TargetRefused
from penstock.settings.kafka import Compatibility, KafkaSettings
from penstock.settings.secrets import warn_if_open
from penstock.system import json_text

_CONTENT = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX = 16 << 20
_REASON_CHARS = 300
_NOT_FOUND, _CONFLICT, _UNPROCESSABLE = 404, 409, 422


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject."""

    number: int
    version: int
    text: str


class Registry:
    """A client. It keeps no connection: it is asked when a table is new, and then no more."""

    def __init__(self, settings: KafkaSettings) -> None:
        assert settings.registry_url is not None
        self._url = urlsplit(settings.registry_url)
        self._timeout_s = settings.registry_timeout_s
        self._headers = {"Accept": _CONTENT, "Content-Type": _CONTENT}
        if settings.registry_username is not None:
            login = f"{settings.registry_username}:{_password(settings)}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        self._tls: ssl.SSLContext | None = None
        if self._url.scheme == "https":
            self._tls = ssl.create_default_context(cafile=_path(settings.registry_ca_file))

    def check(self) -> None:
        """Raise when the registry does not answer."""
        self._ask("GET", "/subjects")

    def latest(self, subject: str) -> Version | None:
        """The newest version of a subject; None when there is none yet."""
        status, found = self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        if status == _NOT_FOUND:
            return None
        self._expect(status, found, subject)
        return Version(int(found["id"]), int(found["version"]), str(found["schema"]))

    def find(self, subject: str, text: str, kind: str) -> int | None:
        """The number of a schema that a subject has already; None when it is new."""
        status, found = self._request("POST", f"/subjects/{quote(subject, safe='')}", _body(text, kind))
        if status == _NOT_FOUND:
            return None
        self._expect(status, found, subject)
        return int(found["id"])

    def register(self, subject: str, text: str, kind: str) -> int:
        """The number of a schema, which is registered if it is new. Raises SchemaUnfit when the registry says no."""
        status, found = self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", _body(text, kind))
        if status in (_CONFLICT, _UNPROCESSABLE):
            newest = self.latest(subject)
            why = "it does not fit the versions before" if status == _CONFLICT else "the registry cannot use it"
            raise SchemaUnfit(
                f"the schema registry refuses a schema: {why}: {_reason(found)}",
                subject=subject,
                version=None if newest is None else newest.version,
            )
        self._expect(status, found, subject)
        return int(found["id"])

    def demand(self, subject: str, compatibility: Compatibility) -> None:
        """Set what later versions of a subject must be."""
        self._ask("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": compatibility.value}, subject)

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None, subject: str = "") -> Any:
        status, found = self._request(method, path, body)
        self._expect(status, found, subject)
        return found

    def _expect(self, status: int, found: Any, subject: str) -> None:
        if status < 300:
            return
        place = {"registry": self._url.hostname, "subject": subject or None, "status": status}
        if status >= 500 or status == 429:
            raise DeliveryFailed(f"the schema registry cannot answer now: {_reason(found)}", **place)
        raise TargetRefused(f"the schema registry refuses a request: {_reason(found)}", **place)

    def _request(self, method: str, path: str, body: Mapping[str, str] | None = None) -> tuple[int, Any]:
        host = self._url.hostname or ""
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(host, self._url.port, timeout=self._timeout_s)
        else:
            connection = http.client.HTTPSConnection(host, self._url.port, timeout=self._timeout_s, context=self._tls)
        try:
            content = None if body is None else json.dumps(body).encode()
            connection.request(method, self._url.path.rstrip("/") + path, content, self._headers)
            answer = connection.getresponse()
            text = answer.read(_ANSWER_BYTES_MAX)
            return answer.status, _parsed(text)
        except (OSError, http.client.HTTPException) as error:
            raise DeliveryFailed(
                f"the schema registry does not answer: {type(error).__name__}", registry=host, port=self._url.port
            ) from error
        finally:
            connection.close()


def _body(text: str, kind: str) -> dict[str, str]:
    return {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}


def _parsed(text: bytes) -> Any:
    try:
        return json_text.parse(text) if text else {}
    except ValueError:
        return {"message": "its answer is not JSON"}


def _reason(found: Any) -> str:
    """What the registry says, cut short; it speaks of schemas, not of rows."""
    said = found.get("message") if isinstance(found, dict) else None
    return str(said or "it gives no reason")[:_REASON_CHARS]


def _password(settings: KafkaSettings) -> str:
    if settings.registry_password is not None:
        return settings.registry_password.get_secret_value()
    if settings.registry_password_file is None:
        return ""
    warn_if_open(settings.registry_password_file)
    try:
        return settings.registry_password_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidSetting(
            f"cannot read the password: {error.strerror}", setting="kafka.registry_password_file"
        ) from error


def _path(file: object) -> str | None:
    return None if file is None else str(file)
