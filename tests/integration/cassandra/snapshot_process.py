"""A snapshot into real logs as a process of its own, to be killed: `snapshot_process.py ADDRESS DIRECTORY KEYSPACE`.

Prints the number of changes after each batch that is durable, and `done` at the end.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path

from penstock.capture.cassandra.node.connection import connect
from penstock.capture.cassandra.snapshot.snapshotter import Snapshotter
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.schema import TableId
from penstock.settings import CassandraSettings, SnapshotSettings
from penstock.telemetry import set_up_logging

SETTINGS = SnapshotSettings(page_rows=100, workers=2, splits=8, scan_interval_s=0.5)


def main(address: str, directory: str, keyspace: str) -> None:
    # Standard output is for the counts.
    set_up_logging("error")
    logs: dict[TableId, TableLog] = {}
    count = 0

    def sink(batch: ChangeBatch) -> None:
        nonlocal count
        table = batch.schema.table
        if table not in logs:
            logs[table] = TableLog.open(str(Path(directory) / "log" / table.table), batch.schema)
        logs[table].append(batch)
        count += len(batch)
        sys.stdout.write(f"{count}\n")
        sys.stdout.flush()

    one = Snapshotter(
        partial(connect, CassandraSettings(contact_points=(address,))),
        sink,
        str(Path(directory) / "state"),
        SETTINGS,
        captures=lambda table: table.cdc and table.schema.table.keyspace == keyspace,
    )
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    while thread.is_alive() and not one.status().completed:
        thread.join(0.05)
    stop.set()
    thread.join()
    for log in logs.values():
        log.close()
    sys.stdout.write("done\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
