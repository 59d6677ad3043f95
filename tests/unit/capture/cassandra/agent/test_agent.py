"""The agent from end to end: what a node writes is in the change logs, once, whatever happens in between."""

from __future__ import annotations

import json
import os
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from penstock.capture.cassandra.agent.agent import Agent
from penstock.capture.cassandra.agent.failed_segments import FailedSegments
from penstock.errors import InvalidSetting, LogLocked, PenstockError
from penstock.formats import avro
from penstock.log import seal_requests
from penstock.log.erasure import erase
from penstock.log.forgotten import Target
from penstock.log.reader import LogReader
from penstock.log.table_logs import LogSpec
from penstock.model import types as t
from penstock.model.change import Change, Op, Set
from penstock.model.predicate import ColumnRef, Compare, Literal, Operator
from penstock.model.schema import Column, TableId, TableSchema
from penstock.sandbox.commit_log.statements import create_table, drop_table, truncate
from penstock.sandbox.commit_log.writer import recover, write_index
from penstock.system.files import OsFiles
from tests.scripted_agent import START_US, Script, Setup, cassandra_table, row


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


@pytest.mark.parametrize("tail", ["written", "synced"])
def test_what_the_node_writes_is_in_the_log_in_order_with_its_origin(tmp_path: Path, tail: str) -> None:
    setup = Setup(tmp_path, settings={"agent": {"tail": tail}})
    node = setup.node
    node.create()
    status = setup.run(
        lambda: node.write(1, 2, 3),
        node.log.sync,
        lambda: node.write(4, 5),
        node.log.sync,
    )
    assert setup.numbers() == [1, 2, 3, 4, 5]
    first = setup.changes()[0]
    assert first.origin.file == os.path.basename(node.log.segment)
    assert (first.op, first.time, first.origin.ordinal) == (Op.INSERT, START_US + 1, 0)
    assert status.changes == 5
    assert status.table_changes == {"shop.orders": 5}
    assert status.last_write_time_us == START_US + 5


def test_written_does_not_wait_for_the_sync_and_synced_does(tmp_path: Path) -> None:
    written = Setup(tmp_path / "w")
    written.node.create()
    written.run(lambda: written.node.write(1))
    assert written.numbers() == [1]
    synced = Setup(tmp_path / "s", settings={"agent": {"tail": "synced"}})
    node = synced.node
    node.create()
    seen: list[list[int]] = []
    synced.run(
        lambda: node.write(1, 2),
        node.log.mark,
        lambda: seen.append(synced.numbers()),
        node.log.sync,
        lambda: seen.append(synced.numbers()),
        lambda: node.write(3),
        lambda: seen.append(synced.numbers()),
    )
    assert seen == [[], [1, 2], [1, 2]]


def test_segments_are_followed_over_many_roll_overs_and_deleted_when_done(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"agent": {"transfer": "delete"}}, spare=True)
    node = setup.node
    node.create()
    for burst in range(30):
        setup.node.write(*range(burst * 40, burst * 40 + 40), note="x" * 100)
    status = setup.run(node.log.sync, *[lambda b=b: node.write(10_000 + b) for b in range(3)])
    assert setup.numbers() == node.written
    assert status.segments_done >= 2
    assert node.segments()[0] >= os.path.basename(node.log.segment)
    assert len(list(node.commitlog.glob("*.log"))) > status.segments_done, "files in commitlog are the node's"


def test_a_segment_that_never_says_completed_ends_when_the_nodes_next_life_has_synced(setup: Setup) -> None:
    node = setup.node
    node.create()
    node.write(1, 2)
    node.log.mark()
    node.write(3)

    def new_life() -> None:
        node.log.abandon()
        node.restart()
        node.write(4)

    seen: list[list[int]] = []
    setup.run(new_life, lambda: seen.append(setup.numbers()), node.mark, lambda: seen.append(setup.numbers()))
    assert seen == [[1, 2, 3], [1, 2, 3, 4]], "an entry alone does not show that the old segment is closed"
    assert setup.numbers() == node.written


