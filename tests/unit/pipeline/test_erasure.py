"""Erasing from a stopped pipeline: nothing is left of the row in any byte, and everything else is folded as before."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.deliver.sink import DeadLetter
from penstock.errors import InvalidInput, PipelineLocked
from penstock.formats import avro
from penstock.log.forgotten import Target, target
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Bound, Change, Deletion, Marker, Op, Range, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline.dead_letters import DeadLetterStore
from penstock.pipeline.driver_lock import DriverLock
from penstock.pipeline.erasure import StateReport, erase
from penstock.settings import RecordType
from tests.folding import Pipeline, runs_of

SCHEMA = TableSchema(
    TableId("shop", "people"),
    (
        Column("email", t.TEXT, Role.PARTITION),
        Column("line", t.INT32, Role.CLUSTERING),
        Column("seen", t.TEXT, Role.STATIC),
        Column("name", t.TEXT),
    ),
)
OTHER = TableSchema(TableId("shop", "orders"), SCHEMA.columns)
ANNA, BERT = "anna@example.org", "bert@example.org"
SECRET = "what nobody may know"
BUCKETS = 2
LAST = Bound((2,), True)


def person(email: str, line: int, time: int) -> Change:
    name = SECRET if email == ANNA else f"name {time}"
    return Change(Op.INSERT, {"email": email, "line": line}, {"name": Set(name)}, time=time, marker=Marker())


def changes_of(time: int) -> list[Change]:
    return [
        *(person(email, line, time) for email in (ANNA, BERT, "c@example.org") for line in range(3)),
        Change(Op.UPDATE, {"email": ANNA}, {"seen": Set(SECRET)}, time=time),
        Change(Op.DELETE_RANGE, {"email": ANNA}, deletion=Deletion(time - 1), range=Range(None, LAST), time=time),
        Change(Op.DELETE, {"email": ANNA, "line": 9}, deletion=Deletion(time), time=time),
    ]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make(tmp_path, 10, 20, 30)


def make(tmp_path: Path, *times: int) -> Path:
    """A checkpoint with several runs, dead letters, a log of replayed rows, scratch, and what a killed driver left."""
    directory = tmp_path / "checkpoint"
    (directory / "state").mkdir(parents=True)
    (directory / "pipeline.json").write_text("{}")
    pipeline = Pipeline(str(directory / "state"), BUCKETS, RecordType.AFTER)
    for time in times:
        pipeline.fold(runs_of(SCHEMA, "n1", changes_of(time), BUCKETS), 0)
        pipeline.fold(runs_of(OTHER, "n1", [person(ANNA, 0, time)], BUCKETS), 0)
    pipeline.fold(runs_of(SCHEMA, "n1", [person(ANNA, 7, 99)], BUCKETS), 0, commit=False)
    (directory / "state" / "runs" / "b00000-000000000001-ab.tmp").write_text(ANNA)
    letters = [
        DeadLetter("search", str(schema.table), json.dumps([email]), "no", schema, row(schema, email), whole=False)
        for schema in (SCHEMA, OTHER)
        for email in (ANNA, BERT)
    ]
    DeadLetterStore(directory / "dead-letters").add(3, letters)
    with TableLog.open(str(directory / "replayed" / "shop.people"), SCHEMA) as log:
        log.append(avro.encode(SCHEMA, [person(ANNA, 1, 1), person(BERT, 1, 1)]))
    (directory / "scratch").mkdir(mode=0o700)
    (directory / "scratch" / "shuffle").write_text(SECRET)
    return directory


def row(schema: TableSchema, email: str) -> bytes:
    return bytes(avro.encode(schema, [person(email, 1, 1)]).rows)


def forget(directory: Path, key: dict[str, Any] | None = None, *, dry_run: bool = False) -> StateReport:
    def targets(schema: TableSchema) -> list[Target]:
        return [target(schema, key or {"email": ANNA})]

    return erase(directory, directory / "dead-letters", SCHEMA.table, targets, now_us=1, dry_run=dry_run)


def content(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def again(directory: Path, changes: list[Change], schema: TableSchema = SCHEMA) -> list[Change]:
    """What the pipeline makes of changes that come once more."""
    pipeline = Pipeline(str(directory / "state"), BUCKETS, RecordType.AFTER)
    pipeline.batch = pipeline.store.committed + 1
    found = pipeline.fold(runs_of(schema, "n2", changes, BUCKETS), 0)
    return [change for records in found for change in avro.decode(records.changes)]


def others(directory: Path) -> int:
    """How often the key stands in what belongs to the other table, which nobody asked for."""
    return sum(data.count(ANNA.encode()) for data in content(directory).values())


def test_nothing_is_left_of_a_partition_in_any_file(home: Path) -> None:
    before = others(home)
    told = forget(home, dry_run=True)
    assert others(home) == before
    report = forget(home)
    assert (told.entries, told.letters, told.changes) == (report.entries, report.letters, report.changes)
    assert report.complete
    assert report.entries > 0
    assert (report.letters, report.changes) == (1, 1)
    data = content(home)
    # The other table has a row of the same key in its state and one dead letter; those stay, and are told of.
    assert all(ANNA.encode() not in found for name, found in data.items() if name.startswith(("replayed", "scratch")))
    assert {name.split("/")[0] for name in report.lookalikes} == {"state"}
    assert not (home / "scratch" / "shuffle").exists()
    left = [stored.letter for stored in DeadLetterStore(home / "dead-letters").letters()]
    assert [(letter.table, letter.key) for letter in left] == [
        ("shop.people", json.dumps([BERT])),
        ("shop.orders", json.dumps([ANNA])),
        ("shop.orders", json.dumps([BERT])),
    ]
    assert forget(home).entries == 0
    # Once the other table's row is gone too, not one byte is left but in its dead letter.
    erase(home, home / "dead-letters", OTHER.table, lambda schema: [target(schema, {"email": ANNA})], now_us=1)
    assert not any(ANNA.encode() in found or SECRET.encode() in found for found in content(home).values())


def test_everything_else_is_folded_as_before(home: Path) -> None:
    forget(home)
    kept = [change for change in changes_of(30) if change.key["email"] != ANNA]
    assert again(home, kept) == []
    assert again(home, [person(ANNA, 0, 30)], OTHER) == []
    # What was forgotten is new when it comes again, as it would from a log that was not erased.
    assert [change.key["line"] for change in again(home, [person(ANNA, 1, 40)])] == [1]


def test_one_row_goes_and_its_partition_stays(home: Path) -> None:
    report = forget(home, {"email": ANNA, "line": 1})
    assert report.complete
    assert again(home, [person(ANNA, 2, 30), Change(Op.UPDATE, {"email": ANNA}, {"seen": Set(SECRET)}, time=30)]) == []
    assert [change.key["line"] for change in again(home, [person(ANNA, 1, 40)])] == [1]


class _Killed(BaseException):
    pass


def _killing(monkeypatch: pytest.MonkeyPatch, after: int) -> Callable[[], int]:
    """Let the process die in place of one of its durable steps."""
    steps = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == after:
                raise _Killed
            return real(*arguments, **named)

        return call

    for name in ("rename", "unlink", "fsync", "fdatasync", "pwrite"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    return lambda: steps


def test_a_kill_at_every_step_leaves_a_sound_state_and_the_next_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make(tmp_path, 30)
    # Kills of what erases logs are tested with logs.
    shutil.rmtree(home / "replayed")
    kept = [change for change in changes_of(30) if change.key["email"] != ANNA]
    after = 0
    while True:
        after += 1
        copy = tmp_path / f"copy-{after}"
        shutil.copytree(home, copy)
        with monkeypatch.context() as patch:
            steps = _killing(patch, after)
            try:
                forget(copy)
                break
            except _Killed:
                assert steps() >= after
        if after % 4 == 0:
            # The pipeline may also be started as it is.
            assert again(copy, kept) == []
        assert forget(copy).complete
        if after % 4 == 2:
            assert again(copy, kept) == []
        shutil.rmtree(copy)
    assert after > 20


def test_a_driver_at_work_is_not_disturbed(home: Path) -> None:
    lock = DriverLock.take(home, 5)
    try:
        with pytest.raises(PipelineLocked):
            forget(home)
    finally:
        lock.release()
    with pytest.raises(InvalidInput, match="no checkpoint"):
        forget(home / "state")


def test_the_command_says_what_it_did(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "pipeline.toml"
    config.write_text(f'[pipeline]\nname = "p"\nlogs = ["x"]\nsinks = ["files"]\ncheckpoint_directory = "{home}"\n')
    arguments = ["pipeline", "erase", str(config), "--table", "shop.people", "--key", json.dumps({"email": ANNA})]
    assert main([*arguments, "--dry-run"]) == 0
    assert "would be erased" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["complete"], record["dead_letters"], record["changes"], record["left"]) == (True, 1, 1, 0)
    assert main(arguments) == 0
    shown = capsys.readouterr()
    assert "0 of the state's rows, 0 dead letters" in shown.out
    assert "looked again: none left" in shown.out
    assert ANNA not in shown.out + shown.err
