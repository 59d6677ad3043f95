"""The listener's protocol: frames and messages as bytes in, values out, without any socket.

A frame is a length (four bytes, big endian), a kind (one byte) and a payload; the length counts kind and payload.
Everything that a peer sends is untrusted: lengths are checked before anything is kept, and whatever is not exactly a
known message is CorruptFrame. docs/formats/listener.md describes every byte.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from penstock.errors import CorruptFrame, InvalidValue
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.system import json_text

VERSION = 1
# What a client may send in one frame; a greeting and acknowledgements need far less.
REQUEST_BYTES_MAX = 64 << 10
# What a client must be ready to take: the largest block that a log can have, with room for its head.
REPLY_BYTES_MAX = (1 << 30) + 4096
NAME_LENGTH_MAX = 512

_HEAD = struct.Struct(">IB")
_LENGTH_BYTES = 4
_CHANGES = struct.Struct(">QQII")


class Kind(IntEnum):
    """What a frame is. The high bit is set on what the listener sends."""

    HELLO = 0x01
    ACK = 0x02
    WELCOME = 0x81
    SCHEMA = 0x82
    CHANGES = 0x83
    HEARTBEAT = 0x84
    ACKED = 0x85
    FAILURE = 0x86


REQUESTS = frozenset({Kind.HELLO, Kind.ACK})
REPLIES = frozenset(Kind) - REQUESTS


class Format(StrEnum):
    """How changes are written in a frame."""

    AVRO = "avro"
    JSON = "json"


class Frame(NamedTuple):
    """One whole frame."""

    kind: Kind
    payload: bytes


@dataclass(frozen=True, slots=True)
class Hello:
    """What the client wants. Without a subscription it only reads, and acknowledges nothing."""

    table: TableId
    log: str | None = None
    subscription: str | None = None
    # `earliest`, `latest` or a position to read after; a subscription with a checkpoint goes on from there instead.
    start: str = "earliest"
    format: Format = Format.AVRO
    # Go on although retention removed changes that this subscription had not acknowledged.
    accept_loss: bool = False
    token: str | None = None

    def to_bytes(self) -> bytes:
        body: dict[str, Any] = {"protocol": VERSION, "keyspace": self.table.keyspace, "table": self.table.table}
        body |= {"start": self.start, "format": self.format.value}
        optional = {"log": self.log, "subscription": self.subscription, "token": self.token}
        body |= {name: value for name, value in optional.items() if value is not None}
        if self.accept_loss:
            body["accept_loss"] = True
        return _frame_json(Kind.HELLO, body)

    @classmethod
    def parse(cls, payload: bytes) -> Hello:
        body = _object(payload)
        version = body.pop("protocol", None)
        if version != VERSION:
            raise CorruptFrame(f"this listener speaks protocol {VERSION}")
        text = {name: _name(body.pop(name, None), name) for name in ("keyspace", "table", "start", "format")}
        optional = {name: _name(body.pop(name, None), name) for name in ("log", "subscription", "token")}
        accept_loss = body.pop("accept_loss", False)
        if not isinstance(accept_loss, bool):
            raise CorruptFrame("member accept_loss is neither true nor false")
        if body:
            raise CorruptFrame("the greeting has an unknown member")
        keyspace, table = text["keyspace"], text["table"]
        if keyspace is None or table is None:
            raise CorruptFrame("the greeting names no table")
        written = text["format"] or Format.AVRO.value
        if written not in set(Format):
            raise CorruptFrame("the format is neither avro nor json")
        return cls(
            table=TableId(keyspace, table),
            start=text["start"] or "earliest",
            format=Format(written),
            accept_loss=accept_loss,
            **optional,
        )

    def __repr__(self) -> str:
        # The token stays out of whatever prints a greeting.
        return f"Hello({self.table}, log={self.log!r}, subscription={self.subscription!r})"


@dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to a greeting: changes after `position` follow."""

    log_id: str
    position: Position
    end: Position

    def to_bytes(self) -> bytes:
        body = {"protocol": VERSION, "log": self.log_id, "position": str(self.position), "end": str(self.end)}
        return _frame_json(Kind.WELCOME, body)

    @classmethod
    def parse(cls, payload: bytes) -> Welcome:
        body = _object(payload)
        return cls(str(body.get("log")), _position(body.get("position")), _position(body.get("end")))


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of the changes that follow. `avro` is the text of the Avro schema, null when the format is JSON."""

    schema: dict[str, Any]
    avro: str | None

    def to_bytes(self) -> bytes:
        return _frame_json(Kind.SCHEMA, {"schema": self.schema, "avro": self.avro})

    @classmethod
    def parse(cls, payload: bytes) -> Schema:
        body = _object(payload)
        schema, avro = body.get("schema"), body.get("avro")
        if not isinstance(schema, dict) or not (avro is None or isinstance(avro, str)):
            raise CorruptFrame("the schema frame has no schema")
        return cls(schema, avro)


@dataclass(frozen=True, slots=True)
class Changes:
    """A run of changes of one block: change number i has the position file:offset:ordinal+i."""

    file: int
    offset: int
    ordinal: int
    count: int
    rows: bytes | memoryview

    @property
    def last(self) -> Position:
        """What to acknowledge when all of these changes are done."""
        return Position(self.file, self.offset, self.ordinal + self.count - 1)

    def head(self) -> bytes:
        """The frame up to the rows, which the sender writes without copying them."""
        length = 1 + _CHANGES.size + len(self.rows)
        return _HEAD.pack(length, Kind.CHANGES) + _CHANGES.pack(self.file, self.offset, self.ordinal, self.count)

    def to_bytes(self) -> bytes:
        return self.head() + bytes(self.rows)

    @classmethod
    def parse(cls, payload: bytes) -> Changes:
        if len(payload) < _CHANGES.size:
            raise CorruptFrame("the changes frame is too short")
        file, offset, ordinal, count = _CHANGES.unpack_from(payload)
        if count == 0:
            raise CorruptFrame("the changes frame is empty")
        return cls(file, offset, ordinal, count, payload[_CHANGES.size :])


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent when nothing else was for a while: the log's durable end, and the listener's time in microseconds."""

    end: Position
    time: int

    def to_bytes(self) -> bytes:
        return _frame_json(Kind.HEARTBEAT, {"end": str(self.end), "time": self.time})

    @classmethod
    def parse(cls, payload: bytes) -> Heartbeat:
        body = _object(payload)
        time = body.get("time")
        if type(time) is not int:
            raise CorruptFrame("the heartbeat has no time")
        return cls(_position(body.get("end")), time)


