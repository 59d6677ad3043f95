"""Schema files: what a node prints about its tables, and the same as JSON."""

from __future__ import annotations

import json
import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.cassandra.schema import file as schema_file
from penstock.capture.cassandra.schema.cql_schema import Script
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.errors import InvalidSchema, StorageError
from penstock.model import types as t
from penstock.model.schema import Role, TableId

ID = "fe09f520-e0f9-11f1-9dd5-134c5003f6ff"
OTHER_ID = "6a022f90-e0fa-11f1-9dd5-134c5003f6ff"

# As DESCRIBE … WITH INTERNALS of Cassandra 5.0 printed it.
DESCRIBED = f"""
CREATE KEYSPACE ks WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '1'}}
    AND durable_writes = true;
CREATE TYPE ks."Odd Name" (
    "F" text,
    g frozen<inner_t>,
    t frozen<tuple<int, text>>
);
CREATE TYPE ks.inner_t (
    x int,
    m map<text, frozen<list<int>>>
);
CREATE TABLE ks.nf (
    kk int,
    "Key 2" text,
    c1 text,
    c2 timeuuid,
    st text static,
    u inner_t,
    w int MASKED WITH system.mask_default(),
    y int,
    z map<int, text>,
    n frozen<tuple<int, text>>,
    v vector<float, 3>,
    cust 'org.apache.cassandra.db.marshal.DynamicCompositeType(a=>org.apache.cassandra.db.marshal.AsciiType)',
    lo list<frozen<"Odd Name">>,
    PRIMARY KEY ((kk, "Key 2"), c1, c2)
) WITH ID = {ID}
    AND CLUSTERING ORDER BY (c1 DESC, c2 ASC)
    AND additional_write_policy = '99p'
    AND caching = {{'keys': 'ALL', 'rows_per_partition': 'NONE'}}
    AND cdc = true
    AND comment = 'it''s; a -- comment'
    AND compaction = {{'class': 'SizeTieredCompactionStrategy', 'max_threshold': '32', 'min_threshold': '4'}};
ALTER TABLE ks.nf DROP y USING TIMESTAMP 1794749974347000;
ALTER TABLE ks.nf ADD y int;
ALTER TABLE ks.nf DROP z USING TIMESTAMP 1794749974123000;
CREATE INDEX nf_w_idx ON ks.nf (w);
CREATE FUNCTION ks.twice (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE java AS $$return a * 2; -- $$;
CREATE MATERIALIZED VIEW ks.mv AS
    SELECT w, kk, "Key 2", c1, c2
    FROM ks.nf
    WHERE w IS NOT NULL AND kk IS NOT NULL AND "Key 2" IS NOT NULL AND c1 IS NOT NULL AND c2 IS NOT NULL
    PRIMARY KEY (w, kk, "Key 2", c1, c2)
 WITH ID = {OTHER_ID}
    AND CLUSTERING ORDER BY (kk ASC, "Key 2" ASC, c1 DESC, c2 ASC);
"""


def loaded(path: Path, text: str, name: str = "schema.cql", **more: Any) -> dict[str, CassandraTable]:
    file = path / name
    file.write_text(text, encoding="utf-8")
    return {str(table.schema.table): table for table in schema_file.load(str(file), **more)}


def columns(table: CassandraTable) -> list[tuple[str, str, str]]:
    return [(column.name, column.role.value, column.source_type) for column in table.schema.columns]


def test_what_a_node_describes_is_read(tmp_path: Path) -> None:
    tables = loaded(tmp_path, DESCRIBED)
    table = tables["ks.nf"]
    assert columns(table) == [
        ("kk", "partition", "int"),
        ("Key 2", "partition", "text"),
        ("c1", "clustering", "text"),
        ("c2", "clustering", "timeuuid"),
        ("st", "static", "text"),
        (
            "cust",
            "regular",
            "'org.apache.cassandra.db.marshal.DynamicCompositeType(a=>org.apache.cassandra.db.marshal.AsciiType)'",
        ),
        ("lo", "regular", 'list<frozen<"Odd Name">>'),
        ("n", "regular", "frozen<tuple<int, text>>"),
        ("u", "regular", "inner_t"),
        ("v", "regular", "vector<float, 3>"),
        ("w", "regular", "int"),
        ("y", "regular", "int"),
    ]
    assert (table.id, table.cdc, table.view) == (uuid.UUID(ID), True, False)
    assert [column.descending for column in table.schema.clustering] == [True, False]
    inner = {"x": t.INT32, "m": t.map_of(t.TEXT, t.list_of(t.INT32))}
    assert table.schema.by_name["u"].type == t.user("inner_t", inner, multi_cell=True)


