"""HTTP endpoints of an agent: /ping, /health, /buildinfo and /metrics for monitoring, /logs for readers elsewhere.

The first four are the paths that Debezium's Cassandra connector has. All are served from a thread of the agent's
process. On the loopback anyone may ask how the agent is; any other address needs TLS and a token, and the logs need the
token everywhere, unless the operator says otherwise. Each connection carries one request and has a deadline, and the
number of connections is bounded, so that no client can hold the agent up. docs/reference/http.md describes the answers.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
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
from penstock.capture.cassandra.agent.status import AgentStatus
from penstock.errors import InvalidSetting, StorageError
from penstock.serve.access import Token, is_loopback, tls_context
from penstock.serve.log_blocks import LogBlocks
from penstock.serve.metrics import AgentMetrics
from penstock.settings import HttpSettings

log = structlog.get_logger()

SERVICE_NAME = "penstock-agent"
# The line of a request and its headers.
_REQUEST_BYTES_MAX = 16 << 10
_TOO_LONG, _TOO_LONG_TEXT = 431, "the headers are too long\n"
_BACKLOG = 64
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


def application(endpoints: Endpoints, logs: LogBlocks | None = None) -> Starlette:
    """The endpoints, without any access rule."""

    def ping(_: Request) -> Response:
        return PlainTextResponse("pong\n", headers=_NO_CACHE)

    def health(_: Request) -> Response:
        checks = endpoints.checks()
        healthy = all(check["healthy"] or check.get("degraded") for check in checks.values())
        return JSONResponse(checks, status_code=200 if healthy else 500, headers=_NO_CACHE)

    def buildinfo(_: Request) -> Response:
        facts = {"version": penstock.__version__, "service_name": endpoints.service}
        return JSONResponse(facts, headers=_NO_CACHE)

    def numbers(_: Request) -> Response:
        return Response(endpoints.metrics(), media_type=CONTENT_TYPE_LATEST, headers=_NO_CACHE)

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


def health_checks(status: AgentStatus) -> dict[str, dict[str, Any]]:
    """A check per part of the agent, and Debezium's one check over all of them."""
    limit = status.cdc_raw_bytes_max
    full = limit is not None and status.cdc_raw_bytes >= limit
    snapshot = status.snapshot
    checks = {
        "agent": _check(status.healthy, status.failure or (None if status.running else "not running")),
        "log": _check(status.waiting is None, status.waiting),
        "cdc_raw": _check(not full, "cdc_raw is full: the node refuses writes to its CDC tables" if full else None),
        "cassandra": _check(
            status.queryable is not False, "the node does not answer over CQL" if status.queryable is False else None
        ),
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
        self, settings: HttpSettings, what: Endpoints | Callable[[], AgentStatus], logs: LogBlocks | None = None
    ) -> None:
        """`what` is the status of an agent, or another process's answers. With `logs`, these can be read and subscribed
        to; the server closes them."""
        endpoints = what if isinstance(what, Endpoints) else AgentEndpoints(what)
        self._settings = settings
        self._token = None if settings.token_file is None else Token.read(settings.token_file)
        if self._token is None and not is_loopback(settings.host):
            raise InvalidSetting("listening beyond the loopback needs http.token_file", host=settings.host)
        self._tls = tls_context(settings.host, settings.tls_certificate_file, settings.tls_key_file)
        self._logs = logs if settings.logs else None
        self._guarded = _Guard(application(endpoints, self._logs), self._token, settings.logs_without_token)
        self._socket: socket.socket | None = None
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen. The port is taken when this returns, or it raises."""
        self._socket = _listening(self._settings.host, self._settings.port)
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
        self._server = _Server(config, self._settings.request_s)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="penstock-http", daemon=True
        )
        self._thread.start()
        log.info("http server started", address=self.address, tls=self._tls is not None, token=self._token is not None)

    @property
    def address(self) -> str:
        """Where it listens, as a URL."""
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        return f"{'https' if self._tls is not None else 'http'}://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The TCP port, also when the settings left the choice to the system."""
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Stop listening and wait for the thread. Closing twice is no error."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
        if self._socket is not None:
            self._socket.close()
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
        """uvicorn's protocol with a deadline for each connection, and a bound to their number."""
        settings = self._settings

        class Bounded(H11Protocol):
            deadline: asyncio.TimerHandle | None = None

            def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
                super().connection_made(transport)
                if len(self.connections) > settings.clients_max:
                    transport.abort()
                    return
                self.deadline = self.loop.call_later(settings.request_s, transport.abort)

            def connection_lost(self, exc: Exception | None) -> None:
                if self.deadline is not None:
                    self.deadline.cancel()
                super().connection_lost(exc)

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
    """Lets a request through that shows the token, reads and sends no body, and ends the connection after it."""

    def __init__(self, app: ASGIApp, token: Token | None, logs_without_token: bool) -> None:
        self._app = app
        self._token = token
        self._logs_without_token = logs_without_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def closing(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        refusal = self._refusal(dict(scope["headers"]), scope["path"])
        await (self._app if refusal is None else refusal)(scope, receive, closing)

    def _refusal(self, headers: dict[bytes, bytes], path: str) -> Response | None:
        if self._token is not None:
            scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            if not self._token.matches(given.strip() if scheme.lower() == "bearer" else ""):
                return PlainTextResponse("access denied\n", 401, {"www-authenticate": "Bearer"})
        elif path.startswith("/logs") and not self._logs_without_token:
            return PlainTextResponse("the agent serves its logs only with http.token_file\n", 403)
        if sum(map(len, headers)) + sum(map(len, headers.values())) > _REQUEST_BYTES_MAX:
            return PlainTextResponse(_TOO_LONG_TEXT, _TOO_LONG)
        if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
            return PlainTextResponse("a request has no body here\n", 413)
        return None


class _Server(uvicorn.Server):
    """uvicorn's server, which waits for its end instead of asking for it, and limits the time of a TLS handshake."""

    def __init__(self, config: uvicorn.Config, handshake_s: float) -> None:
        super().__init__(config)
        self._handshake_s = handshake_s
        self._loop: asyncio.AbstractEventLoop | None = None
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
        def protocol() -> asyncio.Protocol:
            kind: Any = self.config.http_protocol_class
            made: asyncio.Protocol = kind(config=self.config, server_state=self.server_state, app_state={})
            return made

        self._loop = asyncio.get_running_loop()
        tls = self.config.ssl
        timeout = None if tls is None else self._handshake_s
        self.servers = [
            await self._loop.create_server(protocol, sock=listening, ssl=tls, ssl_handshake_timeout=timeout)
            for listening in sockets or []
        ]
        self.started = True
        self._begun.set()

    async def main_loop(self) -> None:
        await self._ended.wait()


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is bound, so that a port in use is found out before anything else begins."""
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        # A port whose last user has just gone may be taken at once; one that is in use may not.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        if listening is not None:
            listening.close()
        reason = error.strerror or "no such address"
        raise StorageError(f"the HTTP server cannot listen: {reason}", host=host, port=port) from error
    return listening
