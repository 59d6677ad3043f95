"""Waking a query at a second that somebody wrote down."""

from __future__ import annotations

from pathlib import Path

from penstock.pipeline.source.reach import from_offset, tick_of, to_offset
from penstock.pipeline.source.source import Wake
from tests.numbered import ManualClock


def test_a_second_that_has_come_is_answered_once(tmp_path: Path) -> None:
    clock, file = ManualClock(100), tmp_path / "due"
    wake = Wake(str(file), clock.now_us)
    assert wake.tick(0) == 0
    file.write_text("105\n")
    assert wake.tick(0) == 0
    clock.now_s = 105
    assert wake.tick(0) == 105
    assert wake.tick(105) == 105
    file.write_text("104")
    assert wake.tick(105) == 105


def test_a_query_that_is_to_end_is_not_woken_for_later_seconds(tmp_path: Path) -> None:
    clock, file = ManualClock(100), tmp_path / "due"
    wake = Wake(str(file), clock.now_us)
    wake.freeze()
    clock.now_s = 200
    file.write_text("150")
    assert wake.tick(0) == 0
    file.write_text("99")
    assert wake.tick(0) == 99


def test_what_is_no_second_wakes_nobody(tmp_path: Path) -> None:
    file = tmp_path / "due"
    for text in ("", "soon", "-5", "1.5"):
        file.write_text(text)
        assert Wake(str(file), ManualClock().now_us).tick(3) == 3
    assert Wake(None, ManualClock().now_us).tick(3) == 3


def test_an_offset_carries_the_second_beside_the_reaches() -> None:
    offset = to_offset({}, 105)
    assert (tick_of(offset), from_offset(offset)) == (105, {})
    assert tick_of(to_offset({})) == 0
