"""Restores of a pipeline's checkpoint, its tables and its logs, as docs/operate/backup.md tells them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.errors import ChangesLost, PenstockError
from penstock.settings import OnLoss, Settings
from tests.query_stand_in import Query
from tests.unit.pipeline.test_losses import person, put, rows, settings, times


def with_pipeline(made: Settings, **changed: object) -> Settings:
    return made.model_copy(update={"pipeline": made.pipeline.model_copy(update=changed)})


@pytest.fixture
def made(tmp_path: Path) -> Settings:
    return settings(tmp_path)


def three_nodes_write(home: Path, number: int) -> None:
    for node in ("n1", "n2", "n3"):
        put(home, node, person(number, 10 + number, name=f"v{number}"))


def test_checkpoint_and_targets_of_one_moment_go_on_from_there(
    tmp_path: Path, made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ("checkpoint", "lake", "files")
    three_nodes_write(tmp_path, 1)
    Query(made, monkeypatch).start().run().stop()
    for part in parts:
        shutil.copytree(tmp_path / part, tmp_path / "copy" / part)
    three_nodes_write(tmp_path, 2)
    Query(made, monkeypatch).start().run().stop()
    for part in parts:
        shutil.rmtree(tmp_path / part)
        shutil.copytree(tmp_path / "copy" / part, tmp_path / part)
    three_nodes_write(tmp_path, 3)
    Query(made, monkeypatch).start().run().stop()
    assert rows(tmp_path) == {number: (f"v{number}", None) for number in (1, 2, 3)}
    assert times(tmp_path) == [11, 12, 13]


def test_older_checkpoint_is_refused_by_the_table_and_a_new_name_goes_on(
    tmp_path: Path, made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_pipeline(made, sinks=("delta",))
    three_nodes_write(tmp_path, 1)
    Query(made, monkeypatch).start().run().stop()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    for number in (2, 3):
        three_nodes_write(tmp_path, number)
        Query(made, monkeypatch).start().run().stop()
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "copy", tmp_path / "checkpoint")
    three_nodes_write(tmp_path, 4)
    with pytest.raises(PenstockError, match="Give the pipeline another name"):
        Query(with_pipeline(made, on_trouble="fail"), monkeypatch).start().run()
    anew = with_pipeline(made, name="anew", checkpoint_directory=tmp_path / "another")
    Query(anew, monkeypatch).start().run().stop()
    assert rows(tmp_path) == {number: (f"v{number}", None) for number in (1, 2, 3, 4)}


def test_one_nodes_logs_that_were_made_anew_are_read_again_and_change_nothing_twice(
    tmp_path: Path, made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        three_nodes_write(tmp_path, number)
    Query(made, monkeypatch).start().run().stop()
    # The disk of one agent is lost; it begins anew and has what its node's archived segments held.
    shutil.rmtree(tmp_path / "n3")
    for number in (1, 2, 3):
        put(tmp_path, "n3", person(number, 10 + number, name=f"v{number}"))
    with pytest.raises(ChangesLost, match="is gone"):
        Query(made, monkeypatch).start().run()
    Query(with_pipeline(made, on_loss=OnLoss.SKIP), monkeypatch).start().run().stop()
    assert rows(tmp_path) == {number: (f"v{number}", None) for number in (1, 2, 3)}
    assert times(tmp_path) == [11, 12, 13]
