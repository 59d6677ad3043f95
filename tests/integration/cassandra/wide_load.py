"""A load of every kind of write with changes of the schema in between, on a real node that may die meanwhile.

Statics, collections, user types, counters, times to live, deletions of cells, rows, ranges and partitions, batches and
conditional writes (`cluster_load`), and every few statements a column, a field of a user type or a table more, a column
less or once more under its old name, or a table truncated. Nobody keeps account of what should be there: in the end the
node is asked, and its SELECT is the judge of what was made of its log.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from cassandra import ConsistencyLevel, DriverException, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import ConnectionException
from cassandra.policies import FallthroughRetryPolicy, WhiteListRoundRobinPolicy
from cassandra.protocol import ErrorMessage
from deltalake import DeltaTable, QueryBuilder

from penstock.capture.cassandra.schema import query as schema_query
from penstock.deliver.lakehouse.types import lake_schema
from penstock.model.schema import TableSchema
from tests.counted import differences
from tests.integration.cassandra import cluster_load
from tests.integration.cassandra.answers import Asker, quoted
from tests.integration.cassandra.recording import connected

KEYSPACE = "wide"
# Whether tables are dropped and made again under the same name.
MADE_AGAIN = False
_DEFINE_EVERY = 40
_TABLES_MAX = 3
_COLUMNS_MAX = 6
_FIELDS_MAX = 4
_PAUSE_S = 0.004
_TRY_AGAIN_S = 0.2
_REQUEST_S = 30
_PIPELINE_S = 600
# Fewer rows than this would say little.
_ROWS_MIN = 20


class WideLoad:
    """Writes in a thread of its own until it is stopped, whatever becomes of the node."""

    def __init__(self, address: str, seed: int, pause_s: float = _PAUSE_S) -> None:
        self.done = 0
        self.definitions = 0
        self._address = address
        self._random = Random(seed)
        self._pause_s = pause_s
        self._statements = self._all()
        self._statement = next(self._statements)
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="wide load")
        # What the node was told to have beside the tables of the beginning.
        self._columns: list[tuple[str, str]] = []
        self._fields: list[str] = []
        self._tables: list[str] = []

    def __enter__(self) -> WideLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No more writes, and after the last of them everything is gone that has seconds to live."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_for(self, count: int, within_s: float = 300) -> None:
        """Wait until so many further statements were done."""
        with self._changed:
            wanted = self.done + count
            assert self._changed.wait_for(lambda: self.done >= wanted or self._failure, within_s), "nothing is written"

    def _run(self) -> None:
        try:
            while True:
                try:
                    self._write_until_broken()
                except InvalidRequest:
                    raise
                except (NoHostAvailable, ConnectionException, DriverException, ErrorMessage, OSError):
                    # The node is down, or just coming up. Whether the statement was done, nobody knows: it is said
                    # again. Some do something else the second time, which is as good.
                    self._stop.wait(_TRY_AGAIN_S)
                else:
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised again by `stop`.
            self._failure = error
            with self._changed:
                self._changed.notify_all()

    def _write_until_broken(self) -> None:
        """Returns when it was told to stop and the last statement is done."""
        policy = WhiteListRoundRobinPolicy([self._address])
        profile = ExecutionProfile(policy, retry_policy=FallthroughRetryPolicy(), request_timeout=_REQUEST_S)
        with Cluster(
            [self._address],
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=_REQUEST_S,
            control_connection_timeout=_REQUEST_S,
            schema_metadata_enabled=False,
        ) as cluster:
            session = cluster.connect()
            while not self._stop.is_set():
                session.execute(self._statement)
                with self._changed:
                    self.done += 1
                    self._changed.notify_all()
                self._statement = next(self._statements)
                self._stop.wait(self._pause_s)
            session.execute(cluster_load.last_write(KEYSPACE))

    def _all(self) -> Iterator[str]:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        yield f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}"
        for definition in cluster_load.definitions(KEYSPACE):
            yield definition.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS").replace(
                "CREATE TYPE", "CREATE TYPE IF NOT EXISTS"
            )
        kinds = itertools.cycle(self._definitions())
        for number in itertools.count():
            if number % _DEFINE_EVERY == _DEFINE_EVERY - 1:
                definitions = list(next(kinds)(number))
                self.definitions += len(definitions)
                yield from definitions
            if self._random.random() < 0.3 and (self._columns or self._fields or self._tables):
                yield self._added(number)
            else:
                yield cluster_load.any_write(KEYSPACE, self._random, number)

    def _definitions(self) -> list[Callable[[int], Iterator[str]]]:
        kinds: list[Callable[[int], Iterator[str]]] = [self._add_column, self._add_field, self._add_table]
        kinds += [self._add_column, self._drop_column, self._add_again, self._truncate]
        if MADE_AGAIN:
            kinds.append(self._make_again)
        return kinds

    def _add_column(self, number: int) -> Iterator[str]:
        if len(self._columns) < _COLUMNS_MAX:
            kind = self._random.choice(("text", "map<text, int>", "frozen<list<int>>", "text static"))
            yield f"ALTER TABLE {KEYSPACE}.things ADD IF NOT EXISTS c{number} {kind}"
            self._columns.append((f"c{number}", kind))

    def _add_field(self, number: int) -> Iterator[str]:
        if len(self._fields) < _FIELDS_MAX:
            yield f"ALTER TYPE {KEYSPACE}.pair ADD IF NOT EXISTS z{number} int"
            self._fields.append(f"z{number}")

    def _add_table(self, number: int) -> Iterator[str]:
        if len(self._tables) < _TABLES_MAX:
            name = f"{KEYSPACE}.more{number}"
            yield f"CREATE TABLE IF NOT EXISTS {name} (k int PRIMARY KEY, v text, s set<int>) WITH cdc = true"
            self._tables.append(name)

    def _drop_column(self, number: int) -> Iterator[str]:
        if len(self._columns) > 1:
            name, _ = self._columns.pop(self._random.randrange(len(self._columns)))
            yield f"ALTER TABLE {KEYSPACE}.things DROP IF EXISTS {name}"

    def _add_again(self, number: int) -> Iterator[str]:
        for name, kind in self._columns[:1]:
            yield f"ALTER TABLE {KEYSPACE}.things DROP IF EXISTS {name}"
            yield f"ALTER TABLE {KEYSPACE}.things ADD IF NOT EXISTS {name} {kind}"

    def _truncate(self, number: int) -> Iterator[str]:
        yield from (f"TRUNCATE {name}" for name in self._tables[:1])

    def _make_again(self, number: int) -> Iterator[str]:
        for name in self._tables[-1:]:
            yield f"DROP TABLE IF EXISTS {name}"
            yield f"CREATE TABLE IF NOT EXISTS {name} (k int PRIMARY KEY, v text, s set<int>) WITH cdc = true"

    def _added(self, number: int) -> str:
        """A write to something that was not there at the beginning."""
        chance = self._random
        k, c, d = chance.randint(1, 6), chance.randint(1, 4), chance.choice("ab")
        row = f"k = {k} AND c = {c} AND d = '{d}'"
        choices = []
        for name, kind in self._columns:
            value = {"text": f"'a{number}'", "text static": f"'s{number}'", "frozen<list<int>>": f"[{number}]"}.get(
                kind
            )
            cell = f"{name} = {value}" if value else f"{name}['x'] = {number}"
            where = f"k = {k}" if kind.endswith("static") else row
            choices.append(f"UPDATE {KEYSPACE}.things SET {cell} WHERE {where}")
            choices.append(f"DELETE {name} FROM {KEYSPACE}.things WHERE {where}")
        choices += [f"UPDATE {KEYSPACE}.things SET u.{field} = {number} WHERE {row}" for field in self._fields]
        for table in self._tables:
            choices.append(f"INSERT INTO {table} (k, v, s) VALUES ({k}, 'm{number}', {{{c}, {number % 7}}})")
            choices.append(
                f"UPDATE {table} USING TTL {chance.choice((1, 2, 86_400))} SET v = 't{number}' WHERE k = {k}"
            )
            choices.append(f"DELETE FROM {table} WHERE k = {k}")
        return chance.choice(choices)


# The judge.


def expired(address: str) -> None:
    """Wait until everything is gone that has seconds to live."""
    with connected(address) as cluster:
        cluster_load.expired(Asker(cluster, KEYSPACE, (5, 0)))


def deliver(home: Path, logs: list[Path], said: Path) -> None:
    """The logs through the pipeline as an operator runs it, once, into Delta tables below `home`."""
    config = home / "judge.toml"
    config.write_text(
        f"""
