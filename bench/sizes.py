"""What a change takes on disk, and what the fold remembers of a row: the figures of docs/operate/sizing.md.

Changes of five shapes are written to a commit log, captured by a real `penstock agent` under each codec, and counted as
bytes of the change log with all its files. The same changes are then appended one by one, as an agent does on a quiet
node, where a block holds a single change; and folded, as the pipeline does, for the size of the state. Sizes do not
depend on the machine, so that there is no peer and no ratio.

    python -m bench.sizes [--changes N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.fold.bucket import BucketState
from penstock.fold.folder import Folder
from penstock.fold.state import StateStore
from penstock.formats import avro
from penstock.log import watermark
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.change import Change, Deletion, Marker, Op, Set
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.records import keys
from penstock.records.runs import Run
from penstock.sandbox.commit_log.node_logs import cassandra_table
from penstock.sandbox.commit_log.statements import create_keyspace, create_table
from penstock.sandbox.commit_log.writer import CommitLogWriter
from penstock.settings import Acknowledge, Codec, LogSettings, MergeSettings, RecordType

START_US = 1_700_000_000_000_000
CODECS = tuple(Codec)
_WORDS = (
    "tea",
    "coffee",
    "cocoa",
    "sugar",
    "milk",
    "lemon",
    "honey",
    "mint",
    "ginger",
    "anise",
    "clove",
    "sage",
    "thyme",
)
_WAIT_S = 600

Maker = Callable[[random.Random, int, int], Change]


def readings() -> TableSchema:
    """A sensor's values: a narrow row."""
    columns = (
        Column("sensor", t.UUID, Role.PARTITION, source_type="uuid"),
        Column("at", t.timestamp(t.Unit.MS), Role.CLUSTERING, source_type="timestamp"),
        Column("value", t.FLOAT64, source_type="double"),
    )
    return TableSchema(TableId("sizes", "readings"), columns, source="cassandra")


def orders(name: str) -> TableSchema:
    """A row of eight columns, as many applications have them."""
    columns = (
        Column("id", t.UUID, Role.PARTITION, source_type="uuid"),
        Column("amount", t.DECIMAL, source_type="decimal"),
        Column("customer", t.UUID, source_type="uuid"),
        Column("item", t.TEXT, source_type="text"),
        Column("note", t.TEXT, source_type="text"),
        Column("ordered", t.timestamp(t.Unit.MS), source_type="timestamp"),
        Column("paid", t.BOOLEAN, source_type="boolean"),
        Column("state", t.TEXT, source_type="text"),
    )
    return TableSchema(TableId("sizes", name), columns, source="cassandra")


def documents() -> TableSchema:
    """A key and a text of a kilobyte."""
    columns = (
        Column("id", t.UUID, Role.PARTITION, source_type="uuid"),
        Column("body", t.TEXT, source_type="text"),
    )
    return TableSchema(TableId("sizes", "documents"), columns, source="cassandra")


def _id(number: int) -> uuid.UUID:
    """The same for the same number, and as incompressible as an application's."""
    return uuid.uuid5(uuid.NAMESPACE_OID, str(number))