def test_segments_that_replay_brings_back_are_not_read_twice(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"agent": {"transfer": "delete"}})
    node = setup.node
    node.create()
    node.write(1, 2, 3)
    node.log.sync()

    def crash_and_replay() -> None:
        node.log.abandon()
        old = os.path.basename(node.log.segment)
        node.restart()
        node.write(4)
        node.log.sync()
        recover(str(node.commitlog), str(node.cdc_raw), {node.orders.id}, below=node.log.place.segment)
        assert old in node.segments()

    status = setup.run(crash_and_replay)
    assert setup.numbers() == [1, 2, 3, 4]
    assert len(node.segments()) == 1
    # And once more, after the agent has forgotten nothing over a restart.
    assert status.segments_done >= 1
    setup.run()
    assert setup.numbers() == [1, 2, 3, 4]


def test_a_segment_that_is_deleted_under_the_reader_is_read_to_its_end(setup: Setup) -> None:
    node = setup.node
    node.create()
    node.write(1)

    def vanish() -> None:
        for number in range(2, 900):
            node.write(number, note="y" * 50)
        node.log.sync()

    def unlink_all() -> None:
        node.write(1000, 1001)
        for path in list(node.cdc_raw.iterdir()):
            path.unlink()

    setup.run(vanish, unlink_all)
    assert setup.numbers() == node.written


def test_half_written_index_files_do_no_harm(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"agent": {"tail": "synced"}})
    node = setup.node
    node.create()
    node.write(1, 2)
    node.log.sync()
    index = next(node.cdc_raw.glob("*.idx"))
    whole = index.read_bytes()
    seen: list[list[int]] = []

    def half(data: bytes) -> Any:
        return lambda: index.write_bytes(data)

    steps = [half(b""), half(whole[:1]), half(whole + b"\n"), half(whole + b"\nCOMPLE"), half(whole + b"\x00?")]
    setup.run(*steps, lambda: seen.append(setup.numbers()), lambda: node.write(3), node.log.sync)
    assert seen == [[1, 2]]
    assert setup.numbers() == [1, 2, 3]


def test_index_beyond_the_data_after_a_replay_ends_the_segment_all_the_same(setup: Setup) -> None:
    node = setup.node
    node.create()
    node.write(1, 2)
    node.log.sync()
    node.log.abandon()
    index = next(node.cdc_raw.glob("*.idx"))
    write_index(str(index), os.path.getsize(node.log.segment), completed=True)
    status = setup.run()
    assert setup.numbers() == [1, 2]
    assert status.segments_done == 1


def test_moved_segments_of_311_are_complete_and_may_come_in_any_order(tmp_path: Path) -> None:
    setup = Setup(tmp_path, format=6)
    node = setup.node
    node.create()
    node.write(1, 2)
    node.log.roll()
    node.write(3, 4)
    node.log.roll()
    node.write(5)
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    node.log.discard()
    first, _ = sorted(node.cdc_raw.iterdir())
    first.rename(waiting / first.name)
    # The definitions were in the first segment, so the second waits for it.
    status = setup.run(lambda: (waiting / first.name).rename(first))
    assert sorted(setup.numbers()) == [1, 2, 3, 4]
    assert status.segments_done == 2
    assert status.parked_waiting == 0


def test_live_segments_of_311_are_read_from_commitlog_when_asked_for(tmp_path: Path) -> None:
    commitlog = tmp_path / "commitlog"
    given: dict[str, dict[str, Any]] = {
        "cassandra": {"follow_commitlog": True, "commitlog_directory": commitlog},
        "agent": {"transfer": "delete"},
    }
    setup = Setup(tmp_path, settings=given, format=6)
    node = setup.node
    node.create()
    seen: list[list[int]] = []

    def roll() -> None:
        node.log.roll()
        node.write(2)
        node.log.sync()

    setup.run(lambda: node.write(1), lambda: seen.append(setup.numbers()), roll, node.log.discard)
    assert seen == [[1]]
    assert setup.numbers() == [1, 2]
    assert node.segments() == []
    assert len(list(commitlog.iterdir())) == 1


@pytest.mark.parametrize("compression", ["LZ4Compressor", "ZstdCompressor", "SnappyCompressor", "DeflateCompressor"])
def test_compressed_logs_are_read_as_they_are_synced(tmp_path: Path, compression: str) -> None:
    setup = Setup(tmp_path, compression=compression)
    node = setup.node
    node.create()
    for first in range(0, 600, 50):
        node.write(*range(first, first + 50), note="z" * 80)
        node.log.sync()
    setup.run(lambda: node.write(1000), node.log.sync)
    assert setup.numbers() == node.written


