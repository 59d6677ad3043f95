"""Power loss under lakehouse tables: what a table was given is there, once, whatever the disk has lost of the rest.

Programs write batches into tables with every call recorded, libraries' own included. From what a disk may hold at
moments all over the record, writing goes on, and the tables are read by delta-rs and by pyiceberg.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from testkit.power_loss import Crash, Mode
from tests import counted
from tests.counted import RecordProperty, differences
from tests.lake_records import by_key, query
from tests.recorded_disk import RecordedDisk, record, restore
from tests.simulation import lake_writer

LOSSES = int(os.environ.get("PENSTOCK_POWER_LOSSES", "22"))


def read(home: Path, kind: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    if kind != "iceberg":
        return by_key(query(home / "lake/shop/orders"))
    catalog = load_catalog("penstock", type="sql", uri=f"sqlite:///{home}/lake/penstock.db")
    return by_key(catalog.load_table("shop.orders").scan().to_arrow().to_pylist())


@pytest.mark.parametrize("kind", lake_writer.KINDS)
def test_table_goes_on_after_a_power_loss_at_any_moment(
    tmp_path: Path, kind: str, record_property: RecordProperty
) -> None:
    # Iceberg's files name each other by whole paths, so all happens in the same place.
    home, before = tmp_path / "home", tmp_path / "before"
    for place in (home, before):
        (place / "checkpoint").mkdir(parents=True)
    program = [sys.executable, "-m", "tests.simulation.lake_writer", str(home), kind]
    recorded = RecordedDisk(before, record(home, program, tmp_path / "trace"))
    assert read(home, kind) == lake_writer.expected()
    random = Random(kind)
    modes = [mode for mode in Mode if mode is not Mode.KEEP]
    last = len(recorded.operations)
    chosen = {int((number + random.random()) * last / LOSSES): number for number in range(LOSSES)}
    crashes = {at: [Crash(modes[number % len(modes)], number)] for at, number in chosen.items()}
    broken, where = Counter[str](), []
    for at, crash, files in recorded.crashes(crashes):
        what = f"power lost before call {at}, {recorded.operations[at]!s:.200}, {crash}"
        shutil.rmtree(home)
        restore(files, home)
        try:
            lake_writer.run(home, kind)
            found = differences(told(lake_writer.expected()), told(read(home, kind)))
        except BaseException as error:
            error.add_note(what)
            raise
        broken += found
        where += [what] if found.total() else []
    counted.record(record_property, "crash schedules", len(crashes), broken)
    assert not where


def told(rows: dict[tuple[Any, ...], dict[str, Any]]) -> list[str]:
    return [f"{key} {row['note']} {row['amount']}" for key, row in rows.items()]
