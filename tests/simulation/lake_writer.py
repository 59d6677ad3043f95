"""Batches into a lakehouse table, one after another, and a durable note of the last one, as the pipeline's state is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.sink import Sink
from penstock.log import sealed
from penstock.settings.sinks import DeltaSettings, IcebergSettings
from penstock.system.files import OsFiles
from tests.lake_records import SCHEMA, deliver, records

BATCHES = 8
KINDS = ("deletion vectors", "copy on write", "iceberg")


def make(home: Path, kind: str) -> Sink:
    sink: Sink
    if kind == "iceberg":
        from penstock.deliver.iceberg.sink import IcebergSink

        sink = IcebergSink(IcebergSettings(warehouse=home / "lake"))
    else:
        vectors = kind == "deletion vectors"
        lake = DeltaSettings(
            directory=home / "lake", deletion_vectors=vectors, checkpoint_every=3, optimize_every=4, file_bytes=1 << 20
        )
        sink = DeltaSink(lake)
    sink.keep_in(home / "checkpoint" / "sinks", "p")
    return sink


def given(batch: int) -> list[tuple[tuple[int, str], dict[str, Any] | None]]:
    """Each batch has new rows, rows that were there, and one that goes."""
    rows: list[tuple[tuple[int, str], dict[str, Any] | None]]
    rows = [((number, "a"), {"note": f"b{batch}", "amount": number}) for number in range(batch, batch + 6)]
    return [*rows, ((batch - 1, "a"), None)] if batch else rows


def expected() -> dict[tuple[Any, ...], dict[str, Any]]:
    last: dict[tuple[Any, ...], dict[str, Any] | None] = {}
    for batch in range(BATCHES):
        last.update(given(batch))
    return {key: row for key, row in last.items() if row is not None}


def run(home: Path, kind: str) -> None:
    """Write what is not written yet."""
    note = home / "checkpoint" / "done"
    first = int(sealed.read(OsFiles(), str(note))["batch"]) + 1 if note.exists() else 0
    sink = make(home, kind)
    sink.check()
    sink.prepare([SCHEMA])
    for batch in range(first, BATCHES):
        rows = given(batch)
        parts = {bucket: [records(SCHEMA, [row for row in rows if row[0][0] % 2 == bucket])] for bucket in range(2)}
        deliver(sink, batch, parts)
        sealed.write(OsFiles(), str(home / "checkpoint"), "done", {"batch": batch})


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
