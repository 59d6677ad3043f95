"""The pipeline's checkpoint directory: whose it is, and what must be the same when a batch is done again.

    checkpoint/
      pipeline.json    the pipeline's name, its buckets, the version of this layout
      driver.lock      which driver runs the pipeline
      plans/           the time and the positions of each batch, so that doing it again gives the same records
      spark/           Spark's own checkpoint, made of the plans each time that a query starts
      eras/            which rows of tables that were truncated or made anew still count, as of each batch
      state/           what the fold remembers, committed batch by batch
      wake             the second at which the next row expires, if any does
      replayed/        logs of changes that are to be folded once more
      repaired/        logs of rows as a repair has read them from the source
      sinks/           what a sink must know after a restart, as the schemas that it goes by
      outages/         targets that tasks wait or have waited for
      troubles/        tables that are left out because something is wrong with them
      dead-letters/    records that no target took, unless the settings name another place
      penstock.log     the log, of those runs that had a live view on a terminal

A directory that belongs to another pipeline is refused: its positions and its state mean something else. Of what is in
it, a power loss takes nothing that a later start needs: plans and state are durable before anything is built on them,
what Spark writes is not believed, and the rest can be missing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.deliver.batch_plan import BatchPlan
from penstock.errors import CorruptCheckpoint, DeliveryFailed, InvalidSetting, StorageError
from penstock.fold.bucket import RUNS
from penstock.log import sealed
from penstock.log.names import TEMPORARY
from penstock.pipeline import spark_checkpoint
from penstock.system import json_text, written_once
from penstock.system.files import OsFiles, make_durable_directory

_VERSION = 1
_CLUSTER_BUCKETS = 16
REPLAYED = "replayed"
REPAIRED = "repaired"
TROUBLES = "troubles"
SCRATCH = "scratch"
# Plans of batches that Spark has committed are of no more use; a few are kept for whoever looks.
_PLANS_KEPT = 20
# Far more than the positions in tens of thousands of logs.
_PLAN_BYTES_MAX = 64 << 20
_PARTS = ("spark", "plans", "eras", "state", REPLAYED, REPAIRED)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a checkpoint belongs to. The number of buckets can never change: state is kept by bucket."""

    name: str
    buckets: int
    version: int = _VERSION


