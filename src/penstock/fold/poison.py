"""Poison: changes that can never be folded, found among those that can.

A change without a write time, with half a key, or with bytes that no value of its column has, would stop its batch each
time that it is tried. When a batch fails in such a way, its runs are halved until every change that fails by itself
stands alone; the others go on. This is the slow way, and only a batch that failed takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from penstock.errors import CorruptLog, InvalidValue, PenstockError
from penstock.fold.bucket import BucketState
from penstock.fold.folder import Folder
from penstock.formats import avro
from penstock.formats.arrow import to_arrow
from penstock.model.schema import TableSchema
from penstock.records import keys
from penstock.records.runs import Run
from penstock.settings import MergeSettings, RecordType

# How the fold, and whoever encodes its records, refuses changes.
REFUSALS = (InvalidValue, CorruptLog)
# With more than these in one bucket of a batch it is not single changes that are wrong, but their source or a setting.
_POISON_MAX = 1000


class Poison(NamedTuple):
    """A change as its encoded row, and why it cannot be folded."""

    schema: TableSchema
    row: bytes
    reason: str


def sift(runs: Sequence[Run], record: RecordType) -> tuple[list[Run], list[Poison]]:
    """The runs without the changes that cannot become records of this type, and those; of copies of one only the first.

    Raises CorruptLog when a run is so damaged that nobody can say where its changes end, and InvalidValue when they are
    too many to be an accident.
    """
    good: list[Run] = []
    bad: dict[tuple[str, bytes], Poison] = {}
    folder = Folder(MergeSettings(), record, every=False)
    waiting = list(reversed(runs))
    while waiting:
        run = waiting.pop()
        error = _refusal(folder, run)
        if error is None:
            good.append(run)
        elif run.count > 1:
            waiting += reversed(_halves(run))
        else:
            content = keys.scan(run.batch()).hashes[:, keys.CONTENT_HIGH :].tobytes()
            bad.setdefault((run.schema.fingerprint, content), Poison(run.schema, bytes(run.rows), str(error)))
            if len(bad) > _POISON_MAX:
                message = (
                    f"more than {_POISON_MAX} changes of a batch cannot be folded, the last because: {error.message}"
                )
                raise InvalidValue(message, **{"table": run.schema.table, **error.place})
    return good, list(bad.values())


def _refusal(folder: Folder, run: Run) -> PenstockError | None:
    try:
        to_arrow(run.batch())
        for records in folder.fold([run], BucketState("", run.bucket, 0), now_s=0):
            to_arrow(records.changes)
    except REFUSALS as error:
        return error
    return None


def _halves(run: Run) -> list[Run]:
    rows = bytes(run.rows)
    middle = run.count // 2
    cut = int(np.frombuffer(avro.row_offsets(run.schema, rows, run.count), np.int64)[middle])
    return [replace(run, count=middle, rows=rows[:cut]), replace(run, count=run.count - middle, rows=rows[cut:])]
