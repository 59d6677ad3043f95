"""Logs behind an agent's HTTP server, on the loopback: the same reader, the same changes, and who may see them."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.capture.status import AgentStatus
from penstock.errors import (
    AccessDenied,
    AgentUnreachable,
    ChangesLost,
    CorruptFrame,
    CorruptLog,
    InvalidSetting,
    PositionAhead,
    StorageError,
    SubscriptionLocked,
)
from penstock.formats import avro
from penstock.log import retention
from penstock.log.checkpoint import Checkpoint, load_all
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.pipeline.source.admission import Limits
from penstock.pipeline.source.options import parse
from penstock.pipeline.source.places import access, open_reader
from penstock.pipeline.source.planner import Planner
from penstock.pipeline.source.remote import Access, Agent, RemoteFile
from penstock.pipeline.source.stretches import gather
from penstock.serve.http import HttpServer
from penstock.serve.log_blocks import LogBlocks
from penstock.settings import HttpSettings, RetentionSettings
from penstock.system.files import OsFiles
from tests.certificates import make_certificate
from tests.many_logs import SMALL_FILES, ids_in, write

TOKEN = "a token of some length"
NO_WAIT = 0.0
STATUS = AgentStatus(node="n1", data_centre="dc1", started_time_us=0, running=True)


@contextmanager
def serving(
    root: Path, *, ask_snapshot: Callable[[TableId], None] | None = None, **settings: Any
) -> Iterator[HttpServer]:
    blocks = LogBlocks(str(root), RetentionSettings(keep_s=0), ask_snapshot)
    with HttpServer(HttpSettings(**{"port": 0, **settings}), lambda: STATUS, blocks) as server:
        yield server


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


def agent(server: HttpServer, token_file: Path | None = None, **more: Any) -> Agent:
    how = Access(token_file=None if token_file is None else str(token_file), retry_s=NO_WAIT, **more)
    return Agent(server.address, how, pause=lambda _: None)


def get(server: HttpServer, path: str, **options: Any) -> httpx.Response:
    return httpx.get(server.address + path, timeout=30, **options)


def ids(reader: LogReader) -> list[int]:
    return [change.key["id"] for found in reader.read() for change in avro.decode(found)]


def test_a_reader_reads_a_remote_log_like_a_local_one(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200, node="n1")
    with serving(root, token_file=token_file) as server:
        there = agent(server, token_file)
        [served] = there.logs()
        with LogReader(served.log_id, files=there) as remote, LogReader(directory) as local:
            assert ids(remote) == ids_in(directory)
            assert (remote.end(), remote.first(), remote.numbers()) == (local.end(), local.first(), local.numbers())
            assert remote.watermark() == local.watermark() == served.watermark
            assert remote.seek_time(1_000_077) == local.seek_time(1_000_077)
            assert [info.schema_version for info in remote.files()] == [1] * len(local.numbers())
    assert (str(served.table), served.node, served.name, served.parked) == ("shop.orders", "n1", "", False)


def test_large_files_come_in_several_answers(tmp_path: Path, token_file: Path, monkeypatch: Any) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 50, each=10, note="x" * 1000)
    monkeypatch.setattr("penstock.serve.log_blocks.ANSWER_BYTES_MAX", 10_000)
    with serving(root, token_file=token_file) as server:
        there = agent(server, token_file)
        with LogReader(there.logs()[0].log_id, files=there) as reader:
            assert ids(reader) == ids_in(directory)


def test_logs_need_a_token_even_on_the_loopback(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    write(root, "orders", 0, 1)
    with serving(root) as server:
        answer = get(server, "/logs")
        assert answer.status_code == 403
        assert "token_file" in answer.text
        assert get(server, "/ping").status_code == 200
        with pytest.raises(AccessDenied, match=r"only with http\.token_file"):
            agent(server).logs()
    with serving(root, token_file=token_file) as server:
        assert get(server, "/logs").status_code == 401
        assert get(server, "/logs", headers={"authorization": "Bearer wrong token here"}).status_code == 401
        with pytest.raises(AccessDenied):
            agent(server).logs()
    with serving(root, logs_without_token=True) as server:
        assert len(agent(server).logs()) == 1
    with serving(root, logs=False, logs_without_token=True) as server:
        assert get(server, "/logs").status_code == 404
        with pytest.raises(AgentUnreachable, match="no agent that serves logs"):
            agent(server).logs()


# Subscriptions.


def committed(directory: str) -> dict[str, Position]:
    found = load_all(OsFiles(), directory).values()
    return {one.subscription: one.position for one in found if isinstance(one, Checkpoint)}


def test_a_remote_reader_holds_files_back_and_lets_them_go(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    with serving(root, token_file=token_file) as server:
        options = {"agents": server.address, "token_file": str(token_file), "shape": "runs", "subscription": "p/../x"}
        plan = Planner(parse(options))
        numbers = LogReader(directory).numbers()
        start = plan.initial()
        assert list(committed(directory)) == ["p/../x"]
        retention.apply(directory, RetentionSettings(keep_s=0))
        assert LogReader(directory).numbers() == numbers
        end = plan.latest(start, Limits(files=3))
        how = access(parse(options))
        tasks = plan.partitions(start, end)
        found = [
            change.key["id"]
            for piece in (piece for task in tasks for piece in task)
            for gathered in gather(open_reader(piece.address, how), piece.stretch)
            for change in avro.decode(gathered.batch())
        ]
        assert found == ids_in(directory)[: len(found)]
        assert len(found) == next(iter(end.values())).rows
        plan.commit(end)
        # The commit finished files, so the agent's own retention has taken them.
        assert LogReader(directory).numbers() == numbers[3:]
        plan.commit(start)
        assert committed(directory)["p/../x"] == next(iter(end.values())).last
        plan.close()


def test_several_agents_and_a_directory_are_read_together(tmp_path: Path, token_file: Path) -> None:
    for at, node in enumerate(("n1", "n2", "n3")):
        write(tmp_path / node, "orders", 100 * at, 3, node=node)
    with serving(tmp_path / "n1", token_file=token_file) as one, serving(tmp_path / "n2", token_file=token_file) as two:
        options = {"agents": f"{one.address},{two.address}", "token_file": str(token_file), "path": f"{tmp_path}/n3"}
        plan = Planner(parse({**options, "table": "shop.orders", "retry_s": "0"}))
        assert {seen.address.node for seen in plan.look().values()} == {"n1", "n2", "n3"}
        end = plan.latest(plan.initial(), Limits())
        assert sorted(reach.rows for reach in end.values()) == [3, 3, 3]
    with pytest.raises(AgentUnreachable):
        plan.latest(end, Limits())
    plan.close()


def test_what_a_subscription_refuses_is_told_by_its_own_error(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 3)
    with serving(root, token_file=token_file) as server:
        there = agent(server, token_file)
        log_id = there.logs()[0].log_id
        there.subscribe(log_id, "a", "latest")
        with pytest.raises(PositionAhead):
            there.commit(log_id, "a", Position(9, 9, 9))
        with Subscription.open(directory, "a"), pytest.raises(SubscriptionLocked):
            there.commit(log_id, "a", Position(1, 1, 0))
        headers = {"authorization": f"Bearer {TOKEN}"}
        for query in ("", "?name=", f"?name={'x' * 201}", "?name=a&position=here", "?name=a&start=soon"):
            answer = httpx.post(f"{server.address}/logs/{log_id}/subscription{query}", headers=headers, timeout=30)
            assert answer.status_code == 400
        assert get(server, f"/logs/{log_id}/subscription", headers=headers).status_code == 405


# Failures.


def test_an_agent_that_is_down_is_an_error_after_bounded_tries(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        now, pauses = [0.0], []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            now[0] += seconds

        with pytest.raises(AgentUnreachable) as raised:
            Agent(url, Access(retry_s=10), pause=pause, monotonic=lambda: now[0]).logs()
    assert raised.value.place["agent"] == url
    assert 10 <= sum(pauses) <= 12.5
    assert 5 < len(pauses) < 20


@contextmanager
def answering(answer: Callable[[str], bytes]) -> Iterator[Agent]:
    """A server that sends whatever bytes `answer` makes of a request, and hangs up."""

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client:
                client.sendall(answer(client.recv(65536).decode()))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        now = itertools.count()
        yield Agent(url, Access(retry_s=20), pause=lambda _: None, monotonic=lambda: float(next(now)))
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_bytes_that_are_cut_short_are_gone_on_with() -> None:
    content = bytes(range(256)) * 16
    asked: list[int] = []

    def half(request: str) -> bytes:
        [line] = [line for line in request.splitlines() if line.lower().startswith("range")]
        first, _, last = line.partition("=")[2].partition("-")
        asked.append(int(first))
        data = content[int(first) : int(last) + 1]
        head = f"HTTP/1.1 206 OK\r\ncontent-length: {len(data)}\r\ncontent-range: bytes {first}-{last}/{len(content)}"
        # Every third time nothing comes at all.
        sent = data[: (len(data) + 1) // 2] if len(asked) % 3 else b""
        return f"{head}\r\n\r\n".encode() + sent

    with answering(half) as there:
        assert RemoteFile(there, "/file", "file", 0).pread(len(content), 0) == content
    assert len(asked) > 5
    assert asked == sorted(asked)


def test_a_list_that_is_cut_short_is_asked_for_again() -> None:
    bodies = [b'{"logs"', b"", b'{"logs": []}']

    def answer(_: str) -> bytes:
        return b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n" + bodies.pop(0)

    with answering(answer) as there:
        assert there.logs() == []
    assert not bodies


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"logs": [{}]}',
        b"HTTP/1.1 302 Found\r\nlocation: http://elsewhere/\r\ncontent-length: 2\r\n\r\n{}",
    ],
)
def test_a_strange_answer_is_refused_at_once(answer: bytes) -> None:
    with answering(lambda _: answer) as there, pytest.raises(CorruptFrame, match="the agent's answer is not"):
        there.logs()


def test_a_server_that_fails_or_talks_nonsense_is_an_agent_that_does_not_answer() -> None:
    for answer in (b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", b"SSH-2.0-hello\r\n", b""):
        with answering(lambda _, answer=answer: answer) as there, pytest.raises(AgentUnreachable):  # type: ignore[misc]
            there.logs()


def test_a_file_that_retention_took_is_a_loss_and_a_log_that_is_gone_has_no_files(
    tmp_path: Path, token_file: Path
) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    with serving(root, token_file=token_file) as server:
        there = agent(server, token_file)
        with LogReader(there.logs()[0].log_id, files=there) as remote, LogReader(directory) as local:
            Path(local.path(1)).unlink()
            with pytest.raises(ChangesLost):
                remote.open(1)
            Path(local.path(3, "idx")).unlink()
            with remote.index(remote.heading(3)) as index:
                assert index is None
        with pytest.raises(StorageError):
            LogReader("0" * 32, files=there)


def test_damage_is_found_by_the_reader_with_file_and_offset(tmp_path: Path, token_file: Path) -> None:
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 10)
    with LogReader(directory) as local:
        offset = list(local.read())[5].offset
        with open(local.path(1), "r+b") as file:
            file.seek(offset + 9)
            file.write(b"\xff")
    with serving(root, token_file=token_file) as server:
        there = agent(server, token_file)
        with LogReader(there.logs()[0].log_id, files=there) as remote, pytest.raises(CorruptLog) as raised:
            ids(remote)
    assert raised.value.place["offset"] == offset


def test_nothing_can_be_written_through_the_files_of_an_agent(tmp_path: Path) -> None:
    there = Agent("http://127.0.0.1:1", Access())
    for attempt in (
        lambda: there.open("a/b", write=True),
        lambda: there.unlink("a/b"),
        lambda: there.rename("a", "b"),
        lambda: there.make_directory("a"),
        lambda: RemoteFile(there, "/a", "a", 0).pwrite(b"", 0),
        lambda: RemoteFile(there, "/a", "a", 0).lock(),
    ):
        with pytest.raises(OSError, match="Read-only"):
            attempt()


# TLS.


def test_tls_is_spoken_and_an_unknown_certificate_is_refused(tmp_path: Path, token_file: Path) -> None:
    certificate = make_certificate(tmp_path)
    root = tmp_path / "logs"
    directory = write(root, "orders", 0, 40, each=5)
    tls: dict[str, Any] = {"tls_certificate_file": certificate.file, "tls_key_file": certificate.key_file}
    with serving(root, token_file=token_file, **tls) as server:
        assert server.address.startswith("https://")
        there = agent(server, token_file, tls_ca_file=str(certificate.file))
        with LogReader(there.logs()[0].log_id, files=there) as reader:
            assert ids(reader) == ids_in(directory)
        with pytest.raises(AgentUnreachable, match="not trusted"):
            agent(server, token_file).logs()
        with pytest.raises(InvalidSetting, match="certificates to trust"):
            agent(server, token_file, tls_ca_file=str(tmp_path / "nothing.pem")).logs()
        with pytest.raises(InvalidSetting, match="cannot read the token"):
            agent(server, tmp_path / "nothing")


def test_agents_are_asked_for_a_snapshot_when_changes_were_removed(tmp_path: Path, token_file: Path) -> None:
    asked: list[TableId] = []
    directory = write(tmp_path / "n1", "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    write(tmp_path / "n2", "orders", 1000, 1)
    with (
        serving(tmp_path / "n1", token_file=token_file, ask_snapshot=asked.append) as first,
        serving(tmp_path / "n2", token_file=token_file) as second,
    ):
        options = {"agents": f"{first.address},{second.address}", "token_file": str(token_file), "shape": "runs"}
        plan = Planner(parse({**options, "subscription": "p", "onLoss": "snapshot", "retry_s": "0"}))
        start = plan.initial()
        with LogReader(directory) as reader:
            for number in reader.numbers()[:2]:
                Path(reader.path(number)).unlink()
        for _ in range(2):
            plan.latest(start, Limits())
        plan.close()
    # The second agent copies no tables, which is well as long as another does.
    assert asked == [TableId("shop", "orders")]
