"""The HTTP server: its answers, who gets them, and what a client may not do."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock.capture.cassandra.agent.status import CassandraStatus
from penstock.capture.cassandra.snapshot.status import SnapshotStatus
from penstock.errors import InvalidSetting, StorageError
from penstock.serve.http import HttpServer, health_checks
from penstock.settings import HttpSettings
from penstock.system import kernels

PATHS = ["/ping", "/health", "/buildinfo", "/metrics"]
TOKEN = "a token of some length"
RUNNING = CassandraStatus(node="node1", data_centre="dc1", started_time_us=1_700_000_000_000_000, running=True)


@contextmanager
def serving(status: CassandraStatus = RUNNING, **settings: Any) -> Iterator[HttpServer]:
    with HttpServer(HttpSettings(**{"port": 0, **settings}), lambda: status) as server:
        yield server


def get(server: HttpServer, path: str, **options: Any) -> httpx.Response:
    return httpx.get(server.address + path, timeout=30, **options)


def raw(server: HttpServer, data: bytes) -> bytes:
    """Send bytes and read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(data)
        return received(client)


def received(client: socket.socket) -> bytes:
    out = b""
    try:
        while data := client.recv(65536):
            out += data
    except ConnectionResetError:
        pass
    return out


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def test_ping_says_pong() -> None:
    with serving() as server:
        answer = get(server, "/ping")
    assert (answer.status_code, answer.text) == (200, "pong\n")
    assert answer.headers["content-type"].startswith("text/plain")


def test_build_information_is_not_cached() -> None:
    with serving() as server:
        answer = get(server, "/buildinfo")
    assert answer.json() == {"version": penstock.__version__, "service_name": "penstock-agent"}
    assert "no-cache" in answer.headers["cache-control"]


def test_health_is_200_while_everything_works() -> None:
    with serving(replace(RUNNING, queryable=True, snapshot=SnapshotStatus("initial", running=True))) as server:
        answer = get(server, "/health")
    assert answer.status_code == 200
    checks = answer.json()
    assert set(checks) == {"agent", "log", "cdc_raw", "cassandra", "snapshot", "cassandra-cdc-health-check"}
    assert all(check["healthy"] for check in checks.values())


@pytest.mark.parametrize(
    ("change", "part", "said"),
    [
        ({"running": False}, "agent", "not running"),
        ({"running": False, "failure": "a log failed"}, "agent", "a log failed"),
        ({"waiting": "room on the disk"}, "log", "room on the disk"),
        ({"cdc_raw_bytes": 10, "cdc_raw_bytes_max": 10}, "cdc_raw", "the node refuses writes"),
        ({"queryable": False}, "cassandra", "does not answer"),
        ({"snapshot": SnapshotStatus("initial", failure="no replica")}, "snapshot", "no replica"),
    ],
)
def test_health_is_500_and_names_the_part_that_does_not_work(change: dict[str, Any], part: str, said: str) -> None:
    status = replace(RUNNING, **change)
    with serving(status) as server:
        answer = get(server, "/health")
    assert answer.status_code == 500
    checks = answer.json()
    assert checks == health_checks(status)
    assert [name for name, check in checks.items() if not check["healthy"]] == [part, "cassandra-cdc-health-check"]
    assert said in checks[part]["message"]
    assert json.loads(checks["cassandra-cdc-health-check"]["message"])[part] is False


def test_health_names_plain_kernels_and_stays_200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "all_compiled", lambda: False)
    with serving() as server:
        answer = get(server, "/health")
    assert answer.status_code == 200
    check = answer.json()["kernels"]
    assert (check["healthy"], check["degraded"]) == (False, True)
    assert "apt-get install gcc" in check["message"]