def _reading(chance: random.Random, number: int, time_us: int) -> Change:
    key = {"sensor": _id(number % 500), "at": time_us // 1000}
    return Change(Op.INSERT, key, {"value": Set(chance.gauss(20, 5))}, time=time_us, marker=Marker())


def _order(chance: random.Random, number: int, time_us: int) -> Change:
    from decimal import Decimal

    cells = {
        "amount": Set(Decimal(chance.randrange(100, 100_000)).scaleb(-2)),
        "customer": Set(_id(chance.randrange(5000))),
        "item": Set(chance.choice(_WORDS)),
        "note": Set(" ".join(chance.choices(_WORDS, k=8))),
        "ordered": Set(time_us // 1000),
        "paid": Set(chance.random() < 0.5),
        "state": Set(chance.choice(("new", "paid", "sent"))),
    }
    return Change(Op.INSERT, {"id": _id(number)}, cells, time=time_us, marker=Marker())


def _update(chance: random.Random, number: int, time_us: int) -> Change:
    cells = {"state": Set(chance.choice(("new", "paid", "sent")))}
    return Change(Op.UPDATE, {"id": _id(number)}, cells, time=time_us)


def _delete(_: random.Random, number: int, time_us: int) -> Change:
    deletion = Deletion(time_us, local_s=time_us // 1_000_000)
    return Change(Op.DELETE, {"id": _id(number)}, time=time_us, deletion=deletion)


def _document(chance: random.Random, number: int, time_us: int) -> Change:
    body = " ".join(chance.choices(_WORDS, k=180))[:1024]
    return Change(Op.INSERT, {"id": _id(number)}, {"body": Set(body)}, time=time_us, marker=Marker())


SHAPES: dict[str, tuple[TableSchema, Maker]] = {
    "insert of 3 columns": (readings(), _reading),
    "insert of 8 columns": (orders("orders"), _order),
    "update of 1 column": (orders("updates"), _update),
    "delete of a row": (orders("deletes"), _delete),
    "insert of 1 KiB of text": (documents(), _document),
}


def write_segments(root: Path, changes: int) -> None:
    """A node's commit log with so many changes of each shape, each a mutation of its own."""
    log = CommitLogWriter(str(root / "commitlog"), str(root / "cdc_raw"), durable=False)
    chance = random.Random(7)  # noqa: S311 - data for a measurement
    now_us = START_US
    for schema, make in SHAPES.values():
        table = cassandra_table(schema)
        log.append(create_keyspace(schema.table.keyspace, now_us), cdc=False)
        log.append(create_table(table, now_us), cdc=False)
        for number in range(changes):
            now_us += chance.randrange(100, 2000)
            log.append([(table, [make(chance, number, now_us)])])
    log.close()


def capture(root: Path, codec: Codec, changes: int) -> Path:
    """Change logs of the segments, by an agent of its own."""
    data = root / codec.value
    config = root / f"{codec.value}.toml"
    sections = {
        "cassandra": {"cdc_raw_directory": str(root / "cdc_raw"), "schema_from": "log", "data_centre": "dc1"},
        "agent": {"directory": str(data), "node": "node1", "transfer": "keep"},
        "log": {"codec": codec.value},
        "http": {"enabled": False},
    }
    lines = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    config.write_text("\n".join(lines))
    command = [sys.executable, "-m", "penstock", "agent", str(config)]
    environment = {**os.environ, "PENSTOCK_LOG_LEVEL": "warning"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)  # noqa: S603 - words of ours
    try:
        deadline = time.monotonic() + _WAIT_S
        while not all(_rows(data / str(schema.table)) == changes for schema, _ in SHAPES.values()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the agent did not capture everything")
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    return data


def _rows(directory: Path) -> int:
    file = directory / "watermark"
    found = watermark.unpack(file.read_bytes()) if file.exists() else None
    return 0 if found is None else found.rows


def bytes_below(directory: Path) -> int:
    """The bytes of all files of a log."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def changes_of(directory: Path) -> Iterator[tuple[TableSchema, list[Change]]]:
    """What a log holds."""
    with LogReader(str(directory)) as reader:
        for batch in reader.read():
            yield batch.schema, avro.decode(batch)


def one_by_one(source: Path, target: Path, codec: Codec) -> int:
    """The size of a log with the same changes, each in a block of its own."""
    log: TableLog | None = None
    settings = LogSettings(codec=codec, acknowledge=Acknowledge.WRITTEN, reserve_bytes=0)
    for schema, changes in changes_of(source):
        log = log or TableLog.open(str(target), schema, settings=settings, node="node1", data_centre="dc1")
        for change in changes:
            log.append(avro.encode(schema, [change]))
    assert log is not None
    log.close()
    return bytes_below(target)


def state_bytes(source: Path, target: Path, record: RecordType) -> int:
    """The size of the state after everything was folded in one batch, in one bucket."""
    store = StateStore(str(target), 1)
    runs = []
    for schema, changes in changes_of(source):
        batch = avro.encode(schema, changes)
        runs += [Run(schema, "node1", part.bucket, part.count, part.rows) for part in keys.split(batch, 1, None)]
    state = BucketState.open(store.directory, 0, 0)
    for _ in Folder(MergeSettings(), record, every=True).fold(runs, state, now_s=START_US // 1_000_000):
        pass
    store.commit(0, {0: state.finish().token})
    return store.size()[1]


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=20_000, help="of each shape")
    wanted = parser.parse_args(arguments).changes
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        write_segments(root, wanted)
        data = {codec: capture(root, codec, wanted) for codec in CODECS}
        codecs = " | ".join(f"`{codec.value}`" for codec in CODECS)
        print(f"| bytes per change | {codecs} | alone, `null` | alone, `zstandard` |")
        print("| --- |" + " ---: |" * (len(CODECS) + 2))
        for name, (schema, _) in SHAPES.items():
            sizes = [bytes_below(data[codec] / str(schema.table)) / wanted for codec in CODECS]
            plain = data[Codec.NULL] / str(schema.table)
            alone = [
                one_by_one(plain, root / f"alone-{codec.value}" / str(schema.table), codec) / wanted
                for codec in (Codec.NULL, Codec.ZSTANDARD)
            ]
            print(f"| {name} | " + " | ".join(f"{size:.0f}" for size in (*sizes, *alone)) + " |")
        print()
        print("| bytes of state | whole rows, per row | changes, per change |")
        print("| --- | ---: | ---: |")
        for name, (schema, _) in SHAPES.items():
            plain = data[Codec.NULL] / str(schema.table)
            found = [
                state_bytes(plain, root / f"state-{record.value}" / str(schema.table), record) / wanted
                for record in (RecordType.AFTER, RecordType.CHANGE)
            ]
            print(f"| {name} | " + " | ".join(f"{size:.0f}" for size in found) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
