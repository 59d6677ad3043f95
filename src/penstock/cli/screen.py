"""The screen: a terminal that a live view has for itself.

While the view is there, nothing else can write to the terminal. Standard output and standard error of this process, and
so of every process that it starts, lead to the log file instead, and what is typed is not shown, except that Ctrl-C
works. The view is drawn on the terminal's other screen, as a whole each time; when it ends, the terminal is as before.
"""

from __future__ import annotations

import os
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import structlog
from rich.console import Console, ConsoleDimensions, RenderableType
from rich.live import Live

from penstock.cli import output
from penstock.errors import StorageError
from penstock.telemetry import Form, Notices, set_up_logging

LOG_NAME = "penstock.log"
_LOG_BYTES_MAX = 8 << 20
_USUAL_SIZE = (80, 24)


@dataclass(frozen=True, slots=True)
class Screen:
    """What a view is given: how to show a picture, and what the log has to tell meanwhile."""

    show: Callable[[RenderableType], None]
    notices: Notices
    log: Path


class _Terminal(Console):
    """A console that asks its own terminal for the size: the standard streams lead elsewhere."""

    @property
    def size(self) -> ConsoleDimensions:
        try:
            width, height = os.get_terminal_size(self.file.fileno())
        except OSError:
            width, height = 0, 0
        return ConsoleDimensions(width or _USUAL_SIZE[0], height or _USUAL_SIZE[1])

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        raise NotImplementedError("a terminal has the size that it has")


def drawable(stream: TextIO) -> bool:
    """Whether a view can be drawn there: on a terminal that moves its cursor."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


@contextmanager
def taken(stream: TextIO, log: Path) -> Iterator[Screen]:
    """Have the terminal of `stream` for a view, with all that is printed meanwhile in `log`."""
    notices = Notices()
    level = output.log_level("info")
    for one in (sys.stdout, sys.stderr):
        one.flush()
    with ExitStack() as opened:
        terminal = opened.enter_context(open(os.dup(stream.fileno()), "w", encoding="utf-8"))
        file = opened.enter_context(_opened(log))
        opened.callback(lambda before: structlog.configure(**before), structlog.get_config())
        set_up_logging(level, file, output.log_form() or Form.JSON, notices)
        opened.enter_context(_led_to(file))
        opened.enter_context(_without_echo(terminal.fileno()))
        live = Live(
            console=_Terminal(file=terminal),
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        opened.enter_context(live)
        yield Screen(lambda picture: live.update(picture, refresh=True), notices, log)


@contextmanager
def _opened(log: Path) -> Iterator[TextIO]:
    """The log file, for this user alone; one that has grown large is set aside first."""
    try:
        with suppress(FileNotFoundError):
            if log.stat().st_size > _LOG_BYTES_MAX:
                log.replace(log.with_name(f"{log.name}.1"))
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError(f"cannot open the log file: {error.strerror}", file=log) from error
    with open(handle, "w", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
        yield file


@contextmanager
def _led_to(file: TextIO) -> Iterator[None]:
    """Let the standard streams that are terminals lead to a file, also for libraries and for other processes."""
    streams = [one for one in (sys.stdout, sys.stderr) if one.isatty()]
    before = [(one, os.dup(one.fileno())) for one in streams]
    try:
        for one, _ in before:
            os.dup2(file.fileno(), one.fileno())
        yield
    finally:
        for one, terminal in before:
            one.flush()
            os.dup2(terminal, one.fileno())
            os.close(terminal)


@contextmanager
def _without_echo(terminal: int) -> Iterator[None]:
    """Do not show what is typed: a line feed, or the ^C of Ctrl-C, would move the view."""
    try:
        # Whoever is in the background must not touch the terminal's settings: it would be stopped.
        in_front = os.tcgetpgrp(terminal) == os.getpgrp()
        before = termios.tcgetattr(terminal)
    except (OSError, termios.error):
        in_front, before = False, []
    if not in_front:
        yield
        return
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
