"""Reaches as text and as Spark's offsets."""

from __future__ import annotations

import json

import pytest

from penstock.errors import CorruptCheckpoint
from penstock.model.position import START, Position
from penstock.pipeline.source.reach import BEGINNING, Reach, from_offset, parse, to_offset

REACHES = [
    BEGINNING,
    Reach(1, 5120, Position(1, 4096, 99), 1000),
    Reach(2, 312, Position(1, 4096, 99), 1000),
    Reach(1, 4096, Position(1, 4096, 9), 910),
    Reach(3, 312, START, 0),
]


@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_a_reach_comes_back_from_its_text(reach: Reach) -> None:
    assert parse(str(reach)) == reach


def test_a_reach_inside_a_block_says_how_much_of_it_is_taken() -> None:
    assert [reach.skip for reach in REACHES] == [0, 0, 0, 10, 0]


def test_an_offset_is_flat_json_in_a_fixed_order() -> None:
    offset = to_offset({"b": REACHES[1], "a": REACHES[0]})
    assert list(offset) == ["format", "a", "b"]
    assert all(isinstance(value, int | str) for value in offset.values())
    assert from_offset(json.loads(json.dumps(offset))) == {"b": REACHES[1], "a": REACHES[0]}


def test_an_offset_of_a_thousand_logs_stays_small() -> None:
    reaches = {
        f"{number:032x}": Reach(12, 268_000_000, Position(12, 267_000_000, 999), 10**9) for number in range(1000)
    }
    assert len(json.dumps(to_offset(reaches))) < 90_000


@pytest.mark.parametrize("offset", [{}, {"format": 2}, {"offset": 7}, {"format": "1"}])
def test_an_offset_of_another_source_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(CorruptCheckpoint, match="offsets of format"):
        from_offset(offset)


@pytest.mark.parametrize("text", ["", "1", "1:2:3", "a:b:c:d:e", "1:2:3:4:5:6:7", "-1:0:0:0:0", "1:2:3:4:5\n"])
def test_an_offset_with_strange_text_is_refused(text: str) -> None:
    with pytest.raises(CorruptCheckpoint, match="not one of change logs"):
        from_offset({"format": 1, "a": text})