def test_segment_of_an_unknown_format_is_kept_and_the_others_are_read(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    setup = Setup(tmp_path, settings={"agent": {"transfer": "delete", "error_directory": errors}})
    node = setup.node
    node.create()
    node.write(1)
    node.log.sync()
    strange = node.cdc_raw / "CommitLog-12-5.log"
    strange.write_bytes((12).to_bytes(4, "big") + (5).to_bytes(8, "big") + b"\0\2{}" + b"\0" * 400)
    (node.cdc_raw / "readme.txt").write_text("not a segment")
    status = setup.run()
    assert setup.numbers() == [1]
    assert (status.segments_failed, status.foreign_files) == (1, 1)
    assert (errors / strange.name).exists()
    assert not strange.exists()
    failed = FailedSegments(OsFiles(), str(setup.data / ".agent")).all()
    assert [segment.name for segment in failed] == [strange.name]
    assert "12" in failed[0].message


def test_damage_is_left_out_counted_and_read_again_once_it_is_mended(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    setup = Setup(tmp_path, settings={"agent": {"transfer": "delete", "error_directory": errors}})
    node = setup.node
    node.create()
    places = [node.write(number) for number in range(1, 8)]
    node.log.roll()
    node.write(100)
    node.log.sync()
    segment = node.cdc_raw / node.segments()[0]
    whole = segment.read_bytes()
    torn = bytearray(whole)
    torn[places[3].position - 20] ^= 0xFF
    segment.write_bytes(torn)
    status = setup.run()
    assert setup.numbers() == [1, 2, 3, 5, 6, 7, 100]
    assert (status.damaged, status.segments_failed) == (1, 1)
    assert not segment.exists()
    moved = errors / segment.name
    assert moved.exists()

    # Asked for before it is mended: it fails again, and stays.
    failed = FailedSegments(OsFiles(), str(setup.data / ".agent"))
    failed.request(segment.name)
    setup.run()
    assert 4 not in setup.numbers()
    assert moved.exists()
    assert failed.requested() == []

    moved.write_bytes(whole)
    failed.request(segment.name)
    setup.run()
    assert setup.numbers() == [1, 2, 3, 5, 6, 7, 100, 4], "only what was left out is read again"
    assert failed.all() == []
    assert not moved.exists()


def test_schema_change_in_the_middle_gives_each_change_the_schema_of_its_place(setup: Setup) -> None:
    node = setup.node
    node.create()
    wide = cassandra_table("orders", Column("price", t.INT32, source_type="int"))

    def widen() -> None:
        node.create(wide)
        node.log.append([(wide, [row(2, price=7)])])
        node.log.append([(wide, [row(3)])])

    setup.run(lambda: node.write(1), widen)
    assert setup.numbers() == [1, 2, 3]
    cells = [set(change.cells) for change in setup.changes()]
    assert cells == [{"note"}, {"note", "price"}, {"note"}]
    with LogReader(str(setup.data / "shop.orders")) as reader:
        versions = [len(batch.schema.columns) for batch in reader.read()]
    assert sorted(set(versions)) == [2, 3]


def test_table_without_cdc_is_not_captured_until_it_has_it(setup: Setup) -> None:
    node = setup.node
    off = cassandra_table(cdc=False)
    node.create(off)
    node.write(1, table=off)

    def turn_on() -> None:
        node.create()
        node.write(2)

    setup.run(turn_on)
    assert setup.numbers() == [2]


def test_entries_of_an_unknown_table_wait_on_disk_until_it_is_known(setup: Setup) -> None:
    node = setup.node
    late = cassandra_table("late")
    node.create()
    node.write(1)
    node.write(10, 11, table=late)
    status = setup.run()
    assert (status.parked_waiting, setup.numbers()) == (2, [1])
    assert status.parked_bytes > 0

    # Another agent, after a restart, learns of the table.
    def arrive() -> None:
        node.write(12, table=late)
        node.create(late)
        node.write(13, table=late)

    status = setup.run(arrive)
    assert setup.numbers("shop.late") == [10, 11, 12, 13]
    assert (status.parked_waiting, status.parked_bytes) == (0, 0)
    assert list((setup.data / ".agent" / "parked").iterdir()) == []
    setup.run()
    assert setup.numbers("shop.late") == [10, 11, 12, 13]


def test_truncate_and_dropped_tables_are_followed(setup: Setup) -> None:
    node = setup.node
    node.create()
    node.write(1)
    node.log.append(truncate(node.orders, START_US + 50_000_000, *node.log.place), cdc=False)
    node.log.append(drop_table(node.orders, START_US + 60_000_000), cdc=False)
    setup.run()
    assert [change.op for change in setup.changes()] == [Op.INSERT, Op.TRUNCATE]


def forget_place(setup: Setup) -> None:
    """Let the next agent read all that is there once more."""
    for path in (setup.data / ".agent").iterdir():
        if path.name.startswith(("place", "finished")):
            path.unlink()


def schemas_of(setup: Setup, table: str = "shop.orders") -> list[TableSchema]:
    """What the headers of a log's files say, in order."""
    with LogReader(str(setup.data / table)) as reader:
        return [reader.heading(number).schema for number in reader.numbers()]


def test_log_says_what_its_table_is_although_no_change_comes(setup: Setup) -> None:
    node = setup.node
    wide = cassandra_table("orders", Column("price", t.INT32, source_type="int"))
    setup.run(node.create, lambda: node.write(1), lambda: node.create(wide))
    assert [len(schema.columns) for schema in schemas_of(setup)] == [2, 3]
    assert all(schema.since_us for schema in schemas_of(setup))
    for _ in range(3):
        setup.run()
    forget_place(setup)
    setup.run()
    assert [len(schema.columns) for schema in schemas_of(setup)] == [2, 3]
    setup.run(lambda: node.log.append([(wide, [row(2, price=7)])]))
    assert setup.numbers() == [1, 2]
    assert [len(schema.columns) for schema in schemas_of(setup)] == [2, 3]


def test_table_that_is_made_and_stays_empty_has_a_log(setup: Setup) -> None:
    setup.run(lambda: setup.node.create(cassandra_table("empty")))
    (schema,) = schemas_of(setup, "shop.empty")
    assert (schema.id, setup.numbers("shop.empty")) == (str(cassandra_table("empty").id), [])


def test_table_made_again_with_its_id_begins_an_era(setup: Setup) -> None:
    node = setup.node

    def again() -> None:
        node.log.append(drop_table(node.orders, START_US + 100), cdc=False)
        node.log.append(create_table(node.orders, START_US + 200), cdc=False)
        node.write(2)

    node.create()
    setup.run(lambda: node.write(1), again)
    assert [change.op for change in setup.changes()] == [Op.INSERT, Op.TRUNCATE, Op.INSERT]
    first, second = schemas_of(setup)
    assert (first.remade_us, second.remade_us) == (0, first.altered)
    assert first.altered < second.altered


def switch(setup: Setup, *, cdc: bool) -> None:
    setup.node.create(cassandra_table(cdc=cdc))


def test_truncate_while_cdc_is_off_is_told_when_it_is_on_again(setup: Setup) -> None:
    node = setup.node
    node.create()
    node.write(1)
    setup.run()
    switch(setup, cdc=False)
    node.log.append(truncate(node.orders, START_US + 50_000_000, *node.log.place), cdc=False)
    setup.run()
    assert [change.op for change in setup.changes()] == [Op.INSERT]
    switch(setup, cdc=True)
    node.write(2)
    setup.run()
    setup.run()
    assert [change.op for change in setup.changes()] == [Op.INSERT, Op.TRUNCATE, Op.INSERT]
    assert [schema.truncated_us for schema in schemas_of(setup)] == [0, START_US + 50_000_000]


def test_table_made_anew_without_cdc_is_told_when_it_has_it(setup: Setup) -> None:
    node = setup.node
    node.create()
    node.write(1)
    setup.run()
    anew = replace(cassandra_table(cdc=False), id=uuid.UUID(int=7))
    node.log.append(drop_table(node.orders, START_US + 100), cdc=False)
    node.log.append(create_table(anew, START_US + 200), cdc=False)
    setup.run()
    assert [change.op for change in setup.changes()] == [Op.INSERT]
    node.log.append(create_table(replace(anew, cdc=True), START_US + 300), cdc=False)
    setup.run()
    assert [change.op for change in setup.changes()] == [Op.INSERT, Op.TRUNCATE]
    assert schemas_of(setup)[-1].id == str(anew.id)


def test_operator_is_told_what_is_missing_when_cdc_was_off(setup: Setup) -> None:
    setup.node.create()
    setup.node.write(1)
    assert setup.run().cdc_gaps == {}
    with capture_logs() as told:
        switch(setup, cdc=False)
        assert setup.run().cdc_gaps == {}
        setup.node.write(2)
        switch(setup, cdc=True)
        status = setup.run(lambda: setup.node.write(3))
    assert status.cdc_gaps == {"shop.orders": 1}
    assert setup.numbers() == [1, 3]
    (event,) = [event for event in told if event["log_level"] == "error"]
    assert event["command"] == "penstock agent snapshot CONFIG shop.orders"


def test_many_tables_are_captured_with_few_logs_open(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"agent": {"open_logs_max": 3, "chunk_bytes": 4096}})
    node = setup.node
    tables = [cassandra_table(f"t{number}") for number in range(12)]
    for table in tables:
        node.create(table)
    for number in range(20):
        for table in tables:
            node.write(number, table=table, note="n" * 30)
    setup.run()
    for table in tables:
        assert setup.numbers(str(table.schema.table)) == list(range(20))


def test_a_choice_of_tables_by_pattern_and_data_centre(tmp_path: Path) -> None:
    given = {
        "cassandra": {
            "include": ["shop.*"],
            "exclude": ["shop.secret"],
            "tables": {"shop.far": {"data_centres": ["dc2"]}},
        }
    }
    setup = Setup(tmp_path, settings=given)
    node = setup.node
    names = [("shop", "near"), ("shop", "far"), ("shop", "secret"), ("other", "near")]
    for keyspace, name in names:
        table = cassandra_table(name, keyspace=keyspace)
        node.create(table)
        node.write(1, table=table)
    setup.run()
    assert [path.name for path in setup.data.iterdir() if not path.name.startswith(".")] == ["shop.near"]


def test_named_logs_take_what_their_filter_lets_through_also_after_a_restart(setup: Setup) -> None:
    node = setup.node
    node.create()
    large = Compare(ColumnRef("id"), Operator.MORE, Literal(5))
    specs = [LogSpec(), LogSpec("large", large), LogSpec("far", None, frozenset({"dc2"}))]
    setup.run(lambda: node.write(*range(4, 8)), specs=lambda _table: specs)
    setup.run(lambda: node.write(1, 9), specs=lambda _table: specs)
    assert setup.numbers() == [4, 5, 6, 7, 1, 9]
    assert setup.numbers("shop.orders@large") == [6, 7, 9]
    assert not (setup.data / "shop.orders@far").exists()


def test_stop_makes_durable_what_was_read_and_the_next_agent_goes_on_there(setup: Setup) -> None:
    node = setup.node
    node.create()
    first = setup.run(lambda: node.write(1, 2, 3))
    assert first.saved_position == first.position
    second = setup.run(lambda: node.write(4))
    assert setup.numbers() == [1, 2, 3, 4]
    assert second.mutations == 1, "what was read before is not read again"


def test_checkpoint_of_a_subscription_that_cannot_be_read_is_in_the_status(setup: Setup) -> None:
    setup.node.create()
    assert setup.run(lambda: setup.node.write(1)).unreadable_checkpoints == {}
    (setup.data / "shop.orders" / "reader.checkpoint").write_bytes(b"{}")
    assert setup.run(lambda: setup.node.write(2)).unreadable_checkpoints == {"shop.orders": 1}


def test_one_state_directory_has_one_agent(setup: Setup) -> None:
    refusals: list[PenstockError] = []

    def another() -> None:
        with pytest.raises(LogLocked) as refusal:
            setup.run()
        refusals.append(refusal.value)

    setup.node.create()
    setup.run(another)
    assert "another agent" in str(refusals[0])


def test_lost_place_repeats_nothing_that_the_log_still_tells(setup: Setup) -> None:
    node = setup.node
    node.create()
    setup.run(lambda: node.write(1, 2, 3))
    forget_place(setup)
    setup.run(lambda: node.write(4))
    assert setup.numbers() == [1, 2, 3, 4]


def test_status_tells_the_place_and_the_space(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"cassandra": {"cdc_total_space_bytes": 1 << 20}})
    node = setup.node
    node.create()
    status = setup.run(lambda: node.write(1), node.log.sync)
    assert status.segment == status.saved_segment == os.path.basename(node.log.segment)
    assert (status.cdc_raw_bytes_max, status.cdc_raw_segments) == (1 << 20, 1)
    assert status.cdc_raw_bytes >= 1 << 16
    assert not status.running
    assert status.failure is None