class Checkpoint:
    """The directory of one pipeline, made at its first start."""

    def __init__(self, directory: Path, identity: Identity) -> None:
        self.directory = directory
        self.identity = identity

    @classmethod
    def open(cls, directory: Path, name: str, buckets: int | None, usual_buckets: int) -> Checkpoint:
        """Open or make the directory. Without `buckets`: those of the checkpoint, or the usual number for a new one."""
        file = directory / "pipeline.json"
        try:
            files = OsFiles()
            # With the directories above it: targets that keep what they were given would know more than the checkpoint.
            make_durable_directory(files, str(directory))
            if file.exists():
                found = _read(file)
                _check(found, name, buckets, directory)
                for part in (REPLAYED, REPAIRED):
                    (directory / part).mkdir(mode=0o700, exist_ok=True)
                _close_to_others(directory)
                return cls(directory, found)
            _check_empty(directory)
            made = Identity(name, buckets or usual_buckets)
            for part in _PARTS:
                (directory / part).mkdir(mode=0o700, exist_ok=True)
            _close_to_others(directory)
            sealed.write(files, str(directory), file.name, asdict(made))
        except OSError as error:
            raise StorageError(f"cannot use the checkpoint directory: {error.strerror}", directory=directory) from error
        return cls(directory, made)

    @classmethod
    def look(cls, directory: Path, name: str, buckets: int | None) -> Checkpoint | None:
        """What `open` would find; None where it would make a new one. Nothing is made or changed."""
        try:
            if (directory / "pipeline.json").exists():
                found = _read(directory / "pipeline.json")
                _check(found, name, buckets, directory)
                return cls(directory, found)
            if directory.exists():
                _check_empty(directory)
        except OSError as error:
            raise StorageError(f"cannot use the checkpoint directory: {error.strerror}", directory=directory) from error
        return None

    @property
    def spark(self) -> Path:
        return self.directory / "spark"

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def eras(self) -> Path:
        return self.directory / "eras"

    @property
    def wake(self) -> Path:
        return self.directory / "wake"

    @property
    def replayed(self) -> Path:
        return self.directory / REPLAYED

    @property
    def repaired(self) -> Path:
        return self.directory / REPAIRED

    @property
    def outages(self) -> Path:
        return self.directory / "outages"

    def tidy(self) -> None:
        """Remove what drivers left that were killed, and make room for tasks. For the one that has the lock."""
        try:
            # A manifest must not outlive the directory of the runs that it names, nor the eras that it was folded by.
            for part in (self.state / RUNS, self.eras):
                make_durable_directory(OsFiles(), str(part))
            for part in (self._plans, self.state):
                written_once.clear_drafts(str(part))
        except OSError as error:
            raise StorageError(
                f"cannot use the checkpoint directory: {error.strerror}", directory=self.directory
            ) from error

    @property
    def troubles(self) -> Path:
        return self.directory / TROUBLES

    def noted(self) -> int:
        """The newest batch whose positions are noted for good; -1 when there is none."""
        return self._newest_plan()

    def positions(self, batch: int) -> dict[str, str]:
        """The reach of every log at the end of a batch that was noted."""
        try:
            # A line with the version, one with Spark's own settings, and one for each source.
            found = json_text.parse(self._offsets(batch).splitlines()[2])
            return {name: reach for name, reach in found.items() if isinstance(reach, str)}
        except (ValueError, IndexError, AttributeError) as error:
            raise CorruptCheckpoint(
                "the positions of a batch cannot be read", directory=self.directory, batch=batch
            ) from error

    def time_of(self, batch: int) -> int:
        """The time of a batch that was noted."""
        return int(self._plan(batch)["now_us"])

    def plan(self, batch: int) -> BatchPlan:
        """Which batch it is, beyond its number, for a batch that was noted."""
        before = self.positions(batch - 1) if batch else {}
        return BatchPlan.of(batch, self.time_of(batch), before, self.positions(batch))

    def check_whole(self, committed: int) -> None:
        """Raise when a part of the directory was deleted or restored alone. `committed`: the state's last batch.

        A batch's plan is durable before the batch begins, the state before Spark is told that the batch is done. Going
        on otherwise would take batches for done that are not, or forget what the targets have been given.
        """
        begun, done = self._newest_plan(), spark_checkpoint.newest_done(self.spark)
        if not committed <= begun <= committed + 1 or done > committed:
            raise CorruptCheckpoint(
                f"the checkpoint's parts are not of one moment: the last batch that was begun is {begun}, Spark did "
                f"batch {done}, the state is of batch {committed}; restore the whole directory from one copy, or begin "
                "with an empty one",
                directory=self.directory,
            )

    def begin_query(self, committed: int, name: str) -> Path:
        """Make the directory that a query of Spark's goes on from: behind the last committed batch."""
        try:
            offsets = {batch: self._offsets(batch) for batch in range(max(0, committed), self._newest_plan() + 1)}
            if committed > 0:
                # Spark looks for it and makes no use of it, because the batch after it is done.
                offsets[committed - 1] = offsets[committed]
            return spark_checkpoint.make(self.spark, name, committed, offsets)
        except OSError as error:
            raise StorageError(f"cannot write Spark's checkpoint: {error.strerror}", directory=self.spark) from error

    def _newest_plan(self) -> int:
        """The last batch that was begun; -1 when there is none."""
        names = os.listdir(self._plans) if self._plans.exists() else []
        return max((int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal()), default=-1)

    def _offsets(self, batch: int) -> str:
        found = self._plan(batch).get("offsets")
        if found is not None:
            return str(found)
        # An earlier version left this to Spark alone.
        try:
            offsets = spark_checkpoint.read_offsets(self.spark, batch)
        except (OSError, ValueError) as error:
            raise CorruptCheckpoint(
                "Spark's note of a batch is missing or damaged, and this checkpoint, begun by an earlier version, has "
                "no copy; restore the whole directory, or begin with an empty one",
                directory=self.spark,
                batch=batch,
            ) from error
        sealed.write(OsFiles(), str(self._plans), f"{batch}.json", {**self._plan(batch), "offsets": offsets})
        return offsets

    def wake_at(self, second: int | None) -> None:
        """Let the source begin a batch at this second although nothing new came, because something expires then."""
        text = b"" if second is None else str(second).encode()
        try:
            if not self.wake.exists() or self.wake.read_bytes() != text:
                # A half-written number would wake too early or not at all, so it is replaced as a whole.
                whole = self.wake.with_suffix(".new")
                whole.write_bytes(text)
                whole.replace(self.wake)
        except OSError as error:
            raise StorageError(f"cannot note when something expires: {error.strerror}", file=self.wake) from error

    def batch_time(self, batch: int, now_us: int, query: Path) -> int:
        """The time of a batch: now, when it is done for the first time, and the same each time after that.

        `query` is Spark's directory, which says how far the batch goes; from now on, that stands in the plan.
        """
        file = self._plans / f"{batch}.json"
        try:
            offsets = spark_checkpoint.read_offsets(query, batch)
            content = sealed.seal({"now_us": now_us, "offsets": offsets})
            if not file.exists() and written_once.write(str(self._plans), file.name, content):
                (self._plans / f"{batch - _PLANS_KEPT}.json").unlink(missing_ok=True)
                return now_us
        except OSError as error:
            raise StorageError(f"cannot note the plan of a batch: {error.strerror}", file=file) from error
        except ValueError as error:
            raise DeliveryFailed(f"Spark's note of a batch cannot be used: {error}", batch=batch) from error
        known = self._plan(batch)
        if known.get("offsets", offsets) != offsets:
            # Another driver has begun it at the same time; the next query goes by what stands there.
            raise DeliveryFailed("the batch was begun with other positions before; it is begun again", batch=batch)
        return int(known["now_us"])

    @property
    def _plans(self) -> Path:
        return self.directory / "plans"

    def _plan(self, batch: int) -> dict[str, Any]:
        file = self._plans / f"{batch}.json"
        try:
            found = sealed.read(OsFiles(), str(file), _PLAN_BYTES_MAX)
            int(found["now_us"])
        except OSError as error:
            raise StorageError(f"cannot read the plan of a batch: {error.strerror}", file=file) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint("the plan of a batch is damaged", file=file) from error
        return found


