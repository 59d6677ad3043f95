"""Subscribers and listeners as real processes that are killed, stopped and slow, while the others go on."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import SubscriptionLocked
from penstock.log.table_log import TableLog
from penstock.serve.client import Client
from penstock.serve.protocol import Acked, Changes, Hello
from penstock.settings import LogSettings
from tests.listening import log_directory, receive
from tests.numbered import SCHEMA, TABLE, batch

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE.parents[1])])}


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / script), *arguments], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


@contextmanager
def listener(root: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = start("listener_process.py", str(root), str(root / "socket"), *arguments)
    assert process.stdout is not None
    try:
        # Log lines may come first.
        while (line := process.stdout.readline()) != "ready\n":
            assert line
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_killed_subscriber_goes_on_without_a_gap(tmp_path: Path) -> None:
    """SIGKILL again and again: each life starts behind what was committed and no change is missed."""
    directory = log_directory(tmp_path)
    count, rng = 1500, random.Random(7)
    with TableLog.open(directory, SCHEMA, settings=LogSettings(file_bytes_max=32 << 10)) as log:
        log.append(batch(0))

        def write() -> None:
            for number in range(1, count):
                log.append(batch(number, pad=100))

        writer = threading.Thread(target=write)
        writer.start()
        committed, handed, lives = -1, -1, 0
        while committed < count - 1:
            process = start("subscriber_process.py", directory, "victim", str(count - 1))
            assert process.stdout is not None
            lives += 1
            # It dies in the middle of something, after so many lines.
            last_line = rng.randrange(2, 400) if lives <= 6 else 1 << 30
            lines = []
            for line in process.stdout:
                lines.append(line.split())
                if len(lines) == last_line:
                    process.kill()
            process.wait()
            process.stdout.close()
            got = [int(value) for what, value in lines if what == "got"]
            done = [int(value) for what, value in lines if what == "done"]
            assert got == list(range(got[0], got[0] + len(got))) if got else not done
            # What was committed does not come again, what was not comes again, and nothing is left out. The kill may
            # have come between a commit and its line, so the next life may start one block later than was said.
            if got:
                assert committed < got[0] <= handed + 1
                handed = max(handed, got[-1])
            committed = max([committed, *done])
        writer.join()
    assert lives > 6


def test_stopped_subscriber_changes_nothing_for_the_others(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    with TableLog.open(directory, SCHEMA) as log:
        log.append(batch(0))
        stopped = start("subscriber_process.py", directory, "stopped", "999")
        other = start("subscriber_process.py", directory, "other", "999")
        assert stopped.stdout is not None
        assert other.stdout is not None
        assert stopped.stdout.readline() == "from 000000:0:0\n"
        stopped.send_signal(signal.SIGSTOP)
        for number in range(1, 1000):
            log.append(batch(number))
        lines = other.stdout.read().split("\n")
        assert other.wait() == 0
        got = [int(line.split()[1]) for line in lines if line.startswith("got")]
        assert got == list(range(1000))
        # Woken, the stopped one gets everything too.
        stopped.send_signal(signal.SIGCONT)
        got = [int(line.split()[1]) for line in stopped.stdout.read().split("\n") if line.startswith("got")]
        assert stopped.wait() == 0
        assert got == list(range(1000))
        stopped.stdout.close()
        other.stdout.close()


def test_lease_goes_with_the_process(tmp_path: Path) -> None:
    directory = log_directory(tmp_path)
    with TableLog.open(directory, SCHEMA) as log:
        log.append(batch(0))
    holder = start("subscriber_process.py", directory, "a", "999")
    assert holder.stdout is not None
    assert holder.stdout.readline().startswith("from")
    second = subprocess.run(
        [sys.executable, str(HERE / "subscriber_process.py"), directory, "a", "0"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    assert second.returncode == 1
    assert "SubscriptionLocked: another process uses this subscription" in second.stderr
    holder.kill()
    holder.wait()
    holder.stdout.close()
    third = start("subscriber_process.py", directory, "a", "999")
    assert third.stdout is not None
    assert third.stdout.readline().startswith("from")
    third.kill()
    third.wait()
    third.stdout.close()


def resident_bytes(process: subprocess.Popen[str], field: str) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) * 1024


def test_client_that_stops_reading_costs_no_memory_and_no_time(tmp_path: Path) -> None:
    """128 MiB are written while one client reads nothing: the listener does not grow, the other is not slower."""
    size, rounds = 256 << 10, 512
    rows = [batch(number, pad=size) for number in range(4)]
    settings = LogSettings(file_bytes_max=32 << 20)
    address = str(tmp_path / "socket")
    with TableLog.open(log_directory(tmp_path), SCHEMA, settings=settings) as log, listener(tmp_path) as process:
        with Client(address, Hello(TABLE, subscription="brisk")) as brisk:

            def latency(number: int) -> float:
                log.append(rows[number % 4])
                began = time.perf_counter()
                assert receive(brisk, 1) == [number % 4]
                return time.perf_counter() - began

            alone = [latency(number) for number in range(64)]
            before = resident_bytes(process, "VmRSS")
            with Client(address, Hello(TABLE, subscription="stuck")) as stuck:
                together = [latency(number) for number in range(rounds)]
                growth = resident_bytes(process, "VmHWM") - before
                # The stuck one reads again: everything, once and in order.
                wanted = [number % 4 for number in range(64)] + [number % 4 for number in range(rounds)]
                assert receive(stuck, len(wanted)) == wanted
        assert growth < 24 << 20
        assert statistics.median(together) < 3 * statistics.median(alone) + 0.005
        assert resident_bytes(process, "VmHWM") - before < 32 << 20


def test_killed_listener_loses_no_acknowledgement_that_it_answered(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    answered = -1
    got: list[int] = []
    with TableLog.open(log_directory(tmp_path), SCHEMA) as log:
        positions = [log.append(batch(number)) for number in range(400)]
        numbers = {position: number for number, position in enumerate(positions)}
        for life in range(5):
            with listener(tmp_path) as process:
                client = Client(address, Hello(TABLE, subscription="a"))
                begin = numbers.get(client.welcome.position, -1)
                assert begin >= answered
                got = got[: begin + 1]
                while len(got) < 400:
                    message = client.receive(30)
                    if isinstance(message, Changes):
                        got += [change.key["id"] for change in client.decode(message)]
                        client.ack(message.last)
                    if isinstance(message, Acked):
                        answered = max(answered, numbers[message.position])
                        if life < 4 and answered >= 80 * (life + 1):
                            process.kill()
                            break
                client.close()
    assert got == list(range(400))


def test_killed_client_frees_its_name(tmp_path: Path) -> None:
    address = str(tmp_path / "socket")
    code = (
        "import sys; from penstock.serve.client import Client; from penstock.serve.protocol import Hello;"
        "from tests.numbered import TABLE;"
        f"c = Client({address!r}, Hello(TABLE, subscription='a')); print('in', flush=True); sys.stdin.read()"
    )
    with TableLog.open(log_directory(tmp_path), SCHEMA) as log, listener(tmp_path):
        log.append(batch(0))
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "in\n"
            holder.kill()
        while True:
            try:
                client = Client(address, Hello(TABLE, subscription="a"))
                break
            except SubscriptionLocked:
                continue
        assert receive(client, 1) == [0]
        client.close()
