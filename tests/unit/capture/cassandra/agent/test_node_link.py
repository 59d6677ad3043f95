"""The node is asked in a thread of its own, and what it answers is picked up when it suits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from penstock.capture.cassandra.agent import beginning
from penstock.capture.cassandra.agent.node_link import NodeLink
from penstock.capture.cassandra.node import connection
from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.rows import SchemaRow, rows_of
from penstock.errors import InvalidSetting, Unreachable
from penstock.settings import CassandraSettings, Settings
from penstock.system.files import OsFiles
from tests.scripted_agent import START_US, Setup, cassandra_table


class FakeConnection:
    session = None

    def __enter__(self) -> FakeConnection:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_unknown_table_is_asked_for_and_its_entries_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = cassandra_table("late")
    asked = threading.Event()

    def read_rows(_session: object) -> list[SchemaRow]:
        asked.set()
        return list(rows_of(late, START_US))

    monkeypatch.setattr(schema_query, "read_rows", read_rows)
    setup = Setup(tmp_path, settings={"cassandra": {"contact_points": ["127.0.0.1"], "port": 1}})
    setup.node.create()
    setup.node.write(7, 8, table=late)
    fake: Any = FakeConnection

    def settle() -> None:
        assert asked.wait(30)
        # The answer is handed over a moment later.
        threading.Event().wait(0.2)

    status = setup.run(settle, lambda: setup.node.write(9, table=late), connect=fake)
    assert setup.numbers("shop.late") == [7, 8, 9]
    assert (status.parked_waiting, status.queryable) == (0, True)


def test_node_that_is_down_is_no_reason_to_stop(tmp_path: Path) -> None:
    refused = threading.Event()

    def down() -> Any:
        refused.set()
        raise Unreachable("down")

    setup = Setup(tmp_path, settings={"cassandra": {"contact_points": ["127.0.0.1"], "port": 1}})
    setup.node.create()
    setup.node.write(1)
    setup.node.write(7, table=cassandra_table("late"))
    status = setup.run(lambda: refused.wait(30), lambda: setup.node.write(2), connect=down)
    assert setup.numbers() == [1, 2]
    assert status.parked_waiting == 1
    assert status.failure is None


def test_without_contact_points_there_is_no_thread() -> None:
    link = NodeLink(lambda: pytest.fail("asked"), (), refresh_s=1)
    link.start()
    link.want_definitions()
    assert link.answer() is None
    assert link.reachable is None
    link.stop()


def test_first_start_needs_the_node_and_says_so() -> None:
    with pytest.raises(InvalidSetting, match="contact_points names none"):
        beginning.first_schemas(CassandraSettings(), lambda: pytest.fail("asked"), threading.Event())
    settings = CassandraSettings.model_validate({"schema_from": "file"})
    with pytest.raises(InvalidSetting, match=r"needs cassandra\.schema_file"):
        beginning.first_schemas(settings, lambda: pytest.fail("asked"), threading.Event())
    down = CassandraSettings(contact_points=("127.0.0.1",), port=_closed_port())
    with pytest.raises(Unreachable, match=r"no CQL connection to 127\.0\.0\.1") as refusal:
        connection.connect(down)
    assert "schema_from" in refusal.value.hint


class LostNode:
    """A node that accepts connections and is lost before it answers, so many times."""

    def __init__(self, losses: int, *, accepts: bool = True) -> None:
        self.losses = losses
        self.accepts = accepts
        self.connections = 0
        self.open = 0

    def connect(self) -> Any:
        self.connections += 1
        if not self.accepts:
            raise Unreachable("no CQL connection")
        self.open += 1
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open -= 1

    def answer(self) -> str:
        if self.connections <= self.losses:
            raise Unreachable("the node did not say who it is")
        return "here"


def _asked(node: LostNode, patience_s: float, stop: threading.Event) -> Any:
    answer: Callable[[Any], str] = LostNode.answer
    return beginning.ask(node.connect, answer, patience_s=patience_s, stop=stop)


def test_node_that_is_lost_at_the_start_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beginning, "_ASK_AGAIN_S", 0)
    flapping = LostNode(3)
    assert _asked(flapping, 60, threading.Event()) == "here"
    assert (flapping.connections, flapping.open) == (4, 0)
    gone = LostNode(3)
    with pytest.raises(Unreachable, match="did not say"):
        _asked(gone, 0, threading.Event())
    assert (gone.connections, gone.open) == (1, 0)
    closed = LostNode(3, accepts=False)
    with pytest.raises(Unreachable, match="no CQL connection"):
        _asked(closed, 60, threading.Event())
    assert closed.connections == 1


def test_agent_that_is_asked_to_stop_asks_a_lost_node_no_more() -> None:
    stop = threading.Event()
    stop.set()
    lost = LostNode(3)
    with pytest.raises(Unreachable, match="did not say"):
        _asked(lost, 60, stop)
    assert lost.connections == 1


def _closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_name_of_the_node_is_noted_and_the_settings_win(tmp_path: Path) -> None:
    directory = str(tmp_path)

    def named(**agent: object) -> str:
        settings = Settings.model_validate({"agent": agent, "cassandra": {"schema_from": "log"}})
        no_connection: Callable[[], Any] = lambda: pytest.fail("asked")  # noqa: E731
        return beginning.node_name(OsFiles(), directory, settings, no_connection, threading.Event()).node

    assert named() == socket.gethostname()
    assert named(node="n7") == "n7"
    assert named() == "n7"


def test_secrets_are_read_without_their_line_break_and_login_needs_one(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    assert connection.read_secret(secret, "it") == "hunter2"
    with pytest.raises(InvalidSetting, match="cannot read it: No such file"):
        connection.read_secret(tmp_path / "none", "it")
    with pytest.raises(InvalidSetting, match=r"username needs cassandra\.password_file"):
        connection.connect(CassandraSettings(contact_points=("127.0.0.1",), username="u"))
    tls = CassandraSettings.model_validate({"contact_points": "127.0.0.1", "tls": True, "tls_ca_file": secret})
    with pytest.raises(InvalidSetting, match="TLS files"):
        connection.connect(tls)
