"""The transaction log of a Delta table: what the table is at a version, and the next commit.

The log is read as Delta's protocol says: the last checkpoint, then the commits after it. A commit is one JSON file that
is put where there is none yet; whoever comes second sees that and looks at what the other one did. Only what is known
here is touched: a table with features that are not in `_FEATURES` is refused rather than damaged.
"""

from __future__ import annotations

import json
import os
import re
import urllib.parse
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import structlog

from penstock.deliver.lakehouse.storage import Storage
from penstock.errors import CorruptData, UnsupportedFormat
from penstock.system import json_text

log = structlog.get_logger()

DIRECTORY = "_delta_log"
VECTORS = "deletionVectors"
# Says to readers which checkpoint is the last.
_LAST = "_last_checkpoint"
# Of these, delta-rs lists some for every table that it makes.
_FEATURES = {VECTORS, "timestampNtz", "typeWidening", "variantType", "appendOnly", "invariants", "domainMetadata"}
# Members of actions that are maps.
_MAPS = {"partitionValues", "configuration", "options", "tags"}
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
Action = dict[str, Any]


class DeltaLog:
    """A table's state after the last commit that was read. `version` is -1 while there is no table."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.version = -1
        self.protocol: Action = {}
        self.metadata: Action = {}
        # By path as it stands in the log; removals by path and deletion vector.
        self.adds: dict[str, Action] = {}
        self.removes: dict[tuple[str, str], Action] = {}
        self.transactions: dict[str, int] = {}

    def refresh(self) -> list[Action]:
        """Read what is new; the `commitInfo` of each commit that was read, with its version."""
        if self.version < 0:
            self._start()
        infos = []
        while True:
            try:
                content = self._storage.read(commit_path(self.version + 1))
            except FileNotFoundError:
                break
            infos.append(self._apply_commit(content))
        return infos

    def commit(self, actions: Sequence[Action]) -> bool:
        """Make the actions the next version; False, and nothing done, when someone else has made one."""
        content = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()
        if not self._storage.write_if_absent(commit_path(self.version + 1), content):
            return False
        self._apply_commit(content)
        return True

    def needed(self) -> list[str]:
        """The files of the log that say what the table is at this version: a checkpoint, and the commits after it."""
        names = self._storage.list(DIRECTORY)
        whole = _checkpoints(names)
        base = max((version for version in whole if version <= self.version), default=-1)
        commits = [
            name for name in names if (found := _COMMIT.fullmatch(name)) and base < int(found[1]) <= self.version
        ]
        return [*whole.get(base, ()), *commits]

    def put_checkpoint(self, directory: str) -> None:
        """Take over a checkpoint of this version, as another program has made it elsewhere."""
        for name in os.listdir(directory):
            found = _CHECKPOINT.fullmatch(name)
            if found is not None and int(found[1]) == self.version:
                self._storage.write_if_absent(f"{DIRECTORY}/{name}", Path(directory, name).read_bytes())
        pointer = f"{DIRECTORY}/{_LAST}.{uuid.uuid4().hex}.tmp"
        self._storage.write(pointer, Path(directory, _LAST).read_bytes())
        self._storage.rename(pointer, f"{DIRECTORY}/{_LAST}")

    def check_supported(self, table: object) -> None:
        """Raise when the table has features that writing without knowing them would break."""
        writer = int(self.protocol.get("minWriterVersion", 1))
        listed = set(self.protocol.get("writerFeatures") or ()) | set(self.protocol.get("readerFeatures") or ())
        unknown = listed - _FEATURES
        # Versions below 7 name no features; from 3 on they mean constraints, change feed, column mapping and so on.
        if writer > 7 or unknown or 2 < writer < 7:
            what = ", ".join(sorted(unknown)) or f"writer version {writer}"
            raise UnsupportedFormat(f"the table uses what is not known here: {what}", table=table)
        settings = self.metadata.get("configuration") or {}
        if settings.get("delta.appendOnly") == "true" or settings.get("delta.enableChangeDataFeed") == "true":
            raise UnsupportedFormat("the table is append-only or keeps a change data feed of its own", table=table)
        if "delta.invariants" in self.metadata.get("schemaString", ""):
            raise UnsupportedFormat("the table has invariants, which are not checked here", table=table)

    @property
    def has_vectors(self) -> bool:
        return VECTORS in (self.protocol.get("writerFeatures") or ())

    def _start(self) -> None:
        """Begin with the last checkpoint that is whole, if there is any."""
        names = self._storage.list(DIRECTORY)
        whole = _checkpoints(names)
        for version in sorted(whole, reverse=True):
            try:
                self._load_checkpoint(version, whole[version])
                return
            except (pa.ArrowException, OSError) as error:
                # One that a program did not sync before the power went. It repeats what the commits say.
                log.warning("checkpoint of a table's log passed over", files=whole[version], error=str(error))
        commits = [int(found[1]) for found in map(_COMMIT.fullmatch, names) if found is not None]
        if commits and min(commits) > 0:
            raise CorruptData(
                "the table's log lacks its beginning and has no checkpoint", directory=self._storage.directory
            )

    def _load_checkpoint(self, version: int, names: Iterable[str]) -> None:
        rows = [row for name in names for row in pq.read_table(self._storage.path(f"{DIRECTORY}/{name}")).to_pylist()]
        for row in rows:
            self._apply({kind: _plain(value) for kind, value in row.items() if value is not None})
        self.version = version

    def _apply_commit(self, content: bytes) -> Action:
        info: Action = {}
        try:
            for line in content.splitlines():
                action = json_text.parse(line) if line.strip() else {}
                info = action.get("commitInfo", info)
                self._apply(action)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptData(
                "a commit of the table's log is damaged", file=self._storage.path(commit_path(self.version + 1))
            ) from error
        self.version += 1
        return {**info, "version": self.version}

    def _apply(self, action: Action) -> None:
        for kind, value in action.items():
            if kind == "add":
                self.adds[value["path"]] = value
                self.removes.pop(_identity(value), None)
            elif kind == "remove":
                # A file that gets another deletion vector is removed with the old one and added with the new one, in
                # any order, and a checkpoint may still have both: a removal is only of the vector that it names.
                known = self.adds.get(value["path"])
                if known is not None and _identity(known) == _identity(value):
                    del self.adds[value["path"]]
                self.removes[_identity(value)] = value
            elif kind == "txn":
                self.transactions[value["appId"]] = value["version"]
            elif kind == "metaData":
                self.metadata = value
            elif kind == "protocol":
                self.protocol = value


def _checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """The checkpoints of which all parts are there, by version."""
    parts: dict[int, list[str]] = {}
    wanted: dict[int, int] = {}
    for name in names:
        found = _CHECKPOINT.fullmatch(name)
        if found is not None:
            version = int(found[1])
            parts.setdefault(version, []).append(name)
            wanted[version] = int(found[3] or 1)
    return {version: found for version, found in parts.items() if len(found) >= wanted[version]}


def _identity(action: Action) -> tuple[str, str]:
    """What the protocol calls the same file: its path with its deletion vector."""
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], ""
    return action["path"], f"{vector['storageType']}{vector['pathOrInlineDv']}@{vector.get('offset')}"


def _plain(value: Any) -> Any:
    """A row of a checkpoint as a commit would have it: maps as objects, nothing for null."""
    if not isinstance(value, dict):
        return value
    return {
        # Arrow gives maps as pairs.
        name: dict(item) if name in _MAPS else _plain(item)
        for name, item in value.items()
        if item is not None
    }


def commit_path(version: int) -> str:
    return f"{DIRECTORY}/{version:020d}.json"


def file_of(path: str) -> str:
    """Where a data file is, below the table's directory; paths in the log are URIs."""
    if "://" in path or path.startswith(("/", "file:")):
        raise UnsupportedFormat("a data file lies outside its table", path=path)
    return urllib.parse.unquote(path)


def rows_of(add: Action) -> int | None:
    """How many rows a data file has, deleted ones included; None when the log does not say."""
    stats = add.get("stats")
    found = json_text.parse(stats).get("numRecords") if stats else None
    return None if found is None else int(found)


def remove_action(add: Action, now_ms: int, *, data_change: bool = True) -> Action:
    """The action that takes a file, with the deletion vector that it has, out of the table."""
    kept = {name: add[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in add}
    return {"remove": {**kept, "deletionTimestamp": now_ms, "dataChange": data_change, "extendedFileMetadata": True}}
