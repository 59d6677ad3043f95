"""Restores of an agent's directory, as docs/operate/backup.md tells them: what is there afterwards, and what is not."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from penstock.capture.cassandra.agent.status import CassandraStatus
from penstock.cli.main import main
from penstock.formats import avro
from penstock.log.identity import NAME
from penstock.log.table_log import TableLog
from tests.scripted_agent import Setup, cassandra_table, row

BEFORE, LATER, AFTER = range(100), range(100, 2000), range(2000, 2010)


@pytest.fixture
def lost(tmp_path: Path) -> Setup:
    """An agent with an archive, of whose directory there is an older copy, and nothing else any more."""
    archive = tmp_path / "archive"
    setup = Setup(tmp_path, settings={"agent": {"transfer": "archive", "archive_directory": archive}})
    node = setup.node
    setup.run(node.create, lambda: node.write(*BEFORE), node.sync)
    shutil.copytree(setup.data, tmp_path / "copy")
    setup.run(lambda: node.write(*LATER, note="x" * 60), node.sync)
    assert setup.numbers() == [*BEFORE, *LATER]
    shutil.move(setup.data, tmp_path / "newer")
    return setup


def put_segments_back(setup: Setup) -> None:
    for file in (setup.node.root / "archive").iterdir():
        shutil.copy2(file, setup.node.cdc_raw)


def go_on(setup: Setup) -> CassandraStatus:
    return setup.run(lambda: setup.node.write(*AFTER), setup.node.sync)


def test_empty_directory_and_archived_segments_give_a_new_log_with_everything_once(lost: Setup) -> None:
    put_segments_back(lost)
    assert go_on(lost).segments_lost == 0
    assert lost.numbers() == [*BEFORE, *LATER, *AFTER]
    # Another log: nobody takes a position of the old one for a place in it.
    ours, copied = (root / "shop.orders" / NAME for root in (lost.data, lost.node.root / "copy"))
    assert ours.read_text() != copied.read_text()


def test_older_copy_and_archived_segments_give_everything_once(lost: Setup) -> None:
    shutil.copytree(lost.node.root / "copy", lost.data)
    put_segments_back(lost)
    assert go_on(lost).segments_lost == 0
    assert lost.numbers() == [*BEFORE, *LATER, *AFTER]


def test_older_copy_alone_lacks_what_its_segments_held_and_says_so(lost: Setup) -> None:
    shutil.copytree(lost.node.root / "copy", lost.data)
    assert go_on(lost).segments_lost == 1
    found = Counter(lost.numbers())
    assert set(found.values()) == {1}
    assert {*BEFORE, *AFTER} < set(found) < {*BEFORE, *LATER, *AFTER}


@pytest.mark.parametrize("archived", [True, False])
def test_older_state_with_the_logs_of_now_repeats_nothing(lost: Setup, archived: bool) -> None:
    shutil.move(lost.node.root / "newer", lost.data)
    shutil.rmtree(lost.data / ".agent")
    shutil.copytree(lost.node.root / "copy" / ".agent", lost.data / ".agent")
    if archived:
        put_segments_back(lost)
    # Segments that are gone are reported, although the logs have what was in them.
    assert go_on(lost).segments_lost == (0 if archived else 1)
    assert lost.numbers() == [*BEFORE, *LATER, *AFTER]


@pytest.mark.parametrize("last", [True, False])
def test_copy_of_a_log_that_is_being_written_is_sound_only_with_the_watermark_copied_first(
    tmp_path: Path, last: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    log_directory, copy = tmp_path / "shop.orders", tmp_path / "copy" / "shop.orders"
    copy.mkdir(parents=True)
    schema = cassandra_table().schema
    numbers = iter(range(100))
    with TableLog.open(str(log_directory), schema) as log:
        log.append(avro.encode(schema, [row(next(numbers))]))
        for file in sorted(log_directory.iterdir(), key=lambda file: (file.name == "watermark") is last):
            shutil.copy2(file, copy)
            log.append(avro.encode(schema, [row(next(numbers))]))
    assert main(["log", "verify", str(copy)]) == (1 if last else 0)
    assert ("DAMAGED" in capsys.readouterr().out) is last
