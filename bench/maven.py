"""Jars through Maven: the dependencies of a pom file, copied into a directory once and again when the file changes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.harness import say


def fetch(pom: Path, place: Path, what: str) -> Path:
    """The directory with the jars."""
    jars, stamp = place / "lib", place / "pom.xml"
    if not stamp.exists() or stamp.read_bytes() != pom.read_bytes():
        say(f"fetching {what} with mvn …")
        shutil.rmtree(jars, ignore_errors=True)
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        subprocess.run([*command, f"-DoutputDirectory={jars}", "-DincludeScope=runtime"], check=True)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(pom, stamp)
    return jars
