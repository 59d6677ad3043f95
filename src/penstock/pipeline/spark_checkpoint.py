"""Spark's own checkpoint: made anew from the pipeline's plans each time that a query starts.

Spark notes how far a batch goes before it begins it (`offsets/N`) and that it is done after it (`commits/N`), and syncs
neither: after a power loss any of these files may be missing, empty or torn, and Spark then refuses to start or begins
elsewhere. So none of them is believed. What counts is the plan of a batch, which holds the text of Spark's `offsets/N`
and is durable before the batch begins, and the state, which is durable before Spark is told that the batch is done. Of
these two, each start makes a directory that says exactly what is true: the last committed batch as done, and behind it
the batch that was begun, if one was, with the same positions as before. Positions of a batch that was not begun are
dropped, and Spark chooses them again.

Each query has a directory of its own, so that the Spark of a driver that has lost its lock cannot get in the way.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

OFFSETS, COMMITS = "offsets", "commits"
# How Spark says that a batch is done: the version of the file, and a watermark, which these queries do not have.
_DONE = 'v1\n{"nextBatchWatermarkMs":0}'
_VERSION = "v1"


def make(directory: Path, name: str, committed: int, offsets: Mapping[int, str]) -> Path:
    """A directory for one query, in the place of all older ones.

    `offsets`: the text of Spark's file for the last committed batch and its neighbours.
    """
    for old in directory.iterdir() if directory.exists() else ():
        if old.is_dir():
            shutil.rmtree(old)
        else:
            old.unlink()
    made = directory / name
    for part in (OFFSETS, COMMITS):
        (made / part).mkdir(parents=True)
    (made / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}), encoding="utf-8")
    for batch, text in offsets.items():
        (made / OFFSETS / str(batch)).write_text(text, encoding="utf-8")
    if committed >= 0:
        (made / COMMITS / str(committed)).write_text(_DONE, encoding="utf-8")
    return made


def read_offsets(directory: Path, batch: int) -> str:
    """What Spark has noted of a batch, whole. Raises ValueError when that cannot be, OSError when there is no file."""
    text = (directory / OFFSETS / str(batch)).read_bytes().decode("utf-8")
    version, *lines = text.split("\n")
    # A line about the batch, and one for the only source: how far the batch goes in each log.
    if version != _VERSION or len(lines) != 2 or not all(isinstance(json.loads(line), dict) for line in lines):
        raise ValueError("not what Spark writes for a query of one source")
    return text


def newest_done(directory: Path) -> int:
    """The last batch that Spark has been told is done, in any query; -1 when there is none."""
    found = [*directory.glob(f"{COMMITS}/*"), *directory.glob(f"*/{COMMITS}/*")]
    return max((int(file.name) for file in found if file.name.isdecimal()), default=-1)
