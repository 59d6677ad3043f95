"""Held: logs of tables that a query leaves where they are, because something is wrong with their tables.

Spark notes how far a batch goes before anything of it is read, so a table may turn out to be in trouble when its logs
have moved already. The batch then leaves them out, and the next offset has them where they were before it: a log that
is set back is read from there as soon as its table is no longer held. Until then its subscription stays too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import ChangesLost, CorruptData, PositionAhead, StorageError, UnsupportedFormat
from penstock.model.schema import TableId
from penstock.pipeline.source.reach import Reach, parse
from penstock.system import json_text

if TYPE_CHECKING:
    from penstock.pipeline.source.places import Address

# Errors that a single log may be the cause of.
_OF_ONE_LOG = (CorruptData, ChangesLost, PositionAhead, StorageError, UnsupportedFormat)


@dataclass(frozen=True, slots=True)
class Held:
    """What a query is told when it starts."""

    tables: frozenset[TableId] = frozenset()
    # Tables of which the next batch reads nothing, because it sets logs of theirs back.
    waiting: frozenset[TableId] = frozenset()
    logs: frozenset[str] = frozenset()
    # Logs that the last noted batch has moved in vain: where they were (None: they were new), and where it has them.
    back: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    # Those of them of which that batch reads nothing at all, should it be done again.
    unread: frozenset[str] = frozenset()

    def to_text(self) -> str:
        """The value of the source's option `held`."""
        return json.dumps(
            {
                "tables": sorted(self.tables),
                "waiting": sorted(self.waiting),
                "logs": sorted(self.logs),
                "back": {log: list(reaches) for log, reaches in self.back.items()},
                "unread": sorted(self.unread),
            }
        )

    @staticmethod
    def from_text(text: str) -> Held:
        """The inverse; ValueError."""
        try:
            data: dict[str, Any] = json_text.parse(text)
            tables, waiting = (
                frozenset(TableId(str(keyspace), str(table)) for keyspace, table in data[part])
                for part in ("tables", "waiting")
            )
            back = {str(log): (before, str(after)) for log, (before, after) in data["back"].items()}
            return Held(tables, waiting, frozenset(data["logs"]), back, frozenset(data["unread"]))
        except (KeyError, TypeError, AttributeError):
            raise ValueError("a JSON object with tables, waiting, logs, back and unread") from None


NOTHING = Held()


class SetBack:
    """The logs that are to be set back, as the planner goes on."""

    def __init__(self, held: Held) -> None:
        self._pending = {
            log: (None if before is None else parse(before), parse(after)) for log, (before, after) in held.back.items()
        }
        self._unread = set(held.unread)
        self._waiting = held.waiting
        # Where a batch had them that did not deliver them.
        self._undelivered = {log: after for log, (_, after) in self._pending.items()}

    def apply(self, offset: dict[str, Reach]) -> frozenset[TableId]:
        """Set logs back in the first offset that is made; the tables of which that batch reads nothing."""
        for log, (before, after) in self._pending.items():
            if offset.get(log) != after:
                continue
            if before is None:
                del offset[log]
            else:
                offset[log] = before
        waiting, self._waiting = self._waiting, frozenset()
        self._pending.clear()
        self._unread.clear()
        return waiting

    def unread(self, log: str) -> bool:
        """Whether the batch that is planned leaves a log out although its positions say otherwise."""
        return log in self._unread

    def planned(self, logs: Iterable[str]) -> None:
        """These logs are read on."""
        for log in logs:
            self._undelivered.pop(log, None)

    def delivered(self, end: Mapping[str, Reach]) -> dict[str, Reach]:
        """An offset without the logs whose changes it does not stand for."""
        return {log: reach for log, reach in end.items() if self._undelivered.get(log) != reach}


@contextmanager
def naming(addresses: Callable[[], Iterable[Address]]) -> Iterator[None]:
    """Let errors that are about one log name its table, when that can be told."""
    try:
        yield
    except _OF_ONE_LOG as error:
        if "table" in error.place:
            raise
        where = str(error.place.get("file") or error.place.get("directory") or "")
        for address in addresses():
            root = address.directory or address.log_id
            if where == root or where.startswith(f"{root}/"):
                raise type(error)(error.message, **error.place, table=address.table) from error
        raise
