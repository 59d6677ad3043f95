"""`penstock agent` and `penstock run` on change logs: killed at random, stopped, ended by themselves, and asked."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from penstock.formats import avro
from penstock.log.catalog import Catalog
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.schema import TableId
from penstock.settings import LogSettings
from tests import sample

WRITTEN = LogSettings(reserve_bytes=0)


def config(root: Path, *, follow: bool) -> Path:
    path = root / "penstock.toml"
    path.write_text(
        f"""
[source]
kind = "replay"
[replay]
directory = "{root}/source"
follow = {json.dumps(follow)}
[agent]
directory = "{root}/data"
place_interval_s = 0.02
[http]
port = 0
"""
    )
    return path


def write(root: Path, first: int, end: int) -> None:
    with TableLog.open(str(root / "source/shop.orders"), sample.SCHEMA, settings=WRITTEN, node="n7") as log:
        for number in range(first, end, 5):
            log.append(sample.batch(*range(number, min(end, number + 5))))


def stored(root: Path) -> list[int]:
    directory = root / "data/shop.orders"
    if not (directory / "log.json").exists():
        return []
    with LogReader(str(directory)) as reader:
        return [change.key["id"] for batch in reader.read() for change in avro.decode(batch)]


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "penstock", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()


def test_the_agent_ends_when_all_is_read_and_says_what_it_has_captured(tmp_path: Path) -> None:
    write(tmp_path, 0, 40)
    path = config(tmp_path, follow=False)
    for command in ("agent", "run"):
        with process(command, str(path)) as started:
            out, _ = started.communicate(timeout=120)
        assert started.returncode == 0
        assert stored(tmp_path) == list(range(40))
        last = json.loads(out.splitlines()[-1])
        assert last == {"agent": "ended", "changes": 40 if command == "agent" else 0}
    with Catalog.open(str(tmp_path / "data")) as catalog:
        assert catalog.table(TableId("shop", "orders")) is not None


def test_killed_at_random_moments_it_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    path, random, end = config(tmp_path, follow=True), Random(7), 5
    write(tmp_path, 0, end)
    for _ in range(4):
        with process("agent", str(path)) as started:
            assert started.stdout is not None
            assert json.loads(started.stdout.readline())["agent"] == "running"
            more = end + 5 * random.randrange(1, 60)
            write(tmp_path, end, more)
            end = more
            started.kill()
            started.wait()
    with process("agent", str(path)) as started:
        assert started.stdout is not None
        facts = json.loads(started.stdout.readline())
        assert facts["node"] == "n7"
        while len(stored(tmp_path)) < end:
            assert started.poll() is None
        address = facts["http"]
        with urllib.request.urlopen(f"{address}/health", timeout=30) as answer:
            assert json.load(answer)["replay"] == {"healthy": True}
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
            assert "penstock_replay_tables 1.0" in answer.read().decode()
        started.terminate()
        assert started.wait(timeout=60) == 0
    assert stored(tmp_path) == list(range(end))


def test_config_check_says_what_would_start_and_what_is_wrong(tmp_path: Path) -> None:
    path = config(tmp_path, follow=False)
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "config", "check", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "replay.directory" in done.stdout) == (1, True)
    write(tmp_path, 0, 1)
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "config", "check", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "captures to" in done.stdout
