"""Three real nodes, every row on all of them: each log is complete, and after a crash any two logs are.

Beside them run three agents, and what they log is folded as the pipeline does it: whatever the order, whichever copies
are lost or come twice, the rows are those that SELECT gives.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster, Session
from cassandra.query import SimpleStatement

from penstock.capture.cassandra.agent.agent import Agent
from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.cli.main import main
from penstock.compare.lake_rows import LakeShape
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId, TableSchema
from penstock.records import keys
from penstock.records.records import Records
from penstock.records.runs import Run
from penstock.sandbox.cassandra_server import STORAGE_PORT, CassandraServer
from penstock.settings import AgentSettings, CassandraSettings, RecordType, Settings
from tests import folding
from tests.integration.cassandra import cluster_load
from tests.integration.cassandra.answers import Answer, Asker
from tests.integration.cassandra.folding import Decoded, chosen, decode, differences, fold, segments
from tests.integration.cassandra.recording import connected
from tests.integration.cassandra.three_nodes import agreed, started

KEYSPACE = "trio"
TABLES = ("rows_of_all", "counts")
_WRITES = 120
_AGREE_S = 60
_NOTICE_S = 120
_PIPELINE_S = 600


@dataclass
class Trio:
    """What three nodes have been through: all writes at ALL; then, with the last node killed, more at QUORUM."""

    tables: dict[str, CassandraTable]
    whole: list[Decoded]
    whole_answers: dict[str, Answer]
    crashed: list[Decoded]
    crashed_answers: dict[str, Answer]
    # The logs of the three agents, up to the kill, and what SELECT gave then at ALL, and when.
    home: Path
    selected: dict[str, list[dict[str, Any]]]
    selected_s: int
    contact: str


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    home = tmp_path_factory.mktemp("trio")
    with ExitStack() as stack:
        nodes = started(home, stack)
        with connected(*(node.address for node in nodes)) as cluster, ExitStack() as captured:
            session = cluster.connect()
            agents = [captured.enter_context(capturing(node, home)) for node in nodes]
            created(session, nodes)
            tables = {
                table.schema.table.table: table
                for table in schema_query.read(session)
                if table.schema.table.keyspace == KEYSPACE
            }
            written(session, Random(1), ConsistencyLevel.ALL)
            cluster_load.write(session, KEYSPACE, Random(3), ConsistencyLevel.ALL)
            whole = [decoded(node, tables) for node in nodes]
            for agent, log in zip(agents, whole, strict=True):
                caught_up(agent, log)
            captured.close()
            cluster_load.expired(Asker(cluster, KEYSPACE, (5, 0), ConsistencyLevel.ALL))
            selected = {
                table: cluster_load.selected(session, tables[table].schema, ConsistencyLevel.ALL)
                for table in cluster_load.TABLES
            }
            selected_s = int(time.time())
            whole_answers = answers(cluster, tables, ConsistencyLevel.ALL)
            nodes[-1].kill()
            noticed(nodes[:-1], nodes[-1])
            written(session, Random(2), ConsistencyLevel.QUORUM)
            crashed = [decoded(node, tables) for node in nodes]
            crashed_answers = answers(cluster, tables, ConsistencyLevel.QUORUM)
        contact = nodes[0].address
        yield Trio(tables, whole, whole_answers, crashed, crashed_answers, home, selected, selected_s, contact)
        for node in nodes:
            # They would wait for each other if they were asked to stop.
            node.kill()


def created(session: Session, nodes: list[CassandraServer]) -> None:
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {len(nodes)}}}"
    for definition in (
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}",
        f"""CREATE TABLE {KEYSPACE}.rows_of_all (k int, c int, v text, m map<text, int>, l list<int>, s text static,
            PRIMARY KEY (k, c)) WITH cdc = true""",
        f"CREATE TABLE {KEYSPACE}.counts (k int PRIMARY KEY, n counter) WITH cdc = true",
        *cluster_load.definitions(KEYSPACE),
    ):
        session.execute(definition)
        agreed(session)


@contextmanager
def capturing(node: CassandraServer, home: Path) -> Iterator[Agent]:
    """An agent beside a node, in a thread of its own, whose logs stay."""
    name = node.directory.name
    agent = Agent(
        Settings(
            # Three nodes that have just started on a busy machine take their time to answer.
            cassandra=CassandraSettings(
                config_file=node.yaml, contact_points=(node.address,), connect_timeout_s=_AGREE_S
            ),
            agent=AgentSettings(directory=home / "logs" / name, node=name, transfer="keep"),
        )
    )
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,), daemon=True)
    thread.start()
    try:
        assert agent.begun.wait(2 * _AGREE_S), agent.status()
        yield agent
    finally:
        stop.set()
        thread.join(_AGREE_S)


def caught_up(agent: Agent, decoded: Decoded) -> None:
    """Wait until an agent has logged as much of each table as stands in its node's commit log."""
    wanted = {str(table): len(changes) for table, changes in decoded.changes.items()}
    deadline = time.monotonic() + _AGREE_S
    while agent.status().table_changes != wanted:
        assert time.monotonic() < deadline, (agent.status(), wanted)
        threading.Event().wait(0.05)


