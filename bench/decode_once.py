"""Decode segments once and say how many mutations there were: the cold side of the commit-log benchmark, a process.

It imports what decoding needs and nothing else, as the peer's process does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from penstock.capture.cassandra.decoding.decoder import Counts, Decoder, MemoryParking
from penstock.capture.cassandra.schema import file as schema_file
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.segments.sections import Damage, SegmentReader
from penstock.model.batch import ChangeBatch

# Blocks that stay in the processor's cache between decoder and log.
BATCH_BYTES = 1 << 20


def decode(files: Sequence[str], schemas: Schemas, *, keep: list[ChangeBatch] | None = None) -> Counts:
    """All segments to change batches, as the agent reads them; what becomes of those is not timed. Damage ends it."""
    decoder = Decoder(schemas, captures=lambda _: True, parking=MemoryParking(), batch_bytes_max=BATCH_BYTES)
    for file in files:
        with SegmentReader(file) as reader:
            decoder.begin(reader.header, reader.name)
            position = 0
            while (item := reader.live(position, final=True)) is not None:
                if isinstance(item, Damage):
                    raise SystemExit(f"{file}: {item}")
                position = decoder.decode(item, position)
                batches = decoder.take()
                if keep is not None:
                    keep += batches
    if decoder.damage:
        raise SystemExit(f"damage: {decoder.damage[0]}")
    return decoder.counts


def known(schema: str | None) -> Schemas:
    """The tables of a schema file, or none: then the segments must tell."""
    schemas = Schemas()
    for table in schema_file.load(schema) if schema else ():
        schemas.add(table)
    return schemas


def main(schema: str, *files: str) -> None:
    sys.stdout.write(f'{{"mutations": {decode(files, known(schema or None)).mutations}}}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
