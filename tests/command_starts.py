"""Starts of `penstock` commands in one environment, each in a process of its own, with the imports of all done once.

A process of the environment's own Python imports the command line as `python -m penstock` does and then forks for every
command that it is asked for: what a command imports beyond that, it finds in the environment or not, as if it had been
started alone. Nothing of one command is seen by the next.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

# Runs in the environment, which has nothing of the tests. A line in is a command; a line out is its process, then its
# code.
_SERVER = """
import json, os, sys, traceback
import penstock.cli.main
from penstock.__main__ import main

def run(arguments, out, err):
    for number, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.argv = ["penstock", *arguments]
    try:
        code = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    return code if isinstance(code, int) else 0 if code is None else 1

answers = os.fdopen(os.dup(1), "w", buffering=1)
for line in sys.stdin:
    asked = json.loads(line)
    process = os.fork()
    if process == 0:
        answers.close()
        sys.exit(run(**asked))
    print(process, file=answers)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers)
"""


class CommandStarts:
    """The commands of the environment whose Python is given, all in one working directory. Close it after use."""

    def __init__(self, python: Path, directory: Path, variables: Mapping[str, str]) -> None:
        self._told = directory.parent / f"{directory.name}.told"
        self._told.mkdir()
        self._count = 0
        self._server = subprocess.Popen(
            [python, "-c", _SERVER],
            cwd=directory,
            env=variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._server:
            assert self._server.stdin is not None
            self._server.stdin.close()

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """One command, from its start to its end: what it printed, and its code."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._count += 1
        paths = {name: self._told / f"{self._count}.{name}" for name in ("out", "err")}
        asked = {"arguments": list(arguments), **{name: str(path) for name, path in paths.items()}}
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        self._server.stdout.readline()
        code = int(self._server.stdout.readline())
        return subprocess.CompletedProcess(list(arguments), code, paths["out"].read_text(), paths["err"].read_text())
