"""A real node as the source of a comparison: its SELECT equals its rows, and targets that differ are repaired."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cassandra.cluster import Session
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from penstock.cli.main import main
from penstock.errors import InvalidInput
from penstock.model.schema import TableId
from penstock.pipeline.compare.cassandra_rows import CassandraRows
from penstock.pipeline.compare.comparison import Kind, compare
from penstock.pipeline.compare.delta_rows import DeltaRows
from penstock.pipeline.compare.lake_rows import LakeShape
from penstock.pipeline.compare.repair import repair
from penstock.pipeline.sinks.lakehouse.types import lake_schema
from penstock.settings import CassandraSettings, Settings
from penstock.settings.cassandra import SnapshotSettings
from tests.integration.cassandra.recording import connected
from tests.integration.cassandra.variants import VARIANTS

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
            yield Node(server.address, session)
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
    return sorted(pa.table(found).to_pylist(), key=str)


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
    assert read(tmp_path / "t") == sorted(right.to_pylist(), key=str)


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
    assert read(tmp_path / "t") == sorted(right.to_pylist(), key=str)


def test_table_that_is_not_there_is_told(opened: Callable[[str], CassandraRows]) -> None:
    with pytest.raises(InvalidInput, match="no such table in the cluster"):
        opened("nothing")
