"""`penstock demo`: its options, its view, and how it ends when a write is missing."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli import demo, demo_run
from penstock.cli.live_view import Figures, NodeFigures, ReaderFigures, picture
from penstock.cli.main import main
from penstock.errors import InvalidInput
from penstock.model.schema import TableId
from penstock.sandbox.checker import Lack, Verdict


def test_clusters_are_data_centres_with_numbers_of_nodes() -> None:
    assert demo.parse_nodes("dc1=3, dc2=2") == {"dc1": 3, "dc2": 2}


@pytest.mark.parametrize("text", ["", "3", "dc1", "dc1=0", "dc1=3,", "dc1=1,dc1=2", "../x=1", "dc1=25", "a=12,b=13"])
def test_other_clusters_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        demo.parse_nodes(text)


def test_missing_write_is_shown_and_exits_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lack = Lack(17, TableId("shop", "orders"), ("dc1-1",), ())
    monkeypatch.setattr(demo_run, "check", lambda *_: Verdict(changes_acknowledged=20, lacks=[lack]))
    assert main(["demo", "--rows", "20", "--no-spark", "--nodes", "dc1=1"]) == 1
    assert "LOST: 1 acknowledged write not where" in capsys.readouterr().out


def test_directory_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert main(["demo", "--rows", "1", "--no-spark", "--dir", str(file)]) == 1
    assert "cannot use the directory" in capsys.readouterr().err


def test_settings_reach_the_logs_and_unknown_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[log]\ncodec = "zstandard"\nfile_bytes_max = 8192\n')
    command = ["demo", "--rows", "300", "--no-spark", "--nodes", "dc1=1", "--dir", str(tmp_path / "demo")]
    command += ["--config", str(config)]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"][0]["files"] > 3
    assert main(["log", "stat", str(tmp_path / "demo"), "--json"]) == 0
    assert {json.loads(line)["codec"] for line in capsys.readouterr().out.splitlines()} == {"zstandard"}
    monkeypatch.setenv("PENSTOCK_LOG__CODEK", "null")
    assert main(command) == 1
    error = capsys.readouterr().err
    assert "unknown setting log.codek; did you mean log.codec? (variable PENSTOCK_LOG__CODEK)" in error


def test_view_shows_rates_lag_files_and_nodes_that_are_down() -> None:
    figures = Figures(elapsed_s=12.0, written=2000, acknowledged=1990, refused=10, rate=950.0, directory="here")
    figures.nodes = [NodeFigures("dc1-1", "dc1", True, 1990, 4096, 3, 900.0), NodeFigures("dc1-2", "dc1", False)]
    figures.readers = [ReaderFigures("billing", "shop.orders", "dc1-1", 500, 12, 3.25, 240.0)]
    figures.events.append("dc1-2 was killed")
    figures.history.extend([0.0, 500.0, 950.0])
    out = io.StringIO()
    Console(file=out, width=110, no_color=True).print(picture(figures))
    shown = out.getvalue()
    for part in (
        "1,990 writes acknowledged",
        "10 refused",
        "950/s",
        "4.0 KiB",
        "down",
        "billing",
        "3.2 ms",
        "was killed",
    ):
        assert part in shown


def test_view_fits_a_narrow_terminal() -> None:
    out = io.StringIO()
    Console(file=out, width=60, no_color=True).print(picture(Figures(directory="here")))
    assert max(map(len, out.getvalue().splitlines())) <= 60
