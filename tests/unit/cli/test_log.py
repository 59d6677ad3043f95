"""`penstock log`: what it prints about logs, sound and damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.log import sealed
from penstock.log.checkpoint import Checkpoint
from penstock.log.reader import LogReader
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.position import START
from penstock.model.schema import Column, TableSchema
from penstock.system.files import OsFiles
from tests.numbered import SCHEMA, batch, fill

COUNT = 25


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nodes with a log each, the first with a subscription that has read ten changes."""
    for node in ("n1", "n2"):
        fill(str(tmp_path / node / "shop.orders"), COUNT)
    with Subscription.open(str(tmp_path / "n1" / "shop.orders"), "billing") as subscription:
        subscription.commit(list(subscription.batches())[9].last)
    return tmp_path


@pytest.fixture
def log(root: Path) -> str:
    return str(root / "n1" / "shop.orders")


def records(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_ls_lists_every_log_below_a_root(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "ls", str(root), "--json"]) == 0
    first, second = records(capsys)
    assert first["directory"] == str(root / "n1" / "shop.orders")
    assert second["directory"] == str(root / "n2" / "shop.orders")
    assert (first["table"], first["changes"], first["subscriptions"]) == ("shop.orders", COUNT, ["billing"])
    assert main(["log", "ls", str(root)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["table", "log", "files", "size", "changes", "end", "subscriptions", "directory"]
    assert len(rows) == 2


def test_ls_of_one_log_lists_its_files(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "ls", log, "--json"]) == 0
    files = records(capsys)
    assert [file["number"] for file in files] == list(range(1, len(files) + 1))
    assert files[0]["file"] == "shop.orders.000001.avro"
    assert sum(file["changes"] for file in files) == COUNT
    assert sum(file["bytes"] for file in files) == sum(path.stat().st_size for path in Path(log).glob("*.avro"))
    assert main(["log", "ls", log]) == 0
    assert "shop.orders.000002.avro" in capsys.readouterr().out


def test_stat_shows_how_far_subscriptions_are_behind(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "stat", log, "--json"]) == 0
    (record,) = records(capsys)
    assert (record["table"], record["changes"], record["schema_version"]) == ("shop.orders", COUNT, 1)
    (subscription,) = record["subscriptions"]
    assert (subscription["name"], subscription["behind"]) == ("billing", COUNT - 10)
    assert main(["log", "stat", log]) == 0
    assert "billing" in capsys.readouterr().out