def noticed(nodes: list[CassandraServer], killed: CassandraServer) -> None:
    """Wait until these nodes know that another one is down; until then they would ask it to lead counters."""
    # Their logs say so, and cost less than a nodetool for every look.
    news = re.compile(rf"/{re.escape(killed.address)}:{STORAGE_PORT} is now (UP|DOWN)")
    deadline = time.monotonic() + _NOTICE_S
    while not all(news.findall(node.system_log.read_text(encoding="utf-8"))[-1:] == ["DOWN"] for node in nodes):
        assert time.monotonic() < deadline, "the nodes did not notice that one was killed"
        threading.Event().wait(0.1)


def written(session: Session, random: Random, level: int) -> None:
    """Writes of every kind. The driver takes another coordinator each time, so that counters have several leaders."""
    table = f"{KEYSPACE}.rows_of_all"
    for number in range(_WRITES):
        k, c = random.randint(1, 8), random.randint(1, 5)
        statements = [
            f"INSERT INTO {table} (k, c, v, m) VALUES ({k}, {c}, 'v{number}', {{'a': {number}}})",
            f"UPDATE {table} SET m['{random.choice('abc')}'] = {number}, l = l + [{number}] WHERE k = {k} AND c = {c}",
            f"UPDATE {table} SET s = 's{number}' WHERE k = {k}",
            f"DELETE FROM {table} WHERE k = {k} AND c > {c}",
            f"DELETE FROM {table} WHERE k = {k} AND c = {c}",
            f"UPDATE {KEYSPACE}.counts SET n = n + {number} WHERE k = {k}",
            f"UPDATE {KEYSPACE}.counts SET n = n - {c} WHERE k = {c}",
        ]
        session.execute(SimpleStatement(random.choice(statements), consistency_level=level))


def decoded(node: CassandraServer, tables: dict[str, CassandraTable]) -> Decoded:
    """A node's log as it is now, whether the node runs or not."""
    captured = chosen(table.id for table in tables.values())
    return decode(segments(node.commitlog, node.cdc_raw), captures=captured)


def answers(cluster: Cluster, tables: dict[str, CassandraTable], level: int) -> dict[str, Answer]:
    asker = Asker(cluster, KEYSPACE, (5, 0), level)
    return {name: asker.ask(table) for name, table in tables.items()}


def disagreements(trio: Trio, logs: tuple[Decoded, ...], table: str, said: dict[str, Answer]) -> list[str]:
    definition = trio.tables[table]
    changes = [change for log in logs for change in log.changes[TableId(KEYSPACE, table)]]
    return differences(definition, fold(definition, changes), said[table])


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("node", range(3))
def test_log_of_each_node_is_complete(trio: Trio, node: int, table: str) -> None:
    assert trio.whole_answers[table].rows
    assert disagreements(trio, (trio.whole[node],), table, trio.whole_answers) == []


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    "pair", [*itertools.combinations(range(3), 2)], ids=lambda pair: f"nodes {pair[0]} and {pair[1]}"
)
def test_any_two_logs_give_the_same_rows_although_a_node_was_killed(
    trio: Trio, pair: tuple[int, int], table: str
) -> None:
    assert trio.crashed_answers[table].rows != trio.whole_answers[table].rows
    logs = (trio.crashed[pair[0]], trio.crashed[pair[1]])
    assert disagreements(trio, logs, table, trio.crashed_answers) == []


@pytest.mark.parametrize("table", TABLES)
def test_log_of_the_killed_node_alone_lacks_what_came_later(trio: Trio, table: str) -> None:
    assert disagreements(trio, (trio.crashed[-1],), table, trio.crashed_answers) != []


def test_counters_were_led_by_several_nodes(trio: Trio) -> None:
    shards = {
        element.path
        for _, change in trio.whole[0].changes[TableId(KEYSPACE, "counts")]
        for cell in change.cells.values()
        for element in getattr(cell, "elements", ())
    }
    assert len(shards) > 1