[pipeline]
checkpoint_directory = "{home}/judge"
logs = {json.dumps(list(map(str, logs)))}
include = ["{KEYSPACE}.*"]
sinks = ["delta"]
buckets = 2
master = "local[2]"

[delta]
directory = "{home}/lake"
"""
    )
    command = [sys.executable, "-m", "penstock", "pipeline", str(config), "--once", "--json"]
    with said.open("wb") as output:
        subprocess.run(command, check=True, timeout=_PIPELINE_S, stdout=output, stderr=output)


def compared(address: str, lake: Path) -> tuple[Counter[str], list[str]]:
    """SELECT against the Delta tables of an outside reader: what is lost and invented, and the rows that are."""
    broken: Counter[str] = Counter()
    rows: list[str] = []
    with connected(address) as cluster:
        session: Session = cluster.connect()
        tables = [one.schema for one in schema_query.read(session) if one.schema.table.keyspace == KEYSPACE]
        assert len(tables) >= len(cluster_load.TABLES)
        selected = {schema.table: _selected(session, schema) for schema in tables}
        assert sum(map(len, selected.values())) > _ROWS_MIN
        for schema in tables:
            theirs = selected[schema.table]
            ours = _delivered(lake / KEYSPACE / schema.table.table, schema)
            broken += differences(theirs, ours)
            want, have = Counter(theirs), Counter(ours)
            rows += [f"{schema.table} lacks {row}" for row in want - have]
            rows += [f"{schema.table} has {row}" for row in have - want]
    return broken, rows


def _selected(session: Session, schema: TableSchema) -> list[str]:
    return list(map(repr, cluster_load.selected(session, schema, ConsistencyLevel.ONE)))


def _delivered(directory: Path, schema: TableSchema) -> list[str]:
    """Rows of a table that is as wide as the node's; a column that was dropped may still stand there."""
    if not any((directory / "_delta_log").glob("*.json")):
        return []
    shape = lake_schema(schema)
    table = QueryBuilder().register("t", DeltaTable(str(directory)))
    found = table.execute(f"SELECT {', '.join(map(quoted, shape.names))} FROM t")
    rows: list[dict[str, Any]] = [row for batch in found for row in pa.record_batch(batch).to_pylist()]
    return sorted(map(repr, rows))
