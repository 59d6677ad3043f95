"""LogBlocks: the files of a node's change logs over HTTP, as they are on disk, for readers on other machines.

A log is asked for by its id and a file by its number, so nothing that a client sends ever becomes a path. Data goes out
up to the watermark and no further: what is not durable is not seen. A reader's place in a log is moved here too, as
a subscription, so that retention knows about readers elsewhere. docs/reference/http.md describes requests and answers.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from penstock.errors import AccessDenied, Exhausted, InvalidInput, PenstockError
from penstock.log import identity, names, subscriptions
from penstock.log.log_directory import LogDirectory, LogEntry
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.subscription import Start, Subscription
from penstock.log.upkeep import Upkeep
from penstock.log.watermark import Watermark
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.serve.access import Right, Rights
from penstock.settings import RetentionSettings
from penstock.system.clock import SystemClock
from penstock.system.files import File, OsFiles

log = structlog.get_logger()

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}", re.ASCII)
# One answer has at most so much: a client asks on, and a connection's deadline stays a short one.
ANSWER_BYTES_MAX = 16 << 20
_CHUNK_BYTES = 256 << 10
_NAME_LENGTH_MAX = 200
_KINDS = {"data": names.DATA, "index": names.INDEX, "transactions": names.TRANSACTIONS}
_HEADERS = {"cache-control": "no-store", "accept-ranges": "bytes"}


class LogBlocks:
    """Answers requests about the logs below `root`. May be used from many threads."""

    def __init__(
        self,
        root: str,
        retention: RetentionSettings | None = None,
        ask_snapshot: Callable[[TableId], None] | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        """`ask_snapshot` has a table copied again; None when nobody here copies tables.

        With `retention`, a commit that finishes a file runs it; `upkeep` runs it when somebody asks.
        """
        self._upkeep = upkeep
        self._ask_snapshot = ask_snapshot
        self._directory = LogDirectory(root)
        self._retention = retention
        # Readers are for one thread; what is done with them here is short.
        self._mutex = threading.Lock()

    def routes(self) -> list[BaseRoute]:
        """The paths, to be put behind whatever guards them."""
        return [
            Route("/logs", self._answering(self._list)),
            Route("/logs/retain", self._answering(self._retain), methods=["POST"]),
            Route("/logs/{id}", self._answering(self._describe)),
            Route("/logs/{id}/identity", self._answering(self._identity)),
            Route("/logs/{id}/watermark", self._answering(self._watermark)),
            Route("/logs/{id}/subscription", self._answering(self._subscribe), methods=["POST"]),
            Route("/logs/{id}/subscription", self._answering(self._drop), methods=["DELETE"]),
            Route("/logs/{id}/subscription/rewind", self._answering(self._rewind), methods=["POST"]),
            Route("/logs/{id}/subscription/reset", self._answering(self._reset), methods=["POST"]),
            Route("/logs/{id}/subscriptions", self._answering(self._subscriptions)),
            Route("/logs/{id}/snapshot", self._answering(self._snapshot), methods=["POST"]),
            Route("/logs/{id}/{kind}/{number}", self._answering(self._file)),
        ]

    def close(self) -> None:
        with self._mutex:
            self._directory.close()

    @staticmethod
    def _answering(answer: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            try:
                return answer(request)
            except LookupError:
                return PlainTextResponse("there is no such log or file\n", 404)
            except InvalidInput as error:
                return PlainTextResponse(f"{error}\n", 400)
            except AccessDenied as error:
                return PlainTextResponse(f"{error}\n", 403)
            except Exhausted as error:
                # It passes by itself, so that whoever asks is to ask again.
                return PlainTextResponse(f"{error}\n", 503, {"retry-after": "1"})
            except PenstockError as error:
                refusal = {"error": type(error).__name__, "message": str(error)}
                return JSONResponse(refusal, 409, headers=_HEADERS)

        return endpoint

    def _list(self, request: Request) -> Response:
        rights = _rights(request)
        rights.require(Right.READ)
        with self._mutex:
            entries = [entry for entry in self._directory.look().values() if rights.allow(Right.READ, entry.table)]
            found = [facts for entry in entries if (facts := self._listed(entry)) is not None]
        return JSONResponse({"logs": found}, headers=_HEADERS)

    def _listed(self, entry: LogEntry) -> dict[str, Any] | None:
        """What the list says of one log; None when it cannot be read: the others can."""
        try:
            return {**_facts(entry), **_end(self._directory.watermark(entry.log_id))}
        except PenstockError as error:
            log.warning("log not readable", directory=entry.directory, error=str(error))
            return None

    def _describe(self, request: Request) -> Response:
        with self._mutex:
            entry, reader = self._find(request, Right.READ)
            files = [
                {
                    "number": one.number,
                    "bytes": one.bytes,
                    "rows_before": one.rows_before,
                    "schema_version": one.schema_version,
                }
                for one in reader.files()
            ]
            facts = {**_facts(entry), **_end(reader.watermark()), "first": str(reader.first()), "files": files}
        return JSONResponse(facts, headers=_HEADERS)

    def _identity(self, request: Request) -> Response:
        with self._mutex:
            entry, _ = self._find(request, Right.READ)
        return _bytes(request, f"{entry.directory}/{identity.NAME}")

    def _watermark(self, request: Request) -> Response:
        with self._mutex:
            _, reader = self._find(request, Right.READ)
            data = reader.watermark().pack()
        span = _span(request, len(data))
        if span is None:
            return _unsatisfied(len(data))
        return Response(data[span[0] : span[1]], 206, _range_headers(span, len(data)), "application/octet-stream")

    def _file(self, request: Request) -> Response:
        kind = _KINDS[request.path_params["kind"]]
        with self._mutex:
            _, reader = self._find(request, Right.READ)
            number, numbers = _number(request.path_params["number"]), reader.numbers()
            if number not in numbers:
                raise LookupError
            path = reader.path(number, kind)
            limit = _durable_end(reader, number, numbers) if kind == names.DATA else None
        return _bytes(request, path, limit)

    def _subscribe(self, request: Request) -> Response:
        with self._mutex:
            entry, _ = self._find(request, Right.SUBSCRIBE)
        name = _name(request)
        position = request.query_params.get("position")
        start = _start(request.query_params.get("start", "earliest"))
        opened = Subscription.open(entry.directory, name, start=start, retention_settings=self._retention)
        with opened as subscription:
            if position is not None:
                # A reader is told of a loss when it reads; here it only means that the place to commit moved on.
                subscription.accept_loss()
                done = Position.parse(position)
                if done > subscription.position:
                    subscription.commit(done)
            return JSONResponse({"name": name, "position": str(subscription.position)}, headers=_HEADERS)

    def _subscriptions(self, request: Request) -> Response:
        with self._mutex:
            _, reader = self._find(request, Right.SUBSCRIBE)
            found = [state.to_json(SystemClock().now_us()) for state in subscriptions.states(reader)]
        return JSONResponse({"subscriptions": found}, headers=_HEADERS)

    def _drop(self, request: Request) -> Response:
        with self._mutex:
            entry, _ = self._find(request, Right.SUBSCRIBE)
        name = _name(request)
        subscriptions.drop(entry.directory, name, dry_run=_dry_run(request))
        return JSONResponse({"name": name, "dropped": not _dry_run(request)}, headers=_HEADERS)

    def _rewind(self, request: Request) -> Response:
        return self._move(request, back_only=True)

    def _reset(self, request: Request) -> Response:
        return self._move(request, back_only=False)

    def _move(self, request: Request, *, back_only: bool) -> Response:
        with self._mutex:
            entry, _ = self._find(request, Right.SUBSCRIBE)
        moved = subscriptions.move(
            entry.directory,
            _name(request),
            request.query_params.get("to", ""),
            back_only=back_only,
            dry_run=_dry_run(request),
        )
        return JSONResponse(moved.to_json(), headers=_HEADERS)

    def _retain(self, request: Request) -> Response:
        _rights(request).require(Right.RETAIN)
        if self._upkeep is None:
            raise InvalidInput("nobody runs retention here")
        reports = self._upkeep.run_once(dry_run=_dry_run(request))
        found = [{"directory": os.path.basename(where), **report.to_json()} for where, report in reports.items()]
        return JSONResponse({"logs": found}, headers=_HEADERS)

    def _snapshot(self, request: Request) -> Response:
        with self._mutex:
            entry, _ = self._find(request, Right.SNAPSHOT)
        if self._ask_snapshot is not None:
            self._ask_snapshot(entry.table)
        return JSONResponse({"requested": self._ask_snapshot is not None}, headers=_HEADERS)

    def _find(self, request: Request, right: Right) -> tuple[LogEntry, LogReader]:
        """The log that a request names; KeyError when there is none, AccessDenied when it is not for who asks."""
        log_id = request.path_params["id"]
        entry = self._directory.look()[log_id]
        _rights(request).require(right, entry.table)
        return entry, self._directory.reader(log_id)


def _rights(request: Request) -> Rights:
    """What the guard found that this request may do. Without a guard there is none, and that is a mistake of ours."""
    rights = request.state.rights
    assert isinstance(rights, Rights)
    return rights


def _name(request: Request) -> str:
    name = request.query_params.get("name", "")
    if not 0 < len(name) <= _NAME_LENGTH_MAX:
        raise InvalidInput(f"a subscription's name has 1 to {_NAME_LENGTH_MAX} characters")
    return name


def _dry_run(request: Request) -> bool:
    return request.query_params.get("dry_run", "").lower() == "true"


def _start(text: str) -> Start:
    if text == "earliest":
        return "earliest"
    return "latest" if text == "latest" else Position.parse(text)


def _facts(entry: LogEntry) -> dict[str, Any]:
    return {
        "id": entry.log_id,
        "keyspace": entry.table.keyspace,
        "table": entry.table.table,
        "name": entry.name,
        "parked": entry.parked,
        "node": entry.node,
        "data_centre": entry.data_centre,
    }


def _end(mark: Watermark) -> dict[str, Any]:
    return {"end": str(mark.last), "file": mark.file, "bytes": mark.end, "rows": mark.rows, "epoch": mark.epoch}


def _durable_end(reader: LogReader, number: int, numbers: list[int]) -> int | None:
    """How much of a data file may be seen: of one behind the watermark all, of one ahead of it only the header."""
    mark = reader.watermark()
    if number == mark.file:
        return mark.end
    if number > mark.file:
        return reader.heading(number).size
    return reader.heading(number + 1).previous_end if number + 1 in numbers else None


def _span(request: Request, size: int) -> tuple[int, int] | None:
    """The bytes that are asked for, as begin and end; None when there are none of them."""
    asked = _RANGE.fullmatch(request.headers.get("range", f"bytes=0-{ANSWER_BYTES_MAX}"))
    if asked is None:
        raise InvalidInput("a range is written bytes=FIRST-LAST")
    begin, end = int(asked[1]), min(int(asked[2]) + 1, size)
    end = min(end, begin + ANSWER_BYTES_MAX)
    return (begin, end) if begin < end else None


def _range_headers(span: tuple[int, int], size: int) -> dict[str, str]:
    begin, end = span
    return {
        **_HEADERS,
        "content-range": f"bytes {begin}-{end - 1}/{size}",
        "content-length": str(end - begin),
    }


def _unsatisfied(size: int) -> Response:
    return Response(b"", 416, {**_HEADERS, "content-range": f"bytes */{size}"})


def _number(text: str) -> int:
    """A file's number; LookupError when the text cannot be one."""
    if _NUMBER.fullmatch(text) is None:
        raise LookupError
    return int(text)


def _bytes(request: Request, path: str, limit: int | None = None) -> Response:
    """A stretch of a file up to a limit, sent in chunks as the client takes them. A link is no file of a log."""
    try:
        file = OsFiles().open(path)
        size = file.size() if limit is None else min(file.size(), limit)
    except FileNotFoundError as error:
        raise LookupError from error
    except OSError as error:
        raise refused(error, "opening a file of the log", path) from error
    span = _span(request, size)
    if span is None:
        return _unsatisfied(size)
    return StreamingResponse(_chunks(file, *span), 206, _range_headers(span, size), "application/octet-stream")


def _chunks(file: File, begin: int, end: int) -> Iterator[bytes]:
    """The file closes itself with the last reference to it, also when nobody takes a chunk."""
    while begin < end:
        data = file.pread(min(_CHUNK_BYTES, end - begin), begin)
        if not data:
            return
        yield data
        begin += len(data)
