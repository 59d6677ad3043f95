"""`penstock cassandra` on the files of real nodes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from tests.integration.cassandra import matrix
from tests.integration.cassandra.recording import Recording, name_of
from tests.integration.cassandra.variants import runnable

on_whole_matrix = pytest.mark.parametrize(
    "variant", [variant for variant in runnable() if not variant.cases], ids=lambda variant: variant.name
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["cassandra", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def directories(recording: Recording) -> list[str]:
    return [str(recording.directory / name) for name in ("cdc_raw", "commitlog")]


def place(record: dict[str, Any]) -> tuple[int, int]:
    return record["origin"]["segment"], record["origin"]["position"]


@on_whole_matrix
def test_every_change_is_printed_in_log_order(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "decode", "--json", "--keyspace", matrix.KEYSPACE, *directories(recording))
    assert (code, err) == (0, "")
    records = [json.loads(line) for line in out.splitlines()]
    places = [place(record) for record in records]
    assert places == sorted(places)
    printed = Counter(record["table"] for record in records)
    for name in recording.tables:
        assert printed[name] >= len(recording.told.changes[name_of(name)]) > 0 or name == "batch_hidden"
    ops = {record["op"] for record in records}
    assert ops == {"insert", "update", "delete", "delete_partition", "delete_range", "truncate"}
    assert any(record["static"] for record in records)


@on_whole_matrix
def test_a_stopped_node_leaves_a_sound_directory(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "decode", "--verify", "--json", str(recording.directory / "cdc_raw"))
    (health,) = [json.loads(line) for line in out.splitlines()]
    assert code == 0, health
    assert health["unknown_tables"] == {}
    assert sum(segment["entries"] for segment in health["segments"]) > 500


@on_whole_matrix
def test_the_schema_that_is_printed_decodes_the_same(
    recording: Recording, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, "schema", *directories(recording))
    assert (code, err) == (0, "")
    file = tmp_path / "schema.json"
    file.write_text(out, encoding="utf-8")
    arguments = ["decode", "--json", "--keyspace", matrix.KEYSPACE, *directories(recording)]
    _, alone, _ = run(capsys, *arguments)
    code, told, err = run(capsys, *arguments, "--schema", str(file))
    assert (code, err) == (0, "")
    alone_places, told_places = ([place(json.loads(line)) for line in text.splitlines()] for text in (alone, told))
    assert told_places == alone_places
