"""Avro rows against fastavro: encode and decode of the same change records, per CPU-second.

Two tables are measured: one like those that MaxScale serves (12 columns of a MariaDB table) and one like Cassandra's
(write times, expiry, a non-frozen collection). fastavro gets ready-made dicts and gives dicts, which is its best case;
ours gets Arrow columns and gives Arrow columns. What ours costs with Python objects on the other side is shown too.

Both sides must have the same content before anything is timed. Rounds alternate (A B A B …) and the medians of the
pairwise ratios are printed, because neighbours on the machine move single figures.

    python bench/avro.py [--rows N] [--pairs N] [--json]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import fastavro

from penstock.formats import arrow, avro, container, native
from penstock.model import types as t
from penstock.model.change import Change, Delta, Element, Expiry, Marker, Op, Origin, Set, Transaction
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import Codec

TARGET = 10.0
SYNC = bytes(16)


def maxscale_table(rows: int) -> tuple[TableSchema, list[Change]]:
    """A table of MariaDB with twelve columns, one transaction for ten rows."""
    columns = (
        Column("id", t.INT64, Role.PARTITION),
        Column("customer", t.INT32),
        Column("name", t.TEXT),
        Column("email", t.TEXT),
        Column("price", t.fixed_decimal(12, 2)),
        Column("weight", t.FLOAT64),
        Column("active", t.INT8),
        Column("created", t.datetime(t.Unit.US)),
        Column("updated", t.timestamp(t.Unit.US)),
        Column("state", t.enum("new", "paid", "sent")),
        Column("note", t.TEXT),
        Column("payload", t.BYTES),
    )
    schema = TableSchema(TableId("shop", "orders"), columns, source="mariadb")
    changes = []
    for row in range(rows):
        number = row // 10
        origin = Origin(
            "db1", None, "binlog.000042", 4000 + row * 155, Transaction("0", number, f"0-1-{number}"), row % 10
        )
        when = 1_700_000_000_000_000 + row * 1000
        cells = {
            "customer": Set(row % 5000),
            "name": Set(f"customer number {row % 5000}"),
            "email": Set(f"user{row % 5000}@example.org"),
            "price": Set(_cents(row)),
            "weight": Set(row * 0.25),
            "active": Set(row % 2),
            "created": Set(when - 86_400_000_000),
            "updated": Set(when),
            "state": Set(("new", "paid", "sent")[row % 3]),
            "note": Set(None if row % 4 else "please ring twice at the door"),
            "payload": Set(row.to_bytes(8, "big") * 2),
        }
        changes.append(Change(Op.INSERT, {"id": row}, cells, commit_time=when, capture_time=when + 900, origin=origin))
    return schema, changes


def _cents(row: int) -> Any:
    from decimal import Decimal

    return Decimal(row % 100_000).scaleb(-2)


def cassandra_table(rows: int) -> tuple[TableSchema, list[Change]]:
    """A table of Cassandra with write times, some expiry and a non-frozen map."""
    columns = (
        Column("device", t.UUID, Role.PARTITION),
        Column("day", t.DATE, Role.PARTITION),
        Column("at", t.timestamp(t.Unit.MS), Role.CLUSTERING),
        Column("owner", t.TEXT, Role.STATIC),
        Column("value", t.FLOAT64),
        Column("quality", t.INT32),
        Column("unit", t.TEXT),
        Column("raw", t.BYTES),
        Column("labels", t.map_of(t.TEXT, t.TEXT, multi_cell=True)),
        Column("error", t.TEXT),
    )
    schema = TableSchema(TableId("metrics", "readings"), columns, source="cassandra")
    changes = []
    for row in range(rows):
        when = 1_700_000_000_000_000 + row * 1000
        expiry = Expiry(86400, when // 1_000_000 + 86400) if row % 2 else None
        cells: dict[str, Any] = {
            "value": Set(row * 0.5, None, expiry),
            "quality": Set(row % 100, None, expiry),
            "unit": Set("kWh", None, expiry),
            "raw": Set(row.to_bytes(12, "big"), when + 1, expiry),
        }
        if row % 3 == 0:
            cells["labels"] = Delta(None, (Element("site", f"s{row % 50}"), Element("floor", "3")))
        key = {"device": uuid.UUID(int=row % 1000), "day": 19_000 + row // 10_000, "at": when // 1000}
        origin = Origin("10.0.0.7", "dc1", "CommitLog-7-1699284515156.log", row * 170, None, row % 4)
        marker = Marker(None, expiry)
        changes.append(Change(Op.INSERT, key, cells, when, None, when + 900, marker, origin=origin))
    return schema, changes


class Sides:
    """The same records on both sides, and the work to compare."""

    def __init__(self, schema: TableSchema, changes: list[Change]) -> None:
        self.schema = schema
        self.changes = changes
        self.batch = avro.encode(schema, changes)
        self.columns = arrow.to_arrow(self.batch)
        self.parsed = fastavro.parse_schema(json.loads(avro.schema_json(schema)))
        head = container.header(avro.schema_json(schema), {}, Codec.NULL, SYNC)
        self.file = head + container.frame_block(self.batch.count, self.batch.rows, SYNC)
        self.records = self.fastavro_decode()
        # With the branch named, fastavro need not try each record of a union in turn.
        self.named_records = self.fastavro_decode(return_record_name=True)

    def fastavro_decode(self, **options: Any) -> list[Any]:
        return list(fastavro.reader(io.BytesIO(self.file), **options))

    def fastavro_encode(self) -> bytes:
        stream = io.BytesIO()
        fastavro.writer(stream, self.parsed, self.named_records, sync_interval=1 << 30, sync_marker=SYNC)
        return stream.getvalue()

    def our_encode(self) -> bytes:
        return bytes(arrow.from_arrow(self.schema, self.columns).rows)

    def our_decode(self) -> Any:
        return arrow.to_arrow(self.batch)

    def check(self) -> None:
        """All four ways have the same content."""
        file = self.fastavro_encode()
        head = container.parse_header(file)
        rows_at = head.size + container.parse_block_head(file, head.size).head
        assert file[rows_at:-16] == self.batch.rows, "fastavro writes other bytes"
        assert self.our_encode() == self.batch.rows, "the rows of the columns are other bytes"
        assert avro.decode(self.batch) == self.changes, "the changes do not come back"
        assert len(self.records) == self.columns.num_rows
        for record, time_us in zip(self.records, self.columns.column("capture_time").to_pylist(), strict=True):
            assert record["capture_time"] == time_us


def cpu(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def compare(ours: Callable[[], object], theirs: Callable[[], object], rows: int, pairs: int) -> dict[str, Any]:
    ours()
    theirs()
    a_times, b_times = [], []
    for _ in range(pairs):
        a_times.append(cpu(ours))
        b_times.append(cpu(theirs))
    ratios = [b / a for a, b in zip(a_times, b_times, strict=True)]
    return {
        "ours_per_cpu_s": round(rows / statistics.median(a_times)),
        "fastavro_per_cpu_s": round(rows / statistics.median(b_times)),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_min": round(min(ratios), 2),
        "ratio_max": round(max(ratios), 2),
    }


def run(rows: int, pairs: int) -> list[dict[str, Any]]:
    results = []
    for table, make in (("maxscale-like", maxscale_table), ("cassandra-like", cassandra_table)):
        sides = Sides(*make(rows))
        sides.check()
        size = len(sides.batch.rows) / rows
        works: dict[str, tuple[Callable[[], object], Callable[[], object], bool]] = {
            "encode, Arrow to rows": (sides.our_encode, sides.fastavro_encode, True),
            "decode, rows to Arrow": (sides.our_decode, sides.fastavro_decode, True),
            "encode, Python changes to rows": (
                partial(avro.encode, sides.schema, sides.changes),
                sides.fastavro_encode,
                False,
            ),
            "decode, rows to Python changes": (partial(avro.decode, sides.batch), sides.fastavro_decode, False),
        }
        for name, (ours, theirs, held) in works.items():
            figures = compare(ours, theirs, rows, pairs)
            target = TARGET if held else None
            results.append({"table": table, "work": name, "row_bytes": round(size), **figures, "target": target})
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = run(options.rows, options.pairs)
    missed = [r for r in results if r["target"] and r["ratio"] < r["target"]]
    if options.json:
        facts = {"benchmark": "avro", "native": native, "fastavro": fastavro.__version__, "load": os.getloadavg()}
        print(json.dumps({**facts, "results": results, "passed": not missed}, indent=2))
        return 1 if missed else 0
    print(f"kernels: {'native' if native else 'pure Python'}; load average {os.getloadavg()[0]:.1f}")
    print(f"{'table':15} {'work':32} {'ours/CPU-s':>11} {'fastavro':>10} {'ratio':>7} {'min..max':>14} {'target':>7}")
    for r in results:
        spread = f"{r['ratio_min']:.1f}..{r['ratio_max']:.1f}"
        target = f"{r['target']:.0f}x" if r["target"] else "-"
        print(
            f"{r['table']:15} {r['work']:32} {r['ours_per_cpu_s']:>11,} {r['fastavro_per_cpu_s']:>10,} "
            f"{r['ratio']:>6.1f}x {spread:>14} {target:>7}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
