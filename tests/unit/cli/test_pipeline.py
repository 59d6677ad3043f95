"""`penstock pipeline`, `penstock run` and `penstock compare`: what they show, and how they end."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from rich.console import Console
from structlog.testing import capture_logs

from penstock.cli import pipeline, run
from penstock.cli.main import main
from penstock.cli.pipeline import About, PipelineView, facts
from penstock.model.schema import TableId
from penstock.pipeline.status import RUNS, PipelineStatus, SinkStatus, TableStatus, TroubleStatus
from penstock.pipeline.troubles import Trouble, Troubles
from penstock.settings import PipelineSettings, Settings
from penstock.telemetry import Notices

if TYPE_CHECKING:
    from penstock.pipeline.pipeline import Pipeline


def status() -> PipelineStatus:
    tables = {f"shop.t{n:02d}": TableStatus(copies=3 * n, records=n, lag_ms=12.34, rate=float(n)) for n in range(25)}
    return PipelineStatus(
        batch=7, batches=8, tables=tables, sinks={"kafka": SinkStatus(300, 4000, 1)}, batch_ms=20.0, stage=RUNS
    )


def test_programs_get_every_table() -> None:
    found = facts(status())
    assert found["copies"] == 900
    assert found["records"] == 300
    assert len(json.loads(json.dumps(found))["tables"]) == 25


def about(**values: object) -> About:
    settings = {
        "logs": ("/data/n1", "/data/n2"),
        "sinks": ("kafka", "delta", "search"),
        "checkpoint_directory": "/var/lib/penstock/pipeline",
        **values,
    }
    return About.of(Settings(pipeline=PipelineSettings.model_validate(settings)), "http://127.0.0.1:8001")


def lines(found: PipelineStatus, notices: Notices | None = None, *, ending: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=80, height=24, no_color=True)
    view = PipelineView(about(), found, notices or Notices(), ending=ending)
    drawn = console.render_lines(view, console.options.update(height=24))
    return ["".join(segment.text for segment in line) for line in drawn]


def test_view_holds_everything_on_a_terminal_of_80_by_24() -> None:
    found = status()
    found.state_rows, found.state_bytes = 1_000_000, 1 << 30
    found.troubles = {
        f"shop.t{n:02d}": TroubleStatus("CorruptLog", f"damage inside the log (file {n}.avro, offset 17)", 0)
        for n in range(2)
    }
    drawn = lines(found, Notices(3, "batch failed"))
    assert (len(drawn), {len(line) for line in drawn}) == (24, {80})
    shown = "\n".join(drawn)
    wanted = ["300 records of 900 copies", "batch 7, 20 ms", "2 log places", "*.*", "1,000,000 rows, 1.0 GiB"]
    wanted += ["/var/lib/penstock/pipeline", "http://127.0.0.1:8001", "Ctrl-C ends it in good order"]
    wanted += ["to kafka   300 records, 3.9 KiB   1 dead letter", "to delta", "to search"]
    wanted += ["3 warnings in the log, the last: batch failed"]
    wanted += [f"shop.t{n:02d} is in trouble: damage inside the log (file {n}.avro, offset 17)" for n in range(2)]
    wanted += ["table", "copies read", "records", "per second", "lag", "12 ms"]
    assert [part for part in wanted if part not in shown] == []
    # The busiest tables first, and the rest together.
    tables = [line.split()[1] for line in drawn if " ms " in line and "shop." in line]
    assert tables == [f"shop.t{24 - n}" for n in range(len(tables))]
    assert f"… and {25 - len(tables)} more" in shown


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"waiting": "the broker is away"}, "waiting: the broker is away"),
        ({"stage": "Spark starts …"}, "Spark starts …"),
        ({"batches": 0}, "no batch yet"),
    ],
)
def test_view_says_what_there_is_instead_of_a_batch(values: dict[str, object], said: str) -> None:
    shown = "\n".join(lines(replace(status(), **values)))  # type: ignore[arg-type]
    assert said in shown
    assert "batch 7" not in shown


def test_view_shows_each_step_of_the_end_and_how_to_cut_it_short() -> None:
    shown = " ".join(line.strip("│ ") for line in lines(status(), ending=True))
    assert "ending: the batch under way is finished, within 30 s …" in shown
    assert "Ctrl-C ends it at once, as a crash would" in shown
    assert "ending: Spark ends …" in "".join(lines(replace(status(), stage="Spark ends …"), ending=True))


def test_start_is_one_event_that_says_with_what_and_where() -> None:
    assert about(include=("shop.*",), agents=("https://n3:8000",)).facts() == {
        "tables": ["shop.*"],
        "logs": ["/data/n1", "/data/n2"],
        "agents": ["https://n3:8000"],
        "sinks": ["kafka", "delta", "search"],
        "checkpoint": "/var/lib/penstock/pipeline",
        "master": "local[*]",
        "http": "http://127.0.0.1:8001",
    }


def test_tables_in_trouble_are_given_to_programs_with_the_reason() -> None:
    troubled = status()
    troubled.troubles = {"shop.t03": TroubleStatus("CorruptLog", "damage inside the log", 0, for_s=12.0, tries=2)}
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
    (event,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert message in event["event"]
    assert event["level"] == "error"


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


_DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"


@pytest.fixture
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_own_signals")
def test_second_interrupt_ends_parts_that_do_not_want_to() -> None:
    parts = run._Parts({"agent": _script(_DEAF), "pipeline": _script(_DEAF)})
    for _ in range(2):
        os.kill(os.getpid(), signal.SIGINT)
    assert parts.run() == -signal.SIGKILL


class Stuck:
    """A pipeline that is in the middle of something, and hears nobody."""

    def __init__(self) -> None:
        self.stops = 0
        self.ended = threading.Event()

    def run(self, *, available_now: bool) -> None:
        self.ended.wait()

    def stop(self) -> None:
        self.stops += 1

    def status(self) -> PipelineStatus:
        # Each look is followed by one more Ctrl-C.
        os.kill(os.getpid(), signal.SIGINT)
        return status()


@pytest.mark.usefixtures("_own_signals")
def test_second_interrupt_ends_a_pipeline_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    stuck = Stuck()
    with capture_logs() as said, pytest.raises(KeyboardInterrupt):
        pipeline.run(cast("Pipeline", stuck), about(), once=False, json=False, watched=False)
    stuck.ended.set()
    assert stuck.stops == 1
    assert "pipeline ends; the batch under way is finished" in [event["event"] for event in said]
    assert capsys.readouterr().err == "ended at once; the batch under way is done again at the next start\n"
