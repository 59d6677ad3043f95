"""HTTP endpoints of an agent: /ping, /health, /buildinfo and /metrics for monitoring, /logs for readers elsewhere.

The first four are the paths that Debezium's Cassandra connector has. All are served from a thread of the agent's
process. On the loopback anyone may ask how the agent is; any other address needs TLS and a token, and the logs need the
token everywhere, unless the operator says otherwise. Each connection carries one request and has a deadline, and their
number is bounded before TLS (see `door`), so that no client can hold the agent up or keep monitoring out.
docs/reference/http.md describes the answers.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

import h11
import structlog
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

import penstock
from penstock.capture.status import AgentStatus
from penstock.serve.access import EVERYTHING, MONITORING, Right, Rights, Tokens, http_tokens, tls_context
from penstock.serve.door import Bounds, Door, Place, bind
from penstock.serve.log_blocks import LogBlocks
from penstock.serve.metrics import AgentMetrics
from penstock.serve.tally import Tally, metrics_text
from penstock.settings import HttpSettings
from penstock.system import kernels

log = structlog.get_logger()

SERVICE_NAME = "penstock-agent"
# The line of a request and its headers.
_REQUEST_BYTES_MAX = 16 << 10
_TOO_LONG, _TOO_LONG_TEXT = 431, "the headers are too long\n"
# Places for monitoring when all others are taken.
_RESERVE = 4
_MONITORING = frozenset({"/ping", "/health", "/buildinfo", "/metrics"})
_NO_CACHE = {"cache-control": "must-revalidate,no-cache,no-store"}
# The name of Debezium's only check; it stands for all of ours.
_DEBEZIUM_CHECK = "cassandra-cdc-health-check"


class Endpoints(ABC):
    """What a process answers about itself."""

    # Its name in /buildinfo.
    service: str

    @abstractmethod
    def checks(self) -> dict[str, dict[str, Any]]:
        """For /health: a check per part, each with `healthy` and, when it is not, a message.

        A part that is `degraded` has something wrong with it and works: the answer as a whole stays a good one.
        """

    @abstractmethod
    def metrics(self) -> bytes:
        """For /metrics: the figures in Prometheus's text format."""


class AgentEndpoints(Endpoints):
    """The agent's answers."""

    service = SERVICE_NAME

    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._status = status
        self._metrics = AgentMetrics(status)

    def checks(self) -> dict[str, dict[str, Any]]:
        return health_checks(self._status())

    def metrics(self) -> bytes:
        return self._metrics.text()


def application(endpoints: Endpoints, logs: LogBlocks | None = None, tallies: Sequence[Tally] = ()) -> Starlette:
    """The endpoints, without any access rule."""

    def ping(_: Request) -> Response:
        return PlainTextResponse("pong\n", headers=_NO_CACHE)

    def health(_: Request) -> Response:
        checks = {**endpoints.checks(), **_kernels()}
        healthy = all(check["healthy"] or check.get("degraded") for check in checks.values())
        return JSONResponse(checks, status_code=200 if healthy else 500, headers=_NO_CACHE)

    def buildinfo(_: Request) -> Response:
        facts = {"version": penstock.__version__, "service_name": endpoints.service}
        return JSONResponse(facts, headers=_NO_CACHE)

    def numbers(_: Request) -> Response:
        return Response(endpoints.metrics() + metrics_text(tallies), media_type=CONTENT_TYPE_LATEST, headers=_NO_CACHE)

    async def failed(_: Request, error: Exception) -> Response:
        log.error("http request failed", exc_info=error)
        return PlainTextResponse("internal error\n", status_code=500)

    routes = [
        Route("/ping", ping),
        Route("/health", health),
        Route("/buildinfo", buildinfo),
        Route("/metrics", numbers),
        *(logs.routes() if logs is not None else []),
    ]
    return Starlette(routes=routes, exception_handlers={Exception: failed})


def _kernels() -> dict[str, dict[str, Any]]:
    """A check that is there only when the kernels run as plain Python: it works, and slowly."""
    reason = kernels.complaint()
    if reason is None:
        return {}
    message = f"kernels are plain Python: {reason}. {kernels.REMEDY}"
    return {"kernels": {"healthy": False, "degraded": True, "message": message}}


