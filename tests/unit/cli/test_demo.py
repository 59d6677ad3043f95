"""`penstock demo`: its options, its view, and how it ends when a write is missing."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli import demo, demo_run
from penstock.cli.live_view import Figures, NodeFigures, ReaderFigures, View
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


def full(nodes: int = 5) -> Figures:
    """Figures as large as they get: the demo ends by itself after a million writes."""
    figures = Figures(elapsed_s=3600.0, acknowledged=1_000_000, refused=12_300, rate=12_345.0)
    figures.directory = "/srv/somebody/at/a/place/that/is/somewhat/further/down/than/others/in/the/tree/demo"
    figures.pipeline = "1,234,567 records in 12,345 batches, of 12,345,678 logged changes"
    centres = (("dc1", 1 + nodes // 2), ("dc2", nodes - nodes // 2 - 1))
    names = [(centre, f"{centre}-{number + 1}") for centre, count in centres for number in range(count)]
    figures.nodes = [NodeFigures(name, centre, name != "dc2-1", 3_000_000, 1 << 30, 128, 1e5) for centre, name in names]
    readers = (("billing", "shop.orders"), ("search", "shop.users"), ("archive", "shop.readings"))
    figures.readers = [ReaderFigures(name, table, "dc2-2", 1_000_000, 99_999, 9999.9, 1e4) for name, table in readers]
    figures.events.extend(f"{number}: dc1-2 was killed; the others go on and keep hints for it" for number in range(9))
    figures.history.extend([0.0, 500.0, 950.0] * 16)
    return figures


def lines(figures: Figures, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, no_color=True)
    drawn = console.render_lines(View(figures), console.options.update(height=height))
    return ["".join(segment.text for segment in line) for line in drawn]


def test_view_holds_everything_on_a_terminal_of_80_by_24() -> None:
    figures = full()
    drawn = lines(figures)
    assert len(drawn) == 24
    assert {len(line) for line in drawn} == {80}
    shown = "\n".join(drawn)
    assert "…" not in shown, "something was cut"
    wanted = ["1,000,000 writes acknowledged", "12,300 refused", "12,345/s", "3,600 s", figures.pipeline, "down"]
    wanted += [node.name for node in figures.nodes] + ["3,000,000", "100,000", "1.0 GiB", "128"]
    wanted += [word for one in figures.readers for word in (one.name, one.table)] + ["99,999", "9,999.9 ms"]
    wanted += ["node", "data centre", "state", "logged", "per second", "log size", "files"]
    wanted += ["subscription", "table", "on node", "read", "behind", "age", "Ctrl-C ends the load"]
    # The newest events, and the whole of the directory over as many lines as it takes.
    wanted += [f"{number}: dc1-2 was killed; the others go on and keep hints for it" for number in range(4, 9)]
    assert [part for part in wanted if part not in shown] == []
    assert figures.directory in "".join(line.strip("│ ") for line in drawn)


def test_view_shows_the_steps_of_the_end_and_how_to_cut_it_short() -> None:
    figures = full()
    for step in ("the load has ended", "every node is up", "subscribers read the rest"):
        figures.begin(step)
    figures.tell("subscribers read the rest: billing")
    shown = [line.strip("│ ") for line in lines(figures)]
    assert "✓ the load has ended" in shown
    assert "✓ every node is up" in shown
    assert "▸ subscribers read the rest: billing" in shown
    assert "Ctrl-C ends it at once, and nothing is checked" in shown[-1]
    assert "was killed" not in "".join(shown)


def test_nodes_without_room_are_counted_and_those_that_are_down_are_seen() -> None:
    drawn = lines(full(24))
    assert len(drawn) == 24
    (down,) = [line for line in drawn if "dc2-1 " in line]
    assert "down" in down
    (rest,) = [line for line in drawn if " more " in line]
    assert rest.split()[1] == str(24 - sum("dc1-" in line or "dc2-1 " in line for line in drawn if "GiB" in line))
    assert "1 more table" not in "".join(drawn)


def test_view_fits_a_small_terminal() -> None:
    drawn = lines(Figures(directory="here"), 60, 16)
    assert (len(drawn), {len(line) for line in drawn}) == (16, {60})
    assert "here" in "".join(drawn)
