"""A node that does not come up says why; one that does is ended by its id. Real nodes are in the integration tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ServerFailed, ToolMissing
from testkit import maven
from testkit.opensearch_server import PRODUCT, OpenSearchServer
from testkit.search_server import Product


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for programs that stand in for Java's."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    return place


def program(place: Path, name: str, text: str) -> None:
    (place / name).write_text(f"#!/bin/sh\n{text}\n")
    (place / name).chmod(0o755)


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(maven, "fetch", lambda *_: tmp_path / "lib")
    return tmp_path / "cache"


def test_the_class_is_compiled_once(programs: Path, jars: Path, tmp_path: Path) -> None:
    out = tmp_path / "calls"
    program(
        programs, "javac", f'echo call >> {out}\nwhile [ "$1" != -d ]; do shift; done\ntouch "$2/OpenSearchNode.class"'
    )
    paths = {PRODUCT.prepare(jars) for _ in range(3)}
    (path,) = paths
    classes = Path(path.split(":")[0])
    assert {file.name for file in classes.iterdir()} == {"OpenSearchNode.class", "OpenSearchNode.java"}
    assert out.read_text() == "call\n"
    assert list(classes.parent.iterdir()) == [classes]
    # Another source is another class.
    replace(PRODUCT, sources=("ElasticsearchNode.java",)).prepare(jars)
    assert out.read_text() == "call\n" * 2


def test_a_compiler_that_refuses_is_quoted(programs: Path, jars: Path) -> None:
    program(programs, "javac", "echo 'OpenSearchNode.java:9: error: no such class' >&2; exit 1")
    with pytest.raises(ServerFailed, match="error: no such class"):
        PRODUCT.prepare(jars)


def test_a_machine_without_a_compiler_is_told_so(jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="openjdk-17-jdk-headless"):
        PRODUCT.prepare(jars)


def test_a_node_that_ends_is_quoted(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Product, "prepare", lambda *_: "path")
    program(programs, "java", "echo 'no room for a heap'; exit 3")
    server = OpenSearchServer(tmp_path / "node", cache=tmp_path)
    with pytest.raises(ServerFailed, match="ended with 3: …no room for a heap"):
        server.start()
    assert not server.running
    assert server.pid is None


def test_a_node_that_never_answers_is_ended(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Product, "prepare", lambda *_: "path")
    program(programs, "java", "exec sleep 600")
    server = OpenSearchServer(tmp_path / "node", cache=tmp_path)
    server.start(wait=False)
    assert server.running
    with pytest.raises(ServerFailed, match="did not answer within 0 s: it said nothing"):
        server.ready(within_s=0)
    server.stop()
    assert not server.running
