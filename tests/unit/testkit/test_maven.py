"""Jars are fetched once, again when the pom changes, and a failure is told in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import ServerFailed, ToolMissing
from testkit import maven

# Counts its calls, and makes a jar where it is told to; or complains as Maven does.
SCRIPT = """#!/bin/sh
echo call >> "$MAVEN_CALLS"
if [ -n "$MAVEN_FAILS" ]; then
    printf '[INFO] Scanning\\n\\033[31m[ERROR] no such jar\\033[0m\\n[ERROR] more\\n'
    exit 1
fi
for word; do
    case $word in -DoutputDirectory=*) mkdir -p "${word#*=}" && touch "${word#*=}/a.jar" ;; esac
done
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "mvn").write_text(SCRIPT)
    (programs / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("MAVEN_CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_jars_are_fetched_once(tmp_path: Path, calls: Path) -> None:
    notes: list[str] = []
    for _ in range(3):
        jars = maven.fetch("<project/>", tmp_path / "place", "the jars", notes.append)
    assert [path.name for path in jars.iterdir()] == ["a.jar"]
    assert len(calls.read_text().splitlines()) == len(notes) == 1


def test_another_pom_fetches_again(tmp_path: Path, calls: Path) -> None:
    file = tmp_path / "pom.xml"
    for text in ("<project/>", "<project>2</project>"):
        file.write_text(text)
        jars = maven.fetch(file, tmp_path / "place", "the jars")
    assert (jars / "a.jar").exists()
    assert len(calls.read_text().splitlines()) == 2


def test_a_failure_is_told_and_tried_again(tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAVEN_FAILS", "1")
    with pytest.raises(ServerFailed, match=r"could not fetch the jars: \[ERROR\] no such jar$"):
        maven.fetch("<project/>", tmp_path / "place", "the jars")
    monkeypatch.delenv("MAVEN_FAILS")
    maven.fetch("<project/>", tmp_path / "place", "the jars")
    assert len(calls.read_text().splitlines()) == 2


def test_a_machine_without_maven_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="install it"):
        maven.fetch("<project/>", tmp_path / "place", "the jars")