@dataclass(frozen=True, slots=True)
class Ack:
    """From the client: everything up to and including this position is done."""

    position: Position

    def to_bytes(self) -> bytes:
        return _frame(Kind.ACK, str(self.position).encode())

    @classmethod
    def parse(cls, payload: bytes) -> Ack:
        return cls(_position_bytes(payload))


@dataclass(frozen=True, slots=True)
class Acked:
    """To the client: the checkpoint with this position is durable."""

    position: Position

    def to_bytes(self) -> bytes:
        return _frame(Kind.ACKED, str(self.position).encode())

    @classmethod
    def parse(cls, payload: bytes) -> Acked:
        return cls(_position_bytes(payload))


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the listener closes the connection. `error` is the class of the error, for programs."""

    error: str
    message: str
    place: dict[str, str]

    def to_bytes(self) -> bytes:
        return _frame_json(Kind.FAILURE, {"error": self.error, "message": self.message, "place": self.place})

    @classmethod
    def parse(cls, payload: bytes) -> Failure:
        body = _object(payload)
        place = body.get("place")
        if not isinstance(place, dict):
            raise CorruptFrame("the failure names no place")
        texts = {str(key): str(value) for key, value in place.items()}
        return cls(str(body.get("error")), str(body.get("message")), texts)


Message = Hello | Welcome | Schema | Changes | Heartbeat | Ack | Acked | Failure
_PARSERS: dict[Kind, type[Message]] = {
    Kind.HELLO: Hello,
    Kind.ACK: Ack,
    Kind.WELCOME: Welcome,
    Kind.SCHEMA: Schema,
    Kind.CHANGES: Changes,
    Kind.HEARTBEAT: Heartbeat,
    Kind.ACKED: Acked,
    Kind.FAILURE: Failure,
}


def parse(frame: Frame) -> Message:
    """The message in a frame."""
    return _PARSERS[frame.kind].parse(frame.payload)


class Parser:
    """Cuts a stream of bytes into frames. It never holds more than one frame and what was fed last."""

    def __init__(self, kinds: frozenset[Kind], bytes_max: int) -> None:
        self._kinds = kinds
        self._bytes_max = bytes_max
        self._data = bytearray()

    @property
    def pending(self) -> int:
        """Bytes that are no whole frame yet."""
        return len(self._data)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that became whole. CorruptFrame at the first wrong byte; then the stream is lost."""
        buffer = self._data
        buffer += data
        frames = []
        at = 0
        while len(buffer) - at >= _LENGTH_BYTES:
            length = int.from_bytes(buffer[at : at + _LENGTH_BYTES], "big")
            if not 1 <= length <= self._bytes_max:
                raise CorruptFrame(f"a frame of {length} bytes; 1 to {self._bytes_max} are allowed")
            start = at + _LENGTH_BYTES
            # The kind is looked at as soon as it is there, not after a whole bogus frame has been kept.
            if len(buffer) > start and buffer[start] not in self._kinds:
                raise CorruptFrame(f"a frame of unknown kind 0x{buffer[start]:02x}")
            if len(buffer) < start + length:
                break
            frames.append(Frame(Kind(buffer[start]), bytes(memoryview(buffer)[start + 1 : start + length])))
            at = start + length
        if at:
            del buffer[:at]
        return frames


def _frame(kind: Kind, payload: bytes) -> bytes:
    return _HEAD.pack(1 + len(payload), kind) + payload


def _frame_json(kind: Kind, body: dict[str, Any]) -> bytes:
    return _frame(kind, json.dumps(body, separators=(",", ":")).encode())


def _object(payload: bytes) -> dict[str, Any]:
    try:
        body = json_text.parse(payload)
    except ValueError:
        raise CorruptFrame("the payload is not JSON") from None
    if not isinstance(body, dict):
        raise CorruptFrame("the payload is not a JSON object")
    return body


def _name(value: object, name: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= NAME_LENGTH_MAX:
        raise CorruptFrame(f"member {name} is not a text of 1 to {NAME_LENGTH_MAX} characters")
    # Of a token, nothing is said but whether it is the right one.
    if name != "token" and not json_text.is_text(value):
        raise CorruptFrame(f"member {name} has half of a character")
    return value


def _position(value: object) -> Position:
    if not isinstance(value, str):
        raise CorruptFrame("a position is missing")
    try:
        return Position.parse(value)
    except InvalidValue as error:
        raise CorruptFrame("not a position") from error


def _position_bytes(payload: bytes) -> Position:
    return _position(payload.decode("ascii", "replace"))