def test_failure_of_the_tail_is_told_by_the_status(tmp_path: Path) -> None:
    setup = Setup(tmp_path)
    setup.node.create()

    def break_in() -> None:
        raise InvalidSetting("broken")

    agent = setup.agent()
    with pytest.raises(InvalidSetting):
        agent.run(Script(setup.clock, (break_in,)))
    assert not agent.status().healthy
    assert agent.status().failure == "broken"


def test_place_file_is_json_that_names_segment_and_position(setup: Setup) -> None:
    node = setup.node
    node.create()
    status = setup.run(lambda: node.write(1))
    found = [json.loads(path.read_text()) for path in (setup.data / ".agent").glob("place.*.json")]
    newest = max(found, key=lambda content: content["number"])
    assert (newest["file"], newest["position"]) == (status.saved_segment, status.saved_position)
    assert newest["logs"] == {"shop.orders": str(_end(setup))}


def _end(setup: Setup) -> object:
    with LogReader(str(setup.data / "shop.orders")) as reader:
        return reader.end()


def test_agent_announces_captured_tables(setup: Setup) -> None:
    node = setup.node
    node.create()
    node.create(cassandra_table("quiet", cdc=False))
    told: list[TableId] = []
    setup.run(lambda: node.write(1), announce=lambda schema: told.append(schema.table))
    assert told == [TableId("shop", "orders")]


