"""A Delta table as the driver sees it: made, altered, committed to, and checkpointed.

A commit carries the transaction identifier (application, batch) of the pipeline: a batch that the log already has is
not committed again, so that each change is in the table exactly once, whatever crashed in between. A second transaction
identifier says which batch of that number it is (`batch_plan`): unlike what a commit says of itself, those are kept in
the log's checkpoints, and the last of each application counts.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog

from penstock.deliver.batch_plan import ID_BITS, BatchMark, BatchPlan, has_batch
from penstock.deliver.delta import delta_log
from penstock.deliver.delta.delta_log import VECTORS, Action, DeltaLog, file_of, remove_action
from penstock.deliver.delta.schema import altered, features, from_delta, to_delta
from penstock.deliver.lakehouse.data_files import read_columns, statistics, stats_text, to_parquet
from penstock.deliver.lakehouse.evolution import Evolution, TargetShape, evolve
from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.lakehouse.storage import Storage
from penstock.errors import CorruptCheckpoint, DeliveryFailed, SchemaUnfit
from penstock.log import sealed
from penstock.model.schema import TableSchema
from penstock.settings import SchemaPolicy
from penstock.system import json_text

log = structlog.get_logger()

# Readers must know these; the rest of what we use concerns writers only.
_READER_FEATURES = {VECTORS, "timestampNtz"}
_ATTEMPTS_MAX = 100
_CLEANUP_CHECKPOINTS = 20
_OURS = "_penstock"
# Where a checkpoint of the log is made.
_SCRATCH = "checkpoint-"
_DESCRIPTION = f"{_OURS}/table.json"
_DESCRIPTION_BYTES_MAX = 16 << 20
# What the transactions of plans are called, after the application; and how many numbers of batches they tell apart.
_PLAN = "#plan"
_NUMBERS = 1 << (63 - ID_BITS)
# A refusal looks so far back for what it tells.
_COMMITS_ASKED = 1000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class DeltaTable:
    """One table. `vectors`: whether it has deletion vectors."""

    def __init__(self, storage: Storage, name: str, *, vectors: bool, checkpoint_every: int) -> None:
        self.storage = storage
        self.name = name
        self.log = DeltaLog(storage)
        self._vectors = vectors
        self._checkpoint_every = checkpoint_every
        # Batches that this process has committed to the table.
        self.batches = 0

    @property
    def schema(self) -> pa.Schema:
        return from_delta(self.log.metadata["schemaString"])

    @property
    def shape(self) -> TargetShape:
        """The columns, and what the table has noted of its source."""
        schema = self.schema
        return TargetShape(
            schema, SourceNote.from_properties(self.log.metadata.get("configuration") or {}, schema.names)
        )

    @property
    def partition(self) -> list[str]:
        return list(self.log.metadata.get("partitionColumns") or ())

    def open_or_make(self, shape: TargetShape, partition: Sequence[str], settings: dict[str, str]) -> None:
        """Read the table's log, or begin one."""
        while True:
            self.log.refresh()
            if self.log.version >= 0:
                break
            self.storage.make_directory(delta_log.DIRECTORY)
            if self.log.commit(self._first_actions(shape, partition, settings)):
                log.info("lakehouse table made", table=self.name, directory=str(self.storage.directory))
                return
        self.log.check_supported(self.name)
        if self._vectors and not self.log.has_vectors:
            raise SchemaUnfit(
                "the table has no deletion vectors: set its property delta.enableDeletionVectors, or deletion_vectors "
                "of the sink to false",
                table=self.name,
            )
        if partition and list(self.shape.note.current_names(partition)) != self.partition:
            raise SchemaUnfit(f"the table is partitioned by {', '.join(self.partition) or 'nothing'}", table=self.name)

    def _check_partition(self, schema: pa.Schema, partition: Sequence[str]) -> None:
        for name in partition:
            type_ = schema.field(name).type if name in schema.names else pa.binary()
            if pa.types.is_nested(type_) or pa.types.is_binary(type_):
                raise SchemaUnfit("a table cannot be partitioned by this column", table=self.name, column=name)

    def _first_actions(self, shape: TargetShape, partition: Sequence[str], settings: dict[str, str]) -> list[Action]:
        text = to_delta(shape.schema)
        columns = list(shape.note.current_names(partition))
        self._check_partition(shape.schema, columns)
        needed = features(text) | ({VECTORS} if self._vectors else set())
        configuration = {"delta.enableDeletionVectors": "true", **settings} if self._vectors else dict(settings)
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": text,
            "partitionColumns": columns,
            "configuration": {**configuration, **shape.note.to_properties()},
            "createdTime": now_ms(),
        }
        return [info_action("CREATE TABLE"), _protocol(needed, {}), {"metaData": metadata}]

    def follow(self, source: TableSchema, policy: SchemaPolicy, *, keyed: bool = True) -> list[str]:
        """Alter the table so that rows of a source schema fit, as far as the policy allows; gives what is left out."""
        for _ in range(_ATTEMPTS_MAX):
            old = self.shape
            made = evolve(source, old, policy, keyed=keyed, fixed=frozenset(self.partition))
            if made.shape.note == old.note and not made.altered:
                return made.ignored
            if self._alter(made):
                made.note(self.name)
                return made.ignored
            self.log.refresh()
        raise DeliveryFailed("the table is changed by others all the time", table=self.name)

    def _alter(self, made: Evolution) -> bool:
        """Commit what a table becomes; False when someone else was faster."""
        metadata = {
            **self._metadata(made.shape.note),
            "schemaString": altered(self.log.metadata["schemaString"], made.shape.schema, made.renamed),
            "partitionColumns": [made.renamed.get(name, name) for name in self.partition],
        }
        actions = self._metadata_actions("CHANGE COLUMN" if made.altered else "SET TBLPROPERTIES", metadata)
        if made.renamed or made.retyped or not all(self._stays_readable(name, made) for name in made.widened):
            actions += self._rewritten(made)
        return self.log.commit(actions)

    def _stays_readable(self, name: str, made: Evolution) -> bool:
        """Whether files stay as they are when a column is widened. The index has keys as the files have them."""
        new = made.shape.schema.field(made.renamed.get(name, name)).type
        return name not in self.shape.note.key and _readable_as(self.schema.field(name).type, new)

    def _metadata(self, note: SourceNote) -> Action:
        configuration = self.log.metadata.get("configuration") or {}
        return {**self.log.metadata, "configuration": {**configuration, **note.to_properties()}}

    def _metadata_actions(self, operation: str, metadata: Action) -> list[Action]:
        """The beginning of a commit that changes what the table is."""
        needed = features(metadata["schemaString"])
        actions: list[Action] = [info_action(operation)]
        if not needed <= set(self.log.protocol.get("writerFeatures") or ()):
            actions.append(_protocol(needed, self.log.protocol))
        return [*actions, {"metaData": metadata}]

    def _rewritten(self, made: Evolution) -> Iterator[Action]:
        """Write all files anew, with other names or wider types. Rows keep their places: deletion vectors stay right.

        Delta has features that save this, type widening and column mapping, but delta-rs cannot write tables with them.
        """
        now, old_names = now_ms(), {new: old for old, new in made.renamed.items()}
        changed = bool(made.retyped)
        for number, add in enumerate(list(self.log.adds.values())):
            values = {made.renamed.get(name, name): value for name, value in (add.get("partitionValues") or {}).items()}
            # A column that is new may have the name that another one had in the file.
            left_out = {*values, *made.retyped, *made.added}
            kept = [field for field in made.shape.schema if field.name not in left_out]
            there = pa.schema([field.with_name(old_names.get(field.name, field.name)) for field in kept])
            rows = read_columns(self.storage.path(file_of(add["path"])), there, {})
            rows = rows.rename_columns([field.name for field in kept])
            content, footer = to_parquet(rows, "zstd")
            path = f"part-altered-{uuid.uuid4().hex}-{number}.parquet"
            self.storage.write(path, content)
            stats = {**statistics(rows, footer), **({"tightBounds": False} if "deletionVector" in add else {})}
            new = {**add, "path": path, "size": content.size, "modificationTime": now, "stats": stats_text(stats)}
            yield remove_action(add, now, data_change=changed)
            yield {"add": {**new, "partitionValues": values, "dataChange": changed}}

    def begin_anew(self, shape: TargetShape, partition: Sequence[str]) -> None:
        """Make the table that of another source table: without rows, with that one's columns only, in one commit."""
        for _ in range(_ATTEMPTS_MAX):
            columns = list(shape.note.current_names(partition))
            self._check_partition(shape.schema, columns)
            metadata = {
                **self._metadata(shape.note),
                "schemaString": to_delta(shape.schema),
                "partitionColumns": columns,
            }
            if self.log.commit(
                [*self._metadata_actions("CREATE OR REPLACE TABLE", metadata), *self.remove_actions(now_ms())]
            ):
                log.warning("lakehouse table begun anew", table=self.name, table_id=shape.note.id)
                return
            self.log.refresh()
        raise DeliveryFailed("the table is changed by others all the time", table=self.name)

    def empty(self, note: SourceNote) -> None:
        """Take all rows out and note another source table; the columns stay."""
        for _ in range(_ATTEMPTS_MAX):
            actions = self._metadata_actions("TRUNCATE", self._metadata(note))
            if self.log.commit([*actions, *self.remove_actions(now_ms())]):
                log.warning("lakehouse table emptied", table=self.name, table_id=note.id)
                return
            self.log.refresh()
        raise DeliveryFailed("the table is changed by others all the time", table=self.name)

    def remove_actions(self, now: int) -> list[Action]:
        """What takes all files out of the table."""
        return [remove_action(add, now) for add in self.log.adds.values()]

    def describe(self) -> None:
        """Leave for the tasks what they must know of the table, so that they need not read its log."""
        content = sealed.seal(
            {
                "format": 1,
                "schema": self.log.metadata["schemaString"],
                "partition": self.partition,
                "source": self.shape.note.to_json(),
            }
        )
        self.storage.make_directory(_OURS)
        name = f"{_DESCRIPTION}.{uuid.uuid4().hex}"
        self.storage.write(name, content)
        self.storage.rename(name, _DESCRIPTION)

    def commit(
        self, app: str, plan: BatchPlan, make: Callable[[], list[Action]], *, operation: str, token: str = ""
    ) -> bool:
        """Commit what `make` gives, called again when someone else was faster; False: the log has the batch."""
        told = {"application": app, "batch": str(plan.batch), "positions": plan.span} if plan.id else {}
        for _ in range(_ATTEMPTS_MAX):
            if self.has(app, plan):
                return False
            now = now_ms()
            versions = transactions_of(app, plan).items()
            txns: list[Action] = [{"txn": {"appId": of, "version": to, "lastUpdated": now}} for of, to in versions]
            if self.log.commit([info_action(operation, token, told), *txns, *make()]):
                self._checkpoint()
                return True
        raise DeliveryFailed("the table is changed by others all the time", table=self.name, batch=plan.batch)

    def has(self, app: str, plan: BatchPlan) -> bool:
        """Whether the table has a batch already; raises when it has one that is not of the pipeline's checkpoint."""
        found = self.last(app)
        return has_batch(found, plan, lambda: self.span(app, found), table=self.name)

    def last(self, app: str) -> BatchMark | None:
        """The last batch of a pipeline that the table has now."""
        self.log.refresh()
        return last_batch(self.log.transactions, app)

    def span(self, app: str, mark: BatchMark | None) -> str:
        """Where a batch began and ended; nothing when the log no longer tells."""
        return span_of(self.storage, self.log.version, app, mark)

    def _checkpoint(self) -> None:
        """Every so many commits, so that readers need not read all of them."""
        if self.log.version % self._checkpoint_every == 0 and self.log.version:
            from deltalake import DeltaTable as Reader

            self._make_checkpoint(Reader)
            if self.log.version % (_CLEANUP_CHECKPOINTS * self._checkpoint_every) == 0:
                # Commits that are older than the table's delta.logRetentionDuration.
                Reader(str(self.storage.directory)).cleanup_metadata()

    def _make_checkpoint(self, reader: Callable[[str], Any]) -> None:
        """Have a checkpoint made beside the log, and put it into the log when it is whole and durable.

        delta-rs syncs nothing, and a reader that meets half a checkpoint after a power loss cannot read the table.
        """
        storage = self.storage
        for left in storage.list(_OURS):
            if left.startswith(_SCRATCH):
                shutil.rmtree(storage.path(f"{_OURS}/{left}"), ignore_errors=True)
        scratch = storage.path(f"{_OURS}/{_SCRATCH}{uuid.uuid4().hex}")
        copied = f"{scratch}/{delta_log.DIRECTORY}"
        os.makedirs(copied)
        try:
            for name in self.log.needed():
                Path(copied, name).write_bytes(storage.read(f"{delta_log.DIRECTORY}/{name}"))
            reader(scratch).create_checkpoint()
            self.log.put_checkpoint(copied)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def read_description(storage: Storage) -> dict[str, Any] | None:
    """What tasks must know of a table; None when it was not prepared."""
    try:
        return sealed.unseal(storage.read(_DESCRIPTION), _DESCRIPTION_BYTES_MAX)
    except FileNotFoundError:
        return None
    except ValueError as error:
        file = storage.path(_DESCRIPTION)
        raise CorruptCheckpoint(f"the table's description is damaged: {error}", file=file) from error


