"""A pipeline's first state from Delta tables: what is loaded, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.cli.main import main
from penstock.deliver.lakehouse.types import lake_schema
from penstock.errors import InvalidInput, InvalidSetting, InvalidValue, PipelineLocked
from penstock.fold import bootstrap
from penstock.fold.state import StateStore
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline.beginning import begin_from_delta, rehearse_from_delta
from penstock.pipeline.checkpoint import Checkpoint
from penstock.pipeline.driver_lock import DriverLock
from penstock.settings import PipelineSettings, RecordType, Settings, TransformSettings
from penstock.settings.sinks import DeltaSettings
from tests.folding import Pipeline, runs_of

PARTS = TableSchema(
    TableId("shop", "parts"),
    (Column("id", t.UUID, Role.PARTITION), Column("count", t.INT32), Column("weights", t.list_of(t.FLOAT64))),
)
OTHER = TableSchema(TableId("shop", "other"), (Column("id", t.INT32, Role.PARTITION), Column("n", t.INT32)))


def key(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


def settings(home: Path, **more: Any) -> Settings:
    pipeline = PipelineSettings(checkpoint_directory=home / "checkpoint", logs=(str(home / "n1"),), buckets=2)
    return Settings(pipeline=pipeline, delta=DeltaSettings(directory=home / "lake"), **more)


def made(home: Path, rows: list[dict[str, Any]]) -> None:
    """A Delta table of parts, and a log for it and for a table that has none."""
    write_deltalake(str(home / "lake/shop/parts"), pa.Table.from_pylist(rows, lake_schema(PARTS)))
    for schema in (PARTS, OTHER):
        with TableLog.open(str(home / "n1" / str(schema.table)), schema, node="n1"):
            pass


def told(home: Path, *changes: Change) -> list[tuple[Any, Any]]:
    pipeline = Pipeline(str(home / "checkpoint/state"), 2, RecordType.ALL)
    found = []
    for records in pipeline.fold(runs_of(PARTS, "n1", changes, 2), 0):
        assert records.before is not None
        assert records.after is not None
        found += list(zip(records.before.to_pylist(), records.after.to_pylist(), strict=True))
    return found


def test_every_row_is_known_however_many_are_folded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_CHANGES", 10)
    rows = [{"id": key(number), "count": number, "weights": [0.5, float("nan")]} for number in range(95)]
    made(tmp_path, rows)
    assert begin_from_delta(settings(tmp_path), [], 0) == {PARTS.table: 95}
    assert StateStore(str(tmp_path / "checkpoint/state"), 2).size()[0] == 95
    update = Change(Op.UPDATE, {"id": UUID(key(40))}, {"count": Set(7)}, time=1)
    ((before, after),) = told(tmp_path, update)
    assert (before["count"], after["count"], after["weights"][0]) == (40, 7, 0.5)


def test_writes_up_to_the_given_time_are_in_the_target(tmp_path: Path) -> None:
    made(tmp_path, [{"id": key(1), "count": 1, "weights": None}])
    begin_from_delta(settings(tmp_path), [PARTS.table], 1_000)
    late, new = (Change(Op.UPDATE, {"id": UUID(key(1))}, {"count": Set(time)}, time=time) for time in (999, 1_001))
    ((before, after),) = told(tmp_path, late, new)
    assert (before["count"], after["count"]) == (1, 1_001)


def test_a_table_that_no_log_has_is_refused(tmp_path: Path) -> None:
    made(tmp_path, [])
    with pytest.raises(InvalidInput, match="no log has this table"):
        begin_from_delta(settings(tmp_path), [TableId("shop", "nothing")], 0)


def test_a_table_that_was_named_and_is_not_in_the_target_is_refused(tmp_path: Path) -> None:
    made(tmp_path, [])
    with pytest.raises(InvalidInput, match="no Delta table here"):
        begin_from_delta(settings(tmp_path), [OTHER.table], 0)


def test_a_table_that_is_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    made(tmp_path, [])
    transform = TransformSettings(exclude_columns=("shop.parts.count",))
    with pytest.raises(InvalidSetting, match="section transform changes this table"):
        begin_from_delta(settings(tmp_path, transform=transform), [], 0)


def test_a_value_that_the_source_cannot_have_is_refused_and_nothing_is_loaded(tmp_path: Path) -> None:
    made(tmp_path, [{"id": key(1), "count": 1, "weights": None}, {"id": "nonsense", "count": 1, "weights": None}])
    with pytest.raises(InvalidValue, match="a column holds what its type in the source cannot") as caught:
        begin_from_delta(settings(tmp_path), [], 0)
    assert caught.value.place == {"table": PARTS.table, "column": "id"}
    assert StateStore(str(tmp_path / "checkpoint/state"), 2).size() == (0, 0)


def test_a_state_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    made(tmp_path, [{"id": key(1), "count": 1, "weights": None}])
    begin_from_delta(settings(tmp_path), [], 0)
    with pytest.raises(InvalidSetting, match="the pipeline has a state already"):
        begin_from_delta(settings(tmp_path), [], 0)


def test_the_command_tells_what_it_has_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, [{"id": key(1), "count": 1, "weights": None}])
    config = tmp_path / "penstock.toml"
    config.write_text(
        f"""
        pipeline = {{ checkpoint_directory = "{tmp_path}/checkpoint", logs = ["{tmp_path}/n1"], buckets = 2 }}
        delta = {{ directory = "{tmp_path}/lake" }}
        """
    )
    assert main(["bootstrap", str(config), "--as-of", "yesterday"]) == 1
    assert "not a time: 'yesterday'" in capsys.readouterr().err
    assert main(["bootstrap", str(config), "shop.parts"]) == 0
    assert capsys.readouterr().out == "shop.parts: 1 row\n"


def contents(home: Path) -> dict[str, tuple[int, int]]:
    """Every file and directory, with the time and size of each."""
    return {str(one): (one.stat().st_mtime_ns, one.stat().st_size) for one in (home, *home.rglob("*"))}


def test_a_dry_run_reads_the_rows_and_loads_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path, [{"id": key(number), "count": 1, "weights": None} for number in range(7)])
    config = tmp_path / "penstock.toml"
    config.write_text(
        f"""
        pipeline = {{ checkpoint_directory = "{tmp_path}/checkpoint", logs = ["{tmp_path}/n1"], buckets = 2 }}
        delta = {{ directory = "{tmp_path}/lake" }}
        """
    )
    before = contents(tmp_path)
    assert main(["bootstrap", str(config), "--dry-run"]) == 0
    assert capsys.readouterr().out == "nothing was loaded; it would be:\nshop.parts: 7 rows\n"
    assert main(["bootstrap", str(config), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tables": {"shop.parts": 7}, "loaded": False}
    assert contents(tmp_path) == before
    assert main(["bootstrap", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tables": {"shop.parts": 7}, "loaded": True}
    before = contents(tmp_path)
    assert main(["bootstrap", str(config), "--dry-run"]) == 1
    assert "the pipeline has a state already" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_a_dry_run_refuses_what_the_command_would(tmp_path: Path) -> None:
    made(tmp_path, [{"id": key(1), "count": 1, "weights": None}, {"id": "nonsense", "count": 1, "weights": None}])
    with pytest.raises(InvalidValue, match="a column holds what its type in the source cannot"):
        rehearse_from_delta(settings(tmp_path), [], 0)
    with pytest.raises(InvalidInput, match="no Delta table here"):
        rehearse_from_delta(settings(tmp_path), [OTHER.table], 0)
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "thing").touch()
    with pytest.raises(InvalidSetting, match="holds something else"):
        rehearse_from_delta(settings(tmp_path), [], 0)
    (tmp_path / "checkpoint" / "thing").unlink()
    Checkpoint.open(tmp_path / "checkpoint", "another", 2, 2)
    with pytest.raises(InvalidSetting, match="belongs to pipeline another"):
        rehearse_from_delta(settings(tmp_path), [], 0)


def test_a_dry_run_says_that_a_driver_has_the_pipeline(tmp_path: Path) -> None:
    made(tmp_path, [])
    opened = Checkpoint.open(tmp_path / "checkpoint", "penstock", 2, 2)
    lock = DriverLock.take(opened.directory, 0)
    with pytest.raises(PipelineLocked, match=f"another driver runs this pipeline: process {os.getpid()} on"):
        rehearse_from_delta(settings(tmp_path), [], 0)
    lock.check()
    lock.release()
    assert rehearse_from_delta(settings(tmp_path), [], 0) == {PARTS.table: 0}


def test_the_command_says_when_there_was_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "n1").mkdir()
    config = tmp_path / "penstock.toml"
    config.write_text(
        f'pipeline = {{ checkpoint_directory = "{tmp_path}/checkpoint", logs = ["{tmp_path}/n1"], buckets = 2 }}\n'
    )
    assert main(["bootstrap", str(config), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"tables": {}, "loaded": True}
    assert main(["bootstrap", str(config)]) == 0
    assert "begins with nothing" in capsys.readouterr().out