def test_operator_is_warned_before_the_cdc_space_is_used_up(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"cassandra": {"cdc_total_space_bytes": 3 << 16}})
    node = setup.node
    node.create()
    with capture_logs() as quiet:
        setup.run(lambda: node.write(1))
    assert not [event for event in quiet if event["event"].startswith("cdc space")]
    with capture_logs() as told:
        setup.run(node.log.roll, lambda: node.write(2), node.sync, node.log.roll, lambda: node.write(3), node.sync)
    events = [event for event in told if event["event"].startswith("cdc space")]
    assert events[-1]["log_level"] == "error"
    assert events[-1]["limit_bytes"] == 3 << 16
    assert events[-1]["used_bytes"] >= 3 << 16


def test_named_table_with_cdc_off_is_told_with_the_statement_that_helps(tmp_path: Path) -> None:
    setup = Setup(tmp_path, settings={"cassandra": {"include": ["shop.orders"]}})
    setup.node.create(cassandra_table(cdc=False))
    with capture_logs() as told:
        setup.run()
    (event,) = [event for event in told if event["event"] == "table has CDC off"]
    assert event["statement"] == "ALTER TABLE shop.orders WITH cdc = true;"


class Copying:
    """A snapshot that copies two rows and ends with the agent."""

    failure = None

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.running = False
        self.done = threading.Event()

    def run(self, stop: threading.Event) -> None:
        self.running = True
        (table,) = self.agent.tables()
        rows = [Change(Op.SNAPSHOT, {"id": number}, {"note": Set("")}, time=1) for number in (100, 101)]
        self.agent.append(avro.encode(table.schema, rows))
        self.done.set()
        stop.wait()
        self.running = False

    def status(self) -> Copying:
        return self