def transactions_of(app: str, plan: BatchPlan) -> dict[str, int]:
    """The versions of the transactions that a batch is committed with.

    The plan's has the low bits of the batch's number in it: one that an earlier Penstock has left behind, which commits
    numbers only, is not taken for that of a later batch.
    """
    if not plan.id:
        return {app: plan.batch}
    return {app: plan.batch, f"{app}{_PLAN}": plan.batch % _NUMBERS << ID_BITS | int(plan.id, 16)}


def last_batch(transactions: Mapping[str, int], app: str) -> BatchMark | None:
    """The last batch of a pipeline that a table has, by its transactions."""
    batch = transactions.get(app)
    if batch is None:
        return None
    number, plan = divmod(transactions.get(f"{app}{_PLAN}", -1), 1 << ID_BITS)
    return BatchMark(batch, f"{plan:0{ID_BITS // 4}x}" if number == batch % _NUMBERS else "")


def span_of(storage: Storage, version: int, app: str, mark: BatchMark | None) -> str:
    """Where a batch began and ended, by the commits up to a version; nothing when they no longer tell."""
    for number in range(version, max(-1, version - _COMMITS_ASKED), -1):
        try:
            told = json_text.parse(storage.read(delta_log.commit_path(number)).split(b"\n", 1)[0])
            known = told["commitInfo"]["operationParameters"]
            if mark and (known.get("application"), known.get("batch")) == (app, str(mark.batch)):
                return str(known.get("positions", ""))
        except FileNotFoundError:
            break
        except (ValueError, KeyError, TypeError, AttributeError):
            # A commit of another program.
            continue
    return ""


