"""`penstock sql`: statements from the command line, and what is said about wrong ones."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.log.catalog import Catalog, LogEntry
from penstock.model.schema import TableId

TABLE = "CREATE TABLE ks.t (id int PRIMARY KEY, c1 int, c2 text) WITH CDC LOG"


@pytest.fixture
def root(tmp_path: Path) -> str:
    assert main(["sql", TABLE, "--dir", str(tmp_path)]) == 0
    return str(tmp_path)


def test_statements_change_the_catalog(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "CREATE CDC_LOG big ON t WHERE c1 > 5", "--keyspace", "ks", "--dir", root]) == 0
    assert main(["sql", "DROP CDC_LOG big ON ks.t", "--dir", root, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "log big on ks.t created"
    assert json.loads(lines[-1]) == {
        "changed": True,
        "message": "log big on ks.t dropped",
        "notes": ["its files stay until they are deleted"],
    }


def test_a_dry_run_says_what_would_be_and_leaves_the_catalog(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    def contents() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in Path(root).iterdir()}

    before = contents()
    capsys.readouterr()
    create = ["sql", "CREATE CDC_LOG big ON ks.t WHERE c1 > 5", "--dir", root, "--dry-run"]
    for _ in range(2):
        assert main(create) == 0
        assert capsys.readouterr().out == "nothing was done; it would be: log big on ks.t created\n"
    assert main([*create, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "changed": False,
        "would_change": True,
        "message": "log big on ks.t created",
        "notes": [],
    }
    # It is refused what the statement itself would be.
    assert main(["sql", "DROP CDC_LOG big ON ks.t", "--dir", root, "--dry-run"]) == 1
    assert "there is no log big on ks.t" in capsys.readouterr().err
    assert main(["sql", TABLE, "--dir", root, "--dry-run"]) == 1
    assert "exists already" in capsys.readouterr().err
    assert contents() == before
    with Catalog.open(root) as catalog:
        assert catalog.logs() == []
        # Beside somebody who has it open and has just written, too.
        catalog.add_log(LogEntry(TableId("ks", "t"), "big"))
        assert main(create) == 1
        assert len(catalog.logs()) == 1


def test_a_dry_run_makes_no_catalog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "new"
    assert main(["sql", TABLE, "--dir", str(place), "--dry-run"]) == 0
    assert "it would be: table ks.t created" in capsys.readouterr().out
    assert not place.exists()


def test_a_typo_is_shown_with_its_place(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "CREATE CDC_LOGG big ON ks.t", "--dir", root]) == 1
    shown = capsys.readouterr().err
    assert "did you mean CDC_LOG?" in shown
    assert "       ^ (line 1, column 8)" in shown


def test_functions_come_from_the_settings(root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    statement = "CREATE CDC_LOG mylog ON ks.t WHERE MyUdf(c1, c2) = 5 WITH DCs = {'dc1','dc3'}"
    assert main(["sql", statement, "--dir", root]) == 1
    assert "there is no function myudf" in capsys.readouterr().err
    config = tmp_path / "penstock.toml"
    config.write_text('[functions]\nMyUdf = "operator:add"\n')
    assert main(["sql", statement, "--dir", root, "--config", str(config)]) == 0


def test_a_statement_may_come_from_standard_input(
    root: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("CREATE CDC_LOG a\nON ks.t;"))
    assert main(["sql", "-", "--dir", root]) == 0
    assert "log a on ks.t created" in capsys.readouterr().out
