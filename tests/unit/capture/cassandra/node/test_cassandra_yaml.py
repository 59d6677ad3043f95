"""The node's cassandra.yaml, in every version's spelling, and what the settings may say beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.capture.cassandra.node import cassandra_yaml
from penstock.capture.cassandra.node.cassandra_yaml import CassandraYaml, KeyStoreFacts
from penstock.errors import InvalidSetting
from penstock.settings import CassandraSettings

OLD = """
cdc_enabled: true
cdc_raw_directory: {0}
commitlog_directory: {0}/commitlog
cdc_total_space_in_mb: 512
commitlog_sync_period_in_ms: 10000
commitlog_segment_size_in_mb: 32
native_transport_port: 9043
rpc_address: 10.0.0.1
cluster_name: 'Test Cluster'
"""
NEW = """
cdc_enabled: true
cdc_raw_directory: {0}
commitlog_directory: {0}/commitlog
cdc_total_space: 512MiB
cdc_block_writes: false
commitlog_sync_period: 10s
commitlog_segment_size: 32MiB
native_transport_port: 9043
rpc_address: 10.0.0.1
cluster_name: Test Cluster
"""


def load(tmp_path: Path, text: str) -> CassandraYaml:
    file = tmp_path / "cassandra.yaml"
    file.write_text(text.format(tmp_path))
    return cassandra_yaml.load(str(file))


@pytest.mark.parametrize(("text", "blocks"), [(OLD, True), (NEW, False)])
def test_both_spellings_say_the_same(tmp_path: Path, text: str, blocks: bool) -> None:
    node = load(tmp_path, text)
    assert node.cdc_total_space_bytes == 512 << 20
    assert node.sync_period_s == 10.0
    assert node.segment_bytes == 32 << 20
    assert (node.native_transport_port, node.rpc_address, node.cluster_name) == (9043, "10.0.0.1", "Test Cluster")
    assert node.cdc_block_writes is blocks
    found = cassandra_yaml.node_directories(CassandraSettings(), node)
    assert (found.cdc_raw, found.commitlog) == (str(tmp_path), f"{tmp_path}/commitlog")
    assert found.cdc_total_space_bytes == 512 << 20


@pytest.mark.parametrize(
    ("value", "size"), [("1GiB", 1 << 30), ("4096", 4096 << 20), ("10 KiB", 10 << 10), ("7B", 7), ("0MiB", None)]
)
def test_sizes_have_units(tmp_path: Path, value: str, size: int | None) -> None:
    assert load(tmp_path, f"cdc_total_space: {value}\n").cdc_total_space_bytes == size


def test_limit_that_nobody_set_is_cassandras_own(tmp_path: Path) -> None:
    node = load(tmp_path, "cdc_enabled: true\ncdc_raw_directory: {0}\n")
    limit = cassandra_yaml.node_directories(CassandraSettings(), node).cdc_total_space_bytes
    assert 0 < limit <= 4096 << 20


def test_node_with_cdc_off_is_refused_with_what_to_do(tmp_path: Path) -> None:
    node = load(tmp_path, "cdc_raw_directory: {0}\n")
    with pytest.raises(InvalidSetting, match="set `cdc_enabled: true` and restart Cassandra"):
        cassandra_yaml.node_directories(CassandraSettings(), node)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("cdc_raw_directory", "/elsewhere", "cassandra.cdc_raw_directory is /elsewhere"),
        ("commitlog_directory", "/elsewhere", "cassandra.commitlog_directory is /elsewhere"),
        ("cdc_total_space_bytes", 1 << 20, "cassandra.cdc_total_space_bytes is 1048576"),
        ("cluster", "other", "cassandra.cluster is other"),
        ("port", 9042, "cassandra.port is 9042"),
    ],
)
def test_settings_that_contradict_the_node_are_refused(tmp_path: Path, setting: str, value: Any, said: str) -> None:
    node = load(tmp_path, NEW)
    with pytest.raises(InvalidSetting, match=f"{said}, but the node's cassandra.yaml says"):
        cassandra_yaml.node_directories(CassandraSettings.model_validate({setting: value}), node)


def test_settings_that_agree_are_no_contradiction(tmp_path: Path) -> None:
    node = load(tmp_path, NEW)
    (tmp_path / "link").symlink_to(tmp_path)
    given = {"cdc_raw_directory": tmp_path / "link", "port": 9043, "cluster": "Test Cluster"}
    found = cassandra_yaml.node_directories(CassandraSettings.model_validate(given), node)
    assert found.cdc_raw == str(tmp_path / "link")


def test_directory_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="where is cdc_raw"):
        cassandra_yaml.node_directories(CassandraSettings(), None)
    with pytest.raises(InvalidSetting, match="cdc_raw is not a directory"):
        cassandra_yaml.node_directories(CassandraSettings(cdc_raw_directory=tmp_path / "none"), None)
    settings = CassandraSettings(cdc_raw_directory=tmp_path, follow_commitlog=True)
    with pytest.raises(InvalidSetting, match="follow_commitlog needs"):
        cassandra_yaml.node_directories(settings, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cdc_enabled: maybe\n", "cdc_enabled of cassandra.yaml is neither true nor false"),
        ("cdc_total_space: lots\n", "cdc_total_space of cassandra.yaml is no quantity"),
        ("commitlog_sync_period: 3 weeks\n", "commitlog_sync_period of cassandra.yaml is no quantity"),
        ("cdc_raw_directory: [a]\n", "cdc_raw_directory of cassandra.yaml is no text"),
        ("native_transport_port: x\n", "native_transport_port of cassandra.yaml is no number"),
        ("- a\n- b\n", "holds no settings"),
        ("a: [\n", "is not YAML"),
        ("transparent_data_encryption_options: {{enabled: true}}\n", "name no keystore"),
    ],
)
def test_what_cannot_be_understood_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        load(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 {{k: 1}}\n" + "".join(f"a{n}: &a{n} {{{{<<: [*a{n - 1}, *a{n - 1}]}}}}\n" for n in range(1, 40)),
        f"cdc_total_space: 1{':59' * 1000}",
        f"cdc_total_space: {'9' * 5000}",
        f"a: {'[' * 200}",
        "a: 2026-99-99",
    ],
    ids=["merges", "base of 60", "digits", "brackets", "no date"],
)
def test_what_would_cost_more_than_its_length_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"cassandra\.yaml is not YAML"):
        load(tmp_path, text)


def test_lists_of_lists_are_no_quantities(tmp_path: Path) -> None:
    doubled = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    with pytest.raises(InvalidSetting, match="is no quantity"):
        load(tmp_path, f"{doubled}cdc_total_space: *a39\n")


def test_a_file_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="more than 1048576 bytes"):
        load(tmp_path, "#" * (1 << 20) + "\n")


def test_unreadable_file_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match=r"cannot read cassandra\.yaml: No such file"):
        cassandra_yaml.load(str(tmp_path / "none.yaml"))
    (tmp_path / "cassandra.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match="not UTF-8"):
        cassandra_yaml.load(str(tmp_path / "cassandra.yaml"))


def test_key_store_is_found_where_the_node_has_it(tmp_path: Path) -> None:
    text = """
transparent_data_encryption_options:
    enabled: true
    cipher: AES/CBC/PKCS5Padding
    key_alias: testing:1
    key_provider:
      - class_name: org.apache.cassandra.security.JKSKeyProvider
        parameters:
          - keystore: conf/.keystore
            keystore_password: cassandra
            store_type: JCEKS
            key_password: other
"""
    assert load(tmp_path, text).key_store == KeyStoreFacts("conf/.keystore", "cassandra", "JCEKS", "other")
    assert load(tmp_path, text.replace("enabled: true", "enabled: false")).key_store is None


def test_node_is_its_own_contact_point(tmp_path: Path) -> None:
    node = load(tmp_path, NEW)
    found = cassandra_yaml.contact_points(CassandraSettings(), node)
    assert (found.contact_points, found.port) == (("10.0.0.1",), 9043)
    given = CassandraSettings(contact_points=("a",), port=1)
    assert cassandra_yaml.contact_points(given, node) is given
    anywhere = load(tmp_path, "rpc_address: 0.0.0.0\n")
    assert cassandra_yaml.contact_points(CassandraSettings(), anywhere).contact_points == ("127.0.0.1",)
