"""Agent: the logs of another machine, read through the HTTP server of the agent there.

It is a `Files` whose directories are the ids of logs, so a LogReader reads remote logs as it reads local ones, checks
included. Every request has a deadline and a connection of its own; what fails on the way is tried again for a bounded
time, from the byte at which it failed. docs/reference/http.md describes the requests.
"""

from __future__ import annotations

import errno
import http.client
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlencode, urlsplit

from penstock.errors import (
    AccessDenied,
    AgentUnreachable,
    CorruptFrame,
    InvalidSetting,
    LogError,
    PositionAhead,
    PositionBehind,
    SubscriptionLocked,
)
from penstock.log import identity, names, watermark
from penstock.log.subscription import Start
from penstock.log.watermark import Watermark
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.settings.secrets import warn_if_open
from penstock.system import json_text

T = TypeVar("T")

_NUMBERED = re.compile(r"\.(\d{6,12})\.(avro|idx|txn)", re.ASCII)
_KINDS = {names.DATA: "data", names.INDEX: "index", names.TRANSACTIONS: "transactions"}
# What is asked for at first, when less is needed: a header, or most of an index. Who reads on gets more at once.
_FIRST_BYTES = {names.DATA: 64 << 10, names.INDEX: 256 << 10, names.TRANSACTIONS: 256 << 10}
_AHEAD_BYTES_MAX = 8 << 20
_ANSWER_BYTES_MAX = 64 << 20
_PAUSE_S = 0.05
_PAUSE_S_MAX = 2.0
_TIMEOUT_S = 10.0
_REFUSALS: dict[str, type[LogError]] = {
    kind.__name__: kind for kind in (PositionAhead, PositionBehind, SubscriptionLocked)
}


@dataclass(frozen=True, slots=True)
class Access:
    """How to speak to agents: the file with the token, the certificates to trust, and how long to try."""

    token_file: str | None = None
    tls_ca_file: str | None = None
    retry_s: float = 30.0


@dataclass(frozen=True, slots=True)
class ServedLog:
    """One log that an agent serves."""

    log_id: str
    table: TableId
    name: str
    parked: bool
    node: str
    watermark: Watermark


