"""Rendering: changes as lines of JSON, for clients that do not read Avro.

Several clients follow the same log, so the frames of the newest batches are kept and shared. A large batch is rendered
piece by piece, because JSON is many times as long as Avro and memory must not depend on the block.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from typing import NamedTuple

from penstock.formats import avro, json_rows
from penstock.formats.json_rows import Spelling
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.serve.protocol import Changes

PIECE_BYTES = 64 << 10
_KEPT = 16
_KEPT_BYTES_MAX = 256 << 10


class Piece(NamedTuple):
    """A few changes of a block, the first of which has this ordinal."""

    batch: ChangeBatch
    ordinal: int


def pieces(batch: ChangeBatch) -> list[Piece]:
    """A batch in pieces that are small enough to be rendered at once."""
    if not batch.skip and len(batch.rows) <= PIECE_BYTES:
        return [Piece(batch, 0)]
    offsets = avro.row_offsets(batch.schema, batch.rows, batch.count)
    rows = memoryview(batch.rows)
    out = []
    first = batch.skip
    for ordinal in range(batch.skip, batch.count):
        if ordinal + 1 == batch.count or offsets[ordinal + 2] - offsets[first] > PIECE_BYTES:
            part = rows[offsets[first] : offsets[ordinal + 1]]
            out.append(Piece(dataclasses.replace(batch, rows=part, count=ordinal + 1 - first, skip=0), first))
            first = ordinal + 1
    return out


def json_frame(piece: Piece) -> bytes:
    """A changes frame with one line of JSON per change, the same object that `penstock log cat --json` prints."""
    batch = piece.batch
    rows = json_rows.lines(batch, Spelling.ASCII, ordinal=piece.ordinal)
    return Changes(batch.file, batch.offset, piece.ordinal, batch.count, rows).to_bytes()


class JsonFrames:
    """The frames of one log's newest small batches, shared by its clients and made by whoever asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: OrderedDict[tuple[Position, int, int], bytes] = OrderedDict()

    def frame(self, piece: Piece) -> bytes:
        """The frame of a piece. Called by several threads."""
        # A piece that was cut shorter, because what followed was erased since, is another one.
        place = Position(piece.batch.file, piece.batch.offset, piece.ordinal)
        key = place, piece.batch.count, len(piece.batch.rows)
        with self._lock:
            known = self._frames.get(key)
        if known is not None:
            return known
        frame = json_frame(piece)
        # Pieces of large batches may be cut differently for another client, so only whole batches are kept.
        if piece.ordinal == 0 and len(piece.batch.rows) <= PIECE_BYTES and len(frame) <= _KEPT_BYTES_MAX:
            with self._lock:
                self._frames[key] = frame
                while len(self._frames) > _KEPT:
                    self._frames.popitem(last=False)
        return frame
