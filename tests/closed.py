"""Who else may get at files: what is below a directory, judged by nothing but its modes."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def open_to(who: int, *roots: Path) -> dict[str, str]:
    """Everything at and below `roots` with any of the permissions `who`, as 0o077 for all others, with its mode."""
    found = {}
    for root in roots:
        inside = (Path(where, name) for where, parts, files in os.walk(root) for name in (*parts, *files))
        for path in (root, *inside):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                # Somebody removes what is temporary just now: nobody gets at it any more.
                continue
            if not stat.S_ISLNK(mode) and mode & who:
                found[str(path)] = f"{stat.S_IMODE(mode):04o}"
    return found


def readable_by_group(root: Path) -> list[Path]:
    """The files below `root` that a user of its group comes to: all directories on the way let him through."""
    found = []
    for where, parts, files in os.walk(root):
        parts[:] = [name for name in parts if Path(where, name).stat().st_mode & 0o050 == 0o050]
        found += [Path(where, name) for name in files if Path(where, name).stat().st_mode & 0o040]
    return found if root.stat().st_mode & 0o050 == 0o050 else []
