"""Manifest: which runs make up the key index of a Delta table at one version, and what the next tasks must know.

It stands beside the table, `_penstock/index/manifest-<version>.json`, so that every task reaches it. A manifest is
written before the commit that it belongs to, under a name with a random token that the commit repeats, and gets its
own name afterwards. A crash in between loses nothing: the commit's token says which of the waiting manifests counts.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.deliver.delta.schema import from_delta
from penstock.deliver.lakehouse.evolution import TargetShape
from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.lakehouse.storage import Storage
from penstock.errors import CorruptCheckpoint, UnsupportedFormat
from penstock.log import sealed

DIRECTORY = "_penstock/index"
# The bucket of files and runs whose rows may be of any bucket: another program wrote them.
SHARED = -1
_FORMAT = 1
_BYTES_MAX = 256 << 20
_NAME = re.compile(r"manifest-(\d{20})\.json")


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run of the index: its file, whose rows it is about, and its size."""

    name: str
    bucket: int
    entries: int


@dataclass(slots=True)
class Manifest:
    """The index at one version of the table."""

    # The table's columns as its log has them, and the columns that its files are divided by.
    schema: str
    partition: list[str]
    # The last batch of each pipeline that the version has, as in the table's log.
    transactions: dict[str, int] = field(default_factory=dict)
    # Data files whose rows the index knows, with the bucket that wrote them.
    files: dict[str, int] = field(default_factory=dict)
    # From the oldest to the newest.
    runs: list[RunRef] = field(default_factory=list)
    # Per bucket, the files that its next task writes anew, as actions of the log.
    rewrite: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    version: int = -1
    # What the table has noted of its source, as JSON (source_note.py).
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> TargetShape:
        """The table's columns, and what it has noted of its source."""
        return TargetShape(from_delta(self.schema), SourceNote.from_json(self.source))

    def for_application(self, app: str) -> Manifest:
        """The manifest as an application must see it: what others wrote may be divided into other buckets."""
        if app in self.transactions:
            return self
        runs = [RunRef(run.name, SHARED, run.entries) for run in self.runs]
        return replace(self, runs=runs, files=dict.fromkeys(self.files, SHARED), rewrite={})

    def runs_of(self, bucket: int) -> list[RunRef]:
        """What a bucket's look-ups ask, from the oldest to the newest."""
        return [run for run in self.runs if run.bucket in (bucket, SHARED)]

    def to_bytes(self) -> bytes:
        return sealed.seal(
            {
                "format": _FORMAT,
                "schema": self.schema,
                "partition": self.partition,
                "transactions": self.transactions,
                "files": self.files,
                "runs": [[run.name, run.bucket, run.entries] for run in self.runs],
                "rewrite": {str(bucket): adds for bucket, adds in self.rewrite.items()},
                "source": self.source,
            }
        )


def waiting_name(token: str) -> str:
    return f"{DIRECTORY}/waiting-{token}.json"


def final_name(version: int) -> str:
    return f"{DIRECTORY}/manifest-{version:020d}.json"


def new_token() -> str:
    return uuid.uuid4().hex


def read(storage: Storage, name: str, version: int) -> Manifest:
    """A manifest from its file. Raises CorruptCheckpoint when it is damaged."""
    file = storage.path(name)
    try:
        data = sealed.unseal(storage.read(name), _BYTES_MAX)
        if data["format"] != _FORMAT:
            raise UnsupportedFormat("the manifest of a key index has an unknown version", file=file)
        return Manifest(
            schema=data["schema"],
            partition=data["partition"],
            transactions=data["transactions"],
            files=data["files"],
            runs=[RunRef(*run) for run in data["runs"]],
            rewrite={int(bucket): adds for bucket, adds in data["rewrite"].items()},
            version=version,
            source=data.get("source", {}),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpoint(f"the manifest of a key index is damaged: {error}", file=file) from error


def newest(storage: Storage) -> Manifest | None:
    """The manifest with the greatest version; None when there is none."""
    versions = [int(found[1]) for found in map(_NAME.fullmatch, storage.list(DIRECTORY)) if found is not None]
    return read(storage, final_name(max(versions)), max(versions)) if versions else None


def forget(storage: Storage, keep: Manifest) -> None:
    """Delete manifests, and runs, that the given one has replaced. No task may be running."""
    wanted = {run.name for run in keep.runs} | {final_name(keep.version).rsplit("/", 1)[1]}
    for name in storage.list(DIRECTORY):
        if name not in wanted:
            storage.delete(f"{DIRECTORY}/{name}")
