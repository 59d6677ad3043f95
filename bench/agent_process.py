"""Our side: the agent as the program that it is on a node, `penstock agent CONFIG`, and what a round of it costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from bench.harness import ROOT, CheckFailed, cpu_s_of, memory_of

STOP_S = 60
READY_S = 60


class AgentProcess:
    """A running agent; a context manager. `cassandra` and `agent` are lines of those sections of its settings."""

    def __init__(self, directory: Path, cassandra: dict[str, Any], agent: dict[str, Any]) -> None:
        self.directory = directory.absolute()
        self.logs = self.directory / "logs"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._errors = self.directory / "errors.log"
        sections = {
            "cassandra": cassandra,
            "agent": {"directory": str(self.logs), **agent},
            "snapshot": {"mode": "never"},
            "http": {"port": 0},
        }
        config = self.directory / "agent.toml"
        lines = []
        for section, settings in sections.items():
            # JSON's strings, numbers, booleans and arrays are TOML's too.
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - words of ours
                [sys.executable, "-m", "penstock", "agent", str(config), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PENSTOCK_LOG_LEVEL": "warning"},
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        if '"running"' not in self._process.stdout.readline():
            self.__exit__()
            raise CheckFailed(f"the agent did not start: {self.said()}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                os.kill(self._process.pid, signal.SIGKILL)
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def wait_until_empty(self, directory: Path, within_s: float) -> int:
        """Wait until all segments of a cdc_raw directory are processed; the most memory that was seen meanwhile."""
        deadline = time.monotonic() + within_s
        most = 0
        while any(name.endswith(".log") for name in os.listdir(directory)):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise CheckFailed(f"the agent did not process all segments: {self.said()}")
            most = max(most, self.memory_bytes())
            time.sleep(0.01)
        return max(most, self.memory_bytes())

    def cpu_s(self) -> float:
        return cpu_s_of(self._process.pid)

    def memory_bytes(self) -> int:
        return memory_of(self._process.pid)["VmRSS"]

    def said(self) -> str:
        return self._errors.read_text(errors="replace")[-2000:]
