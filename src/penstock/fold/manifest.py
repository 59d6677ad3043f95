"""Manifests: which run files make up the state after a batch.

A manifest is one line of JSON and a line with its checksum (docs/formats/pipeline-state.md). It is written under
another name and linked to its own, so it is there as a whole or not at all, and no other driver's takes its place; a
batch that has a manifest is done.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.errors import CorruptCheckpoint
from penstock.fold.state_file import RunId
from penstock.system import json_text, written_once
from penstock.system.checksum import crc32
from penstock.system.files import OsFiles, make_durable_directory

FORMAT = 1
_NAME = re.compile(r"manifest-(-?\d{11,12})\.json")


@dataclass(frozen=True, slots=True)
class BucketRuns:
    """One bucket: its runs, oldest first; up to which second expiries were delivered, and when the next one is due."""

    runs: tuple[RunId, ...] = ()
    expired_to: int = 0
    due_s: int = 0

    def to_json(self) -> dict[str, Any]:
        runs = [run.to_json() for run in self.runs]
        return {"runs": runs, "expired_to": self.expired_to, "due_s": self.due_s}

    @staticmethod
    def from_json(data: dict[str, Any]) -> BucketRuns:
        runs = tuple(RunId.from_json(run) for run in data["runs"])
        return BucketRuns(runs, int(data["expired_to"]), int(data["due_s"]))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state after one batch."""

    batch: int
    buckets: int
    state: dict[int, BucketRuns]

    def runs(self) -> list[RunId]:
        return [run for bucket in self.state.values() for run in bucket.runs]


def path(directory: str, batch: int) -> str:
    return os.path.join(directory, f"manifest-{batch:012d}.json")


def batches(directory: str) -> list[int]:
    """The batches that have a manifest, in order."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def before(directory: str, batch: int) -> Manifest | None:
    """The manifest that a batch starts from."""
    older = [known for known in batches(directory) if known < batch]
    return read(directory, older[-1]) if older else None


def read(directory: str, batch: int) -> Manifest:
    """Raises CorruptCheckpoint when it is not what was written."""
    place = path(directory, batch)
    try:
        with open(place, "rb") as file:
            content = file.read()
        body, _, crc = content.rstrip(b"\n").rpartition(b"\n")
        if int(crc, 16) != crc32(body):
            raise ValueError("its checksum does not match")
        data = json_text.parse(body)
        if data["format"] != FORMAT:
            raise ValueError("it is of another format")
        state = {int(bucket): BucketRuns.from_json(one) for bucket, one in data["state"].items()}
        return Manifest(int(data["batch"]), int(data["buckets"]), state)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptCheckpoint(f"a manifest of the state cannot be read: {error}", file=place) from error


@lru_cache
def _make_directory(directory: str) -> None:
    """Once in a process: all directories above are synced, which takes longer than a manifest does."""
    make_durable_directory(OsFiles(), directory)


def write(directory: str, manifest: Manifest) -> bool:
    """Make it durable, and then visible; False, and nothing done, when the batch has a manifest already."""
    _make_directory(directory)
    name = os.path.basename(path(directory, manifest.batch))
    return written_once.write(directory, name, text(manifest))


def text(manifest: Manifest) -> bytes:
    """A manifest as it stands in its file."""
    state = {str(bucket): manifest.state[bucket].to_json() for bucket in sorted(manifest.state)}
    data = {"format": FORMAT, "batch": manifest.batch, "buckets": manifest.buckets, "state": state}
    body = json.dumps(data, separators=(",", ":")).encode()
    return body + b"\n%08x\n" % crc32(body)
