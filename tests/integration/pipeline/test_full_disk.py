"""A disk that is full, below the checkpoint and below the lakehouse: batches fail with the reason, and nothing is lost.

The pipeline runs in a mount namespace of its own, in which the two directories are small file systems in memory; from
outside they are reached by way of its process.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.formats import avro
from penstock.log.table_log import TableLog
from penstock.model.change import Change, Marker, Op, Origin, Set
from tests.integration.pipeline.replica_load import PATIENCE_S, SCHEMA, delivered, identities, wait_for

SIZE = "4m"
SMALL = ("checkpoint", "lake")
CONFIG = """
[pipeline]
name = "full"
checkpoint_directory = "{home}/checkpoint/pipeline"
logs = ["{home}/n1"]
sinks = ["delta", "files"]
buckets = 1
retry_s = 0.2

[delta]
directory = "{home}/lake"

[files]
directory = "{home}/files"
format = "json"
compression = "none"
record = "change"
"""


def put(home: Path, first: int, count: int) -> None:
    changes = [
        Change(
            Op.INSERT, {"id": number}, {"name": Set(f"name {number}"), "age": Set(number)}, time=number,
            marker=Marker(), origin=Origin(file="log", position=number),
        )
        for number in range(first, first + count)
    ]  # fmt: skip
    with TableLog.open(str(home / "n1" / "shop.people"), SCHEMA, node="n1") as log:
        log.append(avro.encode(SCHEMA, changes))


@contextmanager
def running(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The pipeline, with its small file systems."""
    file = home / "pipeline.toml"
    file.write_text(CONFIG.format(home=home))
    mounts = [f"mount -t tmpfs -o size={SIZE} none {home / name}" for name in SMALL]
    command = [sys.executable, "-m", "penstock", "pipeline", str(file), "--json"]
    mine = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = " && ".join([*mounts, 'exec "$@"'])
    with (home / "pipeline.log").open("wb") as output:
        process = subprocess.Popen(
            ["unshare", *mine, "--mount", "sh", "-c", script, "sh", *command],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fill(directory: Path) -> Path:
    """Take all the room that is left; the file that does."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 10, 1):
            with suppress(OSError):
                while file.write(b"x" * size):
                    pass
    return filler


def test_full_disk_is_told_and_waited_out(tmp_path: Path) -> None:
    for name in (*SMALL, "n1"):
        (tmp_path / name).mkdir()
    put(tmp_path, 1, 20)

    def said() -> str:
        return (tmp_path / "pipeline.log").read_text(errors="replace")

    def refusals() -> int:
        """How often a batch has failed for want of room; Spark and Penstock have words of their own for it."""
        failures = [line for line in said().splitlines() if '"batch failed"' in line]
        return sum("no room" in line or "No space left" in line for line in failures)

    with running(tmp_path) as process:
        inside = Path(f"/proc/{process.pid}/root{tmp_path}")

        def has(count: int) -> bool:
            assert process.poll() is None, said()
            return len(identities(tmp_path)) == count

        wait_for(lambda: has(20), said=said)
        for turn, name in enumerate(SMALL):
            failed = refusals()
            filler = fill(inside / name)
            put(tmp_path, 21 + 20 * turn, 20)
            wait_for(lambda n=failed: refusals() > n, said=said)  # type: ignore[misc]
            assert has(20 + 20 * turn)
            filler.unlink()
            wait_for(lambda n=turn: has(40 + 20 * n), said=said)  # type: ignore[misc]
        # Readers of tables look for where a path really leads, which is outside.
        shutil.copytree(inside / "lake", tmp_path / "seen" / "lake")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, said()
    assert delivered(tmp_path / "seen") == {number: (f"name {number}", number) for number in range(1, 61)}
    assert sorted(identities(tmp_path)) == list(range(1, 61))
