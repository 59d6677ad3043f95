"""What Spark's Java machine writes: lines become events of the log, and the last ones are kept."""

from __future__ import annotations

import json
import logging
import os
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from penstock.pipeline.session import JavaOutput

PATIENCE_S = 60


def events(*chunks: bytes, answers: bool = True) -> tuple[list[Any], str]:
    """The events that lines became, and the last words."""
    with capture_logs() as said:
        output = JavaOutput()
        if answers:
            output.answers()
        for chunk in chunks:
            os.write(output.writer, chunk)
        output.close_writer()
        words = output.last_words(PATIENCE_S)
    return said, words


def test_a_line_that_is_an_event_keeps_its_level_and_its_facts() -> None:
    ours = {"event": "brokers away", "level": "warning", "timestamp": "then", "producer": "p-1", "waiting": 7}
    theirs = {"event": "no space left", "level": "fatal", "logger": "spark.DiskStore", "exception": ""}
    said, words = events(json.dumps(ours).encode() + b"\n" + json.dumps(theirs).encode() + b"\n")
    assert said == [
        {"event": "brokers away", "log_level": "warning", "logger": "spark", "producer": "p-1", "waiting": 7},
        {"event": "no space left", "log_level": "critical", "logger": "spark.DiskStore"},
    ]
    assert words == "\n  brokers away\n  no space left"


def test_any_other_line_is_the_text_of_an_event() -> None:
    said, _ = events(b'Traceback\n\n{"level":"info"}\n{torn', b" off\n[1]\nbytes \xff\n", b"without an end")
    assert [event["event"] for event in said] == [
        "Traceback",
        '{"level":"info"}',
        "{torn off",
        "[1]",
        "bytes \\xff",
        "without an end",
    ]
    assert {event["log_level"] for event in said} == {"info"}


def test_what_is_written_on_the_way_to_the_start_is_for_those_who_look_closely() -> None:
    said, words = events(b"WARNING: Using incubator modules\n", answers=False)
    assert said == [{"event": "WARNING: Using incubator modules", "log_level": "debug", "logger": "spark"}]
    assert words == "\n  WARNING: Using incubator modules"


def test_a_program_without_structlog_is_told_by_pythons_logging_and_nothing_is_printed(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, configured = structlog.get_config(), structlog.is_configured()
    structlog.reset_defaults()
    # Nor has it ever set our log up, as this process may have.
    monkeypatch.setattr(logging.root, "handlers", [caplog.handler])
    try:
        output = JavaOutput()
        os.write(output.writer, b'Setting Spark log level\n{"event":"no room","level":"error","disk":1}\n')
        output.close_writer()
        output.last_words(PATIENCE_S)
    finally:
        if configured:
            structlog.configure(**before)
    assert [record.getMessage() for record in caplog.records] == ["no room logger=spark disk=1"]
    assert capsys.readouterr().out == ""


def test_a_flood_takes_no_more_memory_than_its_last_lines() -> None:
    said, words = events(*(b"%d\n" % number for number in range(100)), b"x" * 20_000)
    assert len(said) == 101
    assert words.split() == [*map(str, range(89, 100)), "x" * 300]