def test_snapshot_appends_to_the_same_logs_and_ends_with_the_agent(setup: Setup) -> None:
    node = setup.node
    node.create()
    setup.run(lambda: node.write(1))
    made: list[Copying] = []

    def make(agent: Agent) -> Copying:
        made.append(Copying(agent))
        return made[0]

    def wait() -> None:
        assert made[0].done.wait(30)
        node.write(2)

    # The tables are known from the first run, so the copy can begin at once.
    status = setup.run(wait, snapshots=make)
    assert sorted(setup.numbers()) == [1, 2, 100, 101]
    assert status.snapshot is made[0]
    assert not made[0].running
    setup.run()
    assert sorted(setup.numbers()) == [1, 2, 100, 101]


def test_rows_are_erased_beside_a_running_agent_which_ends_its_file_for_that(setup: Setup) -> None:
    node = setup.node
    node.create()
    directory = str(setup.data / "shop.orders")

    def forget() -> None:
        assert not seal_requests.waits(OsFiles(), directory), "the agent has answered"
        report = erase(directory, lambda _: [Target((2,))])
        assert (report.complete, report.writer, report.files) == (True, "", [1])

    setup.run(
        lambda: node.write(1, 2, 3),
        lambda: seal_requests.ask(OsFiles(), directory),
        forget,
        lambda: node.write(4),
    )
    assert setup.numbers() == [1, 3, 4]
    # Neither does it come back when the place is lost and the commit log is read again.
    forget_place(setup)
    setup.run(lambda: node.write(5))
    assert setup.numbers() == [1, 3, 4, 5]
