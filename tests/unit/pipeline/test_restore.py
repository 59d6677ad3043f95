"""Restores of a pipeline's checkpoint, its tables and its logs, as docs/operate/backup.md tells them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import load_catalog

from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.files.sink import FilesSink
from penstock.errors import ChangesLost, CorruptCheckpoint, PenstockError
from penstock.settings import OnLoss, OnTrouble, Settings
from penstock.settings.sinks import DeltaSettings, IcebergSettings
from tests.query_stand_in import Crash, GoingOn, Query
from tests.unit.pipeline.test_losses import PEOPLE, STEPS, crash_at, person, put, rows, settings, times


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


def delta_ids(home: Path, table: str = "people") -> list[int]:
    """The keys of a Delta table, as another reader sees them, each as often as it is there."""
    found = QueryBuilder().register("t", DeltaTable(str(home / "lake/shop" / table))).execute("SELECT id FROM t")
    return sorted(row["id"] for batch in found for row in pa.record_batch(batch).to_pylist())


def iceberg_ids(home: Path, table: str = "people") -> list[int]:
    """The same of an Iceberg table."""
    where = home / "lake"
    catalog = load_catalog("penstock", type="sql", uri=f"sqlite:///{where}/penstock.db", warehouse=where.as_uri())
    return sorted(row["id"] for row in catalog.load_table(f"shop.{table}").scan().to_arrow().to_pylist())


def delta(home: Path, **changed: Any) -> Settings:
    lake = DeltaSettings(directory=home / "lake", **changed)
    return with_pipeline(settings(home), sinks=("delta",)).model_copy(update={"delta": lake})


def iceberg(home: Path, **changed: Any) -> Settings:
    lake = IcebergSettings(warehouse=home / "lake", **changed)
    return with_pipeline(settings(home), sinks=("iceberg",)).model_copy(update={"iceberg": lake})


def files(home: Path) -> Settings:
    return with_pipeline(settings(home), sinks=("files",))


Target = tuple[Callable[[Path], Settings], Callable[[Path], list[int]]]
TARGETS: dict[str, Target] = {
    "delta": (delta, delta_ids),
    "delta, a checkpoint of the log with each commit": (lambda home: delta(home, checkpoint_every=1), delta_ids),
    "delta, copy on write": (lambda home: delta(home, deletion_vectors=False), delta_ids),
    "delta, history": (
        lambda home: delta(home, current=False, history=True),
        lambda home: delta_ids(home, "people_history"),
    ),
    "iceberg": (iceberg, iceberg_ids),
    "iceberg, history": (
        lambda home: iceberg(home, current=False, history=True),
        lambda home: iceberg_ids(home, "people_history"),
    ),
    "files": (files, lambda home: [time - 10 for time in times(home)]),
}


def fall_back(home: Path, made: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checkpoint be as it was a single batch before the targets."""
    three_nodes_write(home, 1)
    Query(made, monkeypatch).start().run().stop()
    shutil.copytree(home / "checkpoint", home / "copy")
    three_nodes_write(home, 2)
    Query(made, monkeypatch).start().run().stop()
    put_back(home)


def put_back(home: Path) -> None:
    shutil.rmtree(home / "checkpoint")
    shutil.copytree(home / "copy", home / "checkpoint")


@pytest.mark.parametrize("target", TARGETS)
def test_checkpoint_a_single_batch_older_than_its_target_is_refused_and_nothing_passed_over(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, ids = TARGETS[target]
    made = with_pipeline(make(tmp_path), on_trouble=OnTrouble.FAIL)
    fall_back(tmp_path, made, monkeypatch)
    three_nodes_write(tmp_path, 3)
    query = Query(made, monkeypatch)
    for _ in range(2):
        with pytest.raises(CorruptCheckpoint, match="Give the pipeline another name") as refused:
            query.start().run()
        query.stop()
        assert str(refused.value.place["batch"]) == "1"
        # Where each log was read from and up to, by the batch that is there and by the one that is refused.
        assert len(re.findall(r"log \S+ from \S+ to \d+:\d+", str(refused.value))) >= 2
    assert ids(tmp_path) == [1, 2]
    # Where it was put back before the batch had begun, the same positions at another time are another batch too.
    put_back(tmp_path)
    with pytest.raises(CorruptCheckpoint, match="Give the pipeline another name"):
        query.start().run()
    query.stop()
    assert ids(tmp_path) == [1, 2]


@pytest.mark.parametrize("target", TARGETS)
def test_batch_that_was_under_way_when_the_copy_was_made_is_found_in_the_target(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, ids = TARGETS[target]
    made = with_pipeline(make(tmp_path), on_trouble=OnTrouble.FAIL)
    query = Query(made, monkeypatch)
    three_nodes_write(tmp_path, 1)
    query.start().run().stop()
    three_nodes_write(tmp_path, 2)
    with monkeypatch.context() as patched:
        crash_at(patched, STEPS["state"], after=False)
        with pytest.raises(Crash):
            query.start().run()
    query.stop()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    query.start().run().stop()
    put_back(tmp_path)
    three_nodes_write(tmp_path, 3)
    query.start().run().stop()
    assert ids(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "files"])
def test_table_that_refuses_an_older_checkpoint_does_so_under_later_numbers_too(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, ids = TARGETS[target]
    made = make(tmp_path)
    fall_back(tmp_path, made, monkeypatch)
    other = PEOPLE.table._replace(table="others")
    query = GoingOn(made, monkeypatch)
    for number in (3, 4):
        # Another table goes on meanwhile, so the number of the batch passes that of the table's last.
        put(tmp_path, "n1", person(number, 10 + number), schema=replace(PEOPLE, table=other))
        three_nodes_write(tmp_path, number)
        query.start().run().stop()
        (trouble,) = query.pipeline.status().troubles.values()
        assert trouble.error == "CorruptCheckpoint"
    assert ids(tmp_path) == [1, 2]


def test_target_of_an_earlier_version_without_the_plans_of_its_batches_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_pipeline(settings(tmp_path), on_trouble=OnTrouble.FAIL)
    query = Query(made, monkeypatch)
    three_nodes_write(tmp_path, 1)
    with monkeypatch.context() as patched:
        for sink in (DeltaSink, FilesSink):
            patched.setattr(sink, "begin_batch", lambda *_: None)
        crash_at(patched, STEPS["state"], after=False)
        with pytest.raises(Crash):
            query.start().run()
    query.start().run().stop()
    three_nodes_write(tmp_path, 2)
    query.start().run().stop()
    assert sorted(rows(tmp_path)) == [1, 2]
    assert times(tmp_path) == [11, 12]


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
