"""An address of a store is never taken for a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.errors import InvalidInput, InvalidSetting
from penstock.log.table_log import TableLog
from penstock.pipeline.source.options import parse
from penstock.settings import Settings, build
from penstock.settings.section import Section
from penstock.system.addresses import refusal
from tests.numbered import SCHEMA

ADDRESSES = [
    *("s3://bucket/lake", "s3a://b/l", "gs://b/l", "abfss://c@account/l", "hdfs://host:8020/l", "file:///l", "s3:/b"),
]


def path_settings() -> list[tuple[str, str]]:
    """Every setting that is a path, as section and field."""
    found = []
    for section, group in Settings.model_fields.items():
        if isinstance(group.annotation, type) and issubclass(group.annotation, Section):
            fields = group.annotation.model_fields.items()
            found += [(section, name) for name, field in fields if "Path" in str(field.annotation)]
    return found


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_are_told_from_paths(address: str) -> None:
    assert refusal(address) is not None
    assert refusal(str(Path(address))) is not None


@pytest.mark.parametrize("path", ["/data/lake", "lake", "./s3:/x", "a:b", "C:", "", "/s3://x"])
def test_paths_are_paths(path: str) -> None:
    assert refusal(path) is None


@pytest.mark.parametrize(("section", "field"), [one for one in path_settings() if one[1] != "path"])
def test_every_path_of_the_settings_refuses_an_address(section: str, field: str) -> None:
    given: dict[str, Any] = {section: {field: "s3://bucket/lake"}}
    with pytest.raises(InvalidSetting, match=rf"{section}.{field}: s3://"):
        build(given, {})


def test_there_are_paths_to_refuse() -> None:
    assert ("delta", "directory") in path_settings()
    assert ("pipeline", "checkpoint_directory") in path_settings()


def test_logs_and_directories_elsewhere_refuse_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSetting, match=r"pipeline\.logs"):
        build({"pipeline": {"logs": ["s3://bucket/logs"]}}, {})
    with pytest.raises(InvalidSetting, match="s3://"):
        parse({"path": "s3://bucket/logs"})
    with pytest.raises(InvalidInput, match="s3://"):
        TableLog.open("s3://bucket/logs", SCHEMA)
    for command in (["log", "ls"], ["listen"], ["demo", "--dir"]):
        assert main([*command, "s3://bucket/logs"]) != 0
    assert "s3://" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