def test_dropped_columns_are_remembered_with_their_time(tmp_path: Path) -> None:
    dropped = loaded(tmp_path, DESCRIBED)["ks.nf"].dropped
    assert {name: (gone.time_us, gone.column.source_type) for name, gone in dropped.items()} == {
        "y": (1794749974347000, "int"),
        "z": (1794749974123000, "map<int, text>"),
    }


def test_a_view_has_the_types_of_its_base_table(tmp_path: Path) -> None:
    view = loaded(tmp_path, DESCRIBED)["ks.mv"]
    assert view.view
    assert [(column.name, column.role) for column in view.schema.columns] == [
        ("w", Role.PARTITION),
        ("kk", Role.CLUSTERING),
        ("Key 2", Role.CLUSTERING),
        ("c1", Role.CLUSTERING),
        ("c2", Role.CLUSTERING),
    ]
    assert view.schema.by_name["c1"].descending


def test_a_view_of_everything(tmp_path: Path) -> None:
    text = f"""CREATE TABLE ks.t (a int, b int, c text, PRIMARY KEY (a)) WITH ID = {ID};
        CREATE MATERIALIZED VIEW IF NOT EXISTS ks.v AS SELECT * FROM ks.t WHERE b IS NOT NULL AND a IS NOT NULL
        PRIMARY KEY (b, a) WITH ID = {OTHER_ID}"""
    view = loaded(tmp_path, text)["ks.v"]
    assert columns(view) == [("b", "partition", "int"), ("a", "clustering", "int"), ("c", "regular", "text")]


def test_statements_are_followed_in_their_order(tmp_path: Path) -> None:
    text = f"""
        USE "Ks";
        CREATE TYPE addr (street text);
        CREATE COLUMNFAMILY IF NOT EXISTS t (id int PRIMARY KEY, a addr, gone frozen<addr>, s set<text>)
            WITH ID='{ID}' AND cdc='TRUE';
        ALTER TYPE addr ADD zip int;
        ALTER TYPE addr RENAME street TO road AND zip TO code;
        ALTER TABLE t RENAME id TO key;
        ALTER TABLE t ADD (b int, c text static);
        ALTER TABLE t ADD IF NOT EXISTS d map<text, int>, e int;
        ALTER TABLE t DROP (gone, s) USING TIMESTAMP 12;
        ALTER TABLE t DROP IF EXISTS b;
        ALTER TABLE t WITH cdc = false AND comment = 'x';
        CREATE TABLE other (k int PRIMARY KEY); DROP TABLE IF EXISTS other;
        CREATE TABLE lost.t (k int PRIMARY KEY); DROP KEYSPACE lost;
        INSERT INTO t (key) VALUES (1);
    """
    tables = loaded(tmp_path, text)
    assert list(tables) == ["Ks.t"]
    table = tables["Ks.t"]
    assert columns(table) == [
        ("key", "partition", "int"),
        ("c", "static", "text"),
        ("a", "regular", "addr"),
        ("d", "regular", "map<text, int>"),
        ("e", "regular", "int"),
    ]
    assert table.schema.by_name["a"].type.names == ("road", "code")
    assert not table.cdc
    assert {name: gone.column.source_type for name, gone in table.dropped.items()} == {
        "gone": "frozen<tuple<text, int>>",
        "s": "set<text>",
        "b": "int",
    }


@pytest.mark.parametrize(
    ("definition", "wanted"),
    [
        (
            "k int PRIMARY KEY, a int, b text",
            [
                ("k", "partition", "int"),
                ("column1", "clustering", "text"),
                ("a", "static", "int"),
                ("b", "static", "text"),
                ("value", "regular", "blob"),
            ],
        ),
        (
            "k int, c text, PRIMARY KEY (k, c)",
            [("k", "partition", "int"), ("c", "clustering", "text"), ("value", "regular", "empty")],
        ),
        (
            "k int, c text, v int, PRIMARY KEY (k, c)",
            [("k", "partition", "int"), ("c", "clustering", "text"), ("v", "regular", "int")],
        ),
        (
            "k int PRIMARY KEY, n counter, column1 counter",
            [
                ("k", "partition", "int"),
                ("column11", "clustering", "text"),
                ("column1", "static", "counter"),
                ("n", "static", "counter"),
                ("value", "regular", "counter"),
            ],
        ),
    ],
)
def test_compact_tables_have_the_columns_that_their_log_has(
    tmp_path: Path, definition: str, wanted: list[tuple[str, str, str]]
) -> None:
    statement = f"CREATE TABLE ks.t ({definition}) WITH COMPACT STORAGE AND ID = {ID}"
    assert columns(loaded(tmp_path, statement)["ks.t"]) == wanted
    # Newer versions show them in a comment, with the order of a column that they do not show.
    comment = (
        "/*\nWarning: Table ks.t omitted because it has constructs not compatible with CQL.\n"
        f"Approximate structure, for reference:\n\n{statement}\n AND CLUSTERING ORDER BY (column1 ASC);\n*/"
    )
    assert columns(loaded(tmp_path, comment)["ks.t"]) == wanted
    # What looks like the begin of a comment before it, in a string, hides nothing.
    before = f"CREATE TABLE ks.other (k int PRIMARY KEY) WITH comment = '/*' AND ID = {uuid.uuid4()};\n"
    assert columns(loaded(tmp_path, before + comment)["ks.t"]) == wanted
    plain = f"{statement};\nALTER TABLE ks.t DROP COMPACT STORAGE;"
    assert columns(loaded(tmp_path, plain)["ks.t"]) == wanted


