"""Output: what people and programs see."""

from __future__ import annotations

import json
import os

import pytest

from penstock.cli import output
from penstock.errors import CorruptLog, InvalidInput, InvalidStatement
from penstock.model.instant import parse_instant

HOUR_US = 3600 * 10**6


def test_objects_are_single_lines_with_their_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit({"table": "ks.größe", "text": "two\nlines"})
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {"table": "ks.größe", "text": "two\nlines"}
    assert "größe" in line


def test_columns_line_up_and_numbers_stand_right(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("file", "size", "changes"), [("a", "2.0 KiB", 5), ("long name", "17 B", 1234)])
    assert capsys.readouterr().out.splitlines() == [
        "file          size  changes",
        "a          2.0 KiB        5",
        "long name     17 B     1234",
    ]


def test_empty_table_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("file", "size"), [])
    assert capsys.readouterr().out == "file  size\n"


def test_control_characters_cannot_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.pairs({"table": "ks.\x1b[2J"})
    output.report(CorruptLog("bad \x1b]0;x\x07", file="a\nb"))
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "\\x1b[2J" in shown.out


def test_error_is_a_line_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    output.report(CorruptLog("damage inside the log", file="x.avro", offset=17))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "penstock: damage inside the log (file x.avro, offset 17)"
    assert second.startswith("  hint: Run `penstock log verify`")


def test_statement_error_keeps_its_caret_under_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    output.report(InvalidStatement("unexpected word\nCREATE CDC_LGO\n       ^"))
    assert capsys.readouterr().err.splitlines()[1:3] == ["CREATE CDC_LGO", "       ^"]


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 52, "4096.0 TiB")]
)
def test_sizes_are_for_people(count: int, shown: str) -> None:
    assert output.size(count) == shown


@pytest.mark.parametrize(
    ("text", "time_us"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        ("1970-01-02", 24 * HOUR_US),
        ("90m", 100 * HOUR_US - 90 * 60 * 10**6),
        ("1.5h", 100 * HOUR_US - 90 * 60 * 10**6),
        ("5 s", 100 * HOUR_US - 5 * 10**6),
    ],
)
def test_times_are_dates_or_a_while_ago(text: str, time_us: int) -> None:
    assert parse_instant(text, 100 * HOUR_US) == time_us


@pytest.mark.parametrize("text", ["", "yesterday", "10x", "2026-13-01", "m"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a time"):
        parse_instant(text, 0)


def test_instants_outside_the_calendar_stay_numbers() -> None:
    assert output.instant(0) == "1970-01-01T00:00:00.000000Z"
    assert output.instant(None) == "-"
    assert output.instant(1 << 62) == f"{1 << 62}us"


def test_closed_pipe_is_noticed_without_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        assert not output.reader_is_gone()
        os.close(reading)
        assert output.reader_is_gone()