def health_checks(status: AgentStatus) -> dict[str, dict[str, Any]]:
    """A check per part of the agent, and Debezium's one check over all of them."""
    snapshot = status.snapshot
    checks = {
        "agent": _check(status.healthy, status.failure or (None if status.running else "not running")),
        "log": _check(status.waiting is None, status.waiting),
        **{check.name: _check(check.healthy, check.message) for check in status.source_checks()},
    }
    if status.unreadable_checkpoints:
        # The agent does its work, and starting it again would not help: it is told, and nobody is alarmed by it.
        where = ", ".join(sorted(status.unreadable_checkpoints))
        checks["subscriptions"] = _check(True, f"checkpoints that cannot be read hold files of {where}")
    if status.lost_changes:
        where = ", ".join(sorted({name for name, _ in status.lost_changes}))
        checks["retention"] = _check(True, f"caps of retention took changes that were not read, of {where}")
    if snapshot is not None:
        checks["snapshot"] = _check(snapshot.failure is None, snapshot.failure)
    parts = {name: check["healthy"] for name, check in checks.items()}
    return {**checks, _DEBEZIUM_CHECK: _check(all(parts.values()), json.dumps(parts))}


def _check(healthy: bool, message: str | None) -> dict[str, Any]:
    return {"healthy": healthy} if message is None else {"healthy": healthy, "message": message}


class HttpServer:
    """The server, in a thread of its own from `start` to `close`."""

    def __init__(
        self,
        settings: HttpSettings,
        what: Endpoints | Callable[[], AgentStatus],
        logs: LogBlocks | None = None,
        tallies: Sequence[Tally] = (),
    ) -> None:
        """`what` is the status of an agent, or another process's answers. With `logs`, these can be read and subscribed
        to; the server closes them. `tallies` are those of other servers of the process, for /metrics."""
        self.tally = Tally("http")
        endpoints = what if isinstance(what, Endpoints) else AgentEndpoints(what)
        self._settings = settings
        self._tokens = http_tokens(settings)
        self._tls = tls_context(settings.host, settings.tls_certificate_file, settings.tls_key_file)
        self._logs = logs if settings.logs else None
        answers = application(endpoints, self._logs, (self.tally, *tallies))
        self._guarded = _Guard(answers, self._tokens, settings.logs_without_token)
        self._sockets: list[socket.socket] = []
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen. The port is taken when this returns, or it raises."""
        settings = self._settings
        self._sockets = bind(settings.host, settings.port, "the HTTP server cannot listen")
        config = uvicorn.Config(
            self._guarded,
            http=self._protocol(),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=_REQUEST_BYTES_MAX,
            timeout_graceful_shutdown=1,
            ssl_context_factory=self._context if self._tls is not None else None,
        )
        bounds = Bounds(settings.clients_max, settings.clients_per_address_max, _RESERVE)
        self._server = _Server(config, bounds, self.tally, settings.request_s)
        self._thread = threading.Thread(
            target=self._server.run, args=(self._sockets,), name="penstock-http", daemon=True
        )
        self._thread.start()
        facts = {"tls": self._tls is not None, "token": self._tokens is not None}
        log.info("http server started", address=self.address, **facts)

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{'https' if self._tls is not None else 'http'}://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The TCP port, also when the settings left the choice to the system."""
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening and wait for the thread. Closing twice is no error."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
        for listening in self._sockets:
            listening.close()
        if self._logs is not None:
            self._logs.close()
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _context(self, *_: object) -> Any:
        return self._tls

    def _protocol(self) -> type[H11Protocol]:
        """uvicorn's protocol with a deadline for each connection, which says when it has ended."""
        request_s = self._settings.request_s

        class Bounded(H11Protocol):
            deadline: asyncio.TimerHandle | None = None

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                self.deadline = self.loop.call_later(request_s, transport.abort)

            def connection_lost(self, exc: Exception | None) -> None:
                if self.deadline is not None:
                    self.deadline.cancel()
                super().connection_lost(exc)
                self.app_state["left"]()

            def send_400_response(self, msg: str) -> None:
                """h11 tells headers that are too long from what is no request; uvicorn answers both alike."""
                if getattr(sys.exception(), "error_status_hint", 400) != _TOO_LONG:
                    super().send_400_response(msg)
                    return
                headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close")]
                answer = h11.Response(status_code=_TOO_LONG, headers=headers)
                for event in (answer, h11.Data(data=_TOO_LONG_TEXT.encode()), h11.EndOfMessage()):
                    self.transport.write(self.conn.send(event) or b"")
                self.transport.close()

        return Bounded


