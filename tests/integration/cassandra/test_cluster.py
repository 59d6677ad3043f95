"""Three real nodes, every row on all of them: each log is complete, and after a crash any two logs are."""

from __future__ import annotations

import itertools
import re
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Cluster, Session
from cassandra.query import SimpleStatement

from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_jars import LATEST
from penstock.sandbox.cassandra_server import STORAGE_PORT, CassandraServer, free_address
from tests.integration.cassandra.answers import Answer, Asker
from tests.integration.cassandra.folding import Decoded, chosen, decode, differences, fold, segments
from tests.integration.cassandra.recording import connected
from tests.integration.cassandra.variants import CACHE

KEYSPACE = "trio"
TABLES = ("rows_of_all", "counts")
_WRITES = 120
_AGREE_S = 60
_NOTICE_S = 120


@dataclass
class Trio:
    """What three nodes have been through: all writes at ALL; then, with the last node killed, more at QUORUM."""

    tables: dict[str, CassandraTable]
    whole: list[Decoded]
    whole_answers: dict[str, Answer]
    crashed: list[Decoded]
    crashed_answers: dict[str, Answer]


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Trio:
    home = tmp_path_factory.mktemp("trio")
    with ExitStack() as stack:
        nodes = started(home, stack)
        with connected(*(node.address for node in nodes)) as cluster:
            session = cluster.connect()
            created(session, nodes)
            tables = {
                table.schema.table.table: table
                for table in schema_query.read(session)
                if table.schema.table.keyspace == KEYSPACE
            }
            written(session, Random(1), ConsistencyLevel.ALL)
            whole = [decoded(node, tables) for node in nodes]
            whole_answers = answers(cluster, tables, ConsistencyLevel.ALL)
            nodes[-1].kill()
            noticed(nodes[:-1], nodes[-1])
            written(session, Random(2), ConsistencyLevel.QUORUM)
            crashed = [decoded(node, tables) for node in nodes]
            crashed_answers = answers(cluster, tables, ConsistencyLevel.QUORUM)
        for node in nodes:
            # They would wait for each other if they were asked to stop.
            node.kill()
    return Trio(tables, whole, whole_answers, crashed, crashed_answers)


def started(home: Path, stack: ExitStack) -> list[CassandraServer]:
    """The first node alone, then the others beside it."""
    addresses = [free_address() for _ in range(3)]
    nodes = [
        CassandraServer(
            LATEST,
            home / f"node{number}",
            cache=CACHE,
            address=address,
            seeds=addresses[:1],
            token=-(2**63) + number * (2**64 // 3),
            heap="384m",
            settings={"storage_compatibility_mode": "NONE"},
        )
        for number, address in enumerate(addresses)
    ]
    stack.enter_context(nodes[0])
    for node in nodes[1:]:
        stack.callback(node.stop)
        node.start(wait=False)
    for node in nodes[1:]:
        node.ready()
    return nodes


def created(session: Session, nodes: list[CassandraServer]) -> None:
    replication = f"{{'class': 'SimpleStrategy', 'replication_factor': {len(nodes)}}}"
    for definition in (
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}",
        f"""CREATE TABLE {KEYSPACE}.rows_of_all (k int, c int, v text, m map<text, int>, l list<int>, s text static,
            PRIMARY KEY (k, c)) WITH cdc = true""",
        f"CREATE TABLE {KEYSPACE}.counts (k int PRIMARY KEY, n counter) WITH cdc = true",
    ):
        session.execute(definition)
        agreed(session)


def agreed(session: Session) -> None:
    """Wait until all nodes have the same schema."""
    query = "SELECT schema_version FROM system.local"
    deadline = time.monotonic() + _AGREE_S
    while len({session.execute(query, host=host).one() for host in session.cluster.metadata.all_hosts()}) > 1:
        assert time.monotonic() < deadline, "the nodes do not agree on a schema"
        threading.Event().wait(0.1)


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
