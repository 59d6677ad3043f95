"""Rights: what each of several tokens opens, at the HTTP server and at the listener, and what it does not."""

from __future__ import annotations

import hmac
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route
from structlog.testing import capture_logs

from penstock.capture.status import AgentStatus
from penstock.cli.config import plain
from penstock.errors import AccessDenied, InvalidSetting, PenstockError
from penstock.log.reader import LogReader
from penstock.log.upkeep import Upkeep
from penstock.model.schema import TableId
from penstock.pipeline.source.remote import Access, Agent
from penstock.serve.access import EVERYTHING, Right, Rights, Tokens
from penstock.serve.client import Client
from penstock.serve.http import HttpServer
from penstock.serve.listener import Listener
from penstock.serve.log_blocks import LogBlocks
from penstock.serve.protocol import Hello
from penstock.settings import HttpSettings, ListenerSettings, RetentionSettings, build
from tests.listening import listening
from tests.many_logs import write

STATUS = AgentStatus(node="n1", data_centre="dc1", started_time_us=0, running=True)
# The right that each token has, and the tables it has it for.
GRANTS: dict[str, dict[str, Any]] = {
    "monitor": {"monitor": True},
    "read": {"read": ["shop.orders"]},
    "subscribe": {"subscribe": ["shop.ord*"]},
    "snapshot": {"snapshot": ["shop.orders", "*.others"]},
    "retain": {"retain": True},
}
ALL = "the-token-that-opens-everything"


def token(name: str) -> str:
    return f"a-token-with-the-right-{name}"


def bearer(shown: str) -> dict[str, str]:
    return {"authorization": f"Bearer {shown}"}


def granted(*names: str) -> dict[str, Any]:
    return {name: {"token": token(name), **GRANTS[name]} for name in names or GRANTS}


@contextmanager
def serving(root: Path, **settings: Any) -> Iterator[tuple[HttpServer, list[TableId]]]:
    """A server of the logs below `root`, and the tables that it was asked to copy."""
    copied: list[TableId] = []
    blocks = LogBlocks(str(root), RetentionSettings(keep_s=0), copied.append, Upkeep(str(root), RetentionSettings()))
    with HttpServer(HttpSettings(**{"port": 0, **settings}), lambda: STATUS, blocks) as server:
        yield server, copied


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "logs"
    write(root, "orders", 0, 2)
    write(root, "people", 0, 2)
    return root


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(ALL)
    file.chmod(0o600)
    return file


def log_id(root: Path, table: str) -> str:
    with LogReader(str(root / f"shop.{table}")) as reader:
        return reader.log_id


REQUESTS = [
    ("monitor", "GET", "/ping"),
    ("monitor", "GET", "/health"),
    ("monitor", "GET", "/buildinfo"),
    ("monitor", "GET", "/metrics"),
    ("read", "GET", "/logs"),
    ("read", "GET", "/logs/{}"),
    ("read", "GET", "/logs/{}/identity"),
    ("read", "GET", "/logs/{}/watermark"),
    ("read", "GET", "/logs/{}/data/1"),
    ("read", "GET", "/logs/{}/index/1"),
    ("subscribe", "POST", "/logs/{}/subscription?name=a"),
    ("subscribe", "POST", "/logs/{}/subscription/rewind?name=a&to=begin"),
    ("subscribe", "POST", "/logs/{}/subscription/reset?name=a&to=begin"),
    ("subscribe", "GET", "/logs/{}/subscriptions"),
    ("subscribe", "DELETE", "/logs/{}/subscription?name=a"),
    ("snapshot", "POST", "/logs/{}/snapshot"),
    ("retain", "POST", "/logs/retain?dry_run=true"),
]


def test_each_request_needs_its_right_and_a_refusal_names_it(root: Path, token_file: Path) -> None:
    orders, people = log_id(root, "orders"), log_id(root, "people")
    with capture_logs() as lines, serving(root, token_file=token_file, tokens=granted()) as (server, copied):

        def ask(shown: str, method: str, path: str) -> httpx.Response:
            return httpx.request(method, server.address + path, headers=bearer(shown), timeout=30)

        for right, method, path in REQUESTS:
            for name in GRANTS:
                answer = ask(token(name), method, path.format(orders))
                if name == right:
                    assert answer.status_code in (200, 206), (name, path, answer.text)
                else:
                    assert answer.status_code == 403, (name, path, answer.text)
                    assert f"lacks the right {right}" in answer.text
                    assert token(name) not in answer.text
            if "{}" in path:
                # The right is for one table, and the other one has a log too.
                answer = ask(token(right), method, path.format(people))
                assert answer.status_code == 403, (right, path, answer.text)
                assert f"lacks the right {right} (table shop.people)" in answer.text
            assert ask("no-token-of-anybody-here", method, path.format(orders)).status_code == 401
            assert ask(ALL, method, path.format(orders)).status_code in (200, 206, 400)
        assert {str(table) for table in copied} == {"shop.orders"}
        # Every path that there is was asked for with the wrong right.
        routes = [route for route in LogBlocks(str(root)).routes() if isinstance(route, Route)]
        there = {(next(iter((route.methods or set()) - {"HEAD"})), route.path) for route in routes}
        asked = {(method, path.split("?")[0].format("{id}")) for _, method, path in REQUESTS}
        assert len(there) > 10
        assert {(method, path.replace("{kind}/{number}", "data/1")) for method, path in there} <= asked
    assert not [line for line in lines if any(token(name) in str(line) for name in GRANTS) or ALL in str(line)]


