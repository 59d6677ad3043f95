"""The changes of a list of segments, over all tables, in the order of the log.

The decoder gives batches by table; people want to read what happened. So the rows of each stretch of a segment are
decoded and merged by position and place in the mutation. Entries that had to wait for their table's definition come
when it does, in their own order, with the origin that they have. Memory is bounded: a stretch is a few megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.capture.cassandra.decoding.decoder import Decoder
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, Section, SegmentReader
from penstock.formats import avro
from penstock.model.change import Change
from penstock.model.schema import TableSchema

# Rows that are decoded at once; as Python objects they take about thirty times that.
_STRETCH_BYTES = 1 << 20


class LoggedChange(NamedTuple):
    """A change with what is needed to print it: id and format of its segment too."""

    change: Change
    schema: TableSchema
    segment: int
    format: int


class SegmentChanges:
    """Reads segments one after another with one decoder. Damage goes to `damaged`, never up as an error."""

    def __init__(self, decoder: Decoder, damaged: Callable[[Damage], None], keys: KeyStore | None = None) -> None:
        self._decoder = decoder
        self._damaged = damaged
        self._keys = keys
        # By file name the segment's id and format.
        self._segments: dict[str, tuple[int, int]] = {}

    def read(self, path: str) -> Iterator[LoggedChange]:
        """The changes of one segment. Raises what opening it raises."""
        with SegmentReader(path, keys=self._keys) as reader:
            self._segments[reader.name] = reader.header.id, reader.header.format
            self._decoder.begin(reader.header, reader.name)
            for item in reader.sections():
                if isinstance(item, Damage):
                    self._damaged(item)
                else:
                    yield from self._section(item)

    def _section(self, section: Section) -> Iterator[LoggedChange]:
        after = 0
        while True:
            reached = self._decoder.decode(section, after, _STRETCH_BYTES)
            yield from self._taken()
            for damage in self._decoder.damage:
                self._damaged(damage)
            self._decoder.damage.clear()
            if reached <= after or reached >= section.start + len(section.data):
                return
            after = reached

    def _taken(self) -> Iterator[LoggedChange]:
        batches = self._decoder.take()
        if len(batches) == 1:
            # One table's changes are in order already.
            yield from self._logged(batches[0].schema, avro.decode(batches[0]))
            return
        found = [one for batch in batches for one in self._logged(batch.schema, avro.decode(batch))]
        found.sort(key=_place)
        yield from found

    def _logged(self, schema: TableSchema, changes: list[Change]) -> Iterator[LoggedChange]:
        for change in changes:
            yield LoggedChange(change, schema, *self._segments[change.origin.file or ""])


def _place(logged: LoggedChange) -> tuple[int, int, int]:
    origin = logged.change.origin
    return logged.segment, origin.position or 0, origin.ordinal or 0