def copies(trio: Trio, table: str) -> list[list[tuple[TableSchema, bytes, bytes]]]:
    """For each change what the nodes logged of it: its schema, its content's hash, and its row."""
    found: dict[bytes, list[tuple[TableSchema, bytes, bytes]]] = {}
    for node in range(3):
        with LogReader(str(trio.home / "logs" / f"node{node}" / f"{KEYSPACE}.{table}")) as reader:
            for batch in reader.read():
                scan = keys.scan(batch)
                for number in range(len(scan)):
                    content = scan.hashes[number, keys.CONTENT_HIGH :].tobytes()
                    found.setdefault(content, []).append((batch.schema, content, scan.pick([number])))
    return list(found.values())


@pytest.mark.parametrize("table", cluster_load.TABLES)
def test_the_three_agents_logged_the_same_changes(trio: Trio, table: str) -> None:
    found = copies(trio, table)
    assert len(found) > 30
    # The same content can be written twice: then each node has it twice.
    assert all(len(several) % 3 == 0 for several in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("table", cluster_load.TABLES)
def test_fold_of_any_copies_in_any_order_gives_the_rows_of_a_select_at_all(
    trio: Trio, tmp_path: Path, table: str, seed: int
) -> None:
    chance = Random(f"{table} {seed}")
    left: list[tuple[TableSchema, int, bytes]] = []
    for several in copies(trio, table):
        # Up to two of a change's three copies are lost; those that are left come once or twice, from any node.
        for schema, _, row in chance.sample(several, chance.randint(1, len(several))):
            left += [(schema, chance.randrange(3), row)] * chance.choice((1, 1, 2))
    chance.shuffle(left)
    pipeline = folding.Pipeline(str(tmp_path), chance.choice((1, 2, 4)), RecordType.AFTER, every=chance.random() < 0.5)
    rows: dict[str, Any] = {}
    while left or not pipeline.batch:
        size = chance.randint(1, max(1, len(left)))
        mine, left = left[:size], left[size:]
        runs = [run for schema, node, row in mine for run in split(schema, node, row, pipeline.store.buckets)]
        # Time goes on while the batches come, and has come to the moment of the SELECT with the last.
        for records in pipeline.fold(runs, trio.selected_s if not left else trio.selected_s - 60):
            keep(records, rows)
    assert trio.selected[table]
    assert sorted(rows.values(), key=repr) == trio.selected[table]


def split(schema: TableSchema, node: int, row: bytes, buckets: int) -> list[Run]:
    batch = ChangeBatch(schema, 1, row)
    return [Run(schema, f"node{node}", part.bucket, part.count, part.rows) for part in keys.split(batch, buckets)]


def keep(records: Records, rows: dict[str, Any]) -> None:
    """What a table of current rows becomes."""
    assert records.after is not None
    shape = LakeShape()
    afters = iter(shape.rows(records.schema, records.after.drop_null()).to_pylist())
    for change, there in zip(avro.decode(records.changes), records.after.is_valid().to_pylist(), strict=True):
        if change.op in folding.WIDE and not there:
            continue
        key = repr([change.key.get(column.name) for column in records.schema.key])
        if there:
            rows[key] = next(afters)
        else:
            rows.pop(key, None)


def test_the_whole_pipeline_gives_a_delta_table_that_is_equal_to_the_cluster(
    trio: Trio, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "penstock.toml"
    logs = ", ".join(f'"{trio.home}/logs/node{node}"' for node in range(3))
    tables = ", ".join(f'"{KEYSPACE}.{table}"' for table in cluster_load.TABLES)
    config.write_text(
        f"""
        [pipeline]
        checkpoint_directory = "{tmp_path}/checkpoint"
        logs = [{logs}]
        include = [{tables}]
        sinks = ["delta"]
        buckets = 2
        rows_per_batch = 500
        master = "local[2]"

        [delta]
        directory = "{tmp_path}/lake"

        [cassandra]
        contact_points = ["{trio.contact}"]

        [snapshot]
        consistency = "QUORUM"
        """
    )
    command = [sys.executable, "-m", "penstock", "pipeline", str(config), "--once", "--json"]
    subprocess.run(command, check=True, timeout=_PIPELINE_S, stdout=subprocess.DEVNULL)
    for table in cluster_load.TABLES:
        target = f"{tmp_path}/lake/{KEYSPACE}/{table}"
        words = ["compare", "cassandra", target, "--table", f"{KEYSPACE}.{table}", "--config", str(config), "--json"]
        assert main(words) == 0, capsys.readouterr().out
        facts = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert facts["source_rows"] == facts["target_rows"] == len(trio.selected[table])