def repaired_rows(directory: Path) -> Path | None:
    """Where the pipeline of a checkpoint reads repaired rows; None when no pipeline has used the directory here."""
    return directory / REPAIRED if (directory / "pipeline.json").exists() else None


def _check_empty(directory: Path) -> None:
    if not all(_just_made(one) for one in directory.iterdir()):
        raise InvalidSetting("the checkpoint directory holds something else; name an empty one", directory=directory)


def _just_made(one: Path) -> bool:
    """Whether this can be what a first start leaves that was killed before it had described the directory."""
    if one.is_dir():
        return one.name in _PARTS and not any(one.iterdir())
    return one.name == f"pipeline.json{TEMPORARY}"


def _read(file: Path) -> Identity:
    try:
        data = sealed.read(OsFiles(), str(file))
        found = Identity(str(data["name"]), int(data["buckets"]), int(data["version"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpoint("the checkpoint's own description is damaged", file=file) from error
    if found.version != _VERSION:
        raise CorruptCheckpoint(f"the checkpoint has version {found.version}, not {_VERSION}", file=file)
    return found


def _check(found: Identity, name: str, buckets: int | None, directory: Path) -> None:
    if found.name != name:
        raise InvalidSetting(
            f"the checkpoint belongs to pipeline {found.name}, not {name}; name another directory, or this pipeline",
            directory=directory,
        )
    if buckets is not None and buckets != found.buckets:
        raise InvalidSetting(
            f"the pipeline began with {found.buckets} buckets and cannot go on with {buckets}",
            directory=directory,
        )


def usual_buckets(master: str) -> int:
    """How many buckets a new pipeline has where Spark runs: one per core of this machine, or some for a cluster."""
    return len(os.sched_getaffinity(0)) if master.startswith("local") else _CLUSTER_BUCKETS


def _close_to_others(directory: Path) -> None:
    """Let nobody else into the parts: positions and rows are in them, in files that Spark makes readable by all.

    A group that the operator let in stays in, for workers that run as other users of it.
    """
    for part in directory.iterdir():
        # Those of another user, as on a shared disk, are for that user to close.
        with suppress(PermissionError):
            if part.is_dir() and not part.is_symlink() and part.stat().st_mode & 0o007:
                part.chmod(part.stat().st_mode & 0o770)