def test_a_list_has_only_what_the_token_may_read(root: Path, token_file: Path) -> None:
    tokens = {"both": {"token": token("both"), "read": ["shop.*"]}, **granted("read")}
    with serving(root, token_file=token_file, tokens=tokens) as (server, _):

        def tables(shown: str) -> list[str]:
            found = httpx.get(f"{server.address}/logs", headers=bearer(shown), timeout=30).json()["logs"]
            return sorted(one["table"] for one in found)

        assert tables(token("read")) == ["orders"]
        assert tables(token("both")) == tables(ALL) == ["orders", "people"]


def test_a_reader_elsewhere_sees_its_tables_and_is_told_which_right_it_lacks(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "reader"
    file.write_text(token("read"))
    file.chmod(0o600)
    with serving(root, tokens=granted("read")) as (server, _):
        agent = Agent(server.address, Access(token_file=str(file)))
        (served,) = agent.logs()
        assert str(served.table) == "shop.orders"
        with LogReader(served.log_id, files=agent) as reader:
            assert sum(len(batch.rows) > 0 for batch in reader.read()) > 0
        with pytest.raises(AccessDenied, match="lacks the right subscribe"):
            agent.subscribe(served.log_id, "a", "earliest")
        with pytest.raises(AccessDenied, match="lacks the right snapshot"):
            agent.ask_snapshot(served.log_id)


def test_tokens_alone_close_the_loopback_too(root: Path) -> None:
    with serving(root, tokens=granted("monitor"), logs_without_token=True) as (server, _):
        assert httpx.get(f"{server.address}/ping", timeout=30).status_code == 401
        assert httpx.get(f"{server.address}/logs", timeout=30).status_code == 401
        assert httpx.get(f"{server.address}/ping", headers=bearer(token("monitor")), timeout=30).status_code == 200


def test_the_listener_pushes_only_tables_that_the_token_names(root: Path, token_file: Path) -> None:
    tokens = {
        "reader": {"token": token("reader"), "read": ["shop.orders"]},
        "daemon": {"token": token("daemon"), "read": ["shop.*"], "subscribe": ["shop.orders"]},
    }
    orders, people, nothing = (TableId("shop", name) for name in ("orders", "people", "nothing"))

    def refusal(listener: Listener, *hello: Any, **more: Any) -> str:
        with pytest.raises(PenstockError) as raised, Client(listener.address, Hello(*hello, **more)) as client:
            client.receive(30)
        assert isinstance(raised.value, AccessDenied), raised.value
        return str(raised.value)

    def heard(listener: Listener, *hello: Any, **more: Any) -> int:
        with Client(listener.address, Hello(*hello, **more)) as client:
            return next(iter(client.changes(30))).count

    with capture_logs() as lines, listening(root, port=0, token_file=token_file, tokens=tokens) as (listener, _):
        assert heard(listener, orders, token=token("reader")) > 0
        assert heard(listener, orders, subscription="a", token=token("daemon")) > 0
        assert heard(listener, people, token=token("daemon")) > 0
        assert heard(listener, people, subscription="a", token=ALL) > 0
        assert "right subscribe" in refusal(listener, orders, subscription="b", token=token("reader"))
        assert "right subscribe" in refusal(listener, people, subscription="b", token=token("daemon"))
        # Whether there is a log that it may not read is nothing that a token's holder learns.
        said = refusal(listener, people, token=token("reader"))
        assert "right read" in said
        assert refusal(listener, nothing, token=token("reader")) == said.replace("people", "nothing")
        assert "denied" in refusal(listener, orders, token=token("nobody"))
    assert not [line for line in lines if "a-token-with" in str(line) or ALL in str(line)]


@pytest.mark.parametrize(
    ("pattern", "keyspace", "table", "allowed"),
    [
        ("shop.orders", "shop", "orders", True),
        ("shop.orders", "shop", "orders2", False),
        ("shop.orders", "shop", "Orders", False),
        ("shop.*", "shop", "anything", True),
        ("shop.*", "shop.secret", "t", False),
        ("*.orders", "a", "b.orders", False),
        ("sh?p.o*", "shop", "orders", True),
        ("*.*", "a.b", "c.d", True),
    ],
)
def test_a_pattern_fits_keyspace_and_table_each(pattern: str, keyspace: str, table: str, allowed: bool) -> None:
    rights = Rights({Right.READ: [pattern]})
    assert rights.allow(Right.READ, TableId(keyspace, table)) is allowed
    assert not rights.allow(Right.SUBSCRIBE, TableId(keyspace, table))


def test_what_is_shown_is_compared_with_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    tokens = Tokens((name, token(name).encode(), EVERYTHING) for name in GRANTS)
    monkeypatch.setattr(hmac, "compare_digest", counting)
    for shown in (*map(token, GRANTS), "", "x" * 10_000):
        compared.clear()
        tokens.rights(shown)
        assert len(compared) == len(set(compared)) == len(GRANTS)
        assert {len(one) for one in compared} == {32}


def test_tokens_come_by_reference_and_are_not_shown(tmp_path: Path, token_file: Path) -> None:
    program = f"{sys.executable} -c 'print(\"{token('program')}\")'"
    settings = build(
        {
            "http": {
                "tokens": {
                    "file": {"token": f"${{file:{token_file}}}", "monitor": True},
                    "variable": {"token": "${env:SHOWN}", "read": "shop.*, bank.*"},
                    "program": {"token": f"${{command:{program}}}", "retain": True},
                }
            }
        },
        {"SHOWN": token("variable")},
    ).http
    assert settings.tokens["variable"].read == ("shop.*", "bank.*")
    shown = json.dumps(plain(settings)) + repr(settings)
    assert not [secret for secret in (ALL, token("variable"), token("program")) if secret in shown]
    with serving(tmp_path, tokens=settings.model_dump()["tokens"]) as (server, _):
        for secret, status in ((ALL, 200), (token("variable"), 403), (token("program"), 403), ("another one", 401)):
            assert httpx.get(f"{server.address}/ping", headers=bearer(secret), timeout=30).status_code == status


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({"a": {"token": token("a")}}, r"has no right.*http\.tokens\.a"),
        ({"a": {"token": "short", "monitor": True}}, r"16 to 4096 bytes.*http\.tokens\.a"),
        ({name: {"token": token("same"), "monitor": True} for name in "ab"}, r"the same.*tokens\.b.*tokens\.a"),
        ({"a": {"token": ALL, "monitor": True}}, r"the same.*tokens\.a.*token_file"),
    ],
)
def test_tokens_that_cannot_be_meant_are_refused(tokens: dict[str, Any], said: str, token_file: Path) -> None:
    with pytest.raises(InvalidSetting, match=said) as refusal:
        HttpServer(HttpSettings(port=0, token_file=token_file, tokens=tokens), lambda: STATUS)
    assert ALL not in str(refusal.value)
    assert token("same") not in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": token("a"), "reed": ["a.b"]}, "unknown setting http.tokens.a.reed"),
        ({"token": token("a"), "read": ["orders"]}, "not a pattern of tables"),
        ({"token": token("a"), "read": [".orders"]}, "not a pattern of tables"),
        ({"read": ["a.b"]}, r"http\.tokens\.a\.token"),
    ],
)
def test_settings_of_tokens_are_checked(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as refusal:
        build({"http": {"tokens": {"a": given}}}, {})
    assert token("a") not in str(refusal.value)


def test_a_reference_that_nobody_follows_is_not_taken_for_a_token() -> None:
    text = json.dumps({"a": {"token": "${file:/etc/penstock/token}", "monitor": True}})
    with pytest.raises(InvalidSetting, match="not followed"):
        build({}, {"PENSTOCK_HTTP__TOKENS": text})
    with pytest.raises(InvalidSetting, match=r"unknown setting listener\.tokens\.a\.monitor"):
        build({"listener": {"tokens": {"a": {"token": token("a"), "monitor": True}}}}, {})


def test_a_listener_of_named_tokens_needs_no_file(tmp_path: Path) -> None:
    tokens = {"a": {"token": token("a"), "read": ["shop.*"]}}
    Listener(str(tmp_path), ListenerSettings(port=0, tokens=tokens))
    with pytest.raises(InvalidSetting, match=r"has no right.*listener\.tokens\.b"):
        Listener(str(tmp_path), ListenerSettings(port=0, tokens={"b": {"token": token("b")}}))
