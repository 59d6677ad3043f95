"""Snapshots of real nodes: all types, the seam with the stream, restarts, requests, and clusters that do not answer."""

from __future__ import annotations

import dataclasses
import itertools
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cassandra.cluster import Session
from cassandra.concurrent import execute_concurrent_with_args

from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.snapshot import copy
from penstock.capture.cassandra.snapshot import snapshotter as snapshotter_module
from penstock.capture.cassandra.snapshot.state import StateDirectory
from penstock.capture.cassandra.snapshot.status import Stage
from penstock.errors import InvalidSetting
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model.change import Change
from penstock.model.schema import TableId
from penstock.model.types import Kind
from penstock.sandbox.cassandra_server import CassandraServer
from penstock.system.files import OsFiles
from tests.integration.cassandra import snapshot_process
from tests.integration.cassandra.answers import Answer, Asker
from tests.integration.cassandra.folding import decode, differences, fold, segments
from tests.integration.cassandra.recording import Recording, cases_of, connected, name_of
from tests.integration.cassandra.snapshotting import COPIED, Collector, running, snapshotter, take, wait_until
from tests.integration.cassandra.variants import VARIANTS, Variant, runnable

# Times to live are known to the second at which a page was asked for, and a busy machine answers late.
_TTL_SLACK_S = 30


def every_table() -> list[Any]:
    names = [
        (variant, table.strip('"'))
        for variant in runnable()
        if variant.name in COPIED
        for case in cases_of(variant)
        for table in case.tables
    ]
    return [pytest.param(variant, table, id=f"{variant.name}-{table}") for variant, table in names]


def without_lists(table: CassandraTable, answer: Answer) -> Answer:
    """The answer without what a snapshot cannot tell: when each item of a list was written."""
    lists = {column.name for column in table.schema.cells if column.type.multi_cell and column.type.kind is Kind.LIST}
    stamps = [{name: stamp for name, stamp in row.items() if name not in lists} for row in answer.stamps]
    seconds = (answer.seconds[0] - _TTL_SLACK_S, answer.seconds[1])
    return dataclasses.replace(answer, stamps=stamps, seconds=seconds)


@pytest.mark.parametrize(("variant", "table"), every_table())
def test_folded_snapshot_is_what_the_node_selects(recording: Recording, table: str) -> None:
    definition = recording.tables[table]
    # Views are no tables of their own: nobody writes to them.
    changes = recording.copied.get(name_of(table), [])
    if definition.view:
        assert changes == []
        return
    answer = without_lists(definition, recording.answers[table])
    assert differences(definition, fold(definition, changes), answer) == []


@pytest.mark.parametrize(("variant", "table"), every_table())
def test_snapshot_adds_nothing_to_the_folded_log(recording: Recording, table: str) -> None:
    definition = recording.tables[table]
    changes = [*recording.copied.get(name_of(table), []), *recording.told.changes[name_of(table)]]
    answer = without_lists(definition, recording.answers[table])
    assert differences(definition, fold(definition, changes), answer) == []


NODES = [variant for variant in VARIANTS if variant.name in ("5.0-format-8", "4.1")]
on_both = pytest.mark.parametrize(
    "node",
    [pytest.param(v, id=v.name) for v in NODES],
    indirect=True,
)
on_one = pytest.mark.parametrize(
    "node",
    [pytest.param(NODES[0], id=NODES[0].name)],
    indirect=True,
)


@dataclasses.dataclass
class Node:
    """A running node, and a keyspace of the test's own in it."""

    variant: Variant
    server: CassandraServer
    session: Session
    keyspace: str

    def captures(self, table: CassandraTable) -> bool:
        return table.cdc and table.schema.table.keyspace == self.keyspace

    def name(self, table: str) -> TableId:
        return TableId(self.keyspace, table)

    def table(self, name: str) -> CassandraTable:
        found = [one for one in schema_query.read(self.session) if one.schema.table == self.name(name)]
        return found[0]

    def fill(self, name: str, rows: int) -> None:
        self.session.execute(f"CREATE TABLE {name} (k int PRIMARY KEY, v text)")
        statement = self.session.prepare(f"INSERT INTO {name} (k, v) VALUES (?, ?)")
        execute_concurrent_with_args(self.session, statement, [(k, f"value {k}") for k in range(rows)], concurrency=64)
        # Only now: a snapshotter that looks for new tables must not find this one half filled.
        self.session.execute(f"ALTER TABLE {name} WITH cdc = true")