@pytest.mark.parametrize(
    ("text", "why", "line"),
    [
        ("CREATE TABLE t (k int PRIMARY KEY)", "t has no keyspace", 1),
        ("\n/* a comment without end", "has no partner", 2),
        ("\n$$ a string without end", "has no partner", 2),
        ("\n\nCREATE TABLE ks.t (k int\n, v nonsense<int>, PRIMARY KEY (k))", "not a CQL type", 4),
        ("CREATE TABLE ks.t (k int, v int)", "has no primary key", 1),
        ("CREATE TABLE ks.t (k int,\n PRIMARY KEY (x))", "names x, which is no column", 2),
        ("CREATE TABLE ks.t (k int PRIMARY KEY", "expected \\), found the end", 1),
        ("CREATE TABLE ks.t\n(k int PRIMARY KEY) WITH ID = 12", "is no UUID", 2),
        ("CREATE TABLE ks.t (k int PRIMARY KEY) WITH CLUSTERING ORDER BY (v DESC)", "no clustering column", 1),
        ("\nALTER TABLE ks.t ADD v int", "the table ks.t is not known here", 2),
        ("ALTER TYPE ks.t ADD v int", "the type ks.t is not known here", 1),
        ("CREATE MATERIALIZED VIEW ks.v AS SELECT a FROM ks.t", "base table of the view ks.v is not known", 1),
        ("CREATE TABLE ks.t (k int PRIMARY KEY);\n ALTER TABLE ks.t DROP v", "has no column v", 2),
        ("CREATE TABLE ks.t (k int PRIMARY KEY);\n ALTER TABLE ks.t RENAME v TO w", "has no column v", 2),
        (
            "CREATE TABLE ks.t (k int PRIMARY KEY, v int);\n ALTER TABLE ks.t DROP v USING TIMESTAMP x",
            "whole number",
            2,
        ),
        ("CREATE TABLE ks.t (k int PRIMARY KEY) WITH comment = 'open", "has no partner", 1),
        ("\nCREATE TABLE 12 (k int PRIMARY KEY)", "expected a name, found 12", 2),
        (f"\nCREATE TABLE ks.t (k int PRIMARY KEY,\n v frozen<nowhere>) WITH ID = {ID}", "nowhere is not known", 3),
        (f"CREATE TABLE ks.t (k list<int> PRIMARY KEY) WITH ID = {ID}", "key column must be frozen", 1),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, why: str, line: int) -> None:
    with pytest.raises(InvalidSchema, match=why) as caught:
        loaded(tmp_path, text)
    assert caught.value.place["line"] == line
    assert caught.value.place["file"] == str(tmp_path / "schema.cql")


def test_a_table_without_an_id_is_refused_with_what_to_do(tmp_path: Path) -> None:
    text = "".join(f"CREATE TABLE ks.t{number} (k int PRIMARY KEY);" for number in range(7))
    with pytest.raises(InvalidSchema, match=r"id of ks.t0, ks.t1, ks.t2, ks.t3, ks.t4, …; .* WITH INTERNALS"):
        loaded(tmp_path, text)


def test_ids_come_from_the_data_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for name in (f"t-{uuid.UUID(OTHER_ID).hex}", f"t-{uuid.UUID(ID).hex}", "t-backup", f"Big-{uuid.UUID(ID).hex}"):
        (data / "ks" / name).mkdir(parents=True)
    (data / "file").write_text("")
    os.utime(data / "ks" / f"t-{uuid.UUID(OTHER_ID).hex}", (1, 1))
    ids = schema_file.ids_in(str(data))
    assert ids == {TableId("ks", "t"): uuid.UUID(ID), TableId("ks", "Big"): uuid.UUID(ID)}
    assert loaded(tmp_path, "CREATE TABLE ks.t (k int PRIMARY KEY)", ids=ids)["ks.t"].id == uuid.UUID(ID)
    with pytest.raises(StorageError, match="cannot look for tables"):
        schema_file.ids_in(str(tmp_path / "nowhere"))


def test_tables_become_json_and_the_same_tables(tmp_path: Path) -> None:
    tables = loaded(tmp_path, DESCRIBED)
    text = json.dumps(schema_file.dump(tables.values()), indent=2)
    assert loaded(tmp_path, text, "schema.json") == tables
    assert loaded(tmp_path, text, "schema.txt") == tables


def test_tables_of_a_file_can_be_learned(tmp_path: Path) -> None:
    schemas = Schemas()
    tables = loaded(tmp_path, DESCRIBED)
    for table in tables.values():
        assert schemas.add(table) == {table.id}
    for table in tables.values():
        known = schemas.table(table.id)
        assert known is not None
        # A column that is there again says when it was dropped.
        drops = {name: table.dropped[name].time_us if name in table.dropped else None for name in known.schema.by_name}
        assert {column.name: column.dropped_us for column in known.schema.columns} == drops
        plain = tuple(replace(column, dropped_us=None) for column in known.schema.columns)
        assert (plain, known.dropped) == (table.schema.columns, table.dropped)


TABLE = {"keyspace": "ks", "table": "t", "id": ID, "columns": [{"name": "k", "type": "int", "role": "partition"}]}


def one_column(type_: str, role: str) -> str:
    columns = [{"name": "k", "type": type_, "role": role}]
    return json.dumps({"format": 1, "tables": [{**TABLE, "columns": columns}]})


def test_a_table_in_json_needs_little(tmp_path: Path) -> None:
    table = loaded(tmp_path, json.dumps({"format": 1, "tables": [TABLE]}), "s.json")["ks.t"]
    assert columns(table) == [("k", "partition", "int")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("[]", "an object with"),
        ('{"format": 2}', "an object with"),
        ('{"format": 1}', "lacks a part"),
        ('{"format": 1, "tables": 7}', "lacks a part"),
        ('{"format": 1, "tables": [7]}', "lacks a part"),
        ('{"format": 1, "types": {"ks": 7}, "tables": []}', "lacks a part"),
        (json.dumps({"format": 1, "tables": [{**TABLE, "id": None}]}), "does not tell the id of ks.t"),
        (json.dumps({"format": 1, "tables": [{**TABLE, "id": "x"}]}), "definition is wrong"),
        (json.dumps({"format": 1, "tables": [{**TABLE, "columns": []}]}), "at least one column"),
        (one_column("int", "regular"), "no partition column"),
        (one_column("in", "partition"), "user type in is not known"),
        (json.dumps({"format": 1, "tables": [{**TABLE, "columns": [{"name": "k"}]}]}), "definition is wrong"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_json_that_is_no_schema_is_refused(tmp_path: Path, data: str, why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        loaded(tmp_path, data, "schema.json")


def test_broken_json_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidSchema, match="is not JSON") as caught:
        loaded(tmp_path, '{"format": 1,\n"tables": [}', "schema.json")
    assert caught.value.place["line"] == 2


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        schema_file.load(str(tmp_path / "nowhere.cql"))
    (tmp_path / "odd.cql").write_bytes(b"CREATE\n\xff")
    with pytest.raises(InvalidSchema, match="not UTF-8") as caught:
        schema_file.load(str(tmp_path / "odd.cql"))
    assert caught.value.place["line"] == 2


_WORDS = (
    *("CREATE", "TABLE", "TYPE", "ks", ".", "t", "(", ")", ",", "int", "PRIMARY", "KEY", "list", "<", ">", "frozen"),
    *(";", "ALTER", "ADD", "DROP", "WITH", "ID", "=", "AND", "static", "'x'", '"N"', "MATERIALIZED", "VIEW", "AS"),
    *("SELECT", "*", "FROM", "WHERE", "USE", "COMPACT", "STORAGE", "CLUSTERING", "ORDER", "BY", "RENAME", "TO"),
    *("USING", "TIMESTAMP", "5", "'", '"', "/*", "*/", "--"),
)


@given(st.one_of(st.text(max_size=80), st.lists(st.sampled_from(_WORDS), max_size=40).map(" ".join)))
def test_any_text_is_followed_or_refused(text: str) -> None:
    line = 1
    try:
        Script().run(text)
    except InvalidSchema as error:
        line = int(str(error.place["line"]))
    assert 1 <= line <= text.count("\n") + 1
