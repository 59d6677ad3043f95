"""The listener's protocol: exact bytes, every message there and back, and nothing else accepted."""

from __future__ import annotations

import json
import random
import struct

import pytest

from penstock.errors import CorruptFrame
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.serve.protocol import (
    REPLIES,
    REPLY_BYTES_MAX,
    REQUEST_BYTES_MAX,
    REQUESTS,
    Ack,
    Acked,
    Changes,
    Failure,
    Format,
    Frame,
    Heartbeat,
    Hello,
    Kind,
    Message,
    Parser,
    Schema,
    Welcome,
    parse,
)

TABLE = TableId("shop", "orders")
AT = Position(3, 4096, 7)
MESSAGES: list[Message] = [
    Hello(TABLE),
    Hello(TABLE, "big", "billing", "latest", Format.JSON, accept_loss=True, token="s3cret-s3cret-s3cret"),
    Hello(TableId("..", "ü/\0"), start=str(AT)),
    Ack(AT),
    Welcome("ab" * 16, AT, Position(9, 9, 9)),
    Schema({"keyspace": "shop"}, '{"type":"record"}'),
    Schema({"keyspace": "shop"}, None),
    Changes(3, 4096, 2, 5, b"rows"),
    Heartbeat(AT, 1_700_000_000_000_000),
    Acked(AT),
    Failure("ChangesLost", "gone", {"after": "000001:1:0"}),
]


def parser(message: Message) -> Parser:
    asks = isinstance(message, Hello | Ack)
    return Parser(REQUESTS, REQUEST_BYTES_MAX) if asks else Parser(REPLIES, REPLY_BYTES_MAX)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_comes_back_as_it_was_whatever_the_pieces(message: Message) -> None:
    data = message.to_bytes()
    for size in (1, 2, 3, 7, len(data)):
        cutter = parser(message)
        frames: list[Frame] = []
        for at in range(0, len(data), size):
            frames += cutter.feed(data[at : at + size])
        assert [parse(frame) for frame in frames] == [message]
        assert cutter.pending == 0


def test_bytes_are_the_documented_ones() -> None:
    assert Ack(AT).to_bytes() == b"\x00\x00\x00\x0e\x02000003:4096:7"
    assert Acked(AT).to_bytes() == b"\x00\x00\x00\x0e\x85000003:4096:7"
    changes = Changes(3, 4096, 2, 5, b"rows")
    assert changes.to_bytes() == b"\x00\x00\x00\x1d\x83" + struct.pack(">QQII", 3, 4096, 2, 5) + b"rows"
    assert changes.last == Position(3, 4096, 6)
    hello = Hello(TABLE, subscription="billing", token="t").to_bytes()
    assert int.from_bytes(hello[:4], "big") == len(hello) - 4
    assert hello[4] == 1
    assert json.loads(hello[5:]) == {
        "protocol": 1,
        "keyspace": "shop",
        "table": "orders",
        "start": "earliest",
        "format": "avro",
        "subscription": "billing",
        "token": "t",
    }


def test_many_frames_in_one_piece_come_in_order() -> None:
    cutter = Parser(REQUESTS, REQUEST_BYTES_MAX)
    acks = [Ack(Position(1, offset, 0)) for offset in range(100)]
    data = b"".join(ack.to_bytes() for ack in acks)
    assert [parse(frame) for frame in cutter.feed(data + b"\x00\x00")] == acks
    assert cutter.pending == 2


def test_token_is_not_shown() -> None:
    hello = Hello(TABLE, token="very-secret-token")
    assert "very-secret-token" not in f"{hello!r} {hello} {[hello]}"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00",
        b"\x00\x01\x00\x01\x01",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\xff\xff\xff\xff\x02",
        b"\x00\x00\x00\x05\x00",
        b"\x00\x00\x00\x05\x83",
        b"\x00\x00\x00\x05\x7f",
    ],
)
def test_wrong_start_is_refused_before_anything_is_kept(data: bytes) -> None:
    with pytest.raises(CorruptFrame):
        Parser(REQUESTS, REQUEST_BYTES_MAX).feed(data)


def test_longest_frame_is_accepted_and_one_byte_more_is_not() -> None:
    cutter = Parser(REQUESTS, 1024)
    assert len(cutter.feed(struct.pack(">IB", 1024, Kind.ACK) + bytes(1023))) == 1
    with pytest.raises(CorruptFrame, match="1025 bytes"):
        Parser(REQUESTS, 1024).feed(struct.pack(">I", 1025))


GOOD = {"protocol": 1, "keyspace": "shop", "table": "orders"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b"[" * 50_000,
        b'{"protocol":' + b"9" * 20_000 + b"}",
        {**GOOD, "protocol": 2},
        {**GOOD, "protocol": "1"},
        {**GOOD, "protocol": None},
        {"protocol": 1, "table": "orders"},
        {**GOOD, "table": 7},
        {**GOOD, "table": ""},
        {**GOOD, "table": "x" * 513},
        {**GOOD, "subscription": ["a"]},
        {**GOOD, "format": "xml"},
        {**GOOD, "accept_loss": "yes"},
        {**GOOD, "unknown": 1},
    ],
    ids=range(17),
)
def test_greeting_that_is_not_exact_is_refused(body: bytes | dict[str, object]) -> None:
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(CorruptFrame):
        parse(Frame(Kind.HELLO, payload))


@pytest.mark.parametrize("text", [b"", b"1", b"1:2", b"-1:2:3", b"1:2:3 ", b"\xff:1:1", "١:1:1".encode(), b"1:2:3" * 9])
def test_acknowledgement_that_is_no_position_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptFrame):
        parse(Frame(Kind.ACK, text))


def test_mutated_streams_give_messages_or_corrupt_frame_and_nothing_else() -> None:
    """150,000 mutated inputs: no other exception, and never more kept than was fed."""
    rng = random.Random(20261115)
    seeds = [message.to_bytes() for message in MESSAGES]
    refused = accepted = 0
    for _ in range(150_000):
        index = rng.randrange(len(seeds))
        data = bytearray(seeds[index])
        for _ in range(rng.choice((1, 1, 2, 4))):
            act = rng.randrange(5)
            at = rng.randrange(len(data) + 1)
            if act == 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            elif act == 1:
                del data[at : at + rng.randrange(1, 8)]
            elif act == 2:
                data[at:at] = rng.randbytes(rng.randrange(1, 8))
            elif act == 3:
                data[at : at + 1] = rng.choice((b"\0", b"\xff", b"{", b'"', b":", b"\x80"))
            else:
                data += seeds[rng.randrange(len(seeds))][: rng.randrange(40)]
        cutter = parser(MESSAGES[index])
        try:
            for frame in cutter.feed(bytes(data)):
                parse(frame)
                accepted += 1
        except CorruptFrame:
            refused += 1
        assert cutter.pending <= len(data)
    assert refused > 50_000
    assert accepted > 1_000
