"""Blocks: what one commit writes, and how it is known to be whole when it is read.

A block is an Avro container block: count, length, data, sync marker. Avro has no checksum, so the last record of each
block carries a seal: the writer's epoch and the CRC-32 of the count and everything before it
(docs/formats/change-log.md). The seal is durable with the data it covers, which is what tells a whole block from a torn
one after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from penstock.formats import container
from penstock.settings import Codec
from penstock.system.checksum import crc32

SYNC_BYTES = 16
# Two varints of at most ten bytes stand before the data.
_HEAD_BYTES = 20
# A row ends in its seal; null is one zero byte, a seal is branch 1 of the union.
_NO_SEAL = 0
_SEALED = b"\x02"
_CRC_BYTES = 4


@dataclass(slots=True)
class Block:
    """One whole block, checked."""

    offset: int
    end: int
    count: int
    rows: bytes
    epoch: int
    # Of the count and the data before compression, without the four bytes of the checksum itself.
    crc: int
    # Some of its changes were erased: the seal has the epoch's complement, which is as long.
    erased: bool = False


class TornBlock(Exception):
    """The bytes at this place are not a whole block. `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# Counts and epochs come again and again.
_long = lru_cache(maxsize=4096)(container.long_bytes)


class Draft(NamedTuple):
    """A block ready to be written: its bytes in parts, how many there are, and the checksum of its data."""

    parts: list[bytes | memoryview]
    length: int
    crc: int


def build(rows: Sequence[bytes | memoryview], count: int, epoch: int, codec: Codec, sync: bytes) -> Draft:
    """One block that holds the given rows. Without a codec nothing is copied unless there are many parts."""
    if rows[-1][-1] != _NO_SEAL:
        raise ValueError("rows must end without a seal")
    last = memoryview(rows[-1])[:-1]
    counted = _long(count)
    crc = crc32(counted)
    for part in rows[:-1]:
        crc = crc32(part, crc)
    seal = _SEALED + _long(epoch)
    crc = crc32(seal, crc32(last, crc))
    seal += crc.to_bytes(_CRC_BYTES, "big")
    if len(rows) == 1 and codec is Codec.NULL:
        size = len(last) + len(seal)
        head = counted + _long(size)
        return Draft([head, last, seal + sync], len(head) + size + SYNC_BYTES, crc)
    data = b"".join((*rows[:-1], last, seal))
    if codec is not Codec.NULL:
        data = container.compress(codec, data)
    head = counted + _long(len(data))
    return Draft([head, data, sync], len(head) + len(data) + SYNC_BYTES, crc)


def seal(rows: bytes, count: int, epoch: int) -> bytes:
    """The data of a block before compression. An epoch's complement says that changes of the block were erased."""
    if rows[-1] != _NO_SEAL:
        raise ValueError("rows must end without a seal")
    data = rows[:-1] + _SEALED + _long(epoch)
    return data + crc32(data, crc32(_long(count))).to_bytes(_CRC_BYTES, "big")


def unseal(rows: bytes | memoryview, count: int) -> bytes:
    """The rows of a block as an encoder wrote them, ready to be appended again."""
    start, _, _ = _seal_of(rows, count)
    return bytes(memoryview(rows)[:start]) + b"\x00"


def parse(data: bytes | memoryview, start: int, base: int, codec: Codec, sync: bytes, limit: int) -> Block | int:
    """The block at `data[start:]`, where `data` begins at offset `base` of the file.

    When `data` ends too early the answer is how many bytes the block needs. TornBlock when these bytes cannot be one.
    """
    count, at = _read_varint(data, start)
    if at >= 0:
        size, at = _read_varint(data, at)
    if at < 0:
        if len(data) - start >= _HEAD_BYTES:
            raise TornBlock("the block's head is not a number")
        return _HEAD_BYTES
    if not 0 < count <= size <= limit:
        raise TornBlock("the block's length is out of range")
    end = at + size + SYNC_BYTES
    if end > len(data):
        return end - start
    if data[end - SYNC_BYTES : end] != sync:
        raise TornBlock("the sync marker does not match")
    payload = bytes(data[at : at + size])
    if codec is Codec.NULL:
        rows = payload
    else:
        try:
            rows = container.decompress(codec, payload, limit)
        except Exception as error:
            raise TornBlock("the data does not decompress") from error
    _, epoch, crc = _seal_of(rows, count)
    erased = epoch < 0
    return Block(base + start, base + end, count, rows, ~epoch if erased else epoch, crc, erased)


def _seal_of(rows: bytes | memoryview, count: int) -> tuple[int, int, int]:
    """Where the seal begins, its epoch and its checksum, after that was found right."""
    body = len(rows) - _CRC_BYTES
    if body < 3:
        raise TornBlock("the block is too short for a seal")
    crc = crc32(memoryview(rows)[:body], crc32(_long(count)))
    if crc != int.from_bytes(rows[body:], "big"):
        raise TornBlock("the checksum does not match")
    # The epoch is a varint: only its last byte has the high bit clear, and a 0x02 stands before its first.
    at = body - 1
    while at > 0 and rows[at - 1] & 0x80:
        at -= 1
    if rows[at - 1] != _SEALED[0]:
        raise TornBlock("the seal is missing")
    epoch, _ = _read_varint(bytes(rows[at:body]), 0)
    return at - 1, epoch, crc


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A zigzag varint and where it ends; -1 as the end when the data stops inside it or it is too long."""
    value = shift = 0
    for position in range(at, min(len(data), at + 10)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    return 0, -1
