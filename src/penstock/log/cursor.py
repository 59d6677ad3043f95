"""Cursor: a place in a log that is read again and again as the log grows.

It keeps the newest file open, so that one more look at the end costs two reads from the page cache: the watermark and
the new block.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import CorruptLog
from penstock.log import segment
from penstock.log.block import TornBlock
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.segment import Heading
from penstock.model.batch import ChangeBatch
from penstock.model.position import Position
from penstock.system.files import File


class Cursor:
    """Reads what is new behind `position`, each time that it is asked."""

    def __init__(self, reader: LogReader, after: Position) -> None:
        self.position = after
        self._reader = reader
        # The newest file and how far it was read, once everything before was.
        self._file: File | None = None
        self._heading: Heading | None = None
        self._offset = 0

    def read(self) -> Iterator[ChangeBatch]:
        """The changes behind `position` that are durable now; `position` moves with every batch taken."""
        mark = self._reader.watermark()
        if mark.last <= self.position:
            return
        if self._file is not None and self._heading is not None and self._heading.number == mark.file:
            yield from self._read_newest(self._file, self._heading, mark.end)
            return
        self.close()
        for batch in self._reader.read_to(mark, self.position):
            self.position = batch.last
            yield batch
        if mark.last.file == mark.file:
            # A file without changes may still be made anew under its number.
            self._file, self._heading = self._reader.open(mark.file), self._reader.heading(mark.file)
            self._offset = mark.end

    def _read_newest(self, file: File, heading: Heading, limit: int) -> Iterator[ChangeBatch]:
        try:
            for block in segment.blocks(file, heading, self._offset, limit):
                batch = self._reader.batch(heading, block)
                self.position, self._offset = batch.last, block.end
                yield batch
        except TornBlock as torn:
            path = self._reader.path(heading.number)
            raise CorruptLog(f"damage inside the log: {torn.reason}", file=path, offset=self._offset) from torn
        except OSError as error:
            raise refused(error, "reading a file of the log", self._reader.path(heading.number)) from error

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = self._heading = None
