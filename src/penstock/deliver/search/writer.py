"""The search writer: sends the documents of one task in bulk requests until each is taken or refused for good.

A request that got no answer, or that the cluster was too busy for, is sent again; versions make that harmless. Of a
request that was taken in part only the rest is sent again. A version that the index already has or has passed means
that the document is done. A document that the cluster will never take becomes a dead letter; a request that is refused
as a whole is halved until the document is found that it is refused for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog

from penstock.deliver.dead_letter import dead_letter
from penstock.deliver.search.client import Answer, Client, NoAnswer
from penstock.deliver.search.documents import Lines, bulk_lines
from penstock.deliver.search.indices import Indices, Seen
from penstock.deliver.search.mapping import IndexNote
from penstock.deliver.search.patience import Patience
from penstock.deliver.search.target import Target
from penstock.deliver.sink import DeadLetter, Delivered, Writer
from penstock.errors import DeliveryFailed, TargetRefused
from penstock.formats.search_fields import field_name
from penstock.model.schema import TableSchema
from penstock.records.records import Records

log = structlog.get_logger()

_PATH = "/_bulk?filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by"
_ALL_TAKEN = b'{"errors":false'
_BUSY = {408, 429, 500, 502, 503, 504}
_BUSY_ITEM = {429, 502, 503, 504}
# What makes an item wait although its status says otherwise: an index that is read-only because a disk is full.
_BUSY_ERRORS = {"cluster_block_exception", "unavailable_shards_exception", "node_closed_exception"}
_TOO_MUCH = {400, 413}
# A document that breaks the cluster's own code is tried a few times, then it is a dead letter.
_INTERNAL_TRIES = 5


@dataclass(frozen=True, slots=True)
class Bulk:
    """What goes into one request: stretches (lines, first, end) of entries."""

    stretches: tuple[tuple[Lines, int, int], ...]
    tries: int = 0

    def __len__(self) -> int:
        return sum(end - first for _, first, end in self.stretches)

    def body(self) -> bytes:
        return b"".join(lines.data[lines.offsets[a] : lines.offsets[b]] for lines, a, b in self.stretches)

    def entries(self) -> Iterator[tuple[Lines, int]]:
        for lines, first, end in self.stretches:
            for entry in range(first, end):
                yield lines, entry

    def halves(self) -> tuple[Bulk, Bulk]:
        entries = list(self.entries())
        middle = len(entries) // 2
        return bulk_of(entries[:middle], self.tries), bulk_of(entries[middle:], self.tries)


def bulk_of(entries: list[tuple[Lines, int]], tries: int) -> Bulk:
    """A request of single entries."""
    return Bulk(tuple((lines, entry, entry + 1) for lines, entry in entries), tries)


class SearchWriter(Writer):
    """Writes the documents of one task."""

    def __init__(
        self,
        sink: str,
        target: Target,
        client: Client,
        patience: Patience,
        indices: Indices,
        seen: Seen | None = None,
    ) -> None:
        self._sink = sink
        self._target = target
        self._indices = indices
        self._client = client
        self._patience = patience
        self._waiting: list[tuple[Lines, int, int]] = []
        self._waiting_bytes = 0
        self._waiting_count = 0
        self._delivered = Delivered()
        self._stale = 0
        self._seen = Seen() if seen is None else seen
        self._fields: dict[TableSchema, dict[str, str] | None] = {}

    def write(self, records: Records) -> None:
        if not len(records):
            return
        schema = records.schema
        index, note = self._target.index_of(schema.table), self._seen.notes.get(schema.table)
        if note is not None and note.is_of_another_table(schema):
            # That rows of a table are gone which was dropped: their documents are gone already.
            return
        if schema not in self._fields:
            self._fields[schema] = self._fields_of(schema, note)
        for lines in bulk_lines(records, index, self._fields[schema]):
            self._take(lines)

    def _fields_of(self, schema: TableSchema, note: IndexNote | None) -> dict[str, str] | None:
        """The columns that get into documents and their fields; None: all of them, under their own names."""
        columns = self._indices.columns(schema)
        own = tuple(field_name(column.name) for column in schema.key)
        key = own if note is None or len(note.key) != len(own) else note.key
        dropped = self._seen.dropped.get(schema.fingerprint, frozenset())
        if columns is None and key == own and not dropped:
            return None
        fields = {c.name: field_name(c.name) for c in schema.columns if columns is None or c.name in columns}
        fields = {name: to for name, to in fields.items() if to not in dropped}
        return {**fields, **{column.name: name for column, name in zip(schema.key, key, strict=True)}}

    def _take(self, lines: Lines) -> None:
        """Put entries where they wait, and send whatever makes a full request."""
        start, end = 0, len(lines)
        while start < end:
            room = self._target.bulk_bytes_max - self._waiting_bytes
            # The last entry that still fits; the first of a request always does.
            fits = int(np.searchsorted(lines.offsets, int(lines.offsets[start]) + room, "right")) - 1
            stop = min(end, fits, start + self._target.bulk_documents_max - self._waiting_count)
            if stop <= start:
                if self._waiting:
                    self._send_waiting()
                    continue
                stop = start + 1
            self._waiting.append((lines, start, stop))
            self._waiting_bytes += int(lines.offsets[stop] - lines.offsets[start])
            self._waiting_count += stop - start
            start = stop

    def finish(self) -> Delivered:
        self._send_waiting()
        self._client.close()
        if self._stale:
            log.debug("search index had newer versions", documents=self._stale)
        return self._delivered

    def abort(self) -> None:
        self._waiting.clear()
        self._client.close()

    def _send_waiting(self) -> None:
        if not self._waiting:
            return
        bulk = Bulk(tuple(self._waiting))
        self._delivered.bytes += self._waiting_bytes
        self._delivered.records += len(bulk)
        self._waiting, self._waiting_bytes, self._waiting_count = [], 0, 0
        self._deliver(bulk)

    def _deliver(self, bulk: Bulk) -> None:
        work = [bulk]
        while work:
            bulk = work.pop()
            answer = self._post(bulk)
            if answer.status in _TOO_MUCH:
                self._patience.over()
                if len(bulk) > 1:
                    work += bulk.halves()
                else:
                    (entry,) = bulk.entries()
                    self._refuse(entry, answer.reason())
                continue
            if answer.status != 200:
                raise TargetRefused(f"the search cluster refuses documents: {answer.reason()}", url=self._client.place)
            if answer.body.startswith(_ALL_TAKEN):
                self._patience.over()
                continue
            again = self._sort_out(bulk, answer.json())
            if again is not None:
                work.append(again)

    def _post(self, bulk: Bulk) -> Answer:
        body = bulk.body()
        while True:
            place = self._client.place
            try:
                answer = self._client.bulk(_PATH, body)
            except NoAnswer as error:
                self._patience.wait(error.message, url=place)
                continue
            if answer.status == 200:
                return answer
            reason = answer.reason()
            if answer.status not in _BUSY and reason not in _BUSY_ERRORS:
                return answer
            self._patience.wait(reason, url=place)

    def _sort_out(self, bulk: Bulk, answer: Any) -> Bulk | None:
        """What is left to send after a request that was taken in part."""
        items = answer.get("items") if isinstance(answer, dict) else None
        entries = list(bulk.entries())
        if not isinstance(items, list) or len(items) != len(entries):
            raise DeliveryFailed("a bulk request was not answered item by item", url=self._client.place)
        again: list[tuple[Lines, int]] = []
        busy = ""
        for entry, item in zip(entries, items, strict=True):
            ((action, result),) = item.items()
            status, error = int(result["status"]), result.get("error") or {}
            if status in (200, 201) or (action == "delete" and status == 404 and not error):
                continue
            if status == 409:
                self._stale += 1
                continue
            kind = str(error.get("type", f"status {status}"))
            if status in _BUSY_ITEM or kind in _BUSY_ERRORS or (status == 500 and bulk.tries < _INTERNAL_TRIES):
                again.append(entry)
                busy = kind
            elif kind in ("index_not_found_exception", "security_exception") or status in (401, 403):
                table = entry[0].records.schema.table
                raise TargetRefused(
                    f"the search cluster refuses documents: {kind}", url=self._client.place, table=table
                )
            else:
                self._refuse(entry, _reason(kind, error))
        if not again:
            self._patience.over()
            return None
        self._patience.wait(busy, url=self._client.place)
        return bulk_of(again, bulk.tries + 1)

    def _refuse(self, entry: tuple[Lines, int], reason: str) -> None:
        lines, number = entry
        table = lines.records.schema.table
        if len(self._delivered.dead) >= self._target.refused_documents_max:
            index = self._target.index_of(table)
            raise TargetRefused(
                "the search cluster refuses more documents than search.refused_documents_max", table=table, index=index
            )
        letter: DeadLetter = dead_letter(self._sink, lines.records, int(lines.numbers[number]), reason)
        self._delivered.dead.append(letter)
        self._delivered.records -= 1


def _reason(kind: str, error: dict[str, Any]) -> str:
    """What the cluster said, and why."""
    text = f"{kind}: {error.get('reason', '')}"
    cause = error.get("caused_by")
    if isinstance(cause, dict):
        text += f"; {cause.get('type', '')}: {cause.get('reason', '')}"
    return text
