"""The driver's part of a Delta table of current rows: one commit per batch, and an index that matches the table.

Other programs may write to the table: optimise it, delete or add rows. Rows that they deleted by deletion vectors need
nothing. When they have added files, the index learns the keys of these files before the batch is tried again.
"""

from __future__ import annotations

import json
import math
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq
import structlog
from pyroaring import BitMap

from penstock.deliver.batch_plan import BatchPlan
from penstock.deliver.delta import deletion_vectors, manifest_file
from penstock.deliver.delta.delta_log import Action, commit_path, file_of, remove_action, rows_of
from penstock.deliver.delta.manifest_file import SHARED, Manifest, RunRef
from penstock.deliver.delta.schema import from_delta
from penstock.deliver.delta.table import DeltaTable, now_ms, transactions_of
from penstock.deliver.delta.writer import Layout, index_of, unpacked
from penstock.deliver.lakehouse.data_files import stats_text
from penstock.deliver.lakehouse.key_index import open_run, to_file
from penstock.errors import CorruptCheckpoint, DeliveryFailed
from penstock.system import json_text

log = structlog.get_logger()

# So many files of similar size are written anew as one; fewer files for readers, more writing for us.
_TIER_FILES = 8
# The keys of so many rows of other programs' files make one run.
_ROWS_SORTED_MAX = 4_000_000
# A file with more deleted rows than living ones is written anew.
_DEAD_SHARE_MAX = 0.5


