"""A standalone Spark cluster of real processes on the loopback, whose parts can be found and killed one by one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

import pyspark

from penstock.sandbox.java_process import free_port, port_open
from tests.integration.pipeline.replica_load import wait_for

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class Running(NamedTuple):
    """A process of this machine."""

    pid: int
    parent: int
    session: int
    command: str


def running_processes() -> list[Running]:
    """Every process that can be looked at."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            # The name, in brackets, may hold blanks itself.
            facts = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        found.append(Running(int(place.name), int(facts[1]), int(facts[3]), command))
    return found


def below(root: int) -> list[Running]:
    """The processes that this one has started, and those that they have.

    When Python's daemon dies, Spark goes on with the workers that it leaves behind: they are of the same session.
    """
    everything = running_processes()
    session = next((one.session for one in everything if one.pid == root), 0)
    out = [one for one in everything if session and one.session == session and one.parent == 1 and one.pid != root]
    parents = {root, *(one.pid for one in out)}
    while parents:
        found = [one for one in everything if one.parent in parents]
        out += found
        parents = {one.pid for one in found}
    return out


def kill(pid: int) -> bool:
    """End a process at once; False when it has gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


class SparkCluster:
    """A master and workers; a context manager that starts and ends them."""

    def __init__(self, home: Path, workers: int) -> None:
        self._home = home
        self._script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        self._port = free_port()
        self._environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "384m",
            "SPARK_WORKER_DIR": str(home / "work"),
            "PYSPARK_PYTHON": sys.executable,
        }
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * workers
        # What was started and may have left others behind.
        self._groups: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        try:
            words = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(free_port()))
            self._master = self._start(_MASTER, *words)
            wait_for(lambda: port_open(self._port))
            for number in range(len(self._workers)):
                self.start_worker(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._groups:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()

    def start_worker(self, number: int) -> None:
        limits = ("--cores", "1", "--memory", "1g")
        words = ("--host", "127.0.0.1", "--webui-port", str(free_port()), *limits, self.address)
        self._workers[number] = self._start(_WORKER, *words)

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its executor notices that by itself."""
        worker = self._workers[number]
        assert worker is not None
        worker.kill()
        worker.wait()

    def executors(self) -> list[int]:
        """The processes that run tasks."""
        workers = [worker.pid for worker in self._workers if worker is not None]
        found = [one for worker in workers for one in below(worker)]
        return [one.pid for one in found if "CoarseGrainedExecutorBackend" in one.command]

    def python_workers(self) -> list[int]:
        """The processes in which the executors run Python, and those that these come from."""
        return [one.pid for executor in self.executors() for one in below(executor) if "pyspark" in one.command]

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self._home / "cluster.log").open("ab") as output:
            process = subprocess.Popen(
                [str(self._script), *words], stdout=output, stderr=output, env=self._environment, start_new_session=True
            )
        self._groups.append(process)
        return process
