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
from penstock.model.schema import TableId
from penstock.pipeline.status import PipelineStatus, SinkStatus, TableStatus, TroubleStatus
from penstock.pipeline.troubles import Trouble, Troubles


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


def test_tables_in_trouble_are_named_with_the_reason() -> None:
    troubled = status()
    troubled.troubles = {"shop.t03": TroubleStatus("CorruptLog", "damage inside the log", 0, for_s=12.0, tries=2)}
    out = Console(file=io.StringIO(), width=120)
    out.print(picture(troubled))
    assert isinstance(out.file, io.StringIO)
    assert "shop.t03 is in trouble: damage inside the log" in out.file.getvalue()
    found = json.loads(json.dumps(facts(troubled)))["troubles"]["shop.t03"]
    assert (found["error"], found["reason"], found["tries"]) == ("CorruptLog", "damage inside the log", 2)


def test_retry_asks_for_a_table_in_trouble_and_refuses_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text('[pipeline]\nsinks = ["files"]\ncheckpoint_directory = "checkpoint"\n')
    assert main(["pipeline", "retry", "shop.plums"]) == 1
    assert "there is no trouble with this table (table shop.plums)" in capsys.readouterr().err
    troubles = Troubles(Path("checkpoint/troubles"))
    troubles.write(Trouble(TableId("shop", "plums"), "CorruptLog", "damage inside the log", 0))
    assert main(["pipeline", "retry", "shop.plums", "--dry-run"]) == 0
    assert "shop.plums would be tried again" in capsys.readouterr().out
    assert troubles.asked() == set()
    assert main(["pipeline", "retry", "shop.plums", "penstock.toml", "--json"]) == 0
    asked = {"table": "shop.plums", "requested": True, "reason": "damage inside the log"}
    assert json.loads(capsys.readouterr().out) == asked
    assert troubles.asked() == {"shop.plums"}


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
