"""JSON frames: whole lines, exact positions, pieces of bounded size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from penstock.log.table_log import TableLog
from penstock.serve import rendering
from penstock.serve.protocol import REPLIES, REPLY_BYTES_MAX, Changes, Parser, parse
from penstock.serve.rendering import JsonFrames, Piece, json_frame, pieces
from tests.listening import JSON, connect, listening, log_directory, receive_frames
from tests.numbered import SCHEMA, batch


def lines(frame: bytes) -> list[dict[str, object]]:
    changes = parse(Parser(REPLIES, REPLY_BYTES_MAX).feed(frame)[0])
    assert isinstance(changes, Changes)
    found = [json.loads(line) for line in bytes(changes.rows).decode().splitlines()]
    assert len(found) == changes.count
    return found


@pytest.mark.parametrize(
    ("count", "pad", "skip"), [(1, 0, 0), (5, 0, 2), (500, 1000, 0), (500, 1000, 499), (3, 200_000, 1)]
)
def test_pieces_hold_each_change_once_and_are_small(count: int, pad: int, skip: int) -> None:
    whole = dataclasses.replace(batch(0, count, pad), file=7, offset=4096, skip=skip)
    found = pieces(whole)
    assert [piece.ordinal for piece in found] == sorted({piece.ordinal for piece in found})
    assert all(len(piece.batch.rows) <= rendering.PIECE_BYTES or piece.batch.count == 1 for piece in found)
    objects = [one for piece in found for one in lines(json_frame(piece))]
    assert [one["position"] for one in objects] == [f"000007:4096:{ordinal}" for ordinal in range(skip, count)]
    assert [one["key"] for one in objects] == [{"id": number} for number in range(skip, count)]


def test_line_says_what_the_change_is() -> None:
    [one] = lines(json_frame(pieces(dataclasses.replace(batch(3), file=1, offset=99))[0]))
    assert one["position"] == "000001:99:0"
    assert (one["table"], one["schema_version"], one["op"]) == ("shop.orders", 1, "insert")


def test_small_batches_are_rendered_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = JsonFrames()
    [piece] = pieces(dataclasses.replace(batch(1, 3), file=1, offset=50))
    first = frames.frame(piece)
    monkeypatch.setattr(rendering, "json_frame", lambda _: pytest.fail("rendered again"))
    assert frames.frame(piece) is first


def test_kept_frames_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = JsonFrames()
    rendered: list[Piece] = []

    def render(piece: Piece) -> bytes:
        rendered.append(piece)
        return b"frame"

    monkeypatch.setattr(rendering, "json_frame", render)
    for _ in range(2):
        for offset in range(100):
            frames.frame(pieces(dataclasses.replace(batch(1), file=1, offset=offset + 1))[0])
    assert len(rendered) == 200


def test_json_client_gets_lines_from_memory_and_from_files(tmp_path: Path) -> None:
    with TableLog.open(log_directory(tmp_path), SCHEMA) as log, listening(tmp_path) as (listener, _):
        log.append(batch(0, 300, pad=2000))
        with connect(listener, format=JSON) as client:
            frames = receive_frames(client, 300)
            assert len(frames) > 5
            log.append(batch(300, 2))
            frames += receive_frames(client, 2)
            numbers = [json.loads(line)["key"]["id"] for frame in frames for line in bytes(frame.rows).splitlines()]
            assert numbers == list(range(302))
