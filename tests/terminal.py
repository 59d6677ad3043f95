"""A terminal of 80 by 24 for a command under test, and what it was shown there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

PATIENCE_S = 120
WIDTH, HEIGHT = 80, 24
# A view is drawn on the other screen of the terminal.
_TO_VIEW, _FROM_VIEW = b"\x1b[?1049h", b"\x1b[?1049l"
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A command that has a terminal for itself, which Ctrl-C is typed at."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.shown = b""
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        # A session of its own with this terminal: only then does Ctrl-C, typed, become a signal.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**kept, "TERM": "xterm-256color", **variables},
        )
        os.close(terminal)

    def type(self, keys: bytes) -> None:
        os.write(self._screen, keys)

    def wait_for(self, *wanted: str) -> None:
        """Read until everything that is wanted was shown."""
        while not all(part in self.text() for part in wanted):
            assert self._read(), f"ended before {wanted} was shown: {self.text()[-4000:]}"

    def end(self) -> int:
        """Read until the command ends; its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def text(self) -> str:
        """All that was shown, without the control characters."""
        return _CONTROL.sub(b"", self.shown).decode()

    def beside_the_view(self) -> str:
        """What was printed before and after the view, which is what stays on the terminal."""
        before, _, rest = self.shown.partition(_TO_VIEW)
        _, _, after = rest.rpartition(_FROM_VIEW)
        return _CONTROL.sub(b"", before + after).decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        # Whoever is left loses the terminal, and is told so.
        os.close(self._screen)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._screen], [], [], PATIENCE_S)
        assert ready, f"the terminal stayed silent: {self.text()[-4000:]}"
        try:
            data = os.read(self._screen, 65536)
        except OSError:
            # Linux says so when the last program has closed the terminal.
            return False
        self.shown += data
        return bool(data)


@contextmanager
def on_terminal(*command: str, **variables: str) -> Iterator[Terminal]:
    """Run a command on a terminal of its own."""
    terminal = Terminal(command, variables)
    try:
        yield terminal
    finally:
        terminal.close()
