"""Jars through Maven: the dependencies of a pom, copied into a directory once, and again when the pom changes.

Two processes that want the same jars wait for each other. What Maven complains about becomes one line of an error.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from penstock.errors import ServerFailed, ToolMissing

_FETCH_S = 900
_COMPLAINT_CHARS = 500
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def fetch(pom: str | Path, place: Path, what: str, note: Callable[[str], None] = lambda _: None) -> Path:
    """The directory with the jars of a pom, which is given as a file or as its text."""
    text = pom.read_text(encoding="utf-8") if isinstance(pom, Path) else pom
    jars, stamp = place / "lib", place / "pom.xml"
    if _has(stamp, text):
        return jars
    if shutil.which("mvn") is None:
        raise ToolMissing(f"Maven is not here, and it fetches {what}; install it, for example with: apt install maven")
    place.mkdir(parents=True, exist_ok=True)
    with (place / "fetch.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _has(stamp, text):
            return jars
        note(f"fetching {what} with mvn into {place}, once")
        shutil.rmtree(jars, ignore_errors=True)
        wanted = place / "wanted.xml"
        wanted.write_text(text, encoding="utf-8")
        command = ["mvn", "-B", "-q", "-f", str(wanted), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        _run([*command, f"-DoutputDirectory={jars}"], what)
        # The stamp comes last: it says that all jars are there.
        wanted.replace(stamp)
    return jars


def _has(stamp: Path, text: str) -> bool:
    return stamp.exists() and stamp.read_text(encoding="utf-8") == text


def _run(command: list[str], what: str) -> None:
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
        raise ServerFailed(f"Maven could not fetch {what}: no end within {_FETCH_S} s") from error
    if done.returncode:
        lines = [line for line in _COLOUR.sub("", done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line]
        complaint = (errors[:1] or lines[-1:] or ["it said nothing"])[0].strip()[:_COMPLAINT_CHARS]
        raise ServerFailed(f"Maven could not fetch {what}: {complaint}")
