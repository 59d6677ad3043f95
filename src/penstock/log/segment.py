"""Segments: the numbered Avro files of a log. Only this module and `block` touch their bytes.

A segment begins with an Avro container header whose metadata says what no reader should have to guess: the table's
schema, the log it belongs to, where the file before it ended, and the running maxima that searches by time and by
transaction go by. The header is written to a temporary name and renamed, so a segment that can be seen has it whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from penstock.errors import CorruptLog, PenstockError, UnsupportedFormat
from penstock.formats import avro, container
from penstock.log.block import SYNC_BYTES, Block, TornBlock, parse
from penstock.log.index import NO_TIME
from penstock.log.names import TEMPORARY
from penstock.model.position import START, Position
from penstock.model.schema import TableSchema
from penstock.settings import Codec
from penstock.system import json_text
from penstock.system.files import File, Files

FORMAT = 1
# More than any table's header needs.
_HEADER_BYTES_MAX = 16 << 20
_HEADER_BYTES_FIRST = 64 << 10
_READ_BYTES = 1 << 20
# No block that we wrote is larger: `block_bytes_max` at its own maximum, and some room for the codec.
BLOCK_BYTES_MAX = (1 << 30) + (1 << 20)


@dataclass(frozen=True, slots=True)
class Heading:
    """What a segment's header says."""

    number: int
    log: str
    schema: TableSchema
    codec: Codec
    sync: bytes
    # Length of the header itself: where the first block begins.
    size: int = 0
    # Where the file before it ended; zero in the first one.
    previous_end: int = 0
    # Of the whole log, at the beginning of this file.
    rows_before: int = 0
    last: Position = START
    when_max: int = NO_TIME
    # Greatest sequence per transaction domain (as a digest).
    sequences: dict[int, int] = field(default_factory=dict)
    # At most this many bytes of data can have index entries that were not synced.
    unsynced_max: int = 0
    node: str = ""
    data_centre: str = ""


def create(files: Files, path: str, directory: str, heading: Heading) -> tuple[File, Heading]:
    """Make a new segment, durable under its name, and return it open for writing."""
    state = {
        "previous_end": heading.previous_end,
        "rows_before": heading.rows_before,
        "last": str(heading.last),
        "when_max": heading.when_max,
        "unsynced_max": heading.unsynced_max,
        "sequences": {f"{domain:016x}": sequence for domain, sequence in heading.sequences.items()},
    }
    metadata = {
        "penstock.format": str(FORMAT).encode(),
        "penstock.schema": json.dumps(heading.schema.to_json()).encode(),
        "penstock.log": heading.log.encode(),
        "penstock.file": str(heading.number).encode(),
        "penstock.state": json.dumps(state).encode(),
        "penstock.node": heading.node.encode(),
        "penstock.data_centre": heading.data_centre.encode(),
    }
    data = container.header(avro.schema_json(heading.schema), metadata, heading.codec, heading.sync)
    temporary = path + TEMPORARY
    file = files.open(temporary, write=True, create=True)
    try:
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
        files.rename(temporary, path)
        files.sync_directory(directory)
    except BaseException:
        file.close()
        raise
    return file, parse_heading(data, path)


def read_heading(file: File, path: str) -> Heading:
    """The heading of an open segment. CorruptLog or UnsupportedFormat when it is none of ours."""
    size = file.size()
    if size == 0:
        raise CorruptLog("the file is empty", file=path, offset=0)
    data = file.pread(min(size, _HEADER_BYTES_FIRST), 0)
    try:
        return parse_heading(data, path)
    except CorruptLog:
        if size <= len(data):
            raise
    return parse_heading(file.pread(min(size, _HEADER_BYTES_MAX), 0), path)


def parse_heading(data: bytes, path: str) -> Heading:
    """The heading at the start of `data`."""
    try:
        header = container.parse_header(data)
    except PenstockError as error:
        raise type(error)(error.message, **{**error.place, "file": path}) from error
    metadata = header.metadata
    if "penstock.format" not in metadata:
        raise UnsupportedFormat("an Avro file, but not one of a change log", file=path)
    version = metadata["penstock.format"]
    if version != str(FORMAT).encode():
        shown = version[:20].decode("ascii", "replace")
        raise UnsupportedFormat(f"change-log format {shown!r}; this version reads {FORMAT}", file=path)
    try:
        state = json_text.parse(metadata["penstock.state"])
        return Heading(
            number=int(metadata["penstock.file"]),
            log=metadata["penstock.log"].decode(),
            schema=_schema(metadata["penstock.schema"]),
            codec=header.codec,
            sync=header.sync,
            size=header.size,
            previous_end=int(state["previous_end"]),
            rows_before=int(state["rows_before"]),
            last=Position.parse(state["last"]),
            when_max=int(state["when_max"]),
            unsynced_max=int(state["unsynced_max"]),
            sequences={int(domain, 16): int(sequence) for domain, sequence in state["sequences"].items()},
            node=metadata["penstock.node"].decode(),
            data_centre=metadata["penstock.data_centre"].decode(),
        )
    except (KeyError, ValueError, TypeError, AttributeError, PenstockError) as error:
        raise CorruptLog("the file's header is damaged", file=path, offset=0) from error


@lru_cache(maxsize=256)
def _schema(text: bytes) -> TableSchema:
    """One object per schema, however many files carry it: what the formats prepare for a schema is kept with it."""
    return TableSchema.from_json(json_text.parse(text))


def blocks(file: File, heading: Heading, start: int, limit: int, *, keep: bool = True) -> Iterator[Block]:
    """The blocks from offset `start` up to `limit`, each checked; TornBlock at the first that is not whole.

    Without `keep`, the page cache need not keep what had to be read from the disk for this.
    """
    # One buffer is filled again and again: new memory for each read costs more than the reading.
    at = base = start
    data = memoryview(bytearray(min(_READ_BYTES, max(0, limit - start))))
    filled = 0
    while at < limit:
        found = parse(data[:filled], at - base, base, heading.codec, heading.sync, BLOCK_BYTES_MAX)
        if isinstance(found, Block):
            yield found
            at = found.end
            continue
        # Not enough bytes at hand: behind what is there of the block, at least as much as it needs. Nothing is read
        # twice, for it may not have been kept.
        if found > limit - at:
            raise TornBlock("the file ends inside a block")
        part = data[at - base : filled]
        size = min(max(_READ_BYTES, found), limit - at)
        if not size <= len(data) <= max(size, _READ_BYTES):
            data = memoryview(bytearray(size))
        data[: len(part)] = part
        base, filled = at, len(part) + file.fetch(data[len(part) : size], at + len(part), keep=keep)
        if filled < found:
            raise TornBlock("the file ends inside a block")


def begins_block(file: File, heading: Heading, offset: int) -> bool:
    """Whether a block can begin at `offset`: a sync marker stands before each."""
    if offset < heading.size:
        return False
    return file.pread(SYNC_BYTES, offset - SYNC_BYTES) == heading.sync


def next_block(file: File, heading: Heading, start: int, limit: int) -> Block | None:
    """The first whole block at or after `start`: how damage inside is told from a torn tail, and how it is passed."""
    at = start
    overlap = SYNC_BYTES - 1
    while at < limit:
        data = file.pread(min(_READ_BYTES, limit - at), at)
        if len(data) <= overlap:
            return None
        found = data.find(heading.sync)
        while found >= 0:
            candidate = at + found + SYNC_BYTES
            try:
                block = next(blocks(file, heading, candidate, limit), None)
            except TornBlock:
                block = None
            if block is not None:
                return block
            found = data.find(heading.sync, found + 1)
        at += len(data) - overlap
    return None
