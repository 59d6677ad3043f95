"""Collector: gathers the records of one table in one task, and turns row states into whole rows all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.fold.exact import Told
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op
from penstock.model.schema import TableSchema
from penstock.records.records import Records, images

_OPS = {op: number for number, op in enumerate(Op)}


@dataclass(frozen=True, slots=True)
class News:
    """Changes that make records: encoded, and of each its version, the number of its operation and its write time.

    Many sinks want rows and never look at the changes, so these are put together when they are asked for.
    """

    changes: Callable[[], bytes]
    versions: Any
    ops: Any
    # None where one of them may have none.
    times: Any


class Collector:
    """`images` are made of states as they are at `now_s`; `before` says whether the rows before are wanted too."""

    def __init__(self, schema: TableSchema, now_s: int, *, before: bool) -> None:
        self._schema = schema
        self._now_s = now_s
        self._before = before
        self._changes: list[Callable[[], bytes]] = []
        self._states: list[bytes | memoryview] = []
        self._state_count = 0
        self._afters: list[Any] = []
        self._befores: list[Any] = []
        self._versions: list[Any] = []
        self._ops: list[Any] = []
        self._times: list[Any] = []
        self.parts = 0

    def add(
        self, news: News, states: Sequence[bytes | memoryview], state_count: int, afters: Any, befores: Any
    ) -> None:
        """Records: their changes, some states, and per record the numbers of its states among them (-1: none)."""
        if not len(news.versions):
            return
        self.parts += 1
        self._changes.append(news.changes)
        self._states += [part for part in states if len(part)]
        for numbers, out in ((afters, self._afters), (befores, self._befores)):
            out.append(np.where(numbers < 0, -1, numbers + self._state_count))
        self._versions.append(news.versions)
        self._ops.append(news.ops)
        self._times.append(news.times)
        self._state_count += state_count

    def add_told(self, told: list[Told]) -> None:
        """Records of the exact fold."""
        if not told:
            return
        states: list[Change] = []
        numbers = np.full((len(told), 2), -1, np.int64)
        for index, one in enumerate(told):
            for side, state in enumerate((one.after, one.before if self._before else None)):
                if state is not None:
                    numbers[index, side] = len(states)
                    states.append(state)
        changes = avro.encode(self._schema, [one.change for one in told])
        encoded = avro.encode(self._schema, states)
        news = News(
            lambda: bytes(changes.rows),
            np.array([one.version for one in told], np.int64),
            np.array([_OPS[one.change.op] for one in told], np.uint8),
            None,
        )
        self.add(news, [encoded.rows], len(states), numbers[:, 0], numbers[:, 1])

    def records(self, *, every: bool, single: bool) -> Records | None:
        """All of them, or with `every` False only the last of each row; None when there are none.

        `single` says that no row has more than one.
        """
        if not self.parts:
            return None
        versions = np.concatenate(self._versions)
        states = self._states[0] if len(self._states) == 1 else b"".join(self._states)
        rows = images(self._schema, ChangeBatch(self._schema, self._state_count, states), self._now_s)
        made = Records(
            self._schema,
            lambda: ChangeBatch(self._schema, len(versions), b"".join(changes() for changes in self._changes)),
            _taken(rows, np.concatenate(self._afters)),
            _taken(rows, np.concatenate(self._befores)) if self._before else None,
            pa.array(versions, pa.int64()),
            np.concatenate(self._ops),
            None if any(times is None for times in self._times) else np.concatenate(self._times),
            single,
        )
        return made if every or single else made.last()


def _taken(rows: pa.StructArray, numbers: Any) -> pa.StructArray:
    if len(numbers) == len(rows) and (numbers == np.arange(len(numbers))).all():
        return rows
    return rows.take(pa.array(numbers, pa.int64(), mask=numbers < 0))