def info_action(operation: str, token: str = "", parameters: Mapping[str, str] | None = None) -> Action:
    """What a commit says of itself. The token names what belongs to it outside the log."""
    info: Action = {
        "timestamp": now_ms(),
        "operation": operation,
        "operationParameters": dict(parameters or {}),
        "engineInfo": "Penstock",
        "isBlindAppend": operation == "WRITE",
    }
    if token:
        info["userMetadata"] = token
    return {"commitInfo": info}


def _protocol(needed: set[str], old: Action) -> Action:
    """The least protocol that allows what is needed, and what was allowed before."""
    reader = set(old.get("readerFeatures") or ()) | (needed & _READER_FEATURES)
    writer = set(old.get("writerFeatures") or ()) | needed
    if not needed and not writer:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    if old and int(old["minWriterVersion"]) < 7:
        # These were implied by the old version and must be named from now on.
        writer |= {"appendOnly", "invariants"}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": sorted(reader),
            "writerFeatures": sorted(writer),
        }
    }


def _readable_as(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether readers take files with the narrower type for files with the wider one.

    A struct that lacks fields is read, also in lists; but delta-rs's queries do not read one inside of a map.
    """
    if old == new:
        return True
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _readable_as(old.value_type, new.value_type)
    if not (pa.types.is_struct(old) and pa.types.is_struct(new)):
        return False
    there = {field.name: field.type for field in new}
    return all(field.name in there and _readable_as(field.type, there[field.name]) for field in old)
