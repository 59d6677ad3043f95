"""The client of a schema registry, against a small server that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.deliver.kafka.registry import Registry
from penstock.errors import DeliveryFailed, SchemaRefused, TargetRefused
from penstock.settings.kafka import Compatibility, KafkaSettings


class Answers(ThreadingHTTPServer):
    """Gives the next of the answers that it was given, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.given: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, Any, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, Answers)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        server.asked.append((self.command, self.path, body, self.headers.get("Authorization")))
        status, answer = server.given.pop(0)
        content = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Answers]:
    with Answers() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def registry(server: Answers, **more: Any) -> Registry:
    url = f"http://127.0.0.1:{server.server_port}/base/"
    return Registry(KafkaSettings.model_validate({"registry_url": url, **more}))


def test_a_schema_is_registered_under_its_subject(server: Answers, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("pw\n")
    server.given = [(200, {"id": 7})]
    client = registry(server, registry_username="anne", registry_password_file=secret)
    assert client.register("lab.ks.a b-value", "{}", "PROTOBUF") == 7
    body = {"schema": "{}", "schemaType": "PROTOBUF"}
    assert server.asked == [("POST", "/base/subjects/lab.ks.a%20b-value/versions", body, "Basic YW5uZTpwdw==")]


def test_the_newest_version_is_found_or_there_is_none(server: Answers) -> None:
    server.given = [(404, {"error_code": 40401}), (200, {"id": 3, "version": 2, "schema": "x"})]
    client = registry(server)
    assert client.latest("s") is None
    found = client.latest("s")
    assert found is not None
    assert (found.number, found.version, found.text) == (3, 2, "x")


@pytest.mark.parametrize(("status", "why"), [(409, "does not fit"), (422, "cannot use it")])
def test_a_refused_schema_names_subject_and_version(server: Answers, status: int, why: str) -> None:
    server.given = [(status, {"message": "no"}), (200, {"id": 3, "version": 2, "schema": "x"})]
    with pytest.raises(SchemaRefused, match=why) as refusal:
        registry(server).register("s-value", "{}", "AVRO")
    assert refusal.value.place == {"subject": "s-value", "version": 2}


def test_a_registry_that_is_busy_may_be_asked_again_and_one_that_says_no_may_not(server: Answers) -> None:
    server.given = [(503, b"<html>"), (401, {"message": "who are you"})]
    with pytest.raises(DeliveryFailed, match="cannot answer now"):
        registry(server).check()
    with pytest.raises(TargetRefused, match="who are you"):
        registry(server).check()


def test_a_registry_that_is_away_is_a_reason_to_try_again(server: Answers) -> None:
    client = Registry(KafkaSettings.model_validate({"registry_url": "http://127.0.0.1:9", "registry_timeout_s": 5}))
    with pytest.raises(DeliveryFailed, match="does not answer"):
        client.check()


def test_compatibility_is_set_for_one_subject(server: Answers) -> None:
    server.given = [(200, {})]
    registry(server).demand("s-key", Compatibility.FULL)
    assert server.asked[0][:3] == ("PUT", "/base/config/s-key", {"compatibility": "FULL"})
