"""`penstock cassandra`: the changes of commit-log segments, and the health of cdc_raw."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.table import CassandraTable, DroppedColumn
from penstock.capture.cassandra.segments.segment import Encryption, index_name
from penstock.cli import cassandra_sources
from penstock.cli.cassandra_sources import parse_address, parse_size
from penstock.cli.main import main
from penstock.errors import InvalidInput, Unreachable
from penstock.model import types as t
from penstock.model.change import (
    Bound,
    Cell,
    Change,
    Deleted,
    Deletion,
    Delta,
    Element,
    Expiry,
    Marker,
    Op,
    Range,
    Removed,
    Set,
)
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.sandbox.commit_log.statements import create_table, drop_table, truncate
from penstock.sandbox.commit_log.writer import CommitLogWriter
from tests.commit_logs import KEY

TIME = 1_700_000_000_000_000
ADDR = t.user("addr", {"street": t.TEXT, "zip": t.INT32}, multi_cell=True)


def table(name: str, number: int, *columns: Column, keyspace: str = "shop", cdc: bool = True) -> CassandraTable:
    schema = TableSchema(TableId(keyspace, name), columns, source="cassandra")
    return CassandraTable(uuid.UUID(int=number), schema, cdc=cdc)


ORDERS = table(
    "orders",
    1,
    Column("shop", t.TEXT, Role.PARTITION, source_type="text"),
    Column("no", t.INT32, Role.CLUSTERING, descending=True, source_type="int"),
    Column("owner", t.TEXT, Role.STATIC, source_type="text"),
    Column("home", ADDR, source_type="addr"),
    Column("items", t.map_of(t.TEXT, t.INT32, multi_cell=True), source_type="map<text, int>"),
    Column("total", t.DECIMAL, source_type="decimal"),
)
HITS = table("hits", 2, Column("page", t.TEXT, Role.PARTITION), Column("n", t.SHARDED_COUNTER), cdc=False)
OTHER = table("other", 3, Column("k", t.INT32, Role.PARTITION), Column("v", t.TEXT), keyspace="lab")


def order(number: int, time: int = TIME, **cells: Any) -> Change:
    key = {"shop": "s", "no": number}
    return Change(Op.INSERT, key, {name: Set(value) for name, value in cells.items()}, time=time, marker=Marker())


def other(k: int, v: str = "x") -> Change:
    return Change(Op.INSERT, {"k": k}, {"v": Set(v)}, time=TIME, marker=Marker())


class Log:
    """A node's directories with a log in them."""

    def __init__(self, root: Path, **how: Any) -> None:
        self.raw = str(root / "cdc_raw")
        self.writer = CommitLogWriter(str(root / "commitlog"), self.raw, segment_bytes=1 << 17, durable=False, **how)

    def create(self, *tables: CassandraTable) -> None:
        for number, one in enumerate(tables):
            self.writer.append(create_table(one, TIME - 1000 + number))

    def write(self, one: CassandraTable, *changes: Change) -> None:
        self.writer.append([(one, list(changes))])


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


