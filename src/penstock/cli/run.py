"""`penstock run CONFIG`: all that one machine runs, the agent and the pipeline, each in a process of its own.

A process that fails ends the other in good order, so that whoever supervises this command sees one thing that works or
does not. The pipeline has its own process because Spark has a Java machine of its own, whose end must not be the
agent's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import typer

from penstock.cli import needs, output
from penstock.cli.agent import ConfigArgument
from penstock.cli.output import JsonOption
from penstock.cli.pipeline import load_settings

_LOOK_S = 0.1
# What lies in the working directory is not code of ours: without this, Python would look for modules there first.
_SAFE_PATH = ("-P",)
# Longer than any part needs to finish what is under way.
_END_S = 120.0


def run(config: ConfigArgument, json: JsonOption = False) -> None:
    """Run the agent and, when sinks are named, the pipeline, until Ctrl-C or SIGTERM."""
    output.set_up_log("info", service=True, json=json)
    settings = load_settings(config)
    needs.for_run(settings)
    options = ["--json"] if json else []
    # Both write lines to one log; a view would be torn by those of the other.
    parts = {"agent": options}
    if settings.pipeline.sinks:
        parts["pipeline"] = ["--no-view", *options]
    commands = {part: [*_command(), part, config, *words] for part, words in parts.items()}
    code = _Parts(commands).run()
    if code:
        raise typer.Exit(code)


def _command() -> list[str]:
    return [sys.executable, *_SAFE_PATH, "-m", "penstock"]


class _Parts:
    """Child processes that live and end together."""

    def __init__(self, commands: Mapping[str, Sequence[str]]) -> None:
        self._asked = False
        # Asked twice by Ctrl-C: whoever asks so does not want to wait.
        self._at_once = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)
        # A session of its own: Ctrl-C reaches this process, which passes it on once.
        self._processes = {
            name: subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - this program with its own arguments
            for name, command in commands.items()
        }

    def run(self) -> int:
        """Wait until all have ended; the exit code of the first that failed."""
        failed = 0
        deadline: float | None = None
        while any(process.poll() is None for process in self._processes.values()):
            for name, process in self._processes.items():
                if process.returncode and not failed:
                    failed = process.returncode
                    if not self._asked:
                        output.note(f"the {name} ended with {failed}; the rest is ended too")
            if self._at_once or (deadline is not None and time.monotonic() > deadline):
                self._send(signal.SIGKILL)
            elif deadline is None and (self._asked or failed):
                deadline = time.monotonic() + _END_S
                if self._asked:
                    output.note(f"{' and '.join(self._processes)} end in good order; Ctrl-C ends at once")
                self._send(signal.SIGTERM)
            time.sleep(_LOOK_S)
        return failed or next((p.returncode for p in self._processes.values() if p.returncode), 0)

    def _ask(self, number: int, _frame: object) -> None:
        self._at_once = self._asked and number == signal.SIGINT
        self._asked = True

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(number)
