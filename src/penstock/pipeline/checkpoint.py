"""The pipeline's checkpoint directory: whose it is, and what must be the same when a batch is done again.

    checkpoint/
      pipeline.json    the pipeline's name, its buckets, the version of this layout
      spark/           Spark's own checkpoint: which positions belong to which batch
      plans/           the time of each batch, so that doing it again gives the same records
      eras/            which rows of tables that were truncated or made anew still count, as of each batch
      state/           what the fold remembers, committed batch by batch
      wake             the second at which the next row expires, if any does
      replayed/        logs of changes that are to be folded once more
      repaired/        logs of rows as a repair has read them from the source
      sinks/           what a sink must know after a restart, as the schemas that it goes by
      outages/         targets that tasks wait or have waited for
      troubles/        tables that are left out because something is wrong with them
      dead-letters/    records that no target took, unless the settings name another place

A directory that belongs to another pipeline is refused: its positions and its state mean something else.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.errors import CorruptCheckpoint, InvalidSetting, StorageError
from penstock.log import sealed
from penstock.system.files import OsFiles

_VERSION = 1
_CLUSTER_BUCKETS = 16
REPLAYED = "replayed"
REPAIRED = "repaired"
TROUBLES = "troubles"
# Plans of batches that Spark has committed are of no more use; a few are kept for whoever looks.
_PLANS_KEPT = 20


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
            directory.mkdir(parents=True, exist_ok=True)
            if file.exists():
                found = _read(file)
                _check(found, name, buckets, directory)
                for part in (REPLAYED, REPAIRED):
                    (directory / part).mkdir(exist_ok=True)
                return cls(directory, found)
            if any(directory.iterdir()):
                raise InvalidSetting(
                    "the checkpoint directory holds something else; name an empty one", directory=directory
                )
            made = Identity(name, buckets or usual_buckets)
            for part in ("spark", "plans", "state", REPLAYED, REPAIRED):
                (directory / part).mkdir()
            sealed.write(OsFiles(), str(directory), file.name, asdict(made))
        except OSError as error:
            raise StorageError(f"cannot use the checkpoint directory: {error.strerror}", directory=directory) from error
        return cls(directory, made)

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

    @property
    def troubles(self) -> Path:
        return self.directory / TROUBLES

    def noted(self) -> int:
        """The newest batch whose positions Spark has noted; -1 when there is none."""
        return _newest_batch(self.spark / "offsets")

    def check_whole(self, committed: int) -> None:
        """Raise when a part of the directory was deleted or restored alone. `committed`: the state's last batch.

        The state is committed after Spark has noted a batch's positions and before it has noted that the batch is done.
        Going on otherwise would take batches for done that are not, or forget what the targets have been given.
        """
        noted, done = _newest_batch(self.spark / "offsets"), _newest_batch(self.spark / "commits")
        if not done <= committed <= noted:
            raise CorruptCheckpoint(
                f"the checkpoint's parts are not of one moment: Spark noted batch {noted} and did batch {done}, the "
                f"state is of batch {committed}; restore the whole directory, or begin with an empty one",
                directory=self.directory,
            )

    def wake_at(self, second: int | None) -> None:
        """Let the source begin a batch at this second although nothing new came, because something expires then."""
        text = "" if second is None else str(second)
        try:
            if not self.wake.exists() or self.wake.read_text(encoding="utf-8") != text:
                # A half-written number would wake too early or not at all, so it is replaced as a whole.
                whole = self.wake.with_suffix(".new")
                whole.write_text(text, encoding="utf-8")
                whole.replace(self.wake)
        except OSError as error:
            raise StorageError(f"cannot note when something expires: {error.strerror}", file=self.wake) from error

    def batch_time(self, batch: int, now_us: int) -> int:
        """The time of a batch: now, when it is done for the first time, and the same each time after that."""
        file = self.directory / "plans" / f"{batch}.json"
        try:
            if file.exists():
                return int(sealed.read(OsFiles(), str(file))["now_us"])
            sealed.write(OsFiles(), str(file.parent), file.name, {"now_us": now_us})
            (self.directory / "plans" / f"{batch - _PLANS_KEPT}.json").unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot note the time of a batch: {error.strerror}", file=file) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint("the plan of a batch is damaged", file=file) from error
        return now_us


def repaired_rows(directory: Path) -> Path | None:
    """Where the pipeline of a checkpoint reads repaired rows; None when no pipeline has used the directory here."""
    return directory / REPAIRED if (directory / "pipeline.json").exists() else None


def _newest_batch(directory: Path) -> int:
    """The newest batch that Spark has a file for; -1 when there is none."""
    names = os.listdir(directory) if directory.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


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