class Outcome:
    """What a command printed, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def decode(*arguments: str, command: str = "decode") -> Outcome:
        capsys.readouterr()
        code = main(["cassandra", command, *arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return decode


def test_each_kind_of_change_has_its_json(log: Log, run: Any) -> None:
    log.create(ORDERS, HITS)
    expiry = Expiry(60, 1_700_000_060)
    cells: dict[str, Cell] = {
        "home": Delta(Deletion(TIME - 1, 1_700_000_000), (Element(0, "road"),)),
        "items": Delta(None, (Element("a", 1, None, expiry),), (Removed("b", None, 1_700_000_000),)),
        "total": Deleted(None, 1_700_000_000),
    }
    log.write(ORDERS, Change(Op.INSERT, {"shop": "s", "no": 7}, cells, time=TIME, marker=Marker(None, expiry)))
    log.write(ORDERS, Change(Op.UPDATE, {"shop": "s"}, {"owner": Set("me", TIME, expiry)}, time=TIME))
    log.write(ORDERS, Change(Op.DELETE, {"shop": "s", "no": 7}, time=TIME + 1, deletion=Deletion(TIME + 1, 1)))
    where = Range(Bound((9,), True), None)
    deletion = Deletion(TIME + 2, 1)
    log.write(ORDERS, Change(Op.DELETE_RANGE, {"shop": "s"}, time=TIME + 2, deletion=deletion, range=where))
    log.write(ORDERS, Change(Op.DELETE_PARTITION, {"shop": "s"}, time=TIME + 2, deletion=deletion))
    shards = (Element(uuid.UUID(int=5), (1, 5)), Element(uuid.UUID(int=6), (1, -2)))
    log.write(HITS, Change(Op.UPDATE, {"page": "p"}, {"n": Delta(None, shards)}, time=TIME))
    log.writer.append(truncate(ORDERS, TIME + 5000, *log.writer.place))
    log.writer.close()
    outcome = run(log.raw, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    insert, static, delete, ranged, partition, counter, truncated = outcome.records
    file = os.path.basename(log.writer.segment)
    origin = insert.pop("origin")
    assert origin == {"file": file, "position": origin["position"], "segment": int(file.split("-")[2][:-4])}
    assert insert == {
        "keyspace": "shop",
        "table": "orders",
        "op": "insert",
        "static": False,
        "key": {"shop": "s", "no": 7},
        "time": TIME,
        "ttl": 60,
        "expires": 1_700_000_060,
        "deletion_time": None,
        "cells": {
            "home": {
                "replaced": True,
                "deletion_time": TIME - 1,
                "set": [{"path": "street", "value": "road", "time": TIME}],
                "removed": [],
            },
            "items": {
                "replaced": False,
                "set": [{"path": "a", "value": 1, "time": TIME, "ttl": 60, "expires": 1_700_000_060}],
                "removed": ["b"],
            },
            "total": {"deleted": True, "time": TIME},
        },
        "range": None,
    }
    assert (static["op"], static["static"], static["key"], static["time"]) == ("update", True, {"shop": "s"}, None)
    assert static["cells"] == {"owner": {"value": "me", "time": TIME, "ttl": 60, "expires": 1_700_000_060}}
    assert (delete["op"], delete["deletion_time"], delete["cells"]) == ("delete", TIME + 1, {})
    assert ranged["range"] == {"start": {"values": [9], "inclusive": True}, "end": None}
    assert (partition["op"], partition["key"], partition["deletion_time"]) == (
        "delete_partition",
        {"shop": "s"},
        TIME + 2,
    )
    assert counter["cells"] == {"n": {"value": 3, "time": TIME}}
    assert (truncated["op"], truncated["key"]) == ("truncate", {})
    assert truncated["deletion_time"] == TIME + 5000
    positions = [record["origin"]["position"] for record in outcome.records[1:]]
    assert positions == sorted(positions)


def test_deletion_and_newer_cells_of_a_row_stay_together(log: Log, run: Any) -> None:
    log.create(ORDERS)
    change = Change(
        Op.INSERT,
        {"shop": "s", "no": 1},
        {"total": Deleted(TIME, 1)},
        time=TIME,
        marker=Marker(),
        deletion=Deletion(TIME - 5, 1),
    )
    log.write(ORDERS, change)
    log.writer.close()
    (record,) = run(log.raw, "--json").records
    assert (record["time"], record["deletion_time"], list(record["cells"])) == (TIME, TIME - 5, ["total"])


def test_a_readable_table_is_printed(log: Log, run: Any) -> None:
    log.create(ORDERS)
    log.write(ORDERS, order(7))
    log.write(ORDERS, Change(Op.UPDATE, {"shop": "s"}, {"owner": Set("a\x1b[31m" + "x" * 100)}, time=TIME))
    items = Delta(None, (Element("a", 1),), (Removed("b", None, 1),))
    log.write(ORDERS, Change(Op.UPDATE, {"shop": "s", "no": 1}, {"items": items}, time=TIME))
    where = Range(Bound((9,), True), Bound((2,), False))
    log.write(ORDERS, Change(Op.DELETE_RANGE, {"shop": "s"}, time=TIME, deletion=Deletion(TIME, 1), range=where))
    log.writer.close()
    lines = run(log.raw).out.splitlines()
    assert lines[0].split() == ["time", "op", "table", "key", "change"]
    assert lines[1].split() == ["2023-11-14T22:13:20.000000Z", "insert", "shop.orders", 'shop="s"', "no=7"]
    assert "update static" in lines[2]
    assert "\x1b" not in lines[2]
    assert lines[2].endswith("x…")
    assert lines[3].endswith('items+={"a":1} items-={"b"}')
    assert lines[4].endswith("[9 … 2)")


def test_directories_are_read_by_id_and_each_segment_once(log: Log, run: Any) -> None:
    log.create(ORDERS)
    for number in range(40):
        log.write(ORDERS, order(number))
        if number % 10 == 9:
            log.writer.roll()
    log.writer.close()
    assert len([name for name in os.listdir(log.raw) if name.endswith(".log")]) > 3
    outcome = run(log.raw, str(Path(log.raw).parent / "commitlog"), "--json")
    assert [record["key"]["no"] for record in outcome.records] == list(range(40))
    first = sorted(name for name in os.listdir(log.raw) if name.endswith(".log"))[0]
    assert len(run(os.path.join(log.raw, first), "--json").records) == 10


def test_tables_of_one_mutation_come_in_its_order(log: Log, run: Any) -> None:
    more = table("notes", 9, Column("shop", t.TEXT, Role.PARTITION), Column("note", t.TEXT))
    log.create(ORDERS, more)
    note = Change(Op.INSERT, {"shop": "s"}, {"note": Set("n")}, time=TIME, marker=Marker())
    for number in range(3):
        log.writer.append([(ORDERS, [order(number)]), (more, [note])])
    log.writer.close()
    records = run(log.raw, "--json").records
    assert [record["table"] for record in records] == ["orders", "notes"] * 3


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], ["orders", "other"]),
        (["--keyspace", "lab"], ["other"]),
        (["--table", "orders"], ["orders"]),
        (["--table", "lab.other"], ["other"]),
        (["--keyspace", "shop", "--table", "other"], []),
    ],
)
def test_keyspace_and_table_choose(log: Log, run: Any, options: list[str], wanted: list[str]) -> None:
    log.create(ORDERS, OTHER)
    log.write(ORDERS, order(1))
    log.write(OTHER, other(1))
    log.writer.close()
    outcome = run(log.raw, "--json", *options)
    assert outcome.code == 0
    assert [record["table"] for record in outcome.records] == wanted


def test_system_keyspaces_are_printed_only_when_named(log: Log, run: Any) -> None:
    log.create(ORDERS)
    log.writer.close()
    assert run(log.raw, "--json").records == []
    named = run(log.raw, "--json", "--keyspace", "system_schema", "--table", "tables").records
    assert [(record["key"]["table_name"], record["cells"]["cdc"]["value"]) for record in named] == [("orders", True)]


def test_a_mistyped_table_is_noticed(log: Log, run: Any) -> None:
    log.create(ORDERS)
    log.writer.close()
    outcome = run(log.raw, "--table", "ordres")
    assert outcome.code == 0
    assert "no table ordres is known; did you mean orders?" in outcome.err


def test_entries_wait_for_a_schema_that_comes_later(log: Log, run: Any) -> None:
    log.write(ORDERS, order(1))
    log.write(ORDERS, order(2))
    log.create(OTHER)
    log.write(OTHER, other(1))
    log.create(ORDERS)
    log.write(ORDERS, order(3))
    log.writer.close()
    outcome = run(log.raw, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert [record["key"].get("no") for record in outcome.records] == [1, 2, None, 3]
    positions = [record["origin"]["position"] for record in outcome.records if record["table"] == "orders"]
    assert positions == sorted(positions)


def test_entries_of_an_unknown_table_are_counted_and_make_the_exit_code_one(log: Log, run: Any) -> None:
    log.create(OTHER)
    log.write(ORDERS, order(1))
    log.write(ORDERS, order(2))
    log.write(OTHER, other(1))
    log.writer.close()
    outcome = run(log.raw, "--json")
    assert outcome.code == 1
    assert len(outcome.records) == 1
    assert f"2 entries of table {ORDERS.id} not decoded: " in outcome.err
    assert "give --schema or --contact-point" in outcome.err


def test_a_schema_file_tells_what_the_log_does_not(log: Log, run: Any, tmp_path: Path) -> None:
    log.write(OTHER, other(1))
    log.writer.close()
    file = tmp_path / "schema.cql"
    file.write_text(f"CREATE TABLE lab.other (k int PRIMARY KEY, v text) WITH ID = {OTHER.id} AND cdc = true;")
    outcome = run(log.raw, "--json", "--schema", str(file))
    assert outcome.code == 0
    assert [record["cells"]["v"]["value"] for record in outcome.records] == ["x"]
    file.write_text("CREATE TABLE lab.other (k int PRIMARY KEY, v text);")
    refused = run(log.raw, "--schema", str(file))
    assert refused.code == 1
    assert "does not tell the id of lab.other" in refused.err
    data = tmp_path / "data" / "lab" / f"other-{OTHER.id.hex}"
    data.mkdir(parents=True)
    outcome = run(log.raw, "--json", "--schema", str(file), "--data-dir", str(tmp_path / "data"))
    assert (outcome.code, len(outcome.records)) == (0, 1)


def test_columns_that_were_dropped_later_are_still_read(log: Log, run: Any) -> None:
    log.create(OTHER)
    log.write(OTHER, other(1))
    key_only = TableSchema(OTHER.schema.table, OTHER.schema.columns[:1], source="cassandra")
    gone = DroppedColumn(Column("v", t.TEXT, source_type="text"), TIME)
    log.writer.append(drop_table(OTHER, TIME + 1))
    log.writer.append(create_table(CassandraTable(OTHER.id, key_only, cdc=True, dropped={"v": gone}), TIME + 2))
    log.write(OTHER, other(2))
    log.writer.close()
    outcome = run(log.raw, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert [record["key"]["k"] for record in outcome.records] == [1, 2]


def test_damage_is_named_and_the_rest_is_printed(log: Log, run: Any) -> None:
    log.create(OTHER)
    places = []
    for k in range(5):
        log.write(OTHER, other(k, "y" * 50))
        places.append(log.writer.place.position)
    log.writer.close()
    path = os.path.join(log.raw, os.path.basename(log.writer.segment))
    with open(path, "r+b") as file:
        file.seek(places[2] - 20)
        file.write(b"!!!")
    outcome = run(log.raw, "--json")
    assert outcome.code == 1
    assert [record["key"]["k"] for record in outcome.records] == [0, 1, 3, 4]
    assert "damaged entry: " in outcome.err
    assert f"file {os.path.basename(path)}, offset " in outcome.err


def test_a_segment_that_cannot_be_read_does_not_stop_the_others(log: Log, run: Any) -> None:
    log.create(OTHER)
    log.write(OTHER, other(1))
    log.writer.close()
    Path(log.raw, "CommitLog-7-1.log").write_bytes(b"not a segment, though it is called one")
    Path(log.raw, "CommitLog-7-2.log").write_bytes(bytes(100))
    Path(log.raw, "CommitLog-4-3.log").write_bytes(b"\0\0\0\4" + bytes(8) + b"\0\0" + bytes(40))
    outcome = run(log.raw, "--json")
    assert outcome.code == 1
    assert len(outcome.records) == 1
    assert "CommitLog-7-1.log" in outcome.err
    assert "CommitLog-7-2.log" not in outcome.err
    assert "commit-log format 4" in outcome.err


def test_missing_paths_and_empty_directories_are_refused(tmp_path: Path, run: Any) -> None:
    for path, why in ((tmp_path / "nowhere", "no such file or directory"), (tmp_path, "no commit-log segment here")):
        outcome = run(str(path))
        assert outcome.code == 1
        assert why in outcome.err
    assert "no such directory" in run("--verify", str(tmp_path / "nowhere")).err
    assert "no commit-log segment here" in run("--verify", str(tmp_path)).err
    (tmp_path / "file").write_text("")
    assert "--verify wants directories" in run("--verify", str(tmp_path / "file")).err


def test_an_encrypted_log_needs_its_key(tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path, encryption=Encryption("AES/CBC/PKCS5Padding", "testing:1", bytes(16)), key=KEY)
    log.create(OTHER)
    log.write(OTHER, other(1))
    log.writer.close()
    without = run(log.raw, "--json")
    assert without.code == 1
    assert "the segment is encrypted and no key store is given" in without.err
    password = tmp_path / "password"
    password.write_text("secret\n")
    opened = []

    class Store:
        @staticmethod
        def open(path: str, given: str, *, key_password: str | None = None) -> Any:
            opened.append((path, given, key_password))
            from tests.commit_logs import KEYS

            return KEYS

    monkeypatch.setattr(cassandra_sources, "KeyStore", Store)
    options = ["--keystore", "store", "--keystore-password-file", str(password), "--key-password-file", str(password)]
    outcome = run(log.raw, "--json", *options)
    assert (outcome.code, len(outcome.records)) == (0, 1)
    assert opened == [("store", "secret", "secret")]
    health = run(log.raw, "--verify", "--json", *options).records[0]
    assert health["segments"][0]["encryption"] == "AES/CBC/PKCS5Padding"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--keystore", "x"], "--keystore needs --keystore-password-file"),
        (["--keystore-password-file", "x"], "needs --keystore"),
        (["--username", "me"], "needs --contact-point"),
        (["--data-dir", "x"], "--data-dir needs --schema"),
        (["--limit", "1GiB"], "--limit needs --verify"),
        (["--verify", "--table", "t"], "leave --keyspace and --table out"),
        (["--keyspace", "a", "--table", "b.c"], "exclude each other"),
        (["--verify", "--limit", "much"], "not a size"),
        (["--contact-point", "a:b:c"], "not an address"),
        (["--schema", "nowhere.cql"], "cannot read the schema file"),
        (["--contact-point", "h", "--username", "u", "--password-file", "nowhere"], "cannot read"),
        (["--keystore", "x", "--keystore-password-file", "nowhere"], "cannot read the key store's password"),
    ],
)
def test_options_that_do_not_go_together_are_refused(log: Log, run: Any, options: list[str], why: str) -> None:
    log.create(OTHER)
    log.writer.close()
    outcome = run(log.raw, *options)
    assert outcome.code == 1
    assert why in outcome.err


def test_a_node_that_does_not_answer_is_told_with_a_hint(log: Log, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log.writer.close()

    def refused(settings: Any) -> Any:
        assert (settings.contact_points, settings.port, settings.tls) == (("10.0.0.9",), 9142, True)
        raise Unreachable("no CQL connection to 10.0.0.9: refused", port=9142)

    monkeypatch.setattr(cassandra_sources, "connect", refused)
    outcome = run(log.raw, "--contact-point", "10.0.0.9:9142", "--tls")
    assert outcome.code == 1
    assert "no CQL connection" in outcome.err
    assert "hint: " in outcome.err


def test_a_node_tells_what_the_log_does_not(log: Log, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write(OTHER, other(1))
    log.writer.close()
    from contextlib import nullcontext

    from penstock.capture.cassandra.schema.rows import rows_of

    class Connected:
        session = None

    monkeypatch.setattr(cassandra_sources, "connect", lambda _: nullcontext(Connected()))
    monkeypatch.setattr(schema_query, "read_rows", lambda _: list(rows_of(OTHER, TIME)))
    outcome = run(log.raw, "--json", "--contact-point", "10.0.0.9")
    assert (outcome.code, len(outcome.records)) == (0, 1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("host", ("host", 9042)),
        ("host:9142", ("host", 9142)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("::1", ("::1", 9042)),
        ("2001:db8::1", ("2001:db8::1", 9042)),
        ("[::1]:9142", ("::1", 9142)),
        ("[::1]", ("::1", 9042)),
    ],
)
def test_addresses(text: str, wanted: tuple[str, int]) -> None:
    assert parse_address(text) == wanted


@pytest.mark.parametrize("text", ["", "a b", "host:", "host:0", "host:70000", "[x", "a:b"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(InvalidInput, match="not an address"):
        parse_address(text)


def test_sizes() -> None:
    assert [parse_size(text) for text in ("5", "5B", "2 KiB", "4096MiB", "1GiB")] == [5, 5, 2048, 4 << 30, 1 << 30]


# --verify


def test_a_sound_directory(log: Log, run: Any) -> None:
    log.create(ORDERS)
    log.write(ORDERS, order(1))
    log.writer.roll()
    log.write(ORDERS, order(2))
    log.writer.sync()
    outcome = run(log.raw, "--verify", "--json", "--limit", "1GiB")
    assert outcome.code == 0
    (health,) = outcome.records
    assert (health["sound"], health["full"], health["limit"]) == (True, False, 1 << 30)
    assert health["bytes"] == sum(os.path.getsize(os.path.join(log.raw, name)) for name in os.listdir(log.raw))
    done, live = health["segments"]
    assert (done["index"], done["entries"], done["state"], done["damage"]) == ("completed", 2, "done", [])
    assert (live["index"], live["entries"], live["state"], live["format"]) == ("open", 1, "open", 7)
    assert done["index_offset"] <= done["end"] + 8
    text = run(log.raw, "--verify").out
    assert "sound; 2 segments" in text
    log.writer.abandon()


def test_what_is_wrong_is_found(log: Log, run: Any) -> None:
    log.create(OTHER)
    log.write(OTHER, other(1))
    log.writer.sync()
    first = os.path.basename(log.writer.segment)
    log.writer.roll()
    log.write(OTHER, other(2))
    log.write(ORDERS, order(1))
    log.writer.sync()
    second = os.path.basename(log.writer.segment)
    log.writer.close()
    raw = Path(log.raw)
    # The first never says COMPLETED; the second lost its end; an index file has lost its segment.
    (raw / index_name(first)).write_text("100")
    size = (raw / second).stat().st_size
    (raw / index_name(second)).write_text(f"{size // 2}\nCOMPLETED")
    (raw / "CommitLog-7-5_cdc.idx").write_text("12\nCOMPLETED")
    (raw / "notes.txt").write_text("mine")
    Path(raw, "CommitLog-7-6.log").write_bytes(b"rubbish" * 20)
    outcome = run(log.raw, "--verify", "--json", "--limit", "1KiB")
    assert outcome.code == 1
    (health,) = outcome.records
    states = {segment["file"]: segment["state"] for segment in health["segments"]}
    assert states == {"CommitLog-7-6.log": "unreadable", first: "abandoned", second: "cut"}
    assert [os.path.basename(path) for path in health["orphans"]] == ["CommitLog-7-5_cdc.idx"]
    assert (health["full"], health["foreign"], health["unknown_tables"]) == (True, 1, {str(ORDERS.id): 1})
    text = run(log.raw, "--verify", "--limit", "1KiB").out
    for part in (
        "NOT SOUND",
        f"{first} was never completed",
        f"{second} is completed up to {size // 2}, but its entries end at",
        "index file without a segment",
        "cdc_raw is full",
        f"1 entry of table {ORDERS.id}",
        "1 file that is no segment",
    ):
        assert part in text


def test_a_half_written_index_is_no_news_for_the_newest_segment(log: Log, run: Any) -> None:
    log.create(OTHER)
    log.write(OTHER, other(1))
    log.writer.sync()
    Path(log.raw, index_name(os.path.basename(log.writer.segment))).write_text("")
    outcome = run(log.raw, "--verify", "--json")
    assert outcome.code == 0
    assert outcome.records[0]["segments"][0]["index"] == "half-written"
    log.writer.abandon()


def test_damage_in_a_segment_is_found(log: Log, run: Any) -> None:
    log.create(OTHER)
    log.write(OTHER, other(1, "z" * 100))
    place = log.writer.place.position
    log.writer.close()
    with open(os.path.join(log.raw, os.path.basename(log.writer.segment)), "r+b") as file:
        file.seek(place - 30)
        file.write(b"??")
    outcome = run(log.raw, "--verify", "--json")
    assert outcome.code == 1
    (segment,) = outcome.records[0]["segments"]
    assert segment["state"] == "damaged"
    assert [damage["what"] for damage in segment["damage"]] == ["entry"]
    assert "damaged entry: " in run(log.raw, "--verify").out


@pytest.mark.parametrize("compressor", ["LZ4", "Zstd"])
def test_compressed_segments_are_examined(tmp_path: Path, run: Any, compressor: str) -> None:
    log = Log(tmp_path, compression=f"{compressor}Compressor")
    log.create(OTHER)
    for k in range(20):
        log.write(OTHER, other(k, "z" * 100))
        log.writer.sync()
    log.writer.close()
    outcome = run(log.raw, "--verify", "--json")
    assert outcome.code == 0, outcome.out
    (segment,) = outcome.records[0]["segments"]
    assert (segment["compression"], segment["entries"]) == (f"{compressor}Compressor", 21)
    assert segment["sections"] >= 20


def test_the_limit_comes_from_cassandra_yaml(log: Log, run: Any, tmp_path: Path) -> None:
    log.create(OTHER)
    log.writer.close()
    yaml = tmp_path / "cassandra.yaml"
    yaml.write_text("cdc_enabled: true\ncdc_total_space: 64MiB\n")
    assert run(log.raw, "--verify", "--json", "--cassandra-yaml", str(yaml)).records[0]["limit"] == 64 << 20
    yaml.write_text("cdc_enabled: true\n")
    assert 0 < run(log.raw, "--verify", "--json", "--cassandra-yaml", str(yaml)).records[0]["limit"] <= 4 << 30


# schema


def test_what_a_log_tells_becomes_a_schema_file(log: Log, run: Any, tmp_path: Path) -> None:
    log.create(ORDERS)
    log.writer.roll()
    log.write(ORDERS, order(1))
    second = log.writer.segment
    log.writer.close()
    outcome = run(log.raw, command="schema")
    assert outcome.code == 0
    file = tmp_path / "schema.json"
    file.write_text(outcome.out)
    alone = run(second, "--json")
    assert (alone.code, alone.records) == (1, [])
    assert len(run(second, "--json", "--schema", str(file)).records) == 1
    assert run("--schema", str(file), command="schema").out == outcome.out


def test_a_schema_needs_a_source(run: Any) -> None:
    outcome = run(command="schema")
    assert outcome.code == 1
    assert "nothing to read tables from" in outcome.err