def test_metrics_are_prometheus_text() -> None:
    with serving(replace(RUNNING, table_changes={'shop."odd\nname"': 3})) as server:
        answer = get(server, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["penstock_agent_running"].samples[0].value == 1
    assert families["penstock_appended_changes"].samples[0].labels == {"table": 'shop."odd\nname"'}


def test_each_question_is_answered_with_the_status_of_that_moment() -> None:
    statuses = iter([RUNNING, replace(RUNNING, mutations=7)])
    with HttpServer(HttpSettings(port=0), lambda: next(statuses)) as server:
        assert "penstock_commit_log_mutations_total 0.0" in get(server, "/metrics").text
        assert "penstock_commit_log_mutations_total 7.0" in get(server, "/metrics").text


def test_a_mistake_of_ours_is_500_and_the_server_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> CassandraStatus:
        raise RuntimeError("canary")

    with HttpServer(HttpSettings(port=0), broken) as server:
        answer = get(server, "/metrics")
        assert (answer.status_code, answer.text) == (500, "internal error\n")
        assert get(server, "/ping").status_code == 200
    assert "http request failed" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_nothing_but_reading_is_allowed(method: str) -> None:
    with serving() as server:
        for path in PATHS:
            answer = httpx.request(method, server.address + path, timeout=30)
            assert answer.status_code in (405, 413)
        assert httpx.head(f"{server.address}/ping", timeout=30).status_code == 200
        assert get(server, "/").status_code == 404
        assert get(server, "/metrics/../../etc/passwd").status_code == 404


def test_every_connection_is_closed_after_its_answer() -> None:
    with serving() as server:
        answer = raw(server, b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\nGET /ping HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer.lower().count(b"connection: close") == 1
    assert answer.count(b"pong") == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01 not http\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /ping HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello", b"413"),
        (b"GET /ping HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", b"413"),
        (b"GET /ping HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * (32 << 10) + b"\r\n\r\n", b"431"),
        (b"GET /ping HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", b"200"),
    ],
)
def test_odd_requests_are_answered_and_end(request_bytes: bytes, status: bytes) -> None:
    with serving() as server:
        answer = raw(server, request_bytes)
        assert answer.split(b" ", 2)[1] == status
        assert get(server, "/ping").status_code == 200


def test_headers_that_are_too_long_are_refused_before_they_have_come() -> None:
    with serving() as server:
        answer = raw(server, b"GET /ping HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * (20 << 10))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.endswith(b"the headers are too long\n")


@pytest.mark.parametrize("sent", [b"", b"GET /ping HT", b"GET /ping HTTP/1.1\r\nhost: x\r\n"])
def test_a_client_that_does_not_finish_its_request_is_cut_off(sent: bytes) -> None:
    with serving(request_s=0.2) as server:
        assert raw(server, sent) == b""


PING = b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n"


def test_silent_clients_keep_nobody_out(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(clients_max=2, request_s=60) as server, ExitStack() as opened:
        address = ("127.0.0.1", server.port)
        idle = [opened.enter_context(socket.create_connection(address, timeout=60)) for _ in range(12)]
        for _ in range(3):
            assert b"pong" in raw(server, PING)
        # Those that were silent for longest gave up their places.
        assert received(idle[0]) == b""
        told = get(server, "/metrics").text
        text = 'penstock_turned_away_clients_total{reason="silent when places ran out",server="http"}'
        assert float(next(line for line in told.splitlines() if line.startswith(text)).split()[-1]) >= 10
    said = [line for line in capsys.readouterr().out.splitlines() if "clients turned away" in line]
    assert 1 <= len(said) <= 2


def test_monitoring_has_places_of_its_own_when_all_others_are_busy() -> None:
    asked, go_on = threading.Semaphore(0), threading.Event()

    def slow() -> CassandraStatus:
        asked.release()
        go_on.wait(60)
        return RUNNING

    health = PING.replace(b"/ping", b"/health")
    with HttpServer(HttpSettings(port=0, clients_max=2, request_s=60), slow) as server, ExitStack() as opened:
        busy = [
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60)) for _ in range(2)
        ]
        for client in busy:
            client.sendall(health)
            assert asked.acquire(timeout=60)
        assert b"pong" in raw(server, PING)
        assert b"503" in raw(server, PING.replace(b"/ping", b"/other")).splitlines()[0]
        go_on.set()
        for client in busy:
            assert b"200" in received(client).splitlines()[0]


def test_with_a_token_every_path_needs_it(token_file: Path) -> None:
    with serving(token_file=token_file) as server:
        for path in [*PATHS, "/none"]:
            for header in [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}]:
                answer = get(server, path, headers=header)
                assert (answer.status_code, answer.text) == (401, "access denied\n")
        assert get(server, "/ping", headers={"authorization": f"bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"host": "0.0.0.0"}, "needs http.token_file"),
        ({"host": "0.0.0.0", "token_file": "token"}, "needs TLS"),
        ({"host": "node1.example", "token_file": "token"}, "needs TLS"),
        ({"token_file": "none"}, "cannot read the token"),
        ({"token_file": "short"}, "a token has 16 to 4096 bytes"),
        ({"tls_certificate_file": "token", "tls_key_file": "token"}, "cannot use the certificate"),
    ],
)
def test_unsafe_or_broken_access_is_refused(
    tmp_path: Path, token_file: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("short")
    with pytest.raises(InvalidSetting, match=said):
        HttpServer(HttpSettings(**settings), lambda: RUNNING)


def test_tls_is_spoken_and_plain_text_is_not(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(command, check=True, capture_output=True)
    trust = ssl.create_default_context(cafile=str(certificate))
    with serving(tls_certificate_file=certificate, tls_key_file=key, request_s=0.5) as server:
        assert server.address.startswith("https://")
        assert get(server, "/ping", verify=trust).text == "pong\n"
        assert b"pong" not in raw(server, b"GET /ping HTTP/1.1\r\nhost: x\r\n\r\n")
        # One that does not even begin the handshake is cut off too.
        assert raw(server, b"") == b""


def test_a_port_in_use_is_said_at_the_start() -> None:
    with (
        serving() as first,
        pytest.raises(StorageError, match=r"cannot listen: Address already in use .*port \d+"),
    ):
        HttpServer(HttpSettings(port=first.port), lambda: RUNNING).start()


def test_a_closed_server_gives_its_port_back() -> None:
    with serving() as server:
        port = server.port
    server.close()
    with serving(port=port) as again:
        assert get(again, "/ping").status_code == 200