_keyspaces = (f"snapshot_{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Variant], CassandraServer]]:
    """Starts each kind of node once; one that a failed test has left dead is started again for the next."""
    started: dict[str, CassandraServer] = {}

    def get(variant: Variant) -> CassandraServer:
        if variant.name not in started:
            started[variant.name] = variant.server(tmp_path_factory.mktemp(f"snapshot-{variant.name}"))
        if not started[variant.name].running:
            started[variant.name].start()
        return started[variant.name]

    yield get
    for one in started.values():
        # Nobody reads what it leaves behind.
        one.kill()


@pytest.fixture
def node(request: pytest.FixtureRequest, servers: Callable[[Variant], CassandraServer]) -> Iterator[Node]:
    variant: Variant = request.param
    one = servers(variant)
    keyspace = next(_keyspaces)
    with connected(one.address) as cluster:
        session = cluster.connect()
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {replication}")
        session.set_keyspace(keyspace)
        yield Node(variant, one, session, keyspace)


def keys_of(changes: list[tuple[Any, Change]]) -> Counter[int]:
    return Counter(change.key["k"] for _, change in changes)


@on_one
def test_a_single_node_copies_every_row_exactly_once(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 2000)
    copied = take(node.server.address, tmp_path, node.captures, page_rows=70, splits=30, workers=3)
    assert keys_of(copied[node.name("rows")]) == Counter(range(2000))
    state = StateDirectory(OsFiles(), str(tmp_path / "snapshot")).load(node.name("rows"))
    assert state is not None
    assert (state.rows, state.run, state.pending) == (2000, 1, [])


@on_one
def test_a_killed_snapshot_goes_on_inside_the_table(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 6000)
    process = [sys.executable, snapshot_process.__file__, node.server.address, str(tmp_path), node.keyspace]
    kills = 0
    counts: list[int] = []
    done = False
    while not done:
        counts.append(0)
        with subprocess.Popen(process, stdout=subprocess.PIPE, text=True) as one:
            assert one.stdout is not None
            for line in one.stdout:
                done = line == "done\n"
                counts[-1] = counts[-1] if done else int(line)
                if kills < 3 and counts[-1] >= 1500:
                    kills += 1
                    one.send_signal(signal.SIGKILL)
                    break
    assert kills == 3
    # Each start read on behind what the one before had noted, and in the end nothing was missed.
    assert sum(counts) < 2 * 6000
    with LogReader(str(tmp_path / "log" / "rows")) as reader:
        keys = {change.key["k"] for batch in reader.read() for change in avro.decode(batch)}
    assert keys == set(range(6000))


@on_one
def test_a_stopped_snapshot_is_aborted_and_the_next_one_completes_it(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 1000)
    enough = threading.Event()
    first = Collector(lambda batches: enough.set() if batches == 3 else None)
    one = snapshotter(node.server.address, first, tmp_path, node.captures, page_rows=20, rows_per_s=400.0)
    with running(one) as raised:
        assert enough.wait(60)
    assert not raised
    assert (one.status().aborted, one.status().completed) == (True, False)
    assert one.status().tables_remaining == 1
    second = Collector()
    other = snapshotter(node.server.address, second, tmp_path, node.captures)
    with running(other):
        wait_until(other, lambda status: status.completed)
    assert 0 < first.count < 1000
    assert second.count < 1000
    both = first.changes()[node.name("rows")] + second.changes()[node.name("rows")]
    assert set(keys_of(both)) == set(range(1000))


@on_one
def test_the_throttle_holds_the_workers_back(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 600)
    sink = Collector()
    one = snapshotter(
        node.server.address, sink, tmp_path, node.captures, page_rows=50, workers=2, splits=2, rows_per_s=0.01
    )
    with running(one) as raised:
        status = wait_until(one, lambda status: status.rows.get(str(node.name("rows")), 0) >= 100)
    assert not raised
    # Each worker has read one page, and would wait for hours before the next.
    assert status.rows[str(node.name("rows"))] == 100
    assert sink.count == 100


@on_one
def test_new_tables_and_requests_are_found_while_it_runs(node: Node, tmp_path: Path) -> None:
    node.fill("first", 10)
    sink = Collector()
    one = snapshotter(node.server.address, sink, tmp_path, node.captures, scan_interval_s=0.2)
    with running(one) as raised:
        wait_until(one, lambda status: status.rows.get(str(node.name("first"))) == 10 and status.completed)
        node.fill("second", 20)
        wait_until(one, lambda status: status.rows.get(str(node.name("second"))) == 20 and status.completed)
        node.session.execute("CREATE TABLE third (k int PRIMARY KEY, v text)")
        node.session.execute("INSERT INTO third (k, v) VALUES (1, 'x')")
        node.session.execute("ALTER TABLE third WITH cdc = true")
        wait_until(one, lambda status: status.rows.get(str(node.name("third"))) == 1 and status.completed)
        one.request(node.name("first"))
        status = wait_until(one, lambda status: any(table.run == 2 for table in status.tables) and status.completed)
        one.request(node.name("nothing"))
        wait_until(one, lambda _: not list((tmp_path / "snapshot").glob("*.request")))
    assert not raised
    assert {table.table.table: table.run for table in status.tables} == {"first": 2, "second": 1, "third": 1}
    assert {name.table: len(changes) for name, changes in sink.changes().items()} == {
        "first": 20,
        "second": 20,
        "third": 1,
    }


@on_one
def test_each_mode_copies_again_when_it_says(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 5)

    def rows(mode: str) -> int:
        return len(take(node.server.address, tmp_path, node.captures, mode=mode)[node.name("rows")])

    assert [rows("never"), rows("initial"), rows("initial"), rows("always")] == [0, 5, 0, 0]
    assert [rows("restart"), rows("restart"), rows("initial")] == [5, 5, 0]
    node.session.execute("ALTER TABLE rows WITH cdc = false")
    assert rows("initial") == 0
    node.session.execute("ALTER TABLE rows WITH cdc = true")
    assert [rows("initial"), rows("always"), rows("always")] == [0, 5, 0]


@on_one
def test_a_request_is_met_though_snapshots_are_off(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 7)
    sink = Collector()
    one = snapshotter(node.server.address, sink, tmp_path, node.captures, mode="never")
    one.request(node.name("rows"))
    with running(one) as raised:
        wait_until(one, lambda status: status.rows.get(str(node.name("rows"))) == 7)
    assert not raised
    assert sink.count == 7


@on_one
def test_columns_that_come_and_go_in_mid_table_do_not_stop_it(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 3000)

    def alter(batches: int) -> None:
        if batches == 3:
            node.session.execute("ALTER TABLE rows ADD w int")
            for k in range(3000):
                node.session.execute_async("UPDATE rows SET w = %s WHERE k = %s", (k, k))
        if batches == 12:
            node.session.execute("ALTER TABLE rows DROP v")

    sink = Collector(alter)
    one = snapshotter(node.server.address, sink, tmp_path, node.captures, page_rows=50, workers=1, rows_per_s=600.0)
    with running(one) as raised:
        wait_until(one, lambda status: status.completed)
    assert not raised
    changes = sink.changes()[node.name("rows")]
    assert set(keys_of(changes)) == set(range(3000))
    names = {tuple(column.name for column in schema.cells) for schema, _ in changes}
    assert ("w",) in names
    assert len(names) >= 2


@on_one
def test_a_table_that_is_dropped_ends_its_snapshot_with_a_note(node: Node, tmp_path: Path) -> None:
    node.fill("gone", 1000)
    node.fill("stays", 30)
    sink = Collector(lambda batches: node.session.execute("DROP TABLE gone") if batches == 2 else None)
    one = snapshotter(node.server.address, sink, tmp_path, node.captures, page_rows=20, rows_per_s=500.0)
    with running(one) as raised:
        status = wait_until(one, lambda status: status.completed and status.tables_total == 1)
    assert not raised
    stages = {table.table.table: table.stage for table in status.tables}
    assert stages == {"gone": Stage.DROPPED, "stays": Stage.DONE}
    assert not list((tmp_path / "snapshot").glob("*gone*"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that answers again is asked within a second, however long it was silent."""
    for module in (copy, snapshotter_module):
        monkeypatch.setattr(module, "BACKOFF_S_MAX", 1.0)


@on_one
@pytest.mark.usefixtures("impatient")
def test_a_consistency_level_that_cannot_be_had_is_waited_for(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 10)
    # No cluster of one node has two replicas; and a level of another data centre than ours has none at all.
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 2}"
    node.session.execute(f"ALTER KEYSPACE {node.keyspace} WITH replication = {replication}")
    sink = Collector()
    one = snapshotter(node.server.address, sink, tmp_path, node.captures)
    with running(one) as raised:
        status = wait_until(one, lambda status: status.retries > 1)
        assert status.waiting is not None
        assert not status.completed
        node.session.execute(f"ALTER KEYSPACE {node.keyspace} WITH replication = {replication.replace('2', '1')}")
        done = wait_until(one, lambda status: status.completed)
    assert not raised
    assert done.waiting is None
    assert sink.count == 10


@on_one
@pytest.mark.usefixtures("impatient")
def test_a_snapshot_waits_for_a_node_that_is_down_and_goes_on(node: Node, tmp_path: Path) -> None:
    node.fill("rows", 2000)
    # The node syncs its log every ten seconds, and forgets at kill -9 what came later: the rows, and the table itself.
    node.server.nodetool("flush")
    killed = threading.Event()

    def kill(batches: int) -> None:
        if batches == 4:
            node.server.kill()
            killed.set()

    sink = Collector(kill)
    one = snapshotter(node.server.address, sink, tmp_path, node.captures, page_rows=25, rows_per_s=2000.0)
    with running(one) as raised:
        assert killed.wait(120)
        status = wait_until(one, lambda status: status.waiting is not None and not status.running)
        assert not status.completed
        node.server.start()
        done = wait_until(one, lambda status: status.completed)
    assert not raised
    assert done.retries >= 1
    assert set(keys_of(sink.changes()[node.name("rows")])) == set(range(2000))


@on_one
def test_a_node_that_is_not_in_the_cluster_is_refused(node: Node, tmp_path: Path) -> None:
    one = snapshotter(node.server.address, Collector(), tmp_path, node.captures, node="192.0.2.1")
    with running(one) as raised:
        wait_until(one, lambda status: status.failure is not None)
    assert isinstance(raised[0], InvalidSetting)
    assert "192.0.2.1" in str(raised[0])


@on_both
def test_writes_during_a_snapshot_merge_to_what_the_node_selects(node: Node, tmp_path: Path) -> None:
    timed = node.variant.number >= (5, 0)
    extra = ", l list<int>" if timed else ""
    node.session.execute(
        "CREATE TABLE busy (k int, c int, s text static, g set<int> static, v int, w text, m map<text, int>"
        f"{extra}, PRIMARY KEY (k, c)) WITH cdc = true"
    )
    table = node.table("busy")
    random = Random(7)
    for _ in range(1500):
        node.session.execute(random_write(random, with_list=timed))
    seam_us = time.time_ns() // 1000
    stop = threading.Event()
    written = Counter[str]()

    def write() -> None:
        while not stop.is_set():
            node.session.execute(random_write(random, with_list=timed))
            written["all"] += 1

    sink = Collector()
    one = snapshotter(
        node.server.address, sink, tmp_path, node.captures, page_rows=10, splits=5, workers=2, rows_per_s=400.0
    )
    writer = threading.Thread(target=write)
    writer.start()
    try:
        with running(one) as raised:
            wait_until(one, lambda status: status.completed)
    finally:
        stop.set()
        writer.join()
    assert not raised
    assert written["all"] > 50
    node.server.nodetool("flush")
    with connected(node.server.address) as cluster:
        answer = Asker(cluster, node.keyspace, node.variant.number).ask(table)
    decoded = decode(segments(node.server.commitlog, node.server.cdc_raw), captures=lambda one: one.id == table.id)
    # The stream begins where the agent would have begun: all before is known from the snapshot alone.
    stream = [(s, c) for s, c in decoded.changes[node.name("busy")] if c.time is not None and c.time > seam_us]
    copied = sink.changes()[node.name("busy")]
    for order in ([*copied, *stream], [*stream, *copied]):
        assert differences(table, fold(table, order), without_lists(table, answer)) == []
    # Neither alone is the whole.
    assert differences(table, fold(table, stream), without_lists(table, answer))
    assert differences(table, fold(table, copied), without_lists(table, answer))


def random_write(random: Random, *, with_list: bool) -> str:
    k, c, n = random.randrange(30), random.randrange(6), random.randrange(1000)
    row = f"k = {k} AND c = {c}"
    statements = [
        f"INSERT INTO busy (k, c, v, w) VALUES ({k}, {c}, {n}, 'w{n}')",
        f"INSERT INTO busy (k, c, v, m) VALUES ({k}, {c}, {n}, {{'a': {n}, 'b': 1}})",
        f"INSERT INTO busy (k, c, w) VALUES ({k}, {c}, null) USING TTL {100_000 + n}",
        f"INSERT INTO busy (k, c) VALUES ({k}, {c})",
        f"INSERT INTO busy (k, s) VALUES ({k}, 's{n}')",
        f"UPDATE busy SET g = g + {{{n}}} WHERE k = {k}",
        f"UPDATE busy SET g = g - {{{n % 10}}} WHERE k = {k}",
        f"DELETE m['a'] FROM busy WHERE {row}",
        f"DELETE FROM busy WHERE {row}",
        f"DELETE FROM busy WHERE k = {k} AND c > {c}",
    ]
    if random.random() < 0.02:
        return f"DELETE FROM busy WHERE k = {k}"
    if with_list and random.random() < 0.2:
        return f"INSERT INTO busy (k, c, l) VALUES ({k}, {c}, [{n}, {n + 1}])"
    return random.choice(statements)
