"""The console sink: records as lines of JSON, written by the driver to a stream. For trying things out.

Tasks render at most so many records and say how many more there were. A batch that is done again after a crash is shown
again: a terminal has no memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, ClassVar, TextIO

import pyarrow.compute as pc

from penstock.deliver.sink import Delivered, Sink, Task, Writer
from penstock.records.json_lines import lines
from penstock.records.records import Records
from penstock.settings import RecordType
from penstock.settings.sinks import ConsoleSettings


class ConsoleSink(Sink):
    """Shows records."""

    name: ClassVar[str] = "console"

    def __init__(self, settings: ConsoleSettings, stream: TextIO | None = None) -> None:
        self.record = settings.record
        self.every = True
        self._settings = settings
        self._stream = stream

    def __getstate__(self) -> dict[str, Any]:
        # A stream belongs to its process; only the driver writes.
        return {**self.__dict__, "_stream": None}

    def writer(self, task: Task) -> Writer:  # noqa: ARG002
        return ConsoleWriter(self._settings, self.record)

    def commit(self, pipeline: str, batch: int, payloads: Sequence[bytes]) -> None:  # noqa: ARG002
        stream = self._stream or sys.stdout
        for payload in payloads:
            if payload:
                stream.write(payload.decode())
        stream.flush()


class ConsoleWriter(Writer):
    """Renders the first records of one task."""

    def __init__(self, settings: ConsoleSettings, record: RecordType) -> None:
        self._settings = settings
        self._record = record
        self._lines: list[str] = []
        self._seen = 0

    def write(self, records: Records) -> None:
        room = self._settings.records_max - len(self._lines)
        self._seen += len(records)
        if room <= 0 or not len(records):
            return
        shown = records if len(records) <= room else records.take(range(room))
        limit = self._settings.record_characters_max
        text = lines(shown, self._record)
        cut = pc.utf8_slice_codeunits(text, 0, limit)
        ends = pc.if_else(pc.greater(pc.utf8_length(text), limit), "…\n", "\n")
        table = json.dumps(str(records.schema.table), ensure_ascii=False)[1:-1]
        self._lines += pc.binary_join_element_wise(f"{table} ", cut, ends, "").to_pylist()

    def finish(self) -> Delivered:
        text = "".join(self._lines)
        if self._seen > len(self._lines):
            text += f"… and {self._seen - len(self._lines)} more\n"
        return Delivered(records=self._seen, bytes=len(text), payload=text.encode())