class CurrentTable:
    """A Delta table of current rows and its index. Lives on the driver, from batch to batch."""

    def __init__(self, table: DeltaTable, layout: Layout, file_bytes: int) -> None:
        self.table = table
        self._layout = layout
        self._file_bytes = file_bytes
        self._manifest: Manifest | None = None
        # Rows of the data files, deleted ones included.
        self._rows: dict[str, int] = {}

    # Keeping the index in step with the table.

    def sync(self) -> None:
        """Make the newest manifest say what the table is now. No task may be running."""
        table = self.table
        table.storage.make_directory(manifest_file.DIRECTORY)
        table.log.refresh()
        manifest = self._found() or Manifest(schema="", partition=[])
        foreign = [add for path, add in table.log.adds.items() if path not in manifest.files]
        if foreign:
            self._learn(manifest, foreign)
        manifest.files = {path: bucket for path, bucket in manifest.files.items() if path in table.log.adds}
        manifest.runs = [run for run in manifest.runs if self._is_used(run, manifest)]
        self._store(manifest)

    def write_nothing_anew(self) -> None:
        """Let the next tasks leave old files as they are. No task may be running."""
        self.sync()
        assert self._manifest is not None
        if self._manifest.rewrite:
            self._store(self._manifest, rewrite=False)

    def _found(self) -> Manifest | None:
        """The last manifest, brought forward by commits that a crash separated from their manifests."""
        storage, last = self.table.storage, self.table.log.version
        try:
            manifest = self._manifest or manifest_file.newest(storage)
            if manifest is None or manifest.version > last:
                return None
            for version in range(manifest.version + 1, last + 1):
                waiting = manifest_file.waiting_name(self._token_of(version))
                if storage.exists(waiting):
                    manifest = manifest_file.read(storage, waiting, version)
            for run in manifest.runs:
                self._open(run.name)
        except (CorruptCheckpoint, FileNotFoundError):
            log.warning("key index is built again", table=self.table.name)
            return None
        return manifest

    def _token_of(self, version: int) -> str:
        try:
            first = self.table.storage.read(commit_path(version)).split(b"\n", 1)[0]
        except FileNotFoundError:
            return ""
        return str(json_text.parse(first).get("commitInfo", {}).get("userMetadata") or "")

    def _learn(self, manifest: Manifest, foreign: list[Action]) -> None:
        """Index files that another program wrote, or that were there before us."""
        rows, key = 0, self.table.shape.note.key
        for group in self._groups(foreign):
            entries = index_of(self.table.storage, group, self.table.schema, key)
            name = f"run-{uuid.uuid4().hex}.arrow"
            self.table.storage.write(f"{manifest_file.DIRECTORY}/{name}", to_file(entries))
            manifest.runs.append(RunRef(name, SHARED, len(entries)))
            rows += len(entries)
        manifest.files.update({add["path"]: SHARED for add in foreign})
        log.info("files indexed", table=self.table.name, files=len(foreign), rows=rows)

    def _groups(self, adds: list[Action]) -> Iterator[list[Action]]:
        """Files whose keys are sorted together, so that memory stays bounded."""
        group: list[Action] = []
        for add in adds:
            group.append(add)
            if sum(map(self._row_count, group)) >= _ROWS_SORTED_MAX:
                yield group
                group = []
        if group:
            yield group

    def _is_used(self, run: RunRef, manifest: Manifest) -> bool:
        return any(path in manifest.files for path in self._open(run.name).files)

    def _open(self, name: str) -> Any:
        return open_run(self.table.storage.path(f"{manifest_file.DIRECTORY}/{name}"))

    def _store(self, manifest: Manifest, *, rewrite: bool = True) -> None:
        """Write the manifest of the table's present version, unless it is there already."""
        table = self.table
        manifest.schema, manifest.partition = table.log.metadata["schemaString"], table.partition
        manifest.source = table.shape.note.to_json()
        manifest.transactions = dict(table.log.transactions)
        manifest.rewrite = self._rewrites(manifest) if rewrite else {}
        token = manifest_file.new_token()
        table.storage.write(manifest_file.waiting_name(token), manifest.to_bytes())
        self._settle(manifest, token)

    def _settle(self, manifest: Manifest, token: str) -> None:
        manifest.version = self.table.log.version
        self.table.storage.rename(manifest_file.waiting_name(token), manifest_file.final_name(manifest.version))
        manifest_file.forget(self.table.storage, manifest)
        self._manifest = manifest

    # One batch.

    def commit(self, app: str, plan: BatchPlan, parts: Sequence[dict[str, Any]]) -> None:
        """Make a batch visible as a whole; nothing happens when the table has it already."""
        batch = plan.batch
        self._manifest = self._manifest or manifest_file.newest(self.table.storage)
        if self._manifest is None:
            raise DeliveryFailed("the table was not prepared", table=self.table.name, batch=batch)
        token = manifest_file.new_token()
        made: list[Manifest] = []

        def actions() -> list[Action]:
            truncated = any(part["truncated"] for part in parts)
            if truncated:
                self._check_nothing_kept(parts, batch)
            else:
                self._check_unchanged(parts, batch)
            out, adds = self._actions(parts, truncated=truncated)
            made.append(self._next_manifest(app, plan, parts, adds))
            if len(made) == 1:
                self.table.storage.write(manifest_file.waiting_name(token), made[0].to_bytes())
            return out

        if not self.table.commit(app, plan, actions, operation="MERGE", token=token):
            self.sync()
            return
        if len(made) > 1:
            # The table's other commits in between may have changed properties that the manifest repeats.
            self.table.storage.delete(manifest_file.waiting_name(token))
            self.table.storage.write(manifest_file.waiting_name(token), made[-1].to_bytes())
        self._settle(made[-1], token)

    def _check_unchanged(self, parts: Sequence[dict[str, Any]], batch: int) -> None:
        """The tasks worked with the files of the manifest; if these are not the table's any more, they must again."""
        manifest = self._manifest
        assert manifest is not None
        adds = self.table.log.adds
        expected = {add["path"]: add.get("deletionVector") for plan in manifest.rewrite.values() for add in plan}
        rewritten = [path for part in parts for path in part["rewritten"]]
        foreign = any(path not in manifest.files for path in adds)
        lost = any(path not in adds or adds[path].get("deletionVector") != expected[path] for path in rewritten)
        if foreign or lost or self.table.schema != from_delta(manifest.schema):
            version = self.table.log.version
            self.sync()
            raise DeliveryFailed(
                "another program has changed the table; the batch is done again on what it is now",
                table=self.table.name,
                version=version,
                batch=batch,
            )

    def _check_nothing_kept(self, parts: Sequence[dict[str, Any]], batch: int) -> None:
        """Where a batch truncates the table, no task of it may have written old rows anew together with new ones."""
        if not any(part["rewritten"] for part in parts):
            return
        self.write_nothing_anew()
        raise DeliveryFailed(
            "the table is truncated while its files are written anew; the batch is done again without that",
            table=self.table.name,
            batch=batch,
        )

    def _actions(self, parts: Sequence[dict[str, Any]], *, truncated: bool) -> tuple[list[Action], dict[str, Action]]:
        """The actions of a batch, and the table's files afterwards. Truncated: what it had is taken out before."""
        now = now_ms()
        gone = self.table.remove_actions(now) if truncated else []
        known = {} if truncated else self.table.log.adds
        added = {add["path"]: {**add, "modificationTime": now} for part in parts for add in part["adds"]}
        rewritten = {path for part in parts for path in part["rewritten"]}
        deletes: dict[str, BitMap] = {}
        for part in parts:
            for path, text in part["deletes"].items():
                if (path in known or path in added) and path not in rewritten:
                    deletes[path] = deletes.get(path, BitMap()) | unpacked(text)
        out = [*gone, *(remove_action(known[path], now) for path in sorted(rewritten))]
        files = {path: add for path, add in {**known, **added}.items() if path not in rewritten}
        changed = self._with_vectors({path: files[path] for path in deletes}, deletes)
        for path, add in changed.items():
            if path in known:
                out.append(remove_action(known[path], now))
            if add is None:
                del files[path]
                added.pop(path, None)
            else:
                files[path] = add
                if path in known:
                    out.append({"add": {**add, "dataChange": True}})
        out += [{"add": files[path]} for path in added]
        return out, files

    def _with_vectors(self, files: dict[str, Action], deletes: dict[str, BitMap]) -> dict[str, Action | None]:
        """The files with more rows deleted; None for a file that has none left. All vectors go into one file."""
        out: dict[str, Action | None] = {}
        bitmaps = []
        for path, add in files.items():
            bitmap = self._vector_of(add) | deletes[path]
            if add.get("deletionVector", {}).get("cardinality", 0) == len(bitmap):
                continue
            out[path] = None if len(bitmap) >= self._row_count(add) else add
            if out[path] is not None:
                bitmaps.append((path, bitmap))
        if bitmaps:
            vectors = deletion_vectors.pack([bitmap for _, bitmap in bitmaps], uuid.uuid4())
            self.table.storage.write(vectors.file, vectors.content)
            for (path, _), descriptor in zip(bitmaps, vectors.descriptors, strict=True):
                known = json_text.parse(files[path].get("stats") or "{}")
                stats = {**known, "numRecords": self._row_count(files[path])}
                text = stats_text({**stats, "tightBounds": False})
                out[path] = {**files[path], "deletionVector": descriptor, "stats": text}
        return out

    def _vector_of(self, add: Action) -> BitMap:
        """The rows of a file that were deleted before."""
        descriptor = add.get("deletionVector")
        return BitMap() if descriptor is None else deletion_vectors.load(self.table.storage, descriptor)

    def _row_count(self, add: Action) -> int:
        found = self._rows.get(add["path"])
        if found is None:
            found = rows_of(add)
            if found is None:
                found = int(pq.read_metadata(self.table.storage.path(file_of(add["path"]))).num_rows)
            self._rows[add["path"]] = found
        return found

    def _next_manifest(
        self, app: str, plan: BatchPlan, parts: Sequence[dict[str, Any]], files: dict[str, Action]
    ) -> Manifest:
        assert self._manifest is not None
        old = self._manifest.for_application(app)
        merged = {name for part in parts for name in part.get("merged", ())}
        truncated = any(part["truncated"] for part in parts)
        runs = [] if truncated else [run for run in old.runs if run.name not in merged]
        runs += [RunRef(*part["run"]) for part in parts if "run" in part]
        buckets = {add["path"]: part["bucket"] for part in parts for add in part["adds"]}
        made = Manifest(
            schema=self.table.log.metadata["schemaString"],
            partition=self.table.partition,
            transactions={**self.table.log.transactions, **transactions_of(app, plan)},
            files={path: buckets.get(path, old.files.get(path, SHARED)) for path in files},
            runs=runs,
            source=self.table.shape.note.to_json(),
        )
        made.rewrite = self._rewrites(made, files)
        return made

    def _rewrites(self, manifest: Manifest, files: dict[str, Action] | None = None) -> dict[int, list[Action]]:
        """Which files each bucket's next task writes anew: many of one size, or such as are mostly deleted."""
        adds = self.table.log.adds if files is None else files
        self._rows = {path: rows for path, rows in self._rows.items() if path in adds}
        tiers: dict[tuple[int, str, int], list[Action]] = defaultdict(list)
        out: dict[int, list[Action]] = defaultdict(list)
        for path, bucket in manifest.files.items():
            if bucket == SHARED:
                continue
            add = adds[path]
            rows = self._row_count(add)
            living = rows - add.get("deletionVector", {}).get("cardinality", 0)
            full = living >= self._layout.rows_per_file // 2 or add["size"] * living >= rows * self._file_bytes // 4
            if full and living > rows * _DEAD_SHARE_MAX:
                continue
            tier = int(math.log(max(living, 1), _TIER_FILES))
            tiers[bucket, json.dumps(add.get("partitionValues")), tier].append(add)
            if living <= rows * _DEAD_SHARE_MAX and rows > self._layout.rows_per_file // _TIER_FILES:
                out[bucket].append(add)
        for (bucket, _, _), members in tiers.items():
            if len(members) >= _TIER_FILES:
                out[bucket] += [add for add in members if add not in out[bucket]]
        return {bucket: self._bounded(members) for bucket, members in out.items()}

    def _bounded(self, members: list[Action]) -> list[Action]:
        """As many of the files as a task may hold in memory at once; the others come next time."""
        chosen: list[Action] = []
        size = 0
        for add in members:
            size += add["size"]
            if chosen and size > self._file_bytes:
                break
            chosen.append(add)
        return chosen
