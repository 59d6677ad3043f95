"""Change logs over HTTP, as any client sees them: what is served, to whom, and under which names."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.capture.status import AgentStatus
from penstock.formats import container
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.log.upkeep import Upkeep
from penstock.serve.http import HttpServer
from penstock.serve.log_blocks import LogBlocks
from penstock.settings import HttpSettings, RetentionSettings
from tests.many_logs import SMALL_FILES, batch, schema_of, write
from tests.numbered import fill

TOKEN = "a token of some length"
HEADERS = {"authorization": f"Bearer {TOKEN}"}
STATUS = AgentStatus(node="n1", data_centre="dc1", started_time_us=0, running=True)


@contextmanager
def serving(root: Path, **settings: Any) -> Iterator[HttpServer]:
    blocks = LogBlocks(str(root), RetentionSettings(keep_s=0))
    with HttpServer(HttpSettings(**{"port": 0, **settings}), lambda: STATUS, blocks) as server:
        yield server


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def get(server: HttpServer, path: str, **options: Any) -> httpx.Response:
    return httpx.get(server.address + path, timeout=30, **options)


def test_logs_are_listed_with_how_far_each_is_durable(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 4, each=5, node="n1")
    write(root, "other", 0, 1)
    with serving(root, token_file=token_file) as server, LogReader(directory) as reader:
        found = {one["table"]: one for one in get(server, "/logs", headers=HEADERS).json()["logs"]}
        mark = reader.watermark()
        assert found["orders"] == {
            "id": reader.log_id,
            "keyspace": "shop",
            "table": "orders",
            "name": "",
            "parked": False,
            "node": "n1",
            "data_centre": "",
            "end": str(mark.last),
            "file": 1,
            "bytes": mark.end,
            "rows": 20,
            "epoch": mark.epoch,
        }
        assert set(found) == {"orders", "other"}


def test_a_log_that_is_made_while_the_server_runs_is_served(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    write(root, "orders", 0, 1)
    with serving(root, token_file=token_file) as server:
        assert len(get(server, "/logs", headers=HEADERS).json()["logs"]) == 1
        write(root, "late", 0, 1)
        assert len(get(server, "/logs", headers=HEADERS).json()["logs"]) == 2


def test_only_what_is_durable_is_served(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    schema = schema_of("orders")
    with TableLog.open(str(root / "shop.orders"), schema) as log:
        log.append(batch(schema, 0))
        with LogReader(str(root / "shop.orders")) as reader:
            path, mark = reader.path(1), reader.watermark()
        with open(path, "r+b") as file:
            file.seek(mark.end)
            file.write(b"half a block")
        with serving(root, token_file=token_file) as server:
            log_id = get(server, "/logs", headers=HEADERS).json()["logs"][0]["id"]
            answer = get(server, f"/logs/{log_id}/data/1", headers=HEADERS)
            assert answer.status_code == 206
            assert len(answer.content) == mark.end
            assert answer.headers["content-range"] == f"bytes 0-{mark.end - 1}/{mark.end}"
            beyond = {**HEADERS, "range": f"bytes={mark.end}-{mark.end + 9}"}
            assert get(server, f"/logs/{log_id}/data/1", headers=beyond).status_code == 416
            some = {**HEADERS, "range": "bytes=4-7"}
            assert get(server, f"/logs/{log_id}/data/1", headers=some).content == answer.content[4:8]


def test_a_log_is_described_with_its_ends_and_versions(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200, node="n1")
    with serving(root, token_file=token_file) as server, LogReader(directory) as reader:
        facts = get(server, f"/logs/{reader.log_id}", headers=HEADERS).json()
        assert (facts["first"], facts["end"], facts["rows"]) == (str(reader.first()), str(reader.end()), 200)
        assert [(one["number"], one["schema_version"]) for one in facts["files"]] == [(n, 1) for n in reader.numbers()]


def test_a_link_in_a_log_is_not_followed(tmp_path: Path, token_file: Path) -> None:
    root, secret = tmp_path / "logs", tmp_path / "secret"
    secret.write_text("what only its owner may read")
    with LogReader(write(root, "orders", 0, 1)) as reader:
        log_id, index = reader.log_id, Path(reader.path(1, "idx"))
    index.unlink()
    index.symlink_to(secret)
    with serving(root, token_file=token_file) as server:
        answer = get(server, f"/logs/{log_id}/index/1", headers=HEADERS)
    assert answer.status_code == 409
    assert "symbolic link" in answer.text
    assert "its owner" not in answer.text


def test_a_hostile_header_hides_no_other_log(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    write(root, "good", 0, 1)
    with LogReader(write(root, "bad", 0, 1)) as reader:
        path, table = Path(reader.path(1)), reader.heading(1)
    entries = {"penstock.format": b"1", "penstock.state": b"[" * 100_000}
    path.write_bytes(container.header("{}", entries, table.codec, table.sync))
    with serving(root, token_file=token_file) as server:
        answer = get(server, "/logs", headers=HEADERS)
    assert [one["table"] for one in answer.json()["logs"]] == ["good"]


HOSTILE = [
    "/logs/..",
    "/logs/../../etc/passwd",
    "/logs/%2e%2e%2f%2e%2e%2fetc%2fpasswd/identity",
    "/logs/shop.orders/identity",
    "/logs/{id}/data/0",
    "/logs/{id}/data/2",
    "/logs/{id}/data/-1",
    "/logs/{id}/data/1%2f..%2f..%2fsecret",
    "/logs/{id}/checkpoint/1",
    "/logs/{id}/writer.lock",
    "/logs/{id}/data/999999999999999999999",
    "/logs/{id}/data/" + "9" * 5000,
    "/logs/{id}/data/1.0",
    "/logs/%00/identity",
    "/logs//identity",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_names_from_clients_never_become_paths(tmp_path: Path, token_file: Path, path: str) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 1)
    (tmp_path / "secret").write_text("canary")
    with serving(root, token_file=token_file) as server, LogReader(directory) as reader:
        asked = path.replace("{id}", reader.log_id)
        request = f"GET {asked} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(request.encode())
            answer = b""
            while data := client.recv(65536):
                answer += data
    assert answer.split(b" ", 2)[1] in (b"404", b"400"), answer[:200]
    assert b"canary" not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize("asked", ["bytes=-5", "bytes=5-", "bytes=a-b", "items=0-1", "bytes=0-1,3-4", "bytes=9-2"])
def test_a_strange_range_is_refused(tmp_path: Path, token_file: Path, asked: str) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 1)
    headers = {**HEADERS, "range": asked}
    with serving(root, token_file=token_file) as server, LogReader(directory) as reader:
        assert get(server, f"/logs/{reader.log_id}/data/1", headers=headers).status_code in (400, 416)


def test_subscriptions_are_listed_moved_and_dropped(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 4, each=5, node="n1")
    with LogReader(directory) as reader:
        log_id, end = reader.log_id, reader.end()
    with serving(root, token_file=token_file) as server:

        def ask(method: str, path: str) -> httpx.Response:
            return httpx.request(method, f"{server.address}/logs/{log_id}{path}", headers=HEADERS, timeout=30)

        assert ask("POST", f"/subscription?name=a&position={end}").status_code == 200
        (found,) = ask("GET", "/subscriptions").json()["subscriptions"]
        assert (found["name"], found["behind"], found["behind_bytes"], found["delivered"]) == ("a", 0, 0, 20)
        assert ask("POST", "/subscription/rewind?name=a&to=begin&dry_run=true").json()["again"] == 20
        assert ask("POST", "/subscription/rewind?name=a&to=begin").json()["position"] == "000000:0:0"
        assert ask("GET", "/subscriptions").json()["subscriptions"][0]["behind"] == 20
        assert ask("POST", "/subscription/rewind?name=a&to=end").status_code == 400
        assert ask("POST", "/subscription/reset?name=a&to=end").json()["skipped"] == 20
        assert ask("POST", "/subscription/reset?name=a&to=000099:1:0").status_code == 409
        assert ask("POST", "/subscription/reset?name=nobody&to=end").status_code == 400
        assert ask("DELETE", "/subscription?name=a").json() == {"name": "a", "dropped": True}
        assert ask("GET", "/subscriptions").json() == {"subscriptions": []}
        assert httpx.get(f"{server.address}/logs/{log_id}/subscriptions", timeout=30).status_code == 401


def test_retention_is_run_when_somebody_asks(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    fill(str(root / "shop.orders"), 12)
    upkeep = Upkeep(str(root), RetentionSettings(bytes_max=0))
    with HttpServer(
        HttpSettings(port=0, token_file=token_file), lambda: STATUS, LogBlocks(str(root), upkeep=upkeep)
    ) as server:
        url = f"{server.address}/logs/retain"
        for query in ("?dry_run=true", ""):
            (found,) = httpx.post(url + query, headers=HEADERS, timeout=30).json()["logs"]
            assert (found["directory"], len(found["removed"]), found["unread"]) == ("shop.orders", 3, 9)
        (found,) = httpx.post(url, headers=HEADERS, timeout=30).json()["logs"]
        assert found["removed"] == []