class _Guard:
    """Lets a request through that may be made, reads and sends no body, and ends the connection after it.

    Whose token it was is looked at here, and whether it may monitor; which tables it may read is for those to look at
    who know the table, with the rights that are laid into the request's state. A connection whose place is one in
    reserve is told nothing but how the process is.
    """

    def __init__(self, app: ASGIApp, tokens: Tokens | None, logs_without_token: bool) -> None:
        self._app = app
        self._tokens = tokens
        self._without_token = EVERYTHING if logs_without_token else MONITORING

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        place: Place = scope["state"]["place"]
        place.settle()
        headers = dict(scope["headers"])
        rights = self._rights(headers)
        refusal = self._refusal(rights, headers, scope["path"])
        if refusal is None and place.reserve and scope["path"] not in _MONITORING:
            refusal = PlainTextResponse("too many clients\n", 503, {"retry-after": "1"})
        scope["state"]["rights"] = rights
        await (self._app if refusal is None else refusal)(scope, receive, closing)

    def _rights(self, headers: dict[bytes, bytes]) -> Rights | None:
        """What whoever sends this may do; None when there are tokens and it shows none of them."""
        if self._tokens is None:
            return self._without_token
        scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        return self._tokens.rights(given.strip() if scheme.lower() == "bearer" else "")

    def _refusal(self, rights: Rights | None, headers: dict[bytes, bytes], path: str) -> Response | None:
        if rights is None:
            return PlainTextResponse("access denied\n", 401, {"www-authenticate": "Bearer"})
        if self._tokens is None and path.startswith("/logs") and rights is not EVERYTHING:
            return PlainTextResponse("the agent serves its logs only with http.token_file or http.tokens\n", 403)
        if path in _MONITORING and not rights.allow(Right.MONITOR):
            return PlainTextResponse(f"this token lacks the right {Right.MONITOR}\n", 403)
        if sum(map(len, headers)) + sum(map(len, headers.values())) > _REQUEST_BYTES_MAX:
            return PlainTextResponse(_TOO_LONG_TEXT, _TOO_LONG)
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return PlainTextResponse("a request has no body here\n", 413)
        return None


class _Server(uvicorn.Server):
    """uvicorn's server behind a door of ours, which waits for its end instead of asking for it."""

    def __init__(self, config: uvicorn.Config, bounds: Bounds, tally: Tally, handshake_s: float) -> None:
        super().__init__(config)
        self._bounds = bounds
        self._tally = tally
        self._handshake_s = handshake_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._door: Door | None = None
        self._ended = asyncio.Event()
        self._begun = threading.Event()

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            asyncio.run(self.serve(sockets))
        finally:
            self._begun.set()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._begun.wait()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def protocol(place: Place) -> asyncio.Protocol:
            kind: Any = self.config.http_protocol_class
            state = {"place": place, "left": partial(door.left, place)}
            made: asyncio.Protocol = kind(config=self.config, server_state=self.server_state, app_state=state)
            return made

        self._loop = asyncio.get_running_loop()
        tls, handshake_s = self.config.ssl, self._handshake_s
        door = Door(sockets or [], protocol, self._bounds, self._tally, tls=tls, handshake_s=handshake_s)
        door.open()
        self._door = door
        self.servers = []
        self.started = True
        self._begun.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._door is not None:
            self._door.close()
            await self._door.wait_closed()
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        await self._ended.wait()
