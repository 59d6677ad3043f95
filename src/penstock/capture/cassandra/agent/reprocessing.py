"""Reading a segment again: entries of a failed one that were left out, or that came while their table was truncated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from penstock.capture.cassandra.agent.directory import SegmentFile
from penstock.capture.cassandra.agent.failed_segments import FailedSegment, missing_entries
from penstock.capture.cassandra.agent.segment_keys import key, segment_id
from penstock.capture.cassandra.decoding.decoder import Decoder, MemoryParking
from penstock.capture.cassandra.decoding.era_division import Overtaken
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, SegmentReader
from penstock.errors import CorruptSegment, StorageError, UnsupportedFormat
from penstock.formats import avro
from penstock.model.batch import ChangeBatch
from penstock.system.clock import Clock

log = structlog.get_logger()


def read_again(
    segment: FailedSegment, decoder: Decoder, keys: KeyStore | None, chunk_bytes: int
) -> Iterator[Damage | None]:
    """Decode what was left out. Yields each damage that is still there, and None when it is time to append.

    Raises what opening the segment raises: a format that is still unknown, a file that is gone.
    """
    with SegmentReader(segment.path, keys=keys) as reader:
        decoder.begin(reader.header, reader.name)
        for item in reader.sections():
            if isinstance(item, Damage):
                if any(found.start <= item.position < found.end for found in segment.ranges):
                    yield item
                continue
            for entry in missing_entries(item, segment.ranges):
                decoder.decode(entry)
                found, decoder.damage = decoder.damage, []
                yield from found
                if decoder.pending_bytes >= chunk_bytes:
                    yield None
    yield None


def decode_overtaken(
    overtaken: Overtaken, segments: Iterable[SegmentFile], schemas: Schemas, keys: KeyStore | None, clock: Clock
) -> Iterator[list[ChangeBatch]]:
    """The changes of one table between two places, as they are decoded now."""
    (first, after), (last, _) = overtaken.after, overtaken.until
    found = {file.id: file for file in segments if first <= file.id <= last}
    if not {first, last} <= found.keys():
        log.error(
            "writes during a truncation not read again", table=str(overtaken.table), segment=first, position=after
        )
    decoder = Decoder(schemas, captures=lambda table: table.id == overtaken.table, parking=MemoryParking(), clock=clock)
    for id_, file in sorted(found.items()):
        begin = after if id_ == first else 0
        try:
            with SegmentReader(file.path, keys=keys) as reader:
                decoder.begin(reader.header, reader.name)
                for item in reader.sections(begin):
                    if not isinstance(item, Damage):
                        decoder.decode(item, begin)
                        yield [kept for batch in decoder.take() if (kept := _between(batch, overtaken)) is not None]
        except (CorruptSegment, UnsupportedFormat, StorageError) as error:
            log.error("writes during a truncation not read again", table=str(overtaken.table), error=str(error))


def _between(batch: ChangeBatch, overtaken: Overtaken) -> ChangeBatch | None:
    if not batch.schema.id or batch.schema.id != str(overtaken.table):
        return None
    places = [(segment_id(found), found[1]) for change in avro.decode(batch) if (found := key(change)) is not None]
    return avro.select(batch, [overtaken.after < place <= overtaken.until for place in places])
