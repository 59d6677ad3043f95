"""Reading a failed segment again: only the entries that were left out, from the file as it is now."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.capture.cassandra.agent.failed_segments import FailedSegment, missing_entries
from penstock.capture.cassandra.decoding.decoder import Decoder
from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.capture.cassandra.segments.sections import Damage, SegmentReader


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
