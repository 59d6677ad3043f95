"""Power loss under the whole lane: the pipeline starts again from whatever a disk may hold, and loses nothing.

A pipeline runs on Spark, and every call that it, Spark and the libraries below make to the disk is recorded. For
moments all over that record, and all that a disk may keep of what was not synced until then, the directory is made as
the machine would come up with it, and the pipeline starts again. Mostly Spark's part is then played
(tests/query_stand_in.py), which takes a fraction of the time; sometimes it is Spark. What the targets hold is read by
others: delta-rs, and plain JSON. Nothing may be missing, and nothing be there twice.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Marker, Op, Origin, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline.dead_letters import DeadLetterStore
from penstock.pipeline.pipeline import Pipeline
from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash, Mode
from tests import counted
from tests.counted import RecordProperty, differences
from tests.integration.pipeline.power_loss_pipeline import NODES, settings
from tests.query_stand_in import PickySink, Query
from tests.recorded_disk import RecordedDisk, load, play, record, restore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = TableSchema(
    TableId("shop", "people"),
    (Column("id", t.INT64, Role.PARTITION), Column("name", t.TEXT)),
    source="cassandra",
)
CHANGES = 40
# How many moments of the record are tried with Spark's part played, and with Spark.
PLAYED = int(os.environ.get("PENSTOCK_POWER_LOSSES", "48"))
ON_SPARK = 6
SEED = int(os.environ.get("PENSTOCK_POWER_LOSS_SEED", "7"))


def person(number: int) -> Change:
    key = PickySink.refused if number == CHANGES // 2 else number % 11
    origin = Origin(file="log", position=number)
    return Change(
        Op.INSERT, {"id": key}, {"name": Set(f"v{number}")}, time=100 + number, marker=Marker(), origin=origin
    )


def write_logs(home: Path) -> None:
    """Every other change is logged by two nodes."""
    for number in range(CHANGES):
        for node in NODES[:2] if number % 2 else NODES[2:]:
            with TableLog.open(str(home / node / "shop.people"), PEOPLE, node=node) as log:
                log.append(avro.encode(PEOPLE, [person(number)]))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedDisk:
    where = tmp_path_factory.mktemp("recorded")
    home, before = where / "home", where / "before"
    for node in NODES:
        (home / node).mkdir(parents=True)
    write_logs(home)
    shutil.copytree(home, before)
    program = [
        sys.executable,
        "-m",
        "tests.integration.pipeline.power_loss_pipeline",
        str(home),
        str(where / "scratch"),
    ]
    made = RecordedDisk(before, record(home, program, where / "trace"))
    assert not judge(home).total()
    # The record is whole: played to its end, it gives the directory that is there.
    files = load(before)
    for operation in made.operations:
        play(files, operation)
    assert files.contents() == {str(path.relative_to(home)): path.read_bytes() for path in files_of(home)}
    return made


def files_of(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def moments(recorded: RecordedDisk, count: int, seed: int) -> dict[int, list[Crash]]:
    """Moments all over the record, each with one way to lose power; the ways take turns."""
    random = Random(seed)
    last = len(recorded.operations)
    modes = [mode for mode in Mode if mode is not Mode.KEEP]
    random.shuffle(modes)
    found: dict[int, list[Crash]] = {}
    for number in range(count):
        at = min(last - 1, int((number + random.random()) * last / count))
        found.setdefault(at, []).append(Crash(modes[number % len(modes)], random.randrange(1 << 30)))
    return found


def lost(recorded: RecordedDisk, count: int, seed: int, where: Path) -> Iterator[tuple[str, Path]]:
    """Directories after a power loss, and which it was."""
    for at, crash, files in recorded.crashes(moments(recorded, count, seed)):
        home = where / str(at)
        restore_with_places(files, home)
        yield f"{count} power losses, seed {seed}: before call {at}, {recorded.operations[at].kind}, {crash}", home
        shutil.rmtree(home)


def restore_with_places(files: CrashFiles, home: Path) -> None:
    restore(files, home)
    for node in NODES:
        (home / node).mkdir(exist_ok=True)


def queried(table: Path) -> list[dict[str, Any]]:
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT * FROM t")
    return [row for batch in found for row in pa.record_batch(batch).to_pylist()]


def judge(home: Path) -> Counter[str]:
    """Each row has its last value, each change is there once, and the one that a target refuses is set aside once."""
    expected = {person(number).key["id"]: f"v{number}" for number in range(CHANGES)}
    rows = queried(home / "lake/shop/people")
    broken = differences(expected.items(), ((row["id"], row["name"]) for row in rows))
    visible = [path for path in (home / "files/shop.people").iterdir() if not path.name.startswith(".")]
    lines = [line for path in visible for line in path.read_text().splitlines()]
    broken += differences(range(100, 100 + CHANGES), (json.loads(line)["time"] for line in lines))
    listed = [json.loads(path.read_text()) for path in (home / "files/_manifests").glob("*.json")]
    named = {entry["file"] for one in listed for entry in one["files"]}
    broken += differences(named, {f"shop.people/{path.name}" for path in visible})
    history = queried(home / "lake/shop/people_history")
    broken += differences((f"v{number}" for number in range(CHANGES)), (row["name"] for row in history))
    letters = DeadLetterStore(home / "checkpoint/dead-letters").letters()
    return broken + differences([f'{{"id":{PickySink.refused}}}'], (stored.letter.key for stored in letters))


def go_on(
    directories: Iterator[tuple[str, Path]], start: Callable[[Path], object], record_property: RecordProperty
) -> None:
    """Start again from each directory, and count what is broken then."""
    count, broken, where = 0, Counter[str](), []
    for what, home in directories:
        try:
            start(home)
            found = judge(home)
        except BaseException as error:
            error.add_note(what)
            raise
        count += 1
        broken += found
        where += [what] if found.total() else []
    counted.record(record_property, "crash schedules", count, broken)
    assert not where


def test_pipeline_goes_on_after_a_power_loss_at_any_moment(
    recorded: RecordedDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: RecordProperty
) -> None:
    directories = lost(recorded, PLAYED, SEED, tmp_path)
    go_on(directories, lambda home: Query(settings(home), monkeypatch).start().run().stop(), record_property)


def test_spark_goes_on_after_a_power_loss(
    recorded: RecordedDisk, tmp_path: Path, spark: SparkSession, record_property: RecordProperty
) -> None:
    directories = lost(recorded, ON_SPARK, SEED, tmp_path)
    go_on(directories, lambda home: Pipeline(settings(home), spark=spark).run(available_now=True), record_property)
