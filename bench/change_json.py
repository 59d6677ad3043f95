"""Lines of JSON of changes, straight from their rows, against an object per change and `json.dumps`, per CPU-second.

The peer is how Penstock did it before: rows decoded to Python changes, these made dicts, and those made text. For
subscribers, frames of at most 64 KiB of rows are made, or of one change each, as for who waits for one after the other;
`log cat` reads and prints whole blocks of a log. Both sides must give the same bytes before anything is timed.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial

from bench.avro import cassandra_table, maxscale_table
from bench.harness import PAIRS_MIN, Run, Sample, Target, interleave, options, quotients
from bench.object_json import to_json
from penstock.cli import log as command
from penstock.formats import avro, native
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change
from penstock.model.position import Position
from penstock.model.schema import TableSchema
from penstock.serve.protocol import Changes
from penstock.serve.rendering import Piece, json_frame, pieces

_TABLES = {"maxscale-like": maxscale_table, "cassandra-like": cassandra_table}
_SINGLE = 500


def by_object(batch: ChangeBatch, ordinal: int, *, ascii_only: bool) -> list[str]:
    """The peer's lines, without their ends."""
    schema = batch.schema
    table, version = str(schema.table), schema.version
    out = []
    for index, change in enumerate(avro.decode(batch), ordinal):
        position = Position(batch.file, batch.offset, index)
        content = {"position": str(position), "table": table, "schema_version": version, **to_json(change, schema)}
        out.append(json.dumps(content, ensure_ascii=ascii_only, separators=(",", ":")))
    return out


def frame_by_object(piece: Piece) -> bytes:
    """The peer's frame of a piece."""
    batch = piece.batch
    rows = "\n".join([*by_object(batch, piece.ordinal, ascii_only=True), ""]).encode()
    return Changes(batch.file, batch.offset, piece.ordinal, batch.count, rows).to_bytes()


def cat(directory: str) -> None:
    """What `penstock log cat --json` does with each block."""
    with LogReader(directory) as reader:
        for batch in reader.read(reader.first()):
            command._print_batch(batch, json=True)


def cat_by_object(directory: str) -> None:
    with LogReader(directory) as reader:
        for batch in reader.read(reader.first()):
            for line in by_object(batch, batch.skip, ascii_only=False):
                sys.stdout.write(line + "\n")
            sys.stdout.flush()


def frames(run: Run, table: str, batch: ChangeBatch, pairs: int) -> None:
    """Subscribers that catch up, and subscribers that wait for each change."""
    whole = pieces(batch)
    ones = [Piece(one, 0) for one in _singles(batch)]
    for name, chosen, least in (("frames of 64 KiB", whole, 5), ("frames of one change", ones, 1)):
        same = all(json_frame(piece) == frame_by_object(piece) for piece in chosen)
        run.check(f"subscribers, {name}, {table}: the same bytes", same)
        count = sum(piece.batch.count for piece in chosen)
        compare(
            run,
            f"subscribers, {name}, {table} ÷ an object per change",
            partial(_each, json_frame, chosen),
            partial(_each, frame_by_object, chosen),
            count,
            pairs,
            Target(at_least=least),
        )


def _each(make: Callable[[Piece], bytes], chosen: Sequence[Piece]) -> None:
    for piece in chosen:
        make(piece)


def _singles(batch: ChangeBatch) -> list[ChangeBatch]:
    """Batches of one change, as a log that is written one by one has them."""
    starts = avro.row_offsets(batch.schema, batch.rows, batch.count)
    rows = [bytes(batch.rows[starts[at] : starts[at + 1]]) for at in range(min(batch.count, _SINGLE))]
    return [dataclasses.replace(batch, rows=row, count=1, offset=batch.offset + at) for at, row in enumerate(rows)]


def printing(run: Run, table: str, schema: TableSchema, changes: list[Change], directory: str, pairs: int) -> None:
    """`penstock log cat --json`, reading included."""
    with tempfile.TemporaryDirectory(dir=directory) as root:
        place = f"{root}/{schema.table}"
        with TableLog.open(place, schema) as log:
            for first in range(0, len(changes), 1000):
                log.append(avro.encode(schema, changes[first : first + 1000]))
        run.check(f"log cat --json, {table}: the same bytes", _printed(cat, place) == _printed(cat_by_object, place))
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            name = f"log cat --json, {table} ÷ an object per change"
            target = Target(at_least=5)
            compare(run, name, lambda: cat(place), lambda: cat_by_object(place), len(changes), pairs, target)


def _printed(work: Callable[[str], None], place: str) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        work(place)
    return text.getvalue()


def compare(
    run: Run,
    name: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    count: int,
    pairs: int,
    target: Target,
) -> None:
    """Changes per CPU-second of both sides; what wall time says stands beside it."""
    ours_samples, peer_samples = interleave(lambda: _timed(ours, count), lambda: _timed(peer, count), pairs)
    wall = statistics.median(quotients([s.rate for s in ours_samples], [s.rate for s in peer_samples]))
    ours_rates, peer_rates = [s.cpu_rate for s in ours_samples], [s.cpu_rate for s in peer_samples]
    run.ratio(
        f"{name}, per CPU-second",
        quotients(ours_rates, peer_rates),
        target,
        ours=statistics.median(ours_rates),
        peer=statistics.median(peer_rates),
        unit="changes/CPU-s",
        note=f"{'native' if native else 'pure Python'} kernels; by wall time {wall:.1f} ×",
    )


def _timed(work: Callable[[], object], count: int) -> Sample:
    """One slice, repeated until it is long enough for the clock of CPU time."""
    amount, wall, cpu = 0, time.perf_counter(), time.process_time()
    while time.process_time() - cpu < 0.1:
        work()
        amount += count
    return Sample(amount, time.perf_counter() - wall, time.process_time() - cpu)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options("change_json", "JSON of changes against an object per change", arguments, rows=0)
    run = Run("json", chosen.quick)
    rows = chosen.rows or (1_000 if chosen.quick else 5_000)
    pairs = PAIRS_MIN if chosen.quick else 9
    for table, make in _TABLES.items():
        schema, changes = make(rows)
        batch = dataclasses.replace(avro.encode(schema, changes), file=1, offset=4096)
        frames(run, table, batch, pairs)
        printing(run, table, schema, changes, chosen.directory, pairs)
    return run.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