def test_stat_shows_a_checkpoint_that_cannot_be_read(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(f"{log}/billing.checkpoint").write_bytes(b"{}")
    assert main(["log", "stat", log, "--json"]) == 0
    (record,) = records(capsys)
    assert "billing.checkpoint" in record["subscriptions"][0]["error"]
    assert main(["log", "stat", log]) == 0


def test_stat_shows_a_subscription_whose_name_is_no_text(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No client can make one any more; a file that says so may be there all the same."""
    with LogReader(log) as reader:
        content = Checkpoint(reader.log_id, reader.table, "half", START, 0).to_json()
    sealed.write(OsFiles(), log, "half.checkpoint", {**content, "subscription": "half \ud800"})
    assert main(["log", "stat", log]) == 0
    assert "half" in capsys.readouterr().out
    assert main(["log", "stat", log, "--json"]) == 0
    assert "half of a character" in capsys.readouterr().out


def test_cat_prints_changes_in_order_with_their_positions(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "cat", log, "--json"]) == 0
    changes = records(capsys)
    assert [change["key"]["id"] for change in changes] == list(range(COUNT))
    with LogReader(log) as reader:
        assert [change["position"] for change in changes] == [str(one.last) for one in reader.read()]
    assert main(["log", "cat", log]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [change["position"] for change in changes]


def test_cat_begins_and_ends_where_it_is_told(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    with LogReader(log) as reader:
        fourth = list(reader.read())[3].last
    assert main(["log", "cat", log, "--after", str(fourth), "--limit", "3", "--json"]) == 0
    assert [change["key"]["id"] for change in records(capsys)] == [4, 5, 6]
    assert main(["log", "cat", log, "--limit", "0"]) == 0
    assert capsys.readouterr().out == ""


def test_cat_begins_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "shop.orders")
    with TableLog.open(path, SCHEMA) as log:
        log.append(batch(0, 5))
    # The changes have the times 1000 to 1004 microseconds after 1970 began.
    assert main(["log", "cat", path, "--from-time", "1970-01-01T00:00:00.001003Z", "--json"]) == 0
    assert [change["key"]["id"] for change in records(capsys)] == [3, 4]
    assert main(["log", "cat", path, "--from-time", "1h", "--json"]) == 0
    assert records(capsys) == []


def test_tail_prints_the_last_ten_unless_told_otherwise(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "tail", log, "--json"]) == 0
    assert [change["key"]["id"] for change in records(capsys)] == list(range(COUNT - 10, COUNT))
    assert main(["log", "tail", "-n", "2", log, "--json"]) == 0
    assert [change["key"]["id"] for change in records(capsys)] == [COUNT - 2, COUNT - 1]


def test_tail_as_a_subscription_goes_on_where_it_stopped(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "tail", log, "--subscription", "billing", "--json"]) == 0
    assert [change["key"]["id"] for change in records(capsys)] == list(range(10, COUNT))
    assert main(["log", "tail", log, "--subscription", "billing", "--json"]) == 0
    assert records(capsys) == []


def test_verify_counts_what_is_sound(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "verify", str(root), "--json"]) == 0
    first, second = records(capsys)
    assert first["sound"] is second["sound"] is True
    assert (first["changes"], first["checkpoints"], first["damage"]) == (COUNT, 1, [])
    assert main(["log", "verify", str(root)]) == 0
    assert capsys.readouterr().out.count("sound; ") == 2


def test_verify_names_the_place_of_damage_and_exits_with_one(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    with LogReader(log) as reader:
        target = list(reader.read())[7]
        path = Path(reader.path(target.file))
    data = bytearray(path.read_bytes())
    data[target.offset + 30] ^= 1
    path.write_bytes(data)
    assert main(["log", "verify", log, "--json"]) == 1
    (record,) = records(capsys)
    (damage,) = record["damage"]
    assert (damage["error"], damage["file"], damage["offset"]) == ("CorruptLog", str(path), target.offset)
    assert main(["log", "verify", log]) == 1
    assert f"offset {target.offset}" in capsys.readouterr().out
    assert main(["log", "cat", log]) == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 7
    assert f"(file {path}, offset {target.offset}" in shown.err
    assert "hint: Run `penstock log verify`" in shown.err
    assert main(["log", "cat", log, "--skip-damage", "--json"]) == 0
    assert len(records(capsys)) == COUNT - 1


def test_table_and_log_choose_among_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(str(tmp_path / "shop.orders"), 1)
    fill(str(tmp_path / "shop.orders@large%20ones"), 2)
    other = TableSchema(SCHEMA.table._replace(table="items"), (*SCHEMA.columns, Column("x", t.TEXT)))
    TableLog.open(str(tmp_path / "shop.items"), other).close()
    assert main(["log", "stat", str(tmp_path), "--table", "shop.items", "--json"]) == 0
    assert [record["columns"] for record in records(capsys)] == [3]
    assert main(["log", "cat", str(tmp_path), "--table", "shop.orders", "--log", "large ones", "--json"]) == 0
    assert len(records(capsys)) == 2


@pytest.mark.parametrize("command", ["cat", "tail"])
def test_ambiguous_directory_names_the_candidates(root: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", command, str(root)]) == 1
    error = capsys.readouterr().err
    assert "2 logs below" in error
    assert str(root / "n2" / "shop.orders") in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cat", "ROOT/missing"], "no such directory"),
        (["ls", "ROOT/n1/shop.orders/log.json"], "not a directory"),
        (["ls", "ROOT", "--table", "shop.nothing"], "no log of shop.nothing"),
        (["cat", "LOG", "--after", "somewhere"], "not a position: 'somewhere'"),
        (["cat", "LOG", "--after", "000099:0:0"], "lies behind the log's end"),
        (["cat", "LOG", "--from-time", "soon"], "not a time: 'soon'"),
        (["cat", "LOG", "--from-time", "1h", "--after", "000001:0:0"], "not both"),
    ],
)
def test_mistakes_are_told_in_one_line(
    root: Path, log: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [part.replace("ROOT", str(root)).replace("LOG", log) for part in arguments]
    assert main(["log", *filled]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("penstock: ")
    assert "Traceback" not in error


def test_directory_without_logs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "ls", str(tmp_path)]) == 1
    assert "no change log here" in capsys.readouterr().err


def test_wrong_usage_exits_with_two(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", "cat"]) == 2
    assert main(["log", "tail", log, "--lines", "many"]) == 2
    assert main(["nonsense"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_newer_format_is_refused_and_left_alone(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(log) / "shop.orders.000001.avro"
    data = path.read_bytes().replace(b"penstock.format\x021", b"penstock.format\x029", 1)
    path.write_bytes(data)
    assert main(["log", "cat", log]) == 1
    assert "this version reads 1" in capsys.readouterr().err
    assert path.read_bytes() == data


def test_version_tells_what_is_running(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == 0
    (record,) = records(capsys)
    assert set(record) == {"penstock", "python", "native", "pyarrow", "platform"}
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"penstock  {record['penstock']}")


def test_files_are_only_read(log: str) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in Path(log).iterdir()}
    for command in (["ls"], ["stat"], ["cat"], ["tail"], ["verify"]):
        assert main(["log", *command, log, "--json"]) == 0
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in Path(log).iterdir()} == before
    assert os.path.isdir(log)
