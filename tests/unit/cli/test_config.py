"""`penstock config`: where settings come from, what is secret in them, and what keeps their parts from starting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.cli.pipeline import load_settings


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "penstock.toml"


def shown(config: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, Any]]:
    assert main(["config", "show", str(config), "--json", *options]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["setting"]: row for row in rows}


def test_each_setting_is_shown_with_where_it_comes_from(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('[retention]\nkeep_s = "2d"\nbytes_max = "1GiB"\n[functions]\nbig = "a:b"\n')
    monkeypatch.setenv("PENSTOCK_RETENTION__BYTES_MAX", "2GiB")
    found = shown(config, capsys)
    assert (found["retention.keep_s"]["value"], found["retention.keep_s"]["origin"]) == (172_800, f"file {config}")
    row = found["retention.bytes_max"]
    assert (row["value"], row["origin"]) == (2 << 30, "variable PENSTOCK_RETENTION__BYTES_MAX")
    assert found["retention.age_s_max"] == {"setting": "retention.age_s_max", "value": None, "origin": "default"}
    assert found["functions.big"]["value"] == "a:b"
    assert set(shown(config, capsys, "--changed")) == {"retention.keep_s", "retention.bytes_max", "functions.big"}
    assert main(["config", "show", str(config)]) == 0
    assert "variable PENSTOCK_RETENTION__BYTES_MAX" in capsys.readouterr().out


def test_no_secret_is_shown(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text(
        '[cassandra]\npassword = "hunter2"\n[kafka]\nproducer.sasl.password = "hunter2"\n'
        '[pipeline]\nagents = ["https://user:hunt/er2@hunter2@node1:8000"]\nspark.spark.ssl.keyPassword = "hunter2"\n'
        "[pipeline.own_sink_options.mine]\napi-key = 'hunter2'\nplace = 'here'\n"
        '[iceberg.catalog_properties]\ncredential = "hunter2"\nuri = "http://me:hunter2@catalog"\n'
        '[transform]\nmask_salt = "hunter2"\n'
    )
    for options in (["--json"], []):
        assert main(["config", "show", str(config), *options]) == 0
        out = capsys.readouterr().out
        assert "hunter2" not in out
        assert "node1:8000" in out
        assert "here" in out


def checked(config: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["config", "check", str(config)])
    done = capsys.readouterr()
    return code, done.out + done.err


def test_what_would_start_is_said(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "raw").mkdir()
    (config.parent / "logs").mkdir()
    config.write_text(
        '[cassandra]\ncdc_raw_directory = "raw"\n[agent]\ndirectory = "logs"\n'
        '[pipeline]\nlogs = ["logs"]\nsinks = ["console"]\n'
    )
    before = sorted(config.parent.rglob("*"))
    code, said = checked(config, capsys)
    assert code == 0
    assert "agent: captures to logs; HTTP on 127.0.0.1:8000" in said
    assert "pipeline: delivers logs to console" in said
    assert sorted(config.parent.rglob("*")) == before, "a check changes nothing"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "nothing would start"),
        ('[agent]\ndirectory = "x"', "agent: CANNOT START"),
        ('[cassandra]\ncdc_raw_directory = "raw"\n[http]\ntoken_file = "none"', "none"),
        ('[cassandra]\ncdc_raw_directory = "raw"\n[agent]\ndirectory = "penstock.toml"', "setting agent.directory"),
        ('[cassandra]\ncdc_raw_directory = "raw"\n[agent.masks]\n"a.b.c" = "hash"', "a hash needs agent.mask_salt"),
        ('[pipeline]\nsinks = ["console"]', "nothing to read"),
        ('[pipeline]\nsinks = ["console"]\nlogs = ["nowhere"]', "no such directory (setting pipeline.logs"),
        ('[pipeline]\nsinks = ["console"]\nlogs = ["penstock.toml"]', "this is no directory"),
        ('[pipeline]\nsinks = ["consol"]\nlogs = ["raw"]', "no such sink"),
        ('[pipeline]\nsinks = ["mine"]\nlogs = ["raw"]\nown_sinks.mine = "no_such_module:Sink"', "no_such_module"),
        ('[pipeline]\nsinks = ["mine"]\nlogs = ["raw"]\nown_sinks.mine = "builtins:int"', "own_sinks.mine"),
        ('[pipeline]\nsinks = ["console"]\nagents = ["node1:8000"]', "begins with https://"),
        ("[log]\ncodek = 1", "unknown setting log.codek"),
    ],
)
def test_what_is_missing_is_said(config: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str) -> None:
    (config.parent / "raw").mkdir()
    config.write_text(text)
    code, said = checked(config, capsys)
    assert code == 1
    assert problem in said


def test_wrong_logs_end_the_pipeline_before_spark_starts(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("Spark is started")

    monkeypatch.setattr("penstock.pipeline.pipeline.spark_session", start)
    config.write_text('[pipeline]\nsinks = ["console"]\nlogs = ["nowhere"]\n')
    assert main(["pipeline", str(config), "--once"]) == 1
    assert "no such directory (setting pipeline.logs" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["agent"], ["pipeline"], ["config", "check"], ["version"]])
def test_a_wrong_log_level_is_one_line(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    config.write_text("")
    monkeypatch.setenv("PENSTOCK_LOG_LEVEL", "loud")
    assert main([*command, *([] if command == ["version"] else [str(config)])]) == 1
    error = capsys.readouterr().err
    assert "one of debug, info, warning, error, critical (variable PENSTOCK_LOG_LEVEL)" in error
    assert "Traceback" not in error


def test_variables_win_over_a_debezium_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "debezium.properties"
    file.write_text(
        "offset.backing.store.dir=state\ntopic.prefix=old\nhttp.port=1\n"
        "kafka.producer.bootstrap.servers=old:9092\nkafka.producer.linger.ms=5\n"
    )
    for name, value in {
        "KAFKA__BOOTSTRAP_SERVERS": "new:9092",
        "KAFKA__PRODUCER": '{"linger.ms": 7}',
        "PIPELINE__NAME": "mine",
        "PIPELINE__SINKS": "console",
        "TRANSFORM__FILTERS": '{"shop.*": "id > 1"}',
        "HTTP__PORT": "2",
    }.items():
        monkeypatch.setenv(f"PENSTOCK_{name}", value)
    settings = load_settings(str(file))
    assert settings.kafka.bootstrap_servers == ("new:9092",)
    assert settings.kafka.producer["linger.ms"].get_secret_value() == "7"
    assert settings.kafka.topic_prefix == "old"
    assert (settings.pipeline.name, settings.pipeline.sinks, settings.http.port) == ("mine", ("console",), 2)
    assert settings.transform.filters == {"shop.*": "id > 1"}
    found = shown(file, capsys)
    assert found["kafka.bootstrap_servers"]["origin"] == "variable PENSTOCK_KAFKA__BOOTSTRAP_SERVERS"
    assert found["http.port"]["origin"] == "variable PENSTOCK_HTTP__PORT"
    assert found["agent.directory"]["origin"] == f"file {file}, line 1, property offset.backing.store.dir"
