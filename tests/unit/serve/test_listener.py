"""The listener: who gets in, what is pushed, how it is acknowledged, and what one client can do to another."""

from __future__ import annotations

import gc
import os
import socket
import ssl
import struct
import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.errors import (
    ChangesLost,
    CorruptCheckpoint,
    CorruptFrame,
    InvalidInput,
    InvalidSetting,
    InvalidValue,
    PenstockError,
    PositionAhead,
    PositionBehind,
    StorageError,
    SubscriptionLocked,
)
from penstock.log import retention
from penstock.log.erasure import erase
from penstock.log.forgotten import Target
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.position import START, Position
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.serve.client import Client
from penstock.serve.connection import Connection
from penstock.serve.listener import Listener
from penstock.serve.protocol import Ack, Changes, Format, Heartbeat, Hello, Schema
from penstock.settings import ListenerSettings, RetentionSettings
from tests.listening import connect, listening, log_directory, receive, receive_frames, wait_acked
from tests.numbered import SCHEMA, TABLE, batch, fill

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


def test_changes_that_are_there_and_that_come_are_pushed(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    fill(directory, 5)
    with listening(tmp_path) as (listener, _), connect(listener) as client:
        assert client.welcome.position == START
        first = client.receive(30)
        assert isinstance(first, Schema)
        assert client.schema is not None
        assert client.schema.table == TABLE
        got = receive(client, 5)
        with TableLog.open(directory, SCHEMA) as log:
            for number in range(5, 50):
                log.append(batch(number))
                got += receive(client, 1)
        assert got == list(range(50))


def test_every_client_gets_every_change_once_and_in_order(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    with TableLog.open(directory, SCHEMA) as log, listening(tmp_path) as (listener, _):
        clients = [connect(listener, f"s{i}" if i % 2 else None) for i in range(8)]
        for number in range(0, 300, 3):
            log.append(batch(number, 3))
        for client in clients:
            assert receive(client, 300) == list(range(300))
            client.close()


def test_new_schema_is_told_before_its_changes(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    wider = TableSchema(TABLE, (*SCHEMA.columns, Column("more", t.TEXT, Role.REGULAR)), version=2, source="sandbox")
    with TableLog.open(directory, SCHEMA) as log, listening(tmp_path) as (listener, _):
        log.append(batch(0))
        with connect(listener) as client:
            assert receive(client, 1) == [0]
            from penstock.formats import avro
            from penstock.model.change import Change, Op

            log.append(avro.encode(wider, [Change(Op.INSERT, {"id": 1})]))
            message = client.receive(30)
            assert isinstance(message, Schema)
            assert [column["name"] for column in message.schema["columns"]] == ["id", "pad", "more"]
            assert receive(client, 1) == [1]


def test_acknowledged_position_is_durable_when_it_is_answered(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    positions = fill(directory, 6)
    with listening(tmp_path) as (listener, _):
        with connect(listener, "billing") as client:
            receive(client, 6)
            client.ack(positions[3])
            assert wait_acked(client).position == positions[3]
            text = Path(directory, "billing.checkpoint").read_text()
            assert str(positions[3]) in text
            # Asking again is answered again.
            client.ack(positions[3])
            assert wait_acked(client).position == positions[3]
        with reconnect(listener, "billing") as client:
            assert client.welcome.position == positions[3]
            assert receive(client, 2) == [4, 5]


def reconnect(listener: Listener, subscription: str, **hello: Any) -> Client:
    """Connect as soon as the listener has noticed that the client before has gone."""
    while True:
        try:
            return connect(listener, subscription, **hello)
        except SubscriptionLocked:
            continue


def test_client_resumes_in_the_middle_of_a_block(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    with TableLog.open(directory, SCHEMA) as log:
        last = log.append(batch(0, 10))
    with listening(tmp_path) as (listener, _), connect(listener, start=str(last._replace(ordinal=6))) as client:
        changes = receive_frames(client, 3)[0]
        assert (changes.ordinal, changes.count, changes.last) == (7, 3, last)
        assert [change.key["id"] for change in client.decode(changes)] == [7, 8, 9]


def test_fast_acknowledgements_share_their_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = log_directory(tmp_path)
    with TableLog.open(directory, SCHEMA) as log:
        last = log.append(batch(0, 2000))
    commits: list[Position] = []
    original = Subscription.commit

    def counted(self: Subscription, position: Position) -> None:
        commits.append(position)
        original(self, position)

    monkeypatch.setattr(Subscription, "commit", counted)
    with listening(tmp_path, commit_interval_s=0.05) as (listener, _), connect(listener, "a") as client:
        receive(client, 2000)
        for ordinal in range(2000):
            client.ack(last._replace(ordinal=ordinal))
        while wait_acked(client).position != last:
            pass
    assert commits[-1] == last
    assert commits == sorted(set(commits))
    assert len(commits) < 100


def test_last_acknowledgement_counts_even_when_the_client_does_not_wait(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    positions = fill(directory, 6)
    with listening(tmp_path, commit_interval_s=60) as (listener, _):
        with connect(listener, "a") as client:
            receive(client, 6)
            client.ack(positions[0])
            wait_acked(client)
            client.ack(positions[5])
        with reconnect(listener, "a") as client:
            assert client.welcome.position == positions[5]


@pytest.mark.parametrize(
    ("position", "error"),
    [(Position(99, 0, 0), PositionAhead), (START, PositionBehind)],
)
def test_acknowledgement_out_of_place_ends_the_connection(
    tmp_path: Path, position: Position, error: type[PenstockError]
) -> None:
    positions = fill(log_directory(tmp_path), 3)
    with listening(tmp_path) as (listener, _), connect(listener, "a") as client:
        receive(client, 3)
        client.ack(positions[1])
        wait_acked(client)
        client.ack(position)
        with pytest.raises(error):
            client.receive(30)


def test_client_without_subscription_cannot_acknowledge(tmp_path: Path) -> None:
    positions = fill(log_directory(tmp_path), 3)
    with listening(tmp_path) as (listener, _), connect(listener) as client:
        receive(client, 3)
        client.ack(positions[0])
        with pytest.raises(InvalidInput, match="nothing to acknowledge"):
            client.receive(30)


def test_one_name_one_client(tmp_path: Path) -> None:
    fill(log_directory(tmp_path), 1)
    with listening(tmp_path) as (listener, _), connect(listener, "a") as client:
        with pytest.raises(SubscriptionLocked):
            connect(listener, "a")
        assert receive(client, 1) == [0]


@pytest.mark.parametrize(
    ("hello", "error"),
    [
        (Hello(TableId("shop", "nothing")), InvalidInput),
        (Hello(TableId("..", "..")), InvalidInput),
        (Hello(TABLE, log="../shop.orders"), InvalidInput),
        (Hello(TABLE, subscription="half \ud800"), CorruptFrame),
        (Hello(TABLE, start="yesterday"), InvalidValue),
        (Hello(TABLE, start="000099:0:0"), PositionAhead),
        (Hello(TABLE, subscription="new", start="000099:0:0"), PositionAhead),
    ],
)
def test_wish_that_cannot_be_met_is_refused_with_its_reason(
    tmp_path: Path, hello: Hello, error: type[PenstockError]
) -> None:
    fill(log_directory(tmp_path), 1)
    with listening(tmp_path) as (listener, _), pytest.raises(error):
        Client(listener.address, hello)
    assert not (tmp_path.parent / "new.checkpoint").exists()


def test_lost_changes_are_told_and_can_be_accepted(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    positions = fill(directory, 9)
    with Subscription.open(directory, "a") as one:
        one.commit(positions[1])
    retention.apply(directory, RetentionSettings(bytes_max=0))
    with listening(tmp_path) as (listener, _):
        with pytest.raises(ChangesLost) as caught:
            connect(listener, "a")
        assert caught.value.place["after"] == str(positions[1])
        assert caught.value.place["through"] == str(positions[5])
        with pytest.raises(ChangesLost):
            connect(listener, start=str(positions[1]))
        with connect(listener, "a", accept_loss=True) as client:
            assert receive(client, 3) == [6, 7, 8]


def test_broken_checkpoint_is_refused_and_left(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    fill(directory, 3)
    bad = Path(directory, "a.checkpoint")
    bad.write_bytes(b"{}")
    with listening(tmp_path) as (listener, _):
        with pytest.raises(CorruptCheckpoint):
            connect(listener, "a")
        with connect(listener, "b") as client:
            assert receive(client, 3) == [0, 1, 2]
    assert bad.read_bytes() == b"{}"


def test_finished_files_go_when_retention_is_on(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    positions = fill(directory, 9)
    with listening(tmp_path, retention=RetentionSettings(keep_s=0)) as (listener, _), connect(listener, "a") as client:
        receive(client, 9)
        client.ack(positions[8])
        wait_acked(client)
        assert LogReader(directory).numbers() == [3]


def test_quiet_client_gets_heartbeats(tmp_path: Path) -> None:
    positions = fill(log_directory(tmp_path), 1)
    with listening(tmp_path, heartbeat_s=0.01) as (listener, _), connect(listener, start="latest") as client:
        beats = [client.receive(30) for _ in range(3)]
        assert all(isinstance(beat, Heartbeat) and beat.end == positions[0] for beat in beats)


# Who gets in.


def test_unix_socket_is_only_its_owners(tmp_path: Path) -> None:
    with listening(tmp_path) as (listener, _):
        assert Path(listener.address).stat().st_mode & 0o777 == 0o600
    assert not Path(listener.address).exists()


def test_socket_that_a_killed_listener_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(tmp_path / "socket"))
    fill(log_directory(tmp_path), 1)
    with listening(tmp_path) as (listener, _), connect(listener) as client:
        assert receive(client, 1) == [0]


def test_socket_in_use_or_another_file_is_not_replaced(tmp_path: Path) -> None:
    with listening(tmp_path), pytest.raises(StorageError, match="another process listens"), listening(tmp_path):
        pass
    (tmp_path / "socket").write_text("precious")
    with pytest.raises(StorageError, match="no socket"), listening(tmp_path):
        pass
    assert (tmp_path / "socket").read_text() == "precious"


def raw(listener: Listener, data: bytes) -> bytes:
    """Everything that the listener answers to `data`."""
    family = socket.AF_UNIX if "/" in listener.address else socket.AF_INET
    address: Any = listener.address if family is socket.AF_UNIX else ("127.0.0.1", listener.port)
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(30)
        connection.connect(address)
        connection.sendall(data)
        answer = b""
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        return answer


@pytest.mark.parametrize(
    "token", [None, "", "mistaken-t0ken-of-a-client", TOKEN + "x", TOKEN[:-1], TOKEN.upper(), "\ud800"]
)
def test_wrong_token_gets_a_refusal_and_no_data(tmp_path: Path, token_file: Path, token: str | None) -> None:
    fill(log_directory(tmp_path), 3)
    body = Hello(TABLE, subscription="a", token=token or None).to_bytes()
    with capture_logs() as logs, listening(tmp_path, port=0, token_file=token_file) as (listener, _):
        answer = raw(listener, body)
    assert answer[4] == 0x86
    assert b"AccessDenied" in answer
    assert b"orders" not in answer
    assert not Path(log_directory(tmp_path), "a.checkpoint").exists()
    assert TOKEN not in str(logs)
    assert not token or len(token) < 5 or token not in str(logs), logs


def test_right_token_gets_in(tmp_path: Path, token_file: Path) -> None:
    fill(log_directory(tmp_path), 3)
    with (
        capture_logs() as logs,
        listening(tmp_path, port=0, token_file=token_file) as (listener, _),
        connect(listener, token=TOKEN) as client,
    ):
        assert receive(client, 3) == [0, 1, 2]
    assert TOKEN not in str(logs)


def test_wrong_token_does_not_say_whether_a_table_exists(tmp_path: Path, token_file: Path) -> None:
    fill(log_directory(tmp_path), 3)
    with listening(tmp_path, port=0, token_file=token_file) as (listener, _):
        answers = {raw(listener, Hello(TableId("shop", name)).to_bytes()) for name in ("orders", "nothing")}
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"port": 0}, "needs listener.token_file"),
        ({"port": 0, "host": "0.0.0.0", "token_file": "token"}, "needs TLS"),
        ({"port": 0, "host": "example.org", "token_file": "token"}, "needs TLS"),
        ({"port": 0, "token_file": "missing"}, "cannot read the token"),
        ({"port": 0, "token_file": "short"}, "16 to 4096 bytes"),
        ({"port": 0, "token_file": "token", "tls_certificate_file": "token", "tls_key_file": "token"}, "certificate"),
    ],
)
def test_unsafe_settings_are_refused(tmp_path: Path, token_file: Path, settings: dict[str, Any], reason: str) -> None:
    (tmp_path / "short").write_text("short")
    for name, value in settings.items():
        if name.endswith("_file"):
            settings[name] = tmp_path / value
    with pytest.raises(InvalidSetting, match=reason):
        Listener(str(tmp_path), ListenerSettings(**settings))


def test_tls_is_spoken_and_plain_text_is_not(tmp_path: Path, token_file: Path) -> None:
    fill(log_directory(tmp_path), 3)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    trust = ssl.create_default_context(cafile=str(certificate))
    hello = Hello(TABLE, token=TOKEN)
    with listening(tmp_path, port=0, token_file=token_file, tls_certificate_file=certificate, tls_key_file=key) as (
        listener,
        _,
    ):
        with Client(listener.address, hello, tls=trust) as client:
            assert receive(client, 3) == [0, 1, 2]
        assert b"shop" not in raw(listener, hello.to_bytes())
        with pytest.raises(ssl.SSLCertVerificationError):
            Client(listener.address, hello, tls=ssl.create_default_context())


# What one client can do to another.


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff" * 64,
        Ack(START).to_bytes(),
        Hello(TABLE).to_bytes() * 2,
        Hello(TABLE).to_bytes() + b"\x00\x00\x00\x02\x02x",
        Hello(TABLE).to_bytes() + struct.pack(">IB", 1 << 20, 2),
        struct.pack(">IB", 8, 1) + b"not json"[:7],
    ],
)
def test_malformed_frames_end_that_connection_only(tmp_path: Path, data: bytes) -> None:
    directory = log_directory(tmp_path)
    fill(directory, 1)
    with listening(tmp_path) as (listener, _), connect(listener, "good") as good:
        assert receive(good, 1) == [0]
        assert b"CorruptFrame" in raw(listener, data)
        last = fill(directory, 1, first=1)[0]
        assert receive(good, 1) == [1]
        good.ack(last)
        assert wait_acked(good).position == last


def test_client_that_says_nothing_is_cut_off(tmp_path: Path) -> None:
    with listening(tmp_path, handshake_s=0.05) as (listener, _):
        assert b"no greeting came in time" in raw(listener, b"")
        assert b"no greeting came in time" in raw(listener, Hello(TABLE).to_bytes()[:-1])


def test_clients_beyond_the_limit_are_turned_away(tmp_path: Path) -> None:
    fill(log_directory(tmp_path), 1)
    with listening(tmp_path, clients_max=2) as (listener, count):
        with connect(listener) as first, connect(listener) as second:
            with pytest.raises(InvalidInput, match="too many clients"):
                connect(listener)
            assert receive(first, 1) == receive(second, 1) == [0]
        while count():
            pass
        connect(listener).close()


def test_damage_in_the_log_is_told_to_the_client(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    positions = fill(directory, 3)
    path = LogReader(directory).path(1)
    with Path(path).open("r+b") as file:
        file.seek(positions[1].offset + 20)
        file.write(b"\xff\xff")
    with listening(tmp_path) as (listener, _), connect(listener) as client:
        with pytest.raises(PenstockError, match="damage") as caught:
            receive(client, 3)
        assert type(caught.value).__name__ == "CorruptLog"


def test_stuck_client_is_served_from_the_files_without_gap_or_duplicate(tmp_path: Path) -> None:
    """A client that does not read has its buffer dropped; when it reads again it gets everything, once."""
    directory = log_directory(tmp_path)
    with (
        TableLog.open(directory, SCHEMA) as log,
        listening(tmp_path, client_buffer_bytes=64 << 10) as (listener, _),
        connect(listener, "stuck") as stuck,
        connect(listener, "brisk") as brisk,
    ):
        for number in range(200):
            log.append(batch(number, pad=20_000))
            assert receive(brisk, 1) == [number]
        assert receive(stuck, 200) == list(range(200))
        # Caught up, it is served from memory again.
        log.append(batch(200))
        assert receive(stuck, 1) == receive(brisk, 1) == [200]


def test_client_pausing_at_random_gets_every_change_once(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    with (
        TableLog.open(directory, SCHEMA) as log,
        listening(tmp_path, client_buffer_bytes=16 << 10) as (listener, _),
        connect(listener) as client,
    ):
        got: list[int] = []
        for number in range(400):
            log.append(batch(number, pad=(number * 7919) % 9000))
            wanted = number // 2 + 1 - len(got)
            if number % 37 == 0 and wanted > 0:
                got += receive(client, wanted)
        got += receive(client, 400 - len(got))
        assert got == list(range(400))


def test_changes_frame_refuses_to_be_empty() -> None:
    with pytest.raises(CorruptFrame):
        Changes.parse(struct.pack(">QQII", 1, 1, 0, 0))


def test_clients_that_come_and_go_leave_no_file_open(tmp_path: Path) -> None:
    fill(log_directory(tmp_path), 3)
    with listening(tmp_path) as (listener, count):

        def use(subscription: str | None) -> int:
            with connect(listener, subscription) as client:
                assert receive(client, 3) == [0, 1, 2]
            while count():
                pass
            return len(os.listdir("/proc/self/fd"))

        use("a")
        assert len({use(name) for name in ("a", None, "a", "b", None)}) == 1


def test_erased_changes_are_not_sent_and_clients_go_on_behind_them(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    with TableLog.open(directory, SCHEMA) as log:
        log.append(batch(0, 3))
        log.append(batch(3, 2))
    assert erase(directory, lambda _: [Target((number,)) for number in (1, 3, 4)]).complete
    with listening(tmp_path) as (listener, _), connect(listener) as client:
        assert [(frame.ordinal, frame.count) for frame in receive_frames(client, 2)] == [(0, 1), (2, 1)]
        with connect(listener, format=Format.JSON) as other:
            assert [(frame.ordinal, frame.count) for frame in receive_frames(other, 2)] == [(0, 1), (2, 1)]
        with TableLog.open(directory, SCHEMA) as log:
            log.append(batch(5))
        assert receive(client, 1) == [5]


def test_changes_that_are_erased_while_clients_listen_reach_no_new_client(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    with TableLog.open(directory, SCHEMA) as log:
        log.append(batch(0, 3))
    with listening(tmp_path) as (listener, _), connect(listener, format=Format.JSON) as first:
        # What was sent is kept for whoever asks next.
        assert [(frame.ordinal, frame.count) for frame in receive_frames(first, 3)] == [(0, 3)]
        assert erase(directory, lambda _: [Target((1,))]).complete
        with connect(listener, format=Format.JSON) as second:
            assert [(frame.ordinal, frame.count) for frame in receive_frames(second, 2)] == [(0, 1), (2, 1)]
            with TableLog.open(directory, SCHEMA) as log:
                log.append(batch(5))
            assert [frame.count for frame in receive_frames(first, 1)] == [1]
            assert [frame.count for frame in receive_frames(second, 1)] == [1]


def test_clients_that_leave_in_the_middle_leave_nothing_to_the_garbage_collector(tmp_path: Path) -> None:
    # It counts objects and not what they hold, which of a client that was slow is a queue of a mebibyte.
    fill(log_directory(tmp_path), 200, pad=20_000)
    with listening(tmp_path) as (listener, count):
        gc.collect()
        gc.disable()
        try:
            for name in ("a", None) * 10:
                with connect(listener, name) as client:
                    receive(client, 3)
                while count():
                    pass
            left = sum(isinstance(one, Connection) for one in gc.get_objects())
        finally:
            gc.enable()
    # The last one may still be on its way out.
    assert left <= 1


def test_a_listener_has_all_its_threads_from_the_begin(tmp_path: Path) -> None:
    fill(log_directory(tmp_path), 3)
    with listening(tmp_path) as (listener, count):
        before = _threads()
        with ExitStack() as clients:
            for number in range(12):
                client = clients.enter_context(connect(listener, f"s{number}"))
                assert receive(client, 3) == [0, 1, 2]
        while count():
            pass
        assert _threads() == before


def _threads() -> int:
    """How many threads the listener's pools have."""
    return sum(thread.name.startswith("penstock-listener-") for thread in threading.enumerate())
