"""The screen of a live view: whoever writes to the terminal meanwhile, nobody tears it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from tests.terminal import HEIGHT, WIDTH, on_terminal

# Everything that could write: this process on either stream, its libraries below Python, Python's logging and
# warnings, a log event, a thread that fails, and a process of its own.
PROGRAM = """
import logging, os, subprocess, sys, threading, time, warnings
from pathlib import Path
import structlog
from rich.panel import Panel
from penstock.cli import output, screen

output.set_up_log("warning")
with screen.taken(sys.stderr, Path(sys.argv[1])) as taken:
    taken.show(Panel("a view"))
    print("printed: foreign", flush=True)
    os.write(1, b"written: foreign\\n")
    os.write(2, b"written again: foreign\\n")
    logging.getLogger("a.library").warning("logged: foreign")
    warnings.warn("warned: foreign")
    structlog.get_logger().warning("event: foreign", number=7)
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    subprocess.run(["sh", "-c", "echo child: foreign; echo child again: foreign >&2"])
    taken.show(Panel(f"{taken.notices.count} warnings, the last: {taken.notices.last}"))
    sys.stdin.readline()
structlog.get_logger().warning("after")
print("done")
"""


def test_nothing_but_the_view_is_on_its_terminal(tmp_path: Path) -> None:
    log = tmp_path / "penstock.log"
    with on_terminal(sys.executable, "-c", PROGRAM, str(log)) as terminal:
        terminal.wait_for("the last: event: foreign number=7")
        terminal.type(b"typed\n")
        assert terminal.end() == 0
    view, beside = terminal.text(), terminal.beside_the_view()
    assert view.count("foreign") == 1
    assert "3 warnings" in view
    assert "typed" not in view
    # The terminal is as before: the log is on it again.
    assert "after" in beside
    assert beside.endswith("done\n")
    written = log.read_text()
    for who in ("printed", "written", "written again", "logged", "warned", "event", "child", "child again"):
        assert f"{who}: foreign" in written
    assert "ZeroDivisionError" in written
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_view_has_the_size_of_its_terminal_and_not_that_of_variables(tmp_path: Path) -> None:
    with on_terminal(sys.executable, "-c", PROGRAM, str(tmp_path / "log"), COLUMNS="200", LINES="99") as terminal:
        terminal.wait_for("a view")
        terminal.wait_for("the last:")
        terminal.type(b"\n")
        assert terminal.end() == 0
    top = f"╭{'─' * (WIDTH - 2)}╮"
    assert top in terminal.text()
    assert "─" * WIDTH not in terminal.text()
    drawn = terminal.shown.split(b"\x1b[H")[-1].partition(b"\x1b[?1049l")[0]
    assert drawn.count(b"\n") == HEIGHT - 1


def test_a_log_that_has_grown_large_is_set_aside(tmp_path: Path) -> None:
    log = tmp_path / "penstock.log"
    with log.open("wb") as file:
        file.truncate((8 << 20) + 1)
    with on_terminal(sys.executable, "-c", PROGRAM, str(log)) as terminal:
        terminal.wait_for("the last:")
        terminal.type(b"\n")
        assert terminal.end() == 0
    assert os.path.getsize(tmp_path / "penstock.log.1") == (8 << 20) + 1
    assert os.path.getsize(log) < 1 << 20
