"""`penstock compare`: what it prints, what it repairs, and its exit codes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.iceberg.sink import IcebergSink
from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Task
from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model.change import Change, Marker, Op, Set
from penstock.settings.sinks import DeltaSettings, IcebergSettings, SearchSettings
from tests.lake_records import SCHEMA, by_key, deliver, query, records
from tests.row_records import put, records_of
from tests.scripted_search import scripted_search

RIGHT = {(number, "a"): {"note": f"n{number}", "amount": number} for number in range(5)}
WRONG = {(0, "a"): RIGHT[0, "a"], (1, "a"): {"note": "x", "amount": 1}, (9, "z"): {"note": "y", "amount": 9}}
# Rows 2, 3 and 4 are missing.
COUNTS = {"missing": 3, "extra": 1, "different": 1}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The logs of one table, and a Delta table that differs."""
    changes = [
        Change(
            Op.INSERT,
            {"id": number, "line": line},
            {name: Set(value) for name, value in row.items()},
            time=10 + number,
            marker=Marker(),
        )
        for (number, line), row in RIGHT.items()
    ]
    for node in ("n1", "n2"):
        with TableLog.open(str(tmp_path / "logs" / node / "shop.orders"), SCHEMA, node=node) as log:
            log.append(avro.encode(SCHEMA, changes))
    sink = DeltaSink(DeltaSettings(directory=tmp_path / "lake"))
    sink.prepare([SCHEMA])
    deliver(sink, 0, {0: [records(SCHEMA, WRONG.items())]})
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    # What making the targets has logged is not the command's.
    capsys.readouterr()
    code = main(["compare", *map(str, words), "--table", "shop.orders"])
    return code, capsys.readouterr().out


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_differences_are_named_and_nothing_is_written_without_being_asked(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = run(capsys, home / "logs", home / "lake/shop/orders")
    assert code == 1
    assert "5 rows in the source, 3 in the target" in text
    assert "they differ: 3 missing, 1 extra, 1 different" in text
    assert '  different in note: [1, "a"]' in text
    assert "repaired" not in text
    assert by_key(query(home / "lake/shop/orders")) == WRONG


def test_repair_ends_well_and_says_how_many_rows_it_wrote(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, home / "logs", home / "lake/shop/orders", "--repair")
    assert code == 0
    assert text.splitlines()[-1] == "5 rows repaired"
    assert by_key(query(home / "lake/shop/orders")) == RIGHT
    code, text = run(capsys, home / "logs", home / "lake/shop/orders", "--repair")
    assert (code, text.splitlines()[-2:]) == (0, ["they are the same", "there is nothing to repair"])


def test_programs_get_differences_counts_and_what_was_repaired(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, home / "logs", home / "lake/shop/orders", "--json")
    found = objects(text)
    assert code == 1
    assert {"difference": "different", "key": '[1, "a"]', "columns": ["note"]} in found
    assert {name: found[-1][name] for name in ("same", *COUNTS)} == {"same": False, **COUNTS}
    code, text = run(capsys, home / "logs", home / "lake/shop/orders", "--json", "--repair")
    found = objects(text)
    assert code == 0
    assert found[-2]["source_rows"] == 5
    assert found[-1] == {"repaired": 5, "settled": 0, "rows_left": 0}
    code, text = run(capsys, home / "logs", home / "lake/shop/orders", "--json", "--repair")
    assert (code, objects(text)[-1]) == (0, {"repaired": 0, "settled": 0, "rows_left": 0})


def test_index_is_repaired_with_the_login_of_the_settings(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "password").write_text("secret\n")
    config = home / "settings.toml"
    config.write_text(f'[search]\nusername = "penstock"\npassword_file = "{home / "password"}"\n')
    with scripted_search() as cluster:
        settings = SearchSettings(urls=(cluster.url,), index="mine")
        sink = SearchSink(settings)
        sink.prepare([SCHEMA])
        with sink.writer(Task("p", 1, 0, 0)) as writer:
            key = {"id": 1, "line": "a"}
            writer.write(records_of(SCHEMA, [put(key, 7, note="x"), put({"id": 9, "line": "z"}, 7, note="y")]))
            writer.finish()
        cluster.authorization = "Basic cGVuc3RvY2s6c2VjcmV0"
        code, text = run(capsys, home / "logs", f"{cluster.url}/mine", "--config", config, "--repair", "--json")
        found = objects(text)
        assert code == 0
        assert {"difference": "different", "key": '["1|a"]', "columns": ["note", "amount"]} in found
        assert found[-1] == {"repaired": 6, "settled": 0, "rows_left": 0}
        assert cluster.rows("mine") == {
            f"{number}|{line}": {"id": number, "line": line, **row} for (number, line), row in RIGHT.items()
        }


def test_rows_that_the_pipeline_changes_on_their_way_are_compared_as_it_leaves_them(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = home / "settings.toml"
    transform = (
        '[transform]\nexclude_columns = ["shop.orders.note"]\n[transform.filters]\n"shop.orders" = "amount < 2"\n'
    )
    config.write_text(transform)
    words = [home / "logs", home / "lake/shop/orders", "--config", config]
    code, text = run(capsys, *words, "--repair")
    assert (code, text.splitlines()[-1]) == (0, "1 rows repaired")
    assert by_key(query(home / "lake/shop/orders")) == {key: WRONG[key] for key in ((0, "a"), (1, "a"))}
    config.write_text('[transform]\nskipped_operations = ["delete"]\n')
    assert main(["compare", *map(str, words), "--table", "shop.orders", "--repair"]) == 1
    assert "transform.skipped_operations" in capsys.readouterr().err


def test_iceberg_table_is_repaired_in_the_catalog_of_the_settings(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = home / "settings.toml"
    config.write_text(f'[iceberg]\nwarehouse = "{home / "ice"}"\n')
    sink = IcebergSink(IcebergSettings(warehouse=home / "ice"))
    sink.prepare([SCHEMA])
    deliver(sink, 0, {0: [records(SCHEMA, WRONG.items())]})
    code, text = run(capsys, home / "logs", "iceberg:shop.orders", "--config", config, "--repair")
    assert (code, text.splitlines()[-1]) == (0, "5 rows repaired")
    assert by_key(sink.catalog().load_table("shop.orders").scan().to_arrow().to_pylist()) == RIGHT


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["LOGS", "nowhere"], "there is no Delta table here"),
        (["cassandra", "lake/shop/orders"], "cassandra.contact_points"),
        (["LOGS", "http://127.0.0.1:1"], "an index is named as"),
        (["LOGS", "iceberg:orders"], "an Iceberg table is named iceberg:namespace.table"),
    ],
)
def test_sides_that_are_not_there_are_told(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    named = [str(home / "logs") if word == "LOGS" else word for word in words]
    assert main(["compare", *named, "--table", "shop.orders"]) == 1
    assert message in capsys.readouterr().err


def test_columns_that_are_not_logged_are_named_and_are_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = tuple(replace(column, mask="null") if column.name == "note" else column for column in SCHEMA.columns)
    schema = replace(SCHEMA, columns=columns, excluded=("secret",))
    row = {"note": None, "amount": 1}
    change = Change(
        Op.INSERT, {"id": 1, "line": "a"}, {name: Set(value) for name, value in row.items()}, time=1, marker=Marker()
    )
    with TableLog.open(str(tmp_path / "logs" / "shop.orders"), schema) as log:
        log.append(avro.encode(schema, [change]))
    sink = DeltaSink(DeltaSettings(directory=tmp_path / "lake"))
    sink.prepare([schema])
    deliver(sink, 0, {0: [records(schema, {(1, "a"): row}.items())]})
    code, text = run(capsys, tmp_path / "logs", tmp_path / "lake/shop/orders")
    assert code == 0
    assert "not compared, for they are not logged: secret" in text
    assert "compared as they are masked in the log: note" in text
    code, text = run(capsys, tmp_path / "logs", tmp_path / "lake/shop/orders", "--json")
    (found,) = objects(text)
    assert (found["same"], found["columns_left_out"], found["columns_masked"]) == (True, ["secret"], ["note"])
