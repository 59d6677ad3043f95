"""A real node as the source of a comparison: its SELECT equals its rows, and targets that differ are repaired."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from penstock.cli.main import main
from penstock.compare.cassandra_rows import CassandraRows
from penstock.compare.comparison import Kind, compare
from penstock.compare.delta_rows import DeltaRows
from penstock.compare.lake_rows import LakeShape
from penstock.compare.repair import repair
from penstock.deliver.lakehouse.types import lake_schema
from penstock.errors import InvalidInput
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.model.schema import TableId
from penstock.sandbox.cassandra_server import CassandraServer
from penstock.settings import CassandraSettings, Settings
from penstock.settings.cassandra import SnapshotSettings
from tests.integration.cassandra.recording import connected
from tests.integration.cassandra.variants import VARIANTS
from tests.integration.pipeline.replica_load import wait_for

KEYSPACE = "compared"
STATEMENTS = (
    f"CREATE KEYSPACE {KEYSPACE} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
    f"USE {KEYSPACE}",
    (
        "CREATE TABLE things (k decimal, at timestamp, id uuid, s text static, tags set<text>, steps list<int>, "
        "names map<text, int>, v text, PRIMARY KEY (k, at, id))"
    ),
    "CREATE TABLE hits (k int PRIMARY KEY, n counter)",
    *(
        f"INSERT INTO things (k, at, id, s, tags, steps, names, v) VALUES ({n}.50, '2026-01-0{1 + n % 9}T00:00:00Z', "
        f"00000000-0000-0000-0000-{n:012d}, 's{n}', {{'b', 'a{n}'}}, [3, {n}], {{'x': {n}}}, 'v{n}')"
        for n in range(40)
    ),
    # Cells that expire, rows of cells without a row of their own, deletions, and a partition of static cells only.
    (
        "UPDATE things USING TTL 86400 SET v = 'short-lived' WHERE k = 1.50 AND at = '2026-02-01' AND id = "
        "00000000-0000-0000-0000-000000000001"
    ),
    (
        "UPDATE things SET tags = tags + {'c'}, names['y'] = 9, steps = steps + [7] WHERE k = 2.50 "
        "AND at = '2026-01-03' AND id = 00000000-0000-0000-0000-000000000002"
    ),
    "DELETE v, names FROM things WHERE k = 3.50 AND at = '2026-01-04' AND id = 00000000-0000-0000-0000-000000000003",
    "DELETE FROM things WHERE k = 4.50",
    "INSERT INTO things (k, s) VALUES (-0.001, 'alone')",
    *(f"UPDATE hits SET n = n + {n} WHERE k = {n}" for n in range(30)),
    "UPDATE hits SET n = n - 5 WHERE k = 3",
)


@dataclass(frozen=True)
class Node:
    address: str
    session: Session
    server: CassandraServer

    @property
    def yaml(self) -> Path:
        return self.server.yaml

    def source(self, table: str) -> CassandraRows:
        contact = CassandraSettings(contact_points=(self.address,))
        # Pages of a few rows, so that partitions and ranges go over several.
        settings = Settings(cassandra=contact, snapshot=SnapshotSettings(page_rows=3, consistency="ONE"))
        return CassandraRows(settings, TableId(KEYSPACE, table), LakeShape())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    server = VARIANTS[0].server(tmp_path_factory.mktemp("compared"))
    try:
        server.start()
        with connected(server.address) as cluster:
            session = cluster.connect()
            for statement in STATEMENTS:
                session.execute(statement)
            yield Node(server.address, session, server)
    finally:
        server.kill()


@pytest.fixture
def opened(node: Node) -> Iterator[Callable[[str], CassandraRows]]:
    made: list[CassandraRows] = []

    def opened(table: str) -> CassandraRows:
        made.append(node.source(table))
        return made[-1]

    yield opened
    for one in made:
        one.close()


def selected(node: Node, source: CassandraRows) -> pa.Table:
    """What the driver reads of a table, in the types of a lakehouse table."""
    schema = lake_schema(source.schema)
    rows = node.session.execute(f"SELECT {', '.join(schema.names)} FROM {source.schema.table}")
    columns = list(zip(*rows, strict=True))
    return pa.table(
        [pa.array(map(_lake_value, values), field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def _lake_value(value: Any) -> Any:
    name = type(value).__name__
    if name == "SortedSet":
        return list(value)
    if name == "OrderedMapSerializedKey":
        return list(value.items())
    return str(value) if name in ("UUID", "Decimal") else value


def make(directory: Path, rows: pa.Table, *, vectors: bool = True) -> None:
    configuration = {"delta.enableDeletionVectors": "true"} if vectors else {}
    write_deltalake(str(directory), rows, configuration=configuration)


def read(directory: Path) -> list[dict[str, Any]]:
    found = QueryBuilder().register("t", DeltaTable(str(directory))).execute("SELECT * FROM t").read_all()
    return sorted(pa.table(found).to_pylist(), key=_by_text)


@pytest.mark.parametrize(("table", "count"), [("things", 41), ("hits", 30)])
def test_what_the_node_selects_is_equal_to_its_rows(
    node: Node, opened: Callable[[str], CassandraRows], tmp_path: Path, table: str, count: int
) -> None:
    source = opened(table)
    make(tmp_path / "t", selected(node, source))
    report = compare(source, DeltaRows(tmp_path / "t", source.schema))
    assert report.differences == []
    assert (report.source_rows, report.target_rows) == (count, count)


def test_rows_that_were_changed_by_hand_are_found_and_repaired(
    node: Node, opened: Callable[[str], CassandraRows], tmp_path: Path
) -> None:
    source = opened("things")
    right = selected(node, source)
    rows = right.to_pylist()
    # The row of static cells only is among those that are missing.
    lost = [row for row in rows if row["at"] is None or row["v"] == "v7"]
    kept = [row for row in rows if row not in lost]
    changed = {row["v"]: row for row in kept}
    changed["v10"]["tags"] = ["z"]
    changed["v11"]["names"], changed["v12"]["steps"], changed["short-lived"]["v"] = None, [1], None
    extra = [{**changed["v13"], "k": "1E+7"}, {**changed["v14"], "id": "ffffffff-ffff-ffff-ffff-ffffffffffff"}]
    make(tmp_path / "t", pa.Table.from_pylist([*kept, *extra], right.schema))
    target = DeltaRows(tmp_path / "t", source.schema)
    report = compare(source, target)
    assert report.counts == {Kind.MISSING: 2, Kind.EXTRA: 2, Kind.DIFFERENT: 4}
    columns = {difference.columns for difference in report.differences if difference.kind is Kind.DIFFERENT}
    assert columns == {("tags",), ("names",), ("steps",), ("v",)}
    done = repair(source, target, report, pipeline="p")
    assert (done.settled, done.repaired, done.left.total) == (0, 8, 0)
    assert read(tmp_path / "t") == sorted(right.to_pylist(), key=_by_text)


def test_counters_are_repaired_by_the_command_in_a_table_without_deletion_vectors(
    node: Node, opened: Callable[[str], CassandraRows], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = selected(node, opened("hits"))
    make(tmp_path / "t", right, vectors=False)
    table = DeltaTable(str(tmp_path / "t"))
    table.update(updates={"n": "n + 1"}, predicate="k IN (3, 8)")
    table.delete("k = 9")
    config = tmp_path / "settings.toml"
    config.write_text(f'[cassandra]\ncontact_points = ["{node.address}"]\n')
    words = ["compare", "cassandra", str(tmp_path / "t"), "--table", f"{KEYSPACE}.hits", "--config", str(config)]
    assert main([*words, "--json"]) == 1
    counts = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (counts["missing"], counts["extra"], counts["different"]) == (1, 0, 2)
    assert main([*words, "--json", "--repair"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"repaired": 3, "settled": 0, "rows_left": 0}
    assert read(tmp_path / "t") == sorted(right.to_pylist(), key=_by_text)


# Clustering values of each type in spellings that are one row, and some that are another one.
SPELLED = {
    "decimals": ("decimal", ["1.0", "1.00", "10", "1E1", "0", "0.000", "-0.5", "-5E-1"]),
    "doubles": ("double", ["NaN", "blobAsDouble(0x7ff8000000000001)", "0.0", "-0.0", "1"]),
    "tuples": ("frozen<tuple<decimal, int>>", ["(1.0, 2)", "(1.00, 2)", "(1.0, null)", "(1.00)", "(null, 1)"]),
    "pairs": ("frozen<pair>", ["{a: 1.0, b: 2}", "{a: 1.00, b: 2}", "{a: 1.0}", "{a: 1, b: null}"]),
    "lists": ("frozen<list<decimal>>", ["[1.0, 2]", "[1.00, 2.0]", "[]"]),
    "sets": ("frozen<set<decimal>>", ["{1.0, 2}", "{1.00, 2.0}", "{1}"]),
    "maps": ("frozen<map<decimal, decimal>>", ["{1.0: 2}", "{1.00: 2.00}", "{1.0: 3}"]),
    "vectors": ("vector<decimal, 2>", ["[1.0, 2]", "[1.00, 2.0]", "[0, 0]"]),
    "varints": ("varint", ["1", "blobAsVarint(0x0001)", "-1", "blobAsVarint(0xffff)"]),
    "booleans": ("boolean", ["true", "blobAsBoolean(0x02)", "false"]),
}
SPELLED_CONFIG = """
[cassandra]
config_file = "{yaml}"
contact_points = ["{address}"]
include = ["spelled.*"]

