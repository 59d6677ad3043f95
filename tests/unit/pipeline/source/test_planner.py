"""Planning without Spark: what a batch takes, how it is divided, and what happens when logs come, change and go."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs

from penstock.errors import ChangesLost, CorruptCheckpoint, CorruptLog, PositionAhead, SchemaChanged
from penstock.formats import avro
from penstock.log import retention, snapshot_requests
from penstock.log.checkpoint import Checkpoint, load_all
from penstock.log.erasure import erase
from penstock.log.forgotten import Target
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline.source.admission import Limits
from penstock.pipeline.source.held import Held
from penstock.pipeline.source.options import parse
from penstock.pipeline.source.places import access, open_reader
from penstock.pipeline.source.planner import BURST_ROWS, COMMIT_S, Planner
from penstock.pipeline.source.portions import Piece
from penstock.pipeline.source.reach import Reach, from_offset, to_offset
from penstock.pipeline.source.stretches import gather, read_runs
from penstock.pipeline.source.table_version import TableVersion
from penstock.records import runs
from penstock.settings import LogSettings, RetentionSettings
from penstock.system.files import OsFiles
from tests.many_logs import SMALL_FILES, batch, ids_in, remove_first_files, schema_of, with_column, write

NO_LIMIT = Limits()


def planner(root: Path, **options: str) -> Planner:
    return Planner(parse({"path": str(root), "shape": "runs", **options}))


def ids(pieces: list[list[Piece]]) -> list[int]:
    """The ids of the changes that tasks would read, task by task."""
    out = []
    for piece in (piece for task in pieces for piece in task):
        reader = open_reader(piece.address, access(parse({"path": "/", "shape": "runs"})))
        for gathered in gather(reader, piece.stretch):
            out += [change.key["id"] for change in avro.decode(gathered.batch())]
    return out


def read_all(plan: Planner, limits: Limits, start: dict[str, Reach] | None = None) -> list[list[int]]:
    """The ids of every batch until nothing is new, through offsets as Spark keeps them."""
    offset, out = to_offset(plan.initial() if start is None else start), []
    while (end := to_offset(plan.latest(from_offset(offset), limits))) != offset:
        out.append(ids(plan.partitions(from_offset(offset), from_offset(end))))
        offset = end
    return out


def test_everything_is_read_once_and_in_order(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    assert len(LogReader(directory).numbers()) > 3
    assert read_all(planner(tmp_path), NO_LIMIT) == [list(range(200))] == [ids_in(directory)]


@pytest.mark.parametrize("rows", [1, 3, 5, 7, 64, 199])
def test_a_limit_of_changes_is_exact(tmp_path: Path, rows: int) -> None:
    write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    batches = read_all(planner(tmp_path), Limits(rows=rows))
    assert [number for one in batches for number in one] == list(range(200))
    assert all(len(one) == rows for one in batches[:-1])


@pytest.mark.parametrize("size", [1, 3000, 9000, 50_000])
def test_a_limit_of_bytes_is_kept_to_whole_blocks(tmp_path: Path, size: int) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    block = 5 * 240
    plan = planner(tmp_path)
    batches = read_all(plan, Limits(bytes=size))
    assert [number for one in batches for number in one] == ids_in(directory)
    assert all(len(one) % 5 == 0 and len(one) <= max(5, size // block * 5 + 5) for one in batches)


@pytest.mark.parametrize("limits", [NO_LIMIT, Limits(rows=4), Limits(bytes=1), Limits(files=1)])
def test_no_batch_has_two_eras_of_a_log_and_the_first_change_of_an_era_comes_alone(
    tmp_path: Path, limits: Limits
) -> None:
    first = replace(schema_of("orders"), id="a")
    truncated = replace(first, truncated_us=100)
    anew = replace(first, id="b", altered=7)
    for number, schema in enumerate((first, truncated, anew)):
        write(tmp_path, "orders", 10 * number, 5, each=2, schema=schema)
    batches = [one for one in read_all(planner(tmp_path), limits) if one]
    assert [number for one in batches for number in one] == [*range(10), *range(10, 20), *range(20, 30)]
    assert [10] in batches
    assert [20] in batches
    assert all(len({number // 10 for number in one}) == 1 for one in batches)


def begin(root: Path, *schemas: TableSchema) -> None:
    """Headers without changes, one after another."""
    for schema in schemas:
        with TableLog.open(str(root / "shop.orders"), schema, node="n1") as log:
            log.begin(schema)


def test_header_without_changes_is_a_batch_without_rows_once(tmp_path: Path) -> None:
    schema = replace(schema_of("orders"), id="a")
    begin(tmp_path, schema)
    plan = planner(tmp_path)
    offset = plan.latest(plan.initial(), NO_LIMIT)
    assert [reach.file for reach in offset.values()] == [1]
    assert read_all(plan, NO_LIMIT, offset) == []
    begin(tmp_path, with_column(schema, "price", t.INT32))
    assert read_all(plan, NO_LIMIT, offset) == [[]]
    write(tmp_path, "orders", 1, 2, schema=with_column(schema, "price", t.INT32))
    assert read_all(planner(tmp_path), NO_LIMIT) == [[1, 2]]


@pytest.mark.parametrize("limits", [NO_LIMIT, Limits(rows=1), Limits(bytes=1), Limits(files=1)])
def test_eras_without_changes_come_one_by_one(tmp_path: Path, limits: Limits) -> None:
    first = replace(schema_of("orders"), id="a")
    eras = [replace(first, truncated_us=100), replace(first, id="b", altered=7)]
    write(tmp_path, "orders", 0, 3, schema=first)
    begin(tmp_path, *eras)
    write(tmp_path, "orders", 3, 2, schema=eras[-1])
    begin(tmp_path, replace(eras[-1], truncated_us=200))
    plan = planner(tmp_path)
    start, taken = plan.initial(), []
    while (end := plan.latest(start, limits)) != start:
        (before,), (after,) = start.values(), end.values()
        headers = [LogReader(str(tmp_path / "shop.orders")).heading(n) for n in range(before.file + 1, after.file + 1)]
        assert len({heading.schema.era for heading in headers}) <= 1
        taken += ids(plan.partitions(start, end))
        start = end
    assert taken == [0, 1, 2, 3, 4]
    assert [reach.file for reach in start.values()] == [4]


def test_a_limit_of_files_takes_whole_files(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    batches = read_all(planner(tmp_path), Limits(files=2))
    assert [number for one in batches for number in one] == ids_in(directory)
    assert len(batches) == (len(LogReader(directory).numbers()) + 1) // 2


def test_without_an_index_the_data_is_read_for_the_cut(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    for index in Path(directory).glob("*.idx"):
        index.unlink()
    batches = read_all(planner(tmp_path), Limits(rows=7))
    assert [number for one in batches for number in one] == list(range(200))


def test_the_newest_blocks_are_found_although_the_index_lags_behind(tmp_path: Path) -> None:
    schema = schema_of("orders")
    with TableLog.open(str(tmp_path / "shop.orders"), schema, node="n1") as log:
        for number in range(50):
            log.append(batch(schema, number))
        assert [len(one) for one in read_all(planner(tmp_path), Limits(rows=20))] == [20, 20, 10]


def test_all_tables_of_a_node_share_one_task_and_large_ones_get_more(tmp_path: Path) -> None:
    for number in range(30):
        write(tmp_path / "a", f"t{number}", number * 10, 2, node="a")
    write(tmp_path / "b", "big", 1000, 60, each=10, node="b", note="y" * 1000)
    plan = Planner(parse({"path": f"{tmp_path}/a,{tmp_path}/b", "shape": "runs", "partitionBytes": "64k"}))
    tasks = plan.partitions(plan.initial(), plan.end())
    by_node = {node: [task for task in tasks if task[0].address.node == node] for node in ("a", "b")}
    assert len(by_node["a"]) == 1
    assert len(by_node["a"][0]) == 30
    assert 8 <= len(by_node["b"]) <= 10
    assert all(piece.address.node == task[0].address.node for task in tasks for piece in task)
    assert sorted(ids(tasks)) == sorted([n * 10 + i for n in range(30) for i in range(2)] + list(range(1000, 1600)))


class Tables:
    """Eleven tables that get a change each, and the planner of a query that may linger for `linger_s`."""

    def __init__(self, root: Path, linger_s: float, count: int = 11) -> None:
        self._root = root
        self._count = count
        self._written = 0
        self.now = 100.0
        self.write()
        options = parse({"path": str(root), "shape": "runs", "linger_s": str(linger_s)})
        self.plan = Planner(options, monotonic=lambda: self.now)
        self.offset = self.plan.initial()

    def write(self) -> None:
        for number in range(self._count):
            write(self._root, f"t{number}", self._written, 1)
        self._written += 1

    def batch(self, limits: Limits = NO_LIMIT) -> int:
        """How many changes the next batch takes."""
        end = self.plan.latest(self.offset, limits)
        taken = len(ids(self.plan.partitions(self.offset, end))) if end != self.offset else 0
        self.offset = end
        return taken


def test_batches_of_many_tables_begin_the_later_the_more_tables_there_are(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 2.0)
    assert tables.batch() == 11
    tables.write()
    tables.now += 0.09
    assert tables.batch() == 0
    tables.write()
    tables.now += 0.02
    assert tables.batch() == 22
    tables.now += 5
    tables.write()
    assert tables.batch() == 11


def test_batches_of_many_tables_begin_the_sooner_the_less_time_the_last_one_took(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 2.0)
    assert tables.batch() == 11
    tables.now += 0.02
    assert tables.batch() == 0
    tables.write()
    tables.now += 0.02
    assert tables.batch() == 0
    # Two fifths of a twentieth of a second were what the last batch took.
    tables.now += 0.011
    assert tables.batch() == 11


def test_a_query_that_lingers_does_not_look_at_the_logs_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(tmp_path, 2.0)
    assert tables.batch() == 11
    tables.write()
    tables.now += 0.04
    assert tables.batch() == 0
    look = Mock(wraps=tables.plan.look)
    monkeypatch.setattr(tables.plan, "look", look)
    tables.write()
    tables.now += 0.05
    assert (tables.batch(), look.call_count) == (0, 0)
    tables.now += 0.011
    assert (tables.batch(), look.call_count) == (22, 1)


def test_no_table_waits_longer_than_the_query_lingers(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 0.03)
    assert tables.batch() == 11
    tables.write()
    tables.now += 0.04
    assert tables.batch() == 11


@pytest.mark.parametrize(("linger_s", "count"), [(0.0, 11), (2.0, 1)])
def test_nothing_waits_without_lingering_or_without_many_tables(tmp_path: Path, linger_s: float, count: int) -> None:
    tables = Tables(tmp_path, linger_s, count)
    for _ in range(3):
        assert tables.batch() == count
        tables.write()


class Burst:
    """One table that changes come to in bursts, and the planner of a query that looks every eighth of a second."""

    def __init__(self, root: Path, linger_s: float) -> None:
        self._root = root
        self._written = 0
        self._now = 100.0
        self.write(1)
        options = parse({"path": str(root), "shape": "runs", "linger_s": str(linger_s)})
        self._plan = Planner(options, monotonic=lambda: self._now)
        self._offset = self._plan.initial()

    def write(self, count: int) -> None:
        write(self._root, "t", self._written, 1, each=count)
        self._written += count

    def look(self) -> int:
        """How many changes the next batch takes."""
        self._now += 0.125
        before, self._offset = self._offset, self._plan.latest(self._offset, NO_LIMIT)
        return sum(end.rows - before[log_id].rows for log_id, end in self._offset.items())


def test_a_burst_after_a_pause_is_taken_as_a_whole(tmp_path: Path) -> None:
    burst = Burst(tmp_path, 2.0)
    assert [burst.look(), burst.look()] == [1, 0]
    burst.write(BURST_ROWS)
    assert burst.look() == 0
    burst.write(BURST_ROWS)
    assert burst.look() == 0
    burst.write(7)
    assert burst.look() == 2 * BURST_ROWS + 7
    # Without a pause before, nothing waits: the query may be busy all the time.
    burst.write(BURST_ROWS)
    assert burst.look() == BURST_ROWS


def test_a_burst_that_lasts_is_not_waited_for(tmp_path: Path) -> None:
    burst = Burst(tmp_path, 2.0)
    assert [burst.look(), burst.look()] == [1, 0]
    taken = []
    for _ in range(5):
        burst.write(BURST_ROWS)
        taken.append(burst.look())
    assert taken == [0, 0, 0, 4 * BURST_ROWS, BURST_ROWS]


@pytest.mark.parametrize(("linger_s", "count"), [(0.0, BURST_ROWS), (2.0, BURST_ROWS - 1)])
def test_what_is_no_burst_is_taken_at_once(tmp_path: Path, linger_s: float, count: int) -> None:
    burst = Burst(tmp_path, linger_s)
    assert [burst.look(), burst.look()] == [1, 0]
    burst.write(count)
    assert burst.look() == count


def test_what_a_limit_left_over_does_not_wait(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 2.0)
    assert [tables.batch(Limits(rows=5)) for _ in range(3)] == [5, 5, 1]


def test_a_query_that_reads_what_is_there_does_not_wait(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 2.0)
    assert tables.batch() == 11
    tables.write()
    tables.plan.freeze()
    assert tables.batch() == 11


def test_a_batch_is_read_by_as_many_tasks_as_there_are_buckets_when_it_is_large_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "big", 0, 60, each=10, note="y" * 1000)
    for least, tasks in ((64 << 10, 3), (500 << 10, 1)):
        monkeypatch.setattr("penstock.pipeline.source.portions.PORTION_BYTES_MIN", least)
        plan = planner(tmp_path, buckets="3")
        found = plan.partitions(plan.initial(), plan.end())
        assert len(found) == tasks
        assert ids(found) == list(range(600))


def test_a_quiet_table_does_not_wait_for_a_busy_one(tmp_path: Path) -> None:
    write(tmp_path, "busy", 0, 100, each=10)
    write(tmp_path, "quiet", 5000, 1)
    first = read_all(planner(tmp_path), Limits(rows=20))[0]
    assert 5000 in first
    assert len(first) == 20


def test_what_is_new_is_found_and_what_is_idle_costs_one_small_read(tmp_path: Path, monkeypatch: Any) -> None:
    for number in range(20):
        write(tmp_path, f"t{number}", number, 1)
    plan = planner(tmp_path)
    # A directory that has just changed is listed again; this one has been as it is for long.
    import os

    os.utime(tmp_path, ns=(10**18, 10**18))
    end = plan.latest(plan.initial(), NO_LIMIT)
    end = plan.latest(end, NO_LIMIT)
    calls: list[str] = []
    for name in ("list", "open", "exists"):
        real = getattr(OsFiles, name)

        def noted(self: OsFiles, *given: Any, _name: str = name, _real: Any = real, **more: Any) -> Any:
            calls.append(_name)
            return _real(self, *given, **more)

        monkeypatch.setattr(OsFiles, name, noted)
    assert plan.latest(end, NO_LIMIT) == end
    assert calls == []


def test_a_table_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 3)
    plan = planner(tmp_path, starting="latest")
    start = plan.initial()
    assert plan.latest(start, NO_LIMIT) == start
    write(tmp_path, "new", 100, 2)
    assert read_all(plan, NO_LIMIT, start) == [[100, 101]]


def test_reading_what_is_there_ends_although_more_comes(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 10)
    plan = planner(tmp_path)
    start = plan.initial()
    plan.freeze()
    write(tmp_path, "orders", 10, 5)
    write(tmp_path, "late", 100, 5)
    assert read_all(plan, Limits(rows=4), start) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_starting_at_a_time_leaves_out_what_is_older(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    assert read_all(planner(tmp_path, starting=str(1_000_000 + 123)), NO_LIMIT) == [list(range(123, 200))]


def test_a_new_query_goes_on_where_its_subscription_is(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 10, each=3)
    with Subscription.open(directory, "pipe") as subscription:
        subscription.commit(next(subscription.batches()).last)
    assert read_all(planner(tmp_path, starting="committed", subscription="pipe"), NO_LIMIT) == [list(range(3, 30))]


# Retention.


def committed(directory: str) -> dict[str, Any]:
    found = load_all(OsFiles(), directory).values()
    return {one.subscription: one.position for one in found if isinstance(one, Checkpoint)}


def test_a_stream_holds_files_back_until_it_has_committed_them(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    plan = planner(tmp_path, subscription="pipe")
    start = plan.initial()
    numbers = LogReader(directory).numbers()
    retention.apply(directory, RetentionSettings(keep_s=0))
    assert LogReader(directory).numbers() == numbers
    end = plan.latest(start, Limits(files=2))
    plan.commit(end)
    retention.apply(directory, RetentionSettings(keep_s=0))
    assert LogReader(directory).numbers() == numbers[2:]
    assert read_all(plan, NO_LIMIT, end)[0][-1] == 199


def test_delivered_files_go_when_the_query_is_to_delete_them(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    plan = planner(tmp_path, subscription="pipe", retention='{"keep_s": 0}')
    start, numbers = plan.initial(), LogReader(directory).numbers()
    end = plan.latest(start, Limits(files=2))
    plan.commit(end)
    assert LogReader(directory).numbers() == numbers[2:]
    assert read_all(plan, NO_LIMIT, end)[0][-1] == 199


def test_after_a_restart_only_what_moves_is_committed(tmp_path: Path) -> None:
    quiet, busy = write(tmp_path, "quiet", 0, 3), write(tmp_path, "busy", 0, 3)
    first = planner(tmp_path, subscription="pipe")
    end = first.latest(first.initial(), NO_LIMIT)
    first.close()
    before = committed(quiet)
    write(tmp_path, "busy", 3, 1)
    second = planner(tmp_path, subscription="pipe")
    newer = second.latest(end, NO_LIMIT)
    second.commit(newer)
    assert committed(quiet) == before
    assert committed(busy)["pipe"] in [reach.last for reach in newer.values()]


def test_a_batch_read_holds_nothing(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 3)
    plan = Planner(parse({"path": str(tmp_path), "shape": "runs", "subscription": "pipe"}), holds=False)
    plan.initial()
    plan.close()
    assert committed(directory) == {}


def test_commits_are_written_when_a_file_is_done_or_time_has_passed_or_the_query_ends(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 10)
    now = [0.0]
    plan = Planner(parse({"path": str(tmp_path), "shape": "runs", "subscription": "pipe"}), monotonic=lambda: now[0])
    reach, positions = plan.initial(), []
    for seconds in (0, 1, COMMIT_S + 1):
        now[0] = seconds
        reach = plan.latest(reach, Limits(rows=2))
        plan.commit(reach)
        positions.append(committed(directory)["pipe"] == next(iter(reach.values())).last)
    assert positions == [True, False, True]
    reach = plan.latest(reach, Limits(rows=2))
    plan.commit(reach)
    plan.close()
    assert committed(directory)["pipe"] == next(iter(reach.values())).last


def test_a_subscription_that_cannot_be_moved_does_not_stop_the_query(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 10)
    plan = planner(tmp_path, subscription="pipe")
    end = plan.latest(plan.initial(), NO_LIMIT)
    with Subscription.open(directory, "pipe"), capture_logs() as said:
        plan.commit(end)
    assert [entry["event"] for entry in said] == ["subscription not moved"]
    plan.commit(end)
    assert committed(directory)["pipe"] == next(iter(end.values())).last


# Bad news.


def test_removed_changes_are_named_exactly(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    plan = planner(tmp_path)
    start = plan.latest(plan.initial(), Limits(rows=7))
    remove_first_files(directory, 2)
    with LogReader(directory) as reader:
        through, before = reader.first(), reader.heading(reader.numbers()[0]).rows_before
    with pytest.raises(ChangesLost) as raised:
        plan.latest(start, NO_LIMIT)
    place = raised.value.place
    assert (place["after"], place["through"]) == (next(iter(start.values())).last, through)
    assert place["changes"] == before - 7
    assert str(place["table"]) == "shop.orders"
    assert place["node"] == tmp_path.name
    # A batch that was planned before the removal says the same.
    with pytest.raises(ChangesLost):
        plan.partitions(start, plan.end())


def test_with_skip_the_rest_is_read_and_the_gap_is_logged(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    plan = planner(tmp_path, onLoss="skip")
    start = plan.initial()
    remove_first_files(directory, 2)
    with capture_logs() as said:
        batches = read_all(plan, Limits(rows=50), start)
    assert [number for one in batches for number in one] == ids_in(directory)
    gaps = [entry for entry in said if entry["event"] == "changes lost"]
    assert gaps
    assert gaps[0]["after"] == "000000:0:0"


def test_a_gap_is_told_with_what_can_be_done_about_it(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    start = planner(tmp_path).initial()
    remove_first_files(directory, 2)
    with LogReader(directory) as reader:
        through, lost = reader.first(), reader.heading(reader.numbers()[0]).rows_before
    with pytest.raises(ChangesLost) as raised:
        planner(tmp_path).latest(start, NO_LIMIT)
    assert str(raised.value) == (
        "changes were removed before they were read; "
        'set on_loss = "snapshot" to have the agents copy the table again, or '
        'copy it with: penstock agent snapshot CONFIG shop.orders, on every node, and set on_loss = "skip" '
        f"(table shop.orders, node {tmp_path.name}, directory {directory}, "
        f"after 000000:0:0, through {through}, changes {lost}, first_file 3)"
    )


def test_with_snapshot_every_agent_is_asked_once_for_a_copy_and_the_rest_is_read(tmp_path: Path) -> None:
    logs = [
        write(tmp_path / node, "orders", first, 40, each=5, settings=SMALL_FILES, note="x" * 200)
        for node, first in (("n1", 0), ("n2", 1000))
    ]
    for node in ("n1", "n2"):
        (tmp_path / node / ".agent").mkdir()
    options = {"path": f"{tmp_path}/n1,{tmp_path}/n2", "shape": "runs", "subscription": "p", "onLoss": "snapshot"}
    start = Planner(parse(options)).initial()
    remove_first_files(logs[0], 2)

    def asked() -> list[list[TableId]]:
        directories = [f"{tmp_path}/{node}/.agent/snapshot" for node in ("n1", "n2")]
        return [snapshot_requests.waiting(OsFiles(), directory) for directory in directories]

    plan = Planner(parse(options))
    with capture_logs() as said:
        batches = read_all(plan, NO_LIMIT, start)
    assert sorted(number for one in batches for number in one) == sorted(ids_in(logs[0]) + ids_in(logs[1]))
    assert asked() == [[TableId("shop", "orders")]] * 2
    assert [entry["agents"] for entry in said if entry["event"] == "snapshot asked for"] == [2]
    # A batch that is planned again in another process, as after a failure, does not ask again.
    for node in ("n1", "n2"):
        snapshot_requests.done(OsFiles(), f"{tmp_path}/{node}/.agent/snapshot", TableId("shop", "orders"))
    again = Planner(parse(options))
    assert ids(again.partitions(start, again.end()))
    assert asked() == [[], []]
    # The next gap is another one.
    write(tmp_path / "n1", "orders", 5000, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    end = again.end()
    write(tmp_path / "n1", "orders", 6000, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    with LogReader(logs[0]) as reader:
        read = [number for number in reader.numbers() if number <= max(one.file for one in end.values())]
    remove_first_files(logs[0], len(read) + 1)
    again.latest(end, NO_LIMIT)
    assert asked() == [[TableId("shop", "orders")]] * 2


def test_with_snapshot_and_no_agent_the_gap_is_told(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    plan = planner(tmp_path, onLoss="snapshot")
    start = plan.initial()
    remove_first_files(directory, 2)
    with pytest.raises(
        ChangesLost, match=r"no agent here copies tables; copy it with: penstock agent snapshot"
    ) as told:
        plan.latest(start, NO_LIMIT)
    assert told.value.place["changes"]


def test_a_new_query_does_not_call_old_removals_a_loss(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    remove_first_files(directory, 2)
    assert read_all(planner(tmp_path), NO_LIMIT) == [ids_in(directory)]


def test_a_missing_file_in_the_middle_is_damage(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=SMALL_FILES, note="x" * 200)
    plan = planner(tmp_path)
    start = plan.initial()
    with LogReader(directory) as reader:
        Path(reader.path(3)).unlink()
    with pytest.raises(CorruptLog, match="file number 3 is missing"):
        plan.latest(start, NO_LIMIT)


def test_a_damaged_block_is_named_with_file_and_offset(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 10, each=5)
    plan = planner(tmp_path)
    tasks = plan.partitions(plan.initial(), plan.end())
    with LogReader(directory) as reader:
        path, offset = reader.path(1), list(reader.read())[4].offset
    with open(path, "r+b") as file:
        file.seek(offset + 8)
        file.write(b"\xff\xff")
    with pytest.raises(CorruptLog) as raised:
        ids(tasks)
    assert raised.value.place["file"] == path
    assert raised.value.place["offset"] == offset


def test_a_log_that_vanished_is_a_loss_unless_it_is_to_be_skipped(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 3)
    write(tmp_path, "kept", 10, 3)
    start = planner(tmp_path).initial()
    shutil.rmtree(directory)
    with pytest.raises(ChangesLost, match="is gone"):
        planner(tmp_path).latest(start, NO_LIMIT)
    with capture_logs() as said:
        assert read_all(planner(tmp_path, onLoss="skip"), NO_LIMIT, start) == [[10, 11, 12]]
    assert [entry["event"] for entry in said] == ["log gone"]


def test_a_table_that_is_no_longer_wanted_is_left_out_without_fuss(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 3)
    write(tmp_path, "kept", 10, 3)
    start = planner(tmp_path).initial()
    assert read_all(planner(tmp_path, exclude="shop.orders"), NO_LIMIT, start) == [[10, 11, 12]]


def test_the_checkpoint_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "one", "orders", 0, 3)
    write(tmp_path / "other", "orders", 0, 3)
    start = planner(tmp_path / "one").initial()
    with pytest.raises(CorruptCheckpoint, match="belongs to other logs"):
        planner(tmp_path / "other").latest(start, NO_LIMIT)


def test_a_log_that_was_restored_from_an_older_copy_is_noticed(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 3)
    shutil.copytree(directory, tmp_path / "older")
    write(tmp_path, "orders", 3, 3)
    plan = planner(tmp_path)
    end = plan.latest(plan.initial(), NO_LIMIT)
    plan.close()
    shutil.rmtree(directory)
    (tmp_path / "older").rename(directory)
    with pytest.raises(PositionAhead, match="restored from an older copy"):
        planner(tmp_path).latest(end, NO_LIMIT)


# The flat shape and changes of the table.


def flat_planner(root: Path, **options: str) -> tuple[Planner, TableVersion]:
    given = parse({"path": str(root), "table": "shop.orders", **options})
    version = TableVersion.find(given)
    return Planner(given, check=version.check), version


def test_a_stream_of_columns_stops_before_a_new_version_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 3)
    plan, version = flat_planner(tmp_path)
    start = plan.initial()
    wider = with_column(version.schema, "paid", t.BOOLEAN)
    write(tmp_path, "orders", 3, 2)
    write(tmp_path, "orders", 5, 2, schema=wider)
    end = plan.latest(start, NO_LIMIT)
    assert ids(plan.partitions(start, end)) == [0, 1, 2, 3, 4]
    with pytest.raises(SchemaChanged) as raised:
        plan.latest(end, NO_LIMIT)
    assert raised.value.place["column"] == "paid"
    assert raised.value.place["version"] == 2
    again, newer = flat_planner(tmp_path)
    assert newer.schema.by_name.keys() == {"id", "note", "paid"}
    assert read_all(again, NO_LIMIT, end) == [[5, 6]]


def test_a_column_that_was_dropped_does_not_stop_a_stream(tmp_path: Path) -> None:
    wide = with_column(schema_of("orders"), "paid", t.BOOLEAN)
    write(tmp_path, "orders", 0, 3, schema=wide)
    plan, _ = flat_planner(tmp_path)
    start = plan.initial()
    write(tmp_path, "orders", 3, 2, schema=schema_of("orders", version=3))
    assert read_all(plan, NO_LIMIT, start) == [[0, 1, 2, 3, 4]]


def test_who_chose_columns_does_not_miss_new_ones(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 3)
    given = parse({"path": str(tmp_path), "table": "shop.orders", "columns": "id,_op"})
    version = TableVersion.find(given)
    version = version.choosing(version.flat_schema(given.columns))
    plan = Planner(given, check=version.check)
    start = plan.initial()
    write(tmp_path, "orders", 3, 2, schema=with_column(version.schema, "paid", t.BOOLEAN))
    assert read_all(plan, NO_LIMIT, start) == [[0, 1, 2, 3, 4]]


# Runs.


def test_runs_of_one_table_are_joined_and_divided_by_bucket(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 30, each=2, node="n1")
    write(tmp_path, "other", 100, 10, node="n1")
    plan = planner(tmp_path)
    [task] = plan.partitions(plan.initial(), plan.end())
    how = access(parse({"path": "/", "shape": "runs"}))
    found = [
        run
        for made in read_runs(((one.address, open_reader(one.address, how), one.stretch) for one in task), 4)
        for run in runs.from_arrow(made)
    ]
    tables = {(str(run.schema.table), run.bucket) for run in found}
    assert len(found) == len(tables) <= 8
    assert {run.node for run in found} == {"n1"}
    numbers = {
        table: sorted(
            change.key["id"] for run in found if str(run.schema.table) == table for change in avro.decode(run.batch())
        )
        for table in ("shop.orders", "shop.other")
    }
    assert numbers == {"shop.orders": list(range(60)), "shop.other": list(range(100, 110))}


def test_long_runs_are_sent_on_before_everything_is_read(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 40, each=5, note="x" * 2000)
    plan = planner(tmp_path)
    [task] = plan.partitions(plan.initial(), plan.end())
    how = access(parse({"path": "/", "shape": "runs"}))
    pieces = ((one.address, open_reader(one.address, how), one.stretch) for one in task)
    first = next(read_runs(pieces, 1, size=1))
    assert first.num_rows == 1
    assert 0 < first.column("count")[0].as_py() <= 200


def test_a_compressed_log_is_read_too(tmp_path: Path) -> None:
    settings = LogSettings(codec="zstandard", file_bytes_max=8192)
    directory = write(tmp_path, "orders", 0, 40, each=5, settings=settings, note="x" * 200)
    batches = read_all(planner(tmp_path), Limits(rows=33))
    assert [number for one in batches for number in one] == ids_in(directory)


def test_log_that_a_batch_left_out_is_set_back_and_its_subscription_stays(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 1, each=5)
    options = {"subscription": "me", "path": str(tmp_path), "shape": "runs"}
    first = Planner(parse(options))
    begin = first.initial()
    before = first.latest(begin, NO_LIMIT)
    first.commit(before)
    first.close()
    write(tmp_path, "orders", 5, 1, each=5)
    first = Planner(parse(options))
    after = first.latest(before, NO_LIMIT)
    [log] = after
    held = Held(
        waiting=frozenset({TableId("shop", "orders")}),
        back={log: (str(before[log]), str(after[log]))},
        unread=frozenset({log}),
    )
    plan = Planner(parse({**options, "held": held.to_text()}))
    # The batch that was noted is done again, without it.
    assert plan.partitions(before, after) == []
    plan.commit(after)
    assert _position(directory) == before[log].last
    assert plan.latest(after, NO_LIMIT) == before
    assert plan.partitions(after, before) == []
    # Then it is read from where it was.
    again = plan.latest(before, NO_LIMIT)
    assert again == after
    assert ids(plan.partitions(before, again)) == [5, 6, 7, 8, 9]
    plan.commit(again)
    plan.close()
    assert _position(directory) == after[log].last


def test_held_table_stays_where_it_is_while_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 1, each=5)
    write(tmp_path, "people", 10, 1, each=5)
    start = planner(tmp_path).initial()
    orders = next(log for log, seen in planner(tmp_path).look().items() if seen.address.table.table == "orders")
    held = Held(tables=frozenset({TableId("shop", "orders")}), logs=frozenset({orders}))
    shutil.rmtree(tmp_path / "shop.orders")
    plan = planner(tmp_path, held=held.to_text())
    end = plan.latest(start, NO_LIMIT)
    assert end[orders] == start[orders]
    assert ids(plan.partitions(start, end)) == [10, 11, 12, 13, 14]


def _position(directory: str) -> Any:
    [found] = load_all(OsFiles(), directory).values()
    assert isinstance(found, Checkpoint)
    return found.position


def test_erased_changes_are_not_read_and_the_positions_of_the_others_stay(tmp_path: Path) -> None:
    directory = write(tmp_path, "orders", 0, 3, each=10)
    gone = [0, 4, 5, 9, *range(20, 30)]
    assert erase(directory, lambda _: [Target((number,)) for number in gone]).complete
    left = [number for number in range(30) if number not in gone]
    for limits in (NO_LIMIT, Limits(rows=7), Limits(rows=1)):
        assert [number for some in read_all(planner(tmp_path), limits) for number in some] == left
    plan = planner(tmp_path)
    start = plan.initial()
    places = []
    for piece in (piece for task in plan.partitions(start, plan.latest(start, NO_LIMIT)) for piece in task):
        reader = open_reader(piece.address, access(parse({"path": "/", "shape": "runs"})))
        for gathered in gather(reader, piece.stretch):
            places += [first + at for _, first, count in gathered.blocks for at in range(count)]
    assert places == [number % 10 for number in left]
