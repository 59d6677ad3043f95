"""`penstock dead-letters` for changes that cannot be folded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.fold.poison import Poison
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model.change import Change, Op, Set
from penstock.pipeline.dead_letters import DeadLetterStore, poison_letter
from tests import sample


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A pipeline with three letters of the fold: one that can be read, one that cannot, one of a newer schema."""
    whole = bytes(avro.encode(sample.SCHEMA, [Change(Op.INSERT, {"id": 7}, {"note": Set("spoilt")})]).rows)
    wider = bytes(avro.encode(sample.WIDER, [Change(Op.INSERT, {"id": 8}, {"paid": Set(True)})]).rows)
    letters = [
        poison_letter(Poison(sample.SCHEMA, whole, "no time")),
        poison_letter(Poison(sample.SCHEMA, whole.replace(b"spoilt", b"\xff\xfeoilt"), "no text")),
        poison_letter(Poison(sample.WIDER, wider, "no time")),
    ]
    DeadLetterStore(tmp_path / "checkpoint" / "dead-letters").add(3, letters)
    file = tmp_path / "penstock.toml"
    file.write_text(f'[pipeline]\ncheckpoint_directory = "{tmp_path}/checkpoint"\n')
    return file


def test_what_can_be_read_of_a_letter_is_shown(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead-letters", "show", str(config), "3-0"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["sink"], shown["reason"], shown["record"]["key"]) == ("fold", "no time", {"id": 7})
    assert main(["dead-letters", "show", str(config), "3-1"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert b"\xff\xfeoilt" in bytes.fromhex(shown["row"])


def test_letters_of_the_fold_go_to_logs_that_the_pipeline_reads(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dead-letters", "replay", str(config), "--all"]) == 0
    assert capsys.readouterr().out == "fold: 3 given back to the pipeline, for its next batch\n"
    with LogReader(str(config.parent / "checkpoint" / "replayed" / "shop.orders")) as reader:
        assert sum(batch.count for batch in reader.read()) == 3
    assert main(["dead-letters", "ls", str(config)]) == 0
    assert capsys.readouterr().out == "there are no dead letters\n"


@pytest.mark.parametrize("command", ["replay", "remove"])
def test_a_dry_run_lists_the_letters_and_leaves_them(
    config: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert main(["dead-letters", command, str(config), "--all", "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert main(["dead-letters", "ls", str(config), "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert not (config.parent / "checkpoint" / "replayed").exists()