[agent]
directory = "{home}/logs"

[snapshot]
mode = "never"

[http]
port = 0

[pipeline]
checkpoint_directory = "{home}/checkpoint"
logs = ["{home}/logs"]
sinks = ["delta"]
buckets = 2
master = "local[2]"

[delta]
directory = "{home}/lake"
"""


def _first_round() -> Iterator[str]:
    for table, (_, values) in SPELLED.items():
        for partition in ("1.0", "1.00"):
            for number, value in enumerate(values):
                yield f"INSERT INTO {table} (k, c, v, e) VALUES ({partition}, {value}, {number}, {{1.0}})"
        # One element, whichever way it is written.
        yield f"UPDATE {table} SET e = e + {{1.00, 2}} WHERE k = 1.0 AND c = {values[1]}"
        yield f"UPDATE {table} SET e = e - {{2.00}} WHERE k = 1.0 AND c = {values[0]}"


def _second_round() -> Iterator[str]:
    for table, (_, values) in SPELLED.items():
        yield f"UPDATE {table} SET v = 70 WHERE k = 1.0 AND c = {values[0]}"
        yield f"UPDATE {table} SET v = 71 WHERE k = 1.0 AND c = {values[-1]}"
        # Gone under another spelling than the one it came with.
        yield f"DELETE FROM {table} WHERE k = 1.00 AND c = {values[1]}"
    yield "DELETE FROM decimals WHERE k = 1.0 AND c >= 9.9 AND c <= 10.00"
    yield "DELETE FROM decimals WHERE k = 1.0 AND c = 0.0"
    yield "INSERT INTO decimals (k, c, v) VALUES (1.0, 0E1, 72)"
    yield "UPDATE decimals USING TTL 1 SET v = 73 WHERE k = 1.0 AND c = 1.0000"


def test_rows_in_several_spellings_are_the_rows_of_the_node(
    node: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agent, pipeline and Delta, stopped and started in between; the node's own JSON is the judge."""
    session = node.session
    session.execute("CREATE KEYSPACE spelled WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    session.execute("USE spelled")
    session.execute("CREATE TYPE pair (a decimal, b int)")
    session.execute("CREATE TABLE ends (k int PRIMARY KEY) WITH cdc = true")
    for table, (kind, _) in SPELLED.items():
        columns = f"k decimal, c {kind}, v int, e set<decimal>, PRIMARY KEY (k, c)"
        session.execute(f"CREATE TABLE {table} ({columns}) WITH cdc = true")
    config = tmp_path / "penstock.toml"
    config.write_text(SPELLED_CONFIG.format(yaml=node.server.yaml, address=node.address, home=tmp_path))
    for number, statements in enumerate((_first_round(), _second_round())):
        for statement in statements:
            session.execute(statement)
        session.execute(f"INSERT INTO ends (k) VALUES ({number})")
        _captured(config, tmp_path / "logs/spelled.ends", number + 1)
        # What expires is gone from the node before the pipeline is asked for it.
        wait_for(lambda: not list(session.execute("SELECT v FROM decimals WHERE v = 73 ALLOW FILTERING")))
        command = [sys.executable, "-m", "penstock", "pipeline", str(config), "--once", "--json"]
        subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
        for table in SPELLED:
            lake = tmp_path / "lake/spelled" / table
            selected = session.execute(f"SELECT JSON k, c, v, e FROM {table}")
            rows = [json.loads(text, parse_float=Decimal, parse_int=Decimal) for (text,) in selected]
            assert _by_value(read(lake)) == _by_value(rows), table
        # The node may show other spellings of its rows from here on.
        node.server.nodetool("flush", "spelled")
    for table in SPELLED:
        words = ["compare", "cassandra", f"{tmp_path}/lake/spelled/{table}", "--table", f"spelled.{table}"]
        assert main([*words, "--config", str(config), "--json"]) == 0, capsys.readouterr().out


def _by_value(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in which equal numbers are equal; but partition keys go by their digits."""
    return sorted(repr((Decimal(row["k"]), *(_number(row[name]) for name in ("c", "v", "e")))) for row in rows)


def _number(value: Any) -> Any:
    if value is None or isinstance(value, bool) or value != value:
        # JSON has no NaN.
        return value if isinstance(value, bool) else None
    if isinstance(value, dict):
        # A map by its keys, which JSON has as text; a tuple or user type by its fields.
        return [_number(pair) for pair in value.items()] if "1.0" in value else [_number(one) for one in value.values()]
    return [_number(one) for one in value] if isinstance(value, list | tuple) else Decimal(str(value)).normalize()


def _captured(config: Path, log: Path, ends: int) -> None:
    """Run the agent until it has logged this many rows of the table that is written last."""
    with config.with_suffix(".err").open("wb") as errors:
        agent = subprocess.Popen(
            [sys.executable, "-m", "penstock", "agent", str(config), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        wait_for(lambda: log.exists() and _logged(log) == ends)
    finally:
        agent.terminate()
        agent.communicate(timeout=120)


def _logged(log: Path) -> int:
    with LogReader(str(log)) as reader:
        return sum(len(batch) for batch in reader.read())


def test_table_that_is_not_there_is_told(opened: Callable[[str], CassandraRows]) -> None:
    with pytest.raises(InvalidInput, match="no such table in the cluster"):
        opened("nothing")


FOLLOWED = """
[cassandra]
config_file = "{yaml}"
contact_points = ["{address}"]
include = ["followed.*"]

[agent]
directory = "{home}/logs"

[snapshot]
mode = "never"

[http]
port = 0

[pipeline]
name = "{name}"
checkpoint_directory = "{home}/{name}/checkpoint"
logs = ["{home}/logs"]
sinks = ["delta"]
buckets = 2

[delta]
directory = "{home}/{name}"
"""
# By the rule of the guide: what the table has for columns whose names differ from another's by case only.
NUMBERED = {'"A"': "A__2", '"V"': "V__2"}


class Followed:
    """Agent, logs and pipelines of one keyspace."""

    def __init__(self, node: Node, home: Path) -> None:
        self._node = node
        self._home = home
        session = node.session
        session.execute(
            "CREATE KEYSPACE followed WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.execute(
            'CREATE TABLE followed.things (k int, c text, "A" text, a text, v int, PRIMARY KEY (k, c)) WITH cdc = true'
        )
        session.execute("CREATE TABLE followed.others (k int PRIMARY KEY, v text) WITH cdc = true")
        session.execute("CREATE TABLE followed.again (k int PRIMARY KEY, v text) WITH cdc = true")

    def config(self, name: str) -> str:
        file = self._home / f"{name}.toml"
        file.write_text(FOLLOWED.format(yaml=self._node.yaml, address=self._node.address, home=self._home, name=name))
        return str(file)

    @contextmanager
    def capturing(self) -> Iterator[None]:
        with (self._home / "agent.err").open("wb") as errors:
            command = [sys.executable, "-m", "penstock", "agent", self.config("agent"), "--json"]
            agent = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        try:
            assert agent.stdout is not None
            assert '"running"' in agent.stdout.readline(), (self._home / "agent.err").read_text()
            yield
        finally:
            agent.terminate()
            agent.communicate(timeout=120)

    def wait(self, table: str, changes: int) -> None:
        """Until so many changes of a table are in its log."""
        log = self._home / "logs" / f"followed.{table}"

        def logged() -> int:
            if not log.exists():
                return 0
            with LogReader(str(log)) as reader:
                return sum(len(batch) for batch in reader.read())

        wait_for(lambda: logged() >= changes)

    def hold(self, table: str) -> None:
        """Let the log keep its files for one who begins later."""
        Subscription.open(str(self._home / "logs" / f"followed.{table}"), "later").close()

    def deliver(self, name: str) -> None:
        command = [sys.executable, "-m", "penstock", "pipeline", self.config(name), "--once", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr

    def check(self, name: str, table: str) -> None:
        """What delta-rs reads is what SELECT JSON says, under the names that the guide gives."""
        rows = self._node.session.execute(f"SELECT JSON * FROM followed.{table}")
        wanted = [{NUMBERED.get(key, key): value for key, value in json.loads(row[0]).items()} for row in rows]
        assert wanted
        assert read(self._home / name / "followed" / table) == sorted(wanted, key=_by_text)


def _by_text(row: dict[str, Any]) -> str:
    return str(sorted(row.items()))


def test_renamed_keys_columns_that_differ_by_case_and_tables_made_anew_reach_delta_as_they_are_selected(
    node: Node, tmp_path: Path
) -> None:
    path = Followed(node, tmp_path)
    session = node.session
    with path.capturing():
        for n in range(20):
            session.execute(
                f"INSERT INTO followed.things (k, c, \"A\", a, v) VALUES ({n % 5}, 'c{n}', 'U{n}', 'l{n}', {n})"
            )
            session.execute(f"INSERT INTO followed.others (k, v) VALUES ({n}, 'v{n}')")
            session.execute(f"INSERT INTO followed.again (k, v) VALUES ({n}, 'v{n}')")
        for table in ("things", "others", "again"):
            path.wait(table, 20)
            path.hold(table)
        path.deliver("first")
        for table in ("things", "others", "again"):
            path.check("first", table)

        session.execute("ALTER TABLE followed.things RENAME k TO key")
        session.execute('ALTER TABLE followed.things ADD "V" int')
        session.execute("DROP TABLE followed.again")
        session.execute("CREATE TABLE followed.again (k text PRIMARY KEY, w int) WITH cdc = true")
        session.execute("INSERT INTO followed.again (k, w) VALUES ('new', 1)")
        session.execute("INSERT INTO followed.again (k, w) VALUES ('newer', 2)")
        session.execute("DELETE FROM followed.things WHERE key = 1")
        session.execute("DELETE FROM followed.things WHERE key = 2 AND c = 'c7'")
        session.execute("UPDATE followed.things SET \"A\" = 'changed', \"V\" = 9 WHERE key = 3 AND c = 'c8'")
        session.execute("INSERT INTO followed.things (key, c, a) VALUES (9, 'c', 'only')")
        session.execute("INSERT INTO followed.others (k, v) VALUES (99, 'last')")
        path.wait("things", 24)
        path.wait("others", 21)
        path.wait("again", 22)
    # The one that goes on, and one that begins with both names in its logs.
    for name in ("first", "second"):
        path.deliver(name)
        for table in ("things", "others", "again"):
            path.check(name, table)
    config = path.config("first")
    words = ["compare", "cassandra", str(tmp_path / "first/followed/things"), "--table", "followed.things"]
    assert main([*words, "--config", config]) == 0
