"""Troubles: tables that a pipeline has stopped at while the others go on, one small file each in its checkpoint.

A file says why, since when, and from where the table is read when it returns. It stands there before any target is
given the batch that leaves the table out, and goes when a batch with the table is committed; so a batch that is done
again leaves out the same tables. Whoever wants a table to be tried again leaves a request beside it: the pipeline that
runs takes it up within a second, one that starts tries all tables again anyhow.

    troubles/
      shop.orders.json     the trouble
      shop.orders.retry    the request
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import CorruptCheckpoint, PenstockError, StorageError
from penstock.log import names, sealed
from penstock.model.schema import TableId
from penstock.system.files import OsFiles, make_durable_directory

FORMAT = 1
_SUFFIX, _REQUEST = ".json", ".retry"
# Far more than a table with a log on each of ten thousand nodes needs.
_BYTES_MAX = 16 << 20
_REASON_CHARS = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Trouble:
    """One table that is left out."""

    table: TableId
    # The class of the error, and what it said.
    error: str
    reason: str
    since_us: int
    # How often it has been tried since then.
    tries: int = 0
    # When it is tried again by itself; None: not before someone asks, or the pipeline is started again.
    next_us: int | None = None
    # The batch whose positions include changes of the table that were not delivered; None: no batch does.
    batch: int | None = None
    # Of each log that moved in that batch: where it was before (None: it was new), and where the batch has it.
    moved: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    # All logs of the table that were known.
    logs: frozenset[str] = frozenset()
    # Buckets in which that batch took the table all the same: a target had its records there before the trouble came.
    taken: frozenset[int] = frozenset()
    # By bucket the second up to which the table's expiries were delivered.
    expired: Mapping[int, int] = field(default_factory=dict)
    # The first batch that the table takes part in again; None: it is held.
    trial: int | None = None

    @property
    def held(self) -> bool:
        return self.trial is None

    def aside(self, batch: int) -> bool:
        """Whether a batch leaves the table out."""
        return self.trial is None or batch < self.trial

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "table": list(self.table),
            "error": self.error,
            "reason": self.reason,
            "since_us": self.since_us,
            "tries": self.tries,
            "next_us": self.next_us,
            "batch": self.batch,
            "moved": {log: list(reaches) for log, reaches in self.moved.items()},
            "logs": sorted(self.logs),
            "taken": sorted(self.taken),
            "expired": {str(bucket): second for bucket, second in self.expired.items()},
            "trial": self.trial,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trouble:
        if data["format"] != FORMAT:
            raise ValueError(f"it is of format {data['format']!r}")
        keyspace, table = data["table"]
        return Trouble(
            table=TableId(str(keyspace), str(table)),
            error=str(data["error"]),
            reason=str(data["reason"]),
            since_us=int(data["since_us"]),
            tries=int(data["tries"]),
            next_us=_number(data["next_us"]),
            batch=_number(data["batch"]),
            moved={log: (_text(before), str(after)) for log, (before, after) in data["moved"].items()},
            logs=frozenset(map(str, data["logs"])),
            taken=frozenset(map(int, data["taken"])),
            expired={int(bucket): int(second) for bucket, second in data["expired"].items()},
            trial=_number(data["trial"]),
        )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def reason_of(error: PenstockError) -> str:
    """What an error says, as one line."""
    return _CONTROL.sub(" ", str(error))[:_REASON_CHARS]


class Troubles:
    """The directory. Only the pipeline's driver writes troubles; requests come from anyone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = OsFiles()

    def read(self) -> dict[TableId, Trouble]:
        """All of them. CorruptCheckpoint when one is damaged: without it, changes of its table would be passed over."""
        found = (self._read(self._directory / name) for name in self._names(_SUFFIX))
        return {trouble.table: trouble for trouble in found}

    def _read(self, file: Path) -> Trouble:
        try:
            return Trouble.from_json(sealed.read(self._files, str(file), _BYTES_MAX))
        except OSError as error:
            raise StorageError(f"cannot read what is wrong with a table: {error.strerror}", file=file) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint(f"what is wrong with a table is damaged: {error}", file=file) from error

    def write(self, trouble: Trouble) -> None:
        """Durable when this returns."""
        try:
            make_durable_directory(self._files, str(self._directory))
            name = f"{names.directory_name(trouble.table)}{_SUFFIX}"
            sealed.write(self._files, str(self._directory), name, trouble.to_json())
        except OSError as error:
            raise self._refused(error) from error

    def remove(self, table: TableId) -> None:
        """The table is well again."""
        try:
            (self._directory / f"{names.directory_name(table)}{_SUFFIX}").unlink(missing_ok=True)
            self._files.sync_directory(str(self._directory))
        except OSError as error:
            raise self._refused(error) from error

    def ask(self, table: TableId) -> bool:
        """Have a table tried again; False: there is no trouble with it."""
        name = names.directory_name(table)
        try:
            if not (self._directory / f"{name}{_SUFFIX}").exists():
                return False
            (self._directory / f"{name}{_REQUEST}").touch()
        except OSError as error:
            raise self._refused(error) from error
        return True

    def asked(self) -> set[str]:
        """The names of the tables' files that someone asks for."""
        return {name.removesuffix(_REQUEST) for name in self._names(_REQUEST)}

    def answered(self, name: str) -> None:
        """A request was taken up."""
        try:
            (self._directory / f"{name}{_REQUEST}").unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def _names(self, ending: str) -> list[str]:
        try:
            return sorted(name for name in self._files.list(str(self._directory)) if name.endswith(ending))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StorageError:
        return StorageError(f"cannot keep what is wrong with a table: {error.strerror}", directory=str(self._directory))
