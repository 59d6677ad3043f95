"""Javas of this machine: where they are, and which version each of them is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_ASK_S = 60


def javas() -> Iterator[Path]:
    """Every Java that the system has: the one of JAVA_HOME, the one on the path, then all others."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path is not None:
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


@lru_cache(maxsize=64)
def java_major(java: Path) -> int | None:
    """The major version of a Java, or None when it is none."""
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=_ASK_S, check=False)  # noqa: S603 - a Java that was looked for, with one fixed argument
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match.group(1)) if match else None
