"""`penstock pipeline`, `penstock run` and `penstock compare`: what they show, and how they end."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli import run
from penstock.cli.main import main
from penstock.cli.pipeline import facts, picture
from penstock.pipeline.status import PipelineStatus, SinkStatus, TableStatus


def status() -> PipelineStatus:
    tables = {f"shop.t{n:02d}": TableStatus(copies=3 * n, records=n, lag_ms=12.34, rate=float(n)) for n in range(25)}
    return PipelineStatus(batch=7, batches=8, tables=tables, sinks={"kafka": SinkStatus(300, 4000, 1)}, batch_ms=20.0)


def test_programs_get_every_table() -> None:
    found = facts(status())
    assert found["copies"] == 900
    assert found["records"] == 300
    assert len(json.loads(json.dumps(found))["tables"]) == 25


def test_people_see_the_busiest_tables_first() -> None:
    out = Console(file=io.StringIO(), width=100)
    out.print(picture(status()))
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert text.index("shop.t24") < text.index("shop.t05")
    assert "shop.t04" not in text
    assert "and 5 more" in text
    assert "batch 7, 20 ms" in text


def test_waiting_is_said_instead_of_the_batch() -> None:
    waiting = status()
    waiting.waiting = "the broker is away"
    out = Console(file=io.StringIO(), width=120)
    out.print(picture(waiting))
    assert isinstance(out.file, io.StringIO)
    assert "waiting: the broker is away" in out.file.getvalue()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pipeline]\n", "no sink is named"),
        ('[pipeline]\nsinks = ["kafkaa"]\n', "no such sink: 'kafkaa'"),
        ('[pipeline]\nsinks = ["files", "files"]\n', "a sink is named twice"),
        ('[pipeline]\nsinks = ["mine"]\n[pipeline.own_sinks]\nmine = "json:dumps"\n', "is no Sink"),
        ('[pipeline]\nsinks = ["mine"]\n[pipeline.own_sinks]\nmine = "nothing_here:Sink"\n', "cannot import module"),
        ('[pipeline]\nsinks = ["files"]\n[transform.filters]\n"a.b" = "x >"\n', "not a condition"),
    ],
)
def test_wrong_settings_are_one_line_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(text)
    assert main(["pipeline", str(config)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def _script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


_SLEEPER = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); signal.pause()"


def test_part_that_fails_ends_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        parts = run._Parts({"agent": _script("raise SystemExit(3)"), "pipeline": _script(_SLEEPER)})
        assert parts.run() == 3
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "the agent ended with 3" in capsys.readouterr().err


def test_parts_that_end_well_end_with_zero() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        assert run._Parts({"agent": _script("pass"), "pipeline": _script("pass")}).run() == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
