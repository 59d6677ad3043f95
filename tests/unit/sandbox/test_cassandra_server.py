"""A node's files, options and end, with a program in Java's place that says what it was told to do."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import yaml

from penstock.errors import ServerFailed
from penstock.sandbox.cassandra_server import CassandraServer, free_address
from penstock.system.java import java_major

# Answers like Java when it is asked for its version, and else does what the test wants.
JAVA = """\
#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{major}.0.1" 2025-01-01' >&2; exit 0; fi
printf '%s\\n' "$@" > {told}
{does}
"""
LISTEN = """exec python3 -c 'import signal, socket, sys
{prelude}
server = socket.create_server(("{address}", 9042))
signal.pause()'"""


def server(
    tmp_path: Path,
    does: str,
    version: str = "5.0.9",
    major: int = 17,
    settings: dict[str, object] | None = None,
    address: str | None = None,
) -> CassandraServer:
    library = tmp_path / "cache" / f"cassandra-{version}" / "lib"
    library.mkdir(parents=True)
    (library / "jamm-0.4.0.jar").touch()
    java = tmp_path / "java"
    java.write_text(JAVA.format(major=major, told=tmp_path / "told", does=does))
    java.chmod(0o755)
    java_major.cache_clear()
    return CassandraServer(
        version, tmp_path / "node", cache=tmp_path / "cache", java=java, settings=settings, address=address
    )


def told(tmp_path: Path) -> list[str]:
    return (tmp_path / "told").read_text().splitlines()


def test_settings_are_added_replaced_and_taken_out(tmp_path: Path) -> None:
    node = server(tmp_path, "exit 1", settings={"cdc_total_space": "64MiB", "commitlog_sync_period": None, "new": [1]})
    with pytest.raises(ServerFailed):
        node.start()
    written = yaml.safe_load(node.yaml.read_text())
    assert written["cdc_total_space"] == "64MiB"
    assert written["new"] == [1]
    assert "commitlog_sync_period" not in written
    assert written["cdc_enabled"] is True
    assert written["cdc_raw_directory"] == str(node.cdc_raw)
    assert written["listen_address"] == written["rpc_address"] == node.address


@pytest.mark.parametrize(
    ("version", "named"),
    [("3.11.19", "cdc_total_space_in_mb"), ("4.0.19", "cdc_total_space_in_mb"), ("4.1.10", "cdc_total_space")],
)
def test_settings_have_the_names_of_the_version(tmp_path: Path, version: str, named: str) -> None:
    node = server(tmp_path, "exit 1", version)
    with pytest.raises(ServerFailed):
        node.start()
    written = yaml.safe_load(node.yaml.read_text())
    assert named in written
    assert ("start_rpc" in written) == (version == "3.11.19")


@pytest.mark.parametrize(
    ("major", "opened", "manager"), [(8, False, False), (11, True, False), (17, True, True)], ids=str
)
def test_options_fit_the_java(tmp_path: Path, major: int, opened: bool, manager: bool) -> None:
    node = server(tmp_path, "exit 1", major=major)
    with pytest.raises(ServerFailed):
        node.start()
    options = told(tmp_path)
    assert any(option.startswith("--add-opens") for option in options) == opened
    assert ("-Djava.security.manager=allow" in options) == manager
    assert options[-1] == "org.apache.cassandra.service.CassandraDaemon"


def test_node_that_ends_shows_the_end_of_its_log(tmp_path: Path) -> None:
    node = server(tmp_path, "echo 'the reason' >> system.log; exit 3")
    with pytest.raises(ServerFailed, match=r"ended with 3: …the reason"):
        node.start()
    assert not node.running


def test_node_that_says_nothing_shows_its_output(tmp_path: Path) -> None:
    node = server(tmp_path, "echo 'no such option'; exit 1")
    with pytest.raises(ServerFailed, match="no such option"):
        node.start()


def test_node_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    node = server(tmp_path, "exec sleep 600")
    node.start(wait=False)
    pid = node.pid
    assert pid is not None
    with pytest.raises(ServerFailed, match="did not answer within 0 s"):
        node.ready(within_s=0.3)
    node.kill()
    assert not os.path.exists(f"/proc/{pid}")


def test_node_that_answers_is_started_again_on_the_same_files(tmp_path: Path) -> None:
    address = free_address()
    node = server(tmp_path, LISTEN.format(prelude="", address=address), address=address)
    with node:
        first = node.pid
        (node.commitlog / "kept").touch()
        node.restart(kill=True)
        assert node.pid != first
        assert (node.commitlog / "kept").exists()
    assert not node.running
    with socket.socket() as probe:
        assert probe.connect_ex((address, 9042)) != 0
    node.remove()
    assert not node.directory.exists()


def test_nodetool_that_fails_says_why(tmp_path: Path) -> None:
    node = server(tmp_path, "echo 'nodetool: Unknown command'; exit 1")
    (tmp_path / "node" / "conf").mkdir(parents=True)
    with pytest.raises(ServerFailed, match=r"nodetool fluhs failed: nodetool: Unknown command"):
        node.nodetool("fluhs")
    assert told(tmp_path)[-1] == "fluhs"


def test_every_address_is_another_one() -> None:
    assert len({free_address() for _ in range(20)}) == 20
