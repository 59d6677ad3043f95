"""`penstock log erase`: what it says, and that nothing of a key stands in it."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path

import pytest

from penstock.capture.cassandra.agent.parked_entries import ParkedEntries
from penstock.capture.cassandra.decoding.decoder import ParkedEntry
from penstock.cli.main import main
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.system.files import OsFiles
from tests.numbered import SCHEMA, batch, fill, numbers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for node in ("n1", "n2"):
        fill(str(tmp_path / node / "shop.orders"), 12)
    return tmp_path


def left(root: Path, node: str = "n1") -> list[int]:
    with LogReader(str(root / node / "shop.orders")) as reader:
        return numbers(reader.read())


def test_rows_go_from_every_log_of_the_table(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["log", "erase", str(root), "--table", "shop.orders", "--key", '{"id": 4}']
    assert main([*arguments, "--dry-run"]) == 0
    assert "1 change would be erased in 1 file (" in capsys.readouterr().out
    assert len(left(root)) == 12
    assert main([*arguments, "--key", '{"id": 11}']) == 0
    shown = capsys.readouterr()
    assert shown.out.count("2 changes erased in 2 files (000002, 000004); looked again: none left") == 2
    assert "Not searched: Cassandra" in shown.err
    assert left(root, "n1") == left(root, "n2") == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10]
    assert main(["log", "verify", str(root)]) == 0
    verdict = capsys.readouterr().out
    assert "12 changes" in verdict
    assert "2 of the changes erased" in verdict
    assert main(["log", "verify", str(root), "--json"]) == 0
    assert [json.loads(line)["erased"] for line in capsys.readouterr().out.splitlines()] == [2, 2]


def test_keys_come_from_a_file_or_standard_input(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = root / "keys.jsonl"
    keys.write_text('{"id": 1}\n\n{"id": 2}\n')
    arguments = ["log", "erase", str(root / "n1"), "--table", "shop.orders", "--json"]
    assert main([*arguments, "--keys", str(keys)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["changes"], record["left"], record["complete"], record["behind"]) == (2, 0, True, [])
    monkeypatch.setattr("sys.stdin", io.StringIO('{"id": 3}\n'))
    assert main([*arguments, "--keys", "-"]) == 0
    assert left(root) == [0, *range(4, 12)]
    assert left(root, "n2") == list(range(12))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --key or --keys"),
        (["--key", "4711"], "key 1 is not a JSON object"),
        (["--key", '{"id": 4711'], "key 1 is not a JSON object"),
        (["--key", '{"id": "secret"}'], "a value of key 1 does not fit its column"),
        (["--key", '{"pad": "0x00"}'], "no key column of the table: pad; its key is id"),
        (["--keys", "/nowhere"], "cannot read the keys"),
    ],
)
def test_what_is_no_key_is_refused_without_its_value(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["log", "erase", str(root), "--table", "shop.orders", *arguments]) == 1
    shown = capsys.readouterr().err
    assert words in shown
    assert "4711" not in shown
    assert "secret" not in shown


def test_a_writer_that_does_not_answer_is_named_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TableLog.open(str(tmp_path / "shop.orders"), SCHEMA) as log:
        log.append(batch(7))
        arguments = ["log", "erase", str(tmp_path), "--table", "shop.orders", "--key", '{"id": 7}', "--wait-s", "0"]
        assert main(arguments) == 1
        shown = capsys.readouterr().out
        assert "NOT ALL ARE GONE" in shown
        assert "LEFT: 1 change in 1 file (000001)" in shown
        assert "another writer has this log: process" in shown
    assert not (tmp_path / "shop.orders" / "seal.request").exists()
    assert main(arguments) == 0


def test_entries_that_nobody_can_decode_yet_are_told_of(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parked = ParkedEntries(OsFiles(), str(root / "n1" / ".agent"))
    parked.open({})
    parked.park(ParkedEntry(uuid.uuid4(), "the table is not known", "CommitLog-7-9.log", 9, 77, 7, b"bytes"))
    parked.sync()
    parked.close()
    assert main(["log", "erase", str(root / "n1"), "--table", "shop.orders", "--key", '{"id": 4}']) == 0
    assert "NOT SEARCHED: entries of unknown tables that an agent has parked, 1;" in capsys.readouterr().err