class Agent:
    """One agent's logs. For one thread."""

    def __init__(
        self,
        url: str,
        how: Access,
        *,
        pause: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url.rstrip("/")
        self._how = how
        self._pause = pause
        self._monotonic = monotonic
        self._headers = {"user-agent": "penstock"}
        if how.token_file is not None:
            self._headers["authorization"] = f"Bearer {_token(how.token_file)}"

    # What an agent tells of its logs.

    def logs(self) -> list[ServedLog]:
        """Every log, and how far each is durable now."""
        try:
            found = self._json("GET", "/logs")
        except FileNotFoundError:
            raise AgentUnreachable("there is no agent that serves logs at this address", agent=self.url) from None
        try:
            return [
                ServedLog(
                    log_id=str(one["id"]),
                    table=TableId(str(one["keyspace"]), str(one["table"])),
                    name=str(one["name"]),
                    parked=bool(one["parked"]),
                    node=str(one["node"]),
                    watermark=_watermark(one),
                )
                for one in found["logs"]
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise self._strange("a list of logs") from error

    def subscribe(self, log_id: str, name: str, start: Start) -> Position:
        """Make sure that a subscription exists; what it has committed."""
        found = self._json("POST", f"/logs/{log_id}/subscription", {"name": name, "start": str(start)})
        return Position.parse(str(found.get("position")))

    def commit(self, log_id: str, name: str, position: Position) -> None:
        """Everything up to `position` is done."""
        self._json("POST", f"/logs/{log_id}/subscription", {"name": name, "position": str(position)})

    def ask_snapshot(self, log_id: str) -> bool:
        """Have the table of a log copied again; False when this agent copies no tables."""
        try:
            return bool(self._json("POST", f"/logs/{log_id}/snapshot").get("requested"))
        except FileNotFoundError:
            return False

    # Files, as far as a reader needs them.

    def open(self, path: str, *, write: bool = False, create: bool = False) -> RemoteFile:
        log_id, _, name = path.partition("/")
        if write or create:
            _read_only(path)
        numbered = _NUMBERED.search(name)
        if numbered is not None:
            kind = numbered.group(2)
            place = f"/logs/{log_id}/{_KINDS[kind]}/{int(numbered.group(1))}"
            file = RemoteFile(self, place, path, _FIRST_BYTES[kind])
            # A file that is not there must be found out now. Of data not even the beginning may be wanted.
            file.begin(1 if kind == names.DATA else _FIRST_BYTES[kind])
            return file
        if name not in (identity.NAME, watermark.NAME):
            raise FileNotFoundError(errno.ENOENT, "not a file that agents serve", path)
        return RemoteFile(self, f"/logs/{log_id}/{'identity' if name == identity.NAME else 'watermark'}", path, 0)

    def list(self, path: str) -> list[str]:
        found = self._json("GET", f"/logs/{path}")
        try:
            table = TableId(str(found["keyspace"]), str(found["table"]))
            return [names.file_name(table, int(one["number"])) for one in found["files"]]
        except (KeyError, TypeError, ValueError) as error:
            raise self._strange("a list of files") from error

    def exists(self, path: str) -> bool:
        try:
            self.open(path).size()
        except FileNotFoundError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:  # noqa: ARG002
        _read_only(old)

    def unlink(self, path: str) -> None:
        _read_only(path)

    def make_directory(self, path: str) -> None:
        _read_only(path)

    def sync_directory(self, path: str) -> None:
        _read_only(path)

    # Requests.

    def fetch(self, place: str, path: str, size: int, offset: int) -> tuple[bytes, int]:
        """Up to `size` bytes of a file at `offset`, fewer only at its end, and how long the file is."""
        parts: list[bytes] = []
        got = 0

        def once() -> int:
            nonlocal got
            first = offset + got
            status, headers, data = self._request("GET", place, {"range": f"bytes={first}-{offset + size - 1}"})
            if status == 404:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            total = _total(headers.get("content-range", ""))
            if status not in (206, 416) or total is None:
                raise self._strange(f"bytes of {path}", status)
            if status == 206:
                parts.append(data)
                got += len(data)
            return total

        total = self._trying(once, lambda: got)
        while got < size and offset + got < total:
            before = got
            total = self._trying(once, lambda: got)
            if got == before:
                raise self._strange(f"bytes of {path}")
        return (parts[0] if len(parts) == 1 else b"".join(parts)), total

    def _json(self, method: str, place: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        target = place if query is None else f"{place}?{urlencode(query)}"

        def once() -> dict[str, Any]:
            status, _, data = self._request(method, target, {})
            if status == 404:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}{place}")
            try:
                found = json_text.parse(data)
            except ValueError as error:
                raise self._strange("JSON", status) from error
            if status == 409 and isinstance(found, dict):
                kind = _REFUSALS.get(str(found.get("error")), LogError)
                raise kind(str(found.get("message")), agent=self.url)
            if status != 200 or not isinstance(found, dict):
                raise self._strange("JSON", status)
            return found

        return self._trying(once, lambda: 0)

    def _trying(self, once: Callable[[], T], got: Callable[[], int]) -> T:
        """Call until it works; the time for that begins anew whenever bytes came."""
        deadline, pause, seen = self._monotonic() + self._how.retry_s, _PAUSE_S, got()
        while True:
            try:
                return once()
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, FileNotFoundError):
                    raise
                if isinstance(error, ssl.SSLCertVerificationError):
                    raise AgentUnreachable(
                        "the agent's certificate is not trusted", agent=self.url, reason=error.verify_message
                    ) from error
                if got() > seen:
                    deadline, pause, seen = self._monotonic() + self._how.retry_s, _PAUSE_S, got()
                elif self._monotonic() >= deadline:
                    reason = getattr(error, "strerror", None) or type(error).__name__
                    raise AgentUnreachable(
                        f"the agent does not answer: {reason}", agent=self.url, tried_s=self._how.retry_s
                    ) from error
                self._pause(pause)
                pause = min(2 * pause, _PAUSE_S_MAX)

    def _request(self, method: str, target: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        """One request. OSError or HTTPException when it may work later."""
        parts = urlsplit(self.url)
        kind: Any = http.client.HTTPConnection
        more: dict[str, Any] = {"timeout": _TIMEOUT_S}
        if parts.scheme == "https":
            kind, more["context"] = http.client.HTTPSConnection, _trusting(self._how.tls_ca_file)
        connection = kind(parts.hostname, parts.port, **more)
        try:
            connection.request(method, parts.path + target, headers={**self._headers, **headers})
            answer = connection.getresponse()
            if answer.status in (401, 403):
                reason = answer.read(200).decode("utf-8", "replace").strip()
                raise AccessDenied(f"the agent refuses: {reason}", agent=self.url)
            announced = answer.length
            data = answer.read(_ANSWER_BYTES_MAX)
            # Bytes of a file are good as far as they came: blocks carry checksums, and the rest is asked for again.
            if announced is not None and len(data) < announced and (answer.status != 206 or not data):
                raise http.client.IncompleteRead(data, announced - len(data))
            if answer.status >= 500:
                raise http.client.HTTPException(f"status {answer.status}")
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, data
        finally:
            connection.close()

    def _strange(self, wanted: str, status: int | None = None) -> CorruptFrame:
        return CorruptFrame(f"the agent's answer is not {wanted}", agent=self.url, status=status)


class RemoteFile:
    """A file behind an agent, with what was read last kept at hand."""

    def __init__(self, agent: Agent, place: str, path: str, ahead: int) -> None:
        self._agent = agent
        self._place = place
        self._path = path
        self._ahead = ahead
        self._base = 0
        self._data = b""
        self._size: int | None = None

    def begin(self, size: int) -> None:
        """Ask for the first bytes, and with them for the file's length."""
        self._data, self._size = self._agent.fetch(self._place, self._path, size, 0)

    def pread(self, size: int, offset: int) -> bytes:
        at = offset - self._base
        if self._ahead and at >= 0 and at + size <= len(self._data):
            return self._data[at : at + size]
        if len(self._data) > 1 and 0 <= at <= len(self._data):
            self._ahead = min(4 * self._ahead, _AHEAD_BYTES_MAX)
        data, self._size = self._agent.fetch(self._place, self._path, max(size, self._ahead), offset)
        if self._ahead:
            self._base, self._data = offset, data
        return data[:size]

    def fetch(self, into: memoryview, offset: int, *, keep: bool) -> int:  # noqa: ARG002
        data = self.pread(len(into), offset)
        into[: len(data)] = data
        return len(data)

    def size(self) -> int:
        if self._size is None:
            self.pread(1, 0)
        assert self._size is not None
        return self._size

    def close(self) -> None:
        self._data = b""

    def pwrite(self, data: bytes | memoryview, offset: int) -> None:  # noqa: ARG002
        _read_only(self._path)

    def pwritev(self, parts: Sequence[bytes | memoryview], size: int, offset: int) -> None:  # noqa: ARG002
        _read_only(self._path)

    def truncate(self, size: int) -> None:  # noqa: ARG002
        _read_only(self._path)

    def sync(self) -> None:
        _read_only(self._path)

    def reserve(self, offset: int, size: int) -> bool:  # noqa: ARG002
        return False

    def lock(self) -> bool:
        _read_only(self._path)


def _read_only(path: str) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def _token(file: str) -> str:
    warn_if_open(Path(file))
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"cannot read the token: {getattr(error, 'strerror', 'not text')}", file=file) from error


@lru_cache(maxsize=16)
def _trusting(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidSetting("cannot read the certificates to trust", file=ca_file) from error


def _total(content_range: str) -> int | None:
    _, slash, total = content_range.partition("/")
    return int(total) if slash and total.isdecimal() else None


def _watermark(one: Mapping[str, Any]) -> Watermark:
    return Watermark(
        int(one["epoch"]), int(one["file"]), int(one["bytes"]), Position.parse(str(one["end"])), int(one["rows"])
    )
