"""ReplayedLog: one table's log as it is read for the second time, file by file, as far as it is durable now.

A file's header says what the table is, also when no change follows, so a read never goes past the end of a file: the
next header is given before the changes behind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import CorruptCheckpoint, CorruptLog, InvalidValue, PenstockError
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.watermark import Watermark
from penstock.model.batch import ChangeBatch
from penstock.model.position import START, Position
from penstock.model.schema import Order, TableSchema
from penstock.system.files import Files


class ReplayedLog:
    """One log and how far it was read. For one thread."""

    def __init__(self, directory: str, ordered_by: Order | None, files: Files) -> None:
        self._reader = LogReader(directory, files=files)
        self.table = self._reader.table
        # What the last header says; None before the first.
        self.schema: TableSchema | None = None
        # The node that wrote the log, as its first file says.
        self.node, self.data_centre = "", ""
        self._ordered_by = ordered_by
        self._after = START
        # The file that is being read; 0 before the first.
        self._file = 0
        # How many changes of the log, from its first on, lie before the place.
        self._rows = 0
        # How far the log was durable when it was last looked at: nothing beyond that is gone into, neither changes nor
        # headers, or a file would be left that was written to meanwhile.
        self._mark = Watermark(0, 0, 0)
        # The last schema that was given another order, and what became of it.
        self._last: tuple[TableSchema | None, TableSchema | None] = None, None
        self._batches: Iterator[ChangeBatch] | None = None
        self._next: ChangeBatch | None = None

    @property
    def behind(self) -> int:
        """Changes that the log had at the last look and that were not read yet."""
        return max(0, self._mark.rows - self._rows)

    def go_to(self, place: Mapping[str, Any]) -> None:
        """Read on after a place that `place` gave."""
        try:
            log_id, after = str(place["log"]), Position.parse(str(place["after"]))
            file, rows = int(place["file"]), int(place["rows"])
        except (KeyError, TypeError, ValueError, InvalidValue) as error:
            message = f"the place in a log makes no sense: {error}"
            raise CorruptCheckpoint(message, directory=self._reader.directory) from error
        if log_id != self._reader.log_id:
            raise CorruptLog("another log stands where one was read before", directory=self._reader.directory)
        self._after, self._file, self._rows = after, file, rows

    def place(self) -> dict[str, Any]:
        """Where to read on."""
        return {"log": self._reader.log_id, "after": str(self._after), "file": self._file, "rows": self._rows}

    def look(self) -> None:
        """Find out who wrote the log and what its table is now."""
        numbers = self._reader.numbers()
        if not numbers:
            return
        first = self._reader.heading(numbers[0])
        self.node, self.data_centre = first.node, first.data_centre
        if self._file in numbers:
            self.schema = self._ordered(self._reader.heading(self._file).schema)

    def read(self, bytes_max: int) -> tuple[list[ChangeBatch], TableSchema | None]:
        """What is new, and a header that follows it. Nothing of either: all that is durable was read.

        What comes before something that cannot be read is given first; the next read raises.
        """
        batches: list[ChangeBatch] = []
        try:
            if self._file == 0:
                return [], self._begin()
            while sum(len(batch.rows) for batch in batches) < bytes_max:
                batch = self._peek()
                if batch is None or batch.file != self._file:
                    return batches, self._turn(batch)
                if len(batch):
                    batches.append(self._given(batch))
                self._next = None
                self._rows += self._passed(batch)
                self._after = batch.last
        except PenstockError:
            self.rest()
            if not batches:
                raise
        return batches, None

    def rest(self) -> None:
        """Give back what is open. The next read opens the files anew, which may be others by then."""
        self._batches = self._next = None
        self._reader.close()

    def _begin(self) -> TableSchema | None:
        numbers = self._reader.numbers()
        if not numbers:
            return None
        heading = self._reader.heading(numbers[0])
        self._file, self._rows = heading.number, heading.rows_before
        self.schema = self._ordered(heading.schema)
        return self.schema

    def _peek(self) -> ChangeBatch | None:
        """The next batch; None at the durable end as it is now."""
        if self._next is None:
            if self._batches is None:
                mark = self._mark = self._reader.watermark()
                if mark.last == self._after:
                    return None
                self._batches = self._reader.read_to(mark, self._after)
            self._next = next(self._batches, None)
            if self._next is None:
                self._batches = None
        return self._next

    def _turn(self, batch: ChangeBatch | None) -> TableSchema | None:
        """The current file is read: go to the next one, if there is one that is durable."""
        numbers = self._reader.numbers()
        end = batch.file if batch is not None else self._mark.file
        place = bisect_right(numbers, self._file)
        if place == len(numbers) or numbers[place] > end:
            return None
        heading = self._reader.heading(numbers[place])
        self.schema = self._ordered(heading.schema)
        self._file = heading.number
        return self.schema

    def _passed(self, batch: ChangeBatch) -> int:
        """How many changes of the log lie in a batch that had not been passed, erased ones too."""
        same = (batch.file, batch.offset) == (self._after.file, self._after.offset)
        return batch.count - (self._after.ordinal + 1 if same and self._after != START else 0)

    def _given(self, batch: ChangeBatch) -> ChangeBatch:
        """The batch as one that was not appended yet."""
        schema = self._ordered(batch.schema)
        made = avro.select(batch, [True] * len(batch))
        assert made is not None, "a batch with changes"
        return replace(made, schema=schema)

    def _ordered(self, schema: TableSchema) -> TableSchema:
        if self._ordered_by is None or schema.ordered_by is self._ordered_by:
            return schema
        known, given = self._last
        if known is not schema:
            given = replace(schema, ordered_by=self._ordered_by)
            self._last = schema, given
        assert given is not None
        return given
