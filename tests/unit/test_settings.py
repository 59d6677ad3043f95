"""Settings: where values come from, and what is said when one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidSetting
from penstock.settings import Codec, LogSettings, Settings, known_names, load
from scripts import settings_page


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def test_defaults_need_neither_file_nor_environment() -> None:
    assert load(None, {}) == Settings()


def test_environment_wins_over_file_and_file_over_default(file: Path) -> None:
    file.write_text('[log]\ncodec = "snappy"\nindex_bytes = 8192\n')
    settings = load(str(file), {"PENSTOCK_LOG__CODEC": "zstandard"})
    assert settings.log == LogSettings(codec=Codec.ZSTANDARD, index_bytes=8192)


def test_functions_are_named_by_module_and_callable(file: Path) -> None:
    file.write_text('[functions]\nbig = "shop.filters:is_big"\n')
    settings = load(str(file), {"PENSTOCK_FUNCTIONS__SMALL": "shop.filters:is_small"})
    assert settings.functions == {"big": "shop.filters:is_big", "small": "shop.filters:is_small"}


def test_empty_and_foreign_variables_are_left_alone() -> None:
    assert load(None, {"PENSTOCK_LOG__CODEC": "", "PENSTOCK_NATIVE": "0", "LOG__CODEC": "x"}) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[log]\ncodek = "null"', "unknown setting log.codek; did you mean log.codec?"),
        ("[lgo]\nx = 1", "unknown setting lgo; did you mean log?"),
        ('codec = "null"', "unknown setting codec; did you mean log.codec?"),
        ("[retention]\ncodec = 1", "unknown setting retention.codec; did you mean log.codec?"),
        ("[retention]\nzzz = 1", "unknown setting retention.zzz; known here: retention.bytes_max, retention.age_s_max"),
        ("[log]\nfile_bytes_max = 3", "setting log.file_bytes_max: input should be greater than or equal to 4096"),
        ('[log]\ncodec = "gzip"', "setting log.codec: input should be 'null', 'deflate', 'snappy' or 'zstandard'"),
        ('[listener]\ntls_key_file = "k"', "setting listener: tls_certificate_file and tls_key_file go together"),
        ('[functions]\nf = "import os"', "setting functions.f: string should match pattern"),
        ("log = 3", "setting log: input should be a valid dictionary"),
        (f"a = {'[' * 5000}", "settings nest too deeply"),
        (f"{'a.' * 5000}a = 1", "settings nest too deeply"),
        ("\n[log\n", "the settings file is not TOML: Expected ']' at the end of a table declaration (at line 2"),
    ],
)
def test_wrong_setting_is_refused_with_file_and_nearest_name(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(InvalidSetting) as refusal:
        load(str(file), {})
    assert said in str(refusal.value)
    assert refusal.value.place["file"] == str(file)


def test_wrong_variable_is_refused_by_its_own_name(file: Path) -> None:
    file.write_text('[log]\ncodec = "snappy"\n')
    with pytest.raises(InvalidSetting, match=r"did you mean log.codec\? \(variable PENSTOCK_LOG__CODECC\)"):
        load(str(file), {"PENSTOCK_LOG__CODECC": "null"})
    with pytest.raises(InvalidSetting, match=r"setting log.index_bytes: .* \(variable PENSTOCK_LOG__INDEX_BYTES\)"):
        load(str(file), {"PENSTOCK_LOG__INDEX_BYTES": "many"})


def test_refused_value_is_not_shown() -> None:
    with pytest.raises(InvalidSetting) as refusal:
        load(None, {"PENSTOCK_LISTENER__PORT": "hunter2"})
    assert "hunter2" not in str(refusal.value)
    assert "hunter2" not in str(refusal.value.__cause__)


def test_unreadable_files_are_refused_with_their_name(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="No such file or directory"):
        load(str(file), {})
    with pytest.raises(InvalidSetting, match="Is a directory"):
        load(str(tmp_path), {})
    file.write_bytes(b"[log]\n# \xff")
    with pytest.raises(InvalidSetting, match="not UTF-8 text"):
        load(str(file), {})


def test_every_setting_is_on_the_reference_page_and_the_page_is_up_to_date() -> None:
    page = settings_page.PAGE.read_text(encoding="utf-8")
    assert page == settings_page.page(), "run `make docs`"
    for name in known_names():
        assert f"`{name.rsplit('.', 1)[-1]}`" in page


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("bytes_max", "10GiB", 10 << 30),
        ("bytes_max", "64k", 64 << 10),
        ("bytes_max", "1.5 MiB", 3 << 19),
        ("bytes_max", "5MB", 5_000_000),
        ("bytes_max", "4096", 4096),
        ("bytes_max", "none", None),
        ("keep_s", "7d", 604_800),
        ("keep_s", "90m", 5400),
        ("every_s", "250ms", 0.25),
        ("disk_share_max", "0.25", 0.25),
        ("disk_share_max", "none", None),
        ("age_s_max", "off", None),
    ],
)
def test_sizes_and_times_have_units(file: Path, name: str, text: str, value: object) -> None:
    file.write_text(f'[retention]\n{name} = "{text}"\n')
    assert getattr(load(str(file), {}).retention, name) == value
    assert getattr(load(None, {f"PENSTOCK_RETENTION__{name.upper()}": text}).retention, name) == value


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("bytes_max", "10 parsecs", "unknown unit; write a size as 10GiB"),
        ("keep_s", "5 GiB", "unknown unit; write a time as"),
        ("keep_s", "1ms", "setting retention.keep_s"),
        ("keep_s", "none", "setting retention.keep_s"),
        ("bytes_max", "-1GiB", "setting retention.bytes_max"),
    ],
)
def test_wrong_units_are_refused(file: Path, name: str, text: str, reason: str) -> None:
    file.write_text(f'[retention]\n{name} = "{text}"\n')
    with pytest.raises(InvalidSetting, match=reason):
        load(str(file), {})


def test_units_are_known_in_every_section() -> None:
    found = load(
        None,
        {
            "PENSTOCK_PIPELINE__BYTES_PER_BATCH": "64MiB",
            "PENSTOCK_DELTA__VACUUM_RETENTION_HOURS": "7d",
            "PENSTOCK_HTTP__REQUEST_S": "1m",
            "PENSTOCK_KAFKA__QUEUE_BYTES_MAX": "2MiB",
        },
    )
    assert (found.pipeline.bytes_per_batch, found.delta.vacuum_retention_hours) == (64 << 20, 168)
    assert (found.http.request_s, found.kafka.queue_bytes_max) == (60, 2 << 20)


PASSED_ON = [
    ("agent", "transfer_options"),
    ("kafka", "topic_settings"),
    ("pipeline", "spark"),
    ("search", "index_settings"),
    ("delta", "properties"),
    ("iceberg", "properties"),
    ("iceberg", "catalog_properties"),
]


@pytest.mark.parametrize(("section", "name"), PASSED_ON)
def test_tables_that_are_handed_on_take_points_and_numbers(file: Path, section: str, name: str) -> None:
    file.write_text(f"[{section}.{name}]\na.b.c = 1\nd.e = true\n'f.g' = 'x'\nh = 2.5\n")
    expected = {"a.b.c": "1", "d.e": "true", "f.g": "x", "h": "2.5"}
    assert getattr(getattr(load(str(file), {}), section), name) == expected
    variable = f"PENSTOCK_{section}__{name}".upper()
    as_json = '{"a.b.c": 1, "d": {"e": true}, "f.g": "x", "h": 2.5}'
    assert getattr(getattr(load(None, {variable: as_json}), section), name) == expected
    for wrong in ("a=1", "[1]", "{"):
        with pytest.raises(InvalidSetting, match=rf"table as JSON was expected \(variable {variable}\)"):
            load(None, {variable: wrong})


def test_tables_by_pattern_take_points_and_come_from_the_environment(file: Path) -> None:
    file.write_text(
        '[transform]\nfilters.shop.orders = "id > 1"\n[delta]\npartition_by.shop.orders = ["day"]\n'
        "[pipeline.own_sink_options.mine]\nbatch.size = 5\n"
    )
    found = load(str(file), {"PENSTOCK_CASSANDRA__TABLES": '{"shop.*": {"data_centres": ["dc1"]}}'})
    assert found.transform.filters == {"shop.orders": "id > 1"}
    assert found.delta.partition_by == {"shop.orders": ("day",)}
    assert found.pipeline.own_sink_options == {"mine": {"batch.size": "5"}}
    assert list(found.cassandra.tables) == ["shop.*"]


def test_a_list_from_the_environment_may_be_json() -> None:
    found = load(None, {"PENSTOCK_PIPELINE__LOGS": '["a,b", "c"]', "PENSTOCK_PIPELINE__SINKS": "kafka, delta"})
    assert (found.pipeline.logs, found.pipeline.sinks) == (("a,b", "c"), ("kafka", "delta"))
