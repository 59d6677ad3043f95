"""Output: text for people, JSON for programs, the same facts in both.

Data goes to standard output and everything else to standard error. Streams print one line per fact and flush after each
batch, so that `| head`, `| grep` and `| jq` work while changes still come. Text has colours on a terminal only, and
none when NO_COLOR is set.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import select
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NoReturn

import structlog
import typer
from rich.console import Console

from penstock.errors import InvalidSetting, PenstockError
from penstock.model.instant import EPOCH
from penstock.system import kernels

log = structlog.get_logger()

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

_LEVEL_VARIABLE = "PENSTOCK_LOG_LEVEL"
_LEVELS = ("debug", "info", "warning", "error", "critical")
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Control characters in names or values must not reach the terminal, where they could redraw it.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def take_any_text() -> None:
    """Print what the terminal's encoding, or any, cannot carry as its escape: a name in a file never ends a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def line(text: str) -> None:
    """Print one line of data."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        _end_quietly()


def flush() -> None:
    """Hand on what was printed; called after each batch, so that nobody down the pipe waits."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _end_quietly()


def emit(record: Mapping[str, Any]) -> None:
    """Print one JSON object as one line."""
    line(json.dumps(record, ensure_ascii=False, separators=(",", ":")))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns. Numbers stand right; nothing is cut, so the text can be piped on."""
    cells = [[plain(str(cell)) for cell in row] for row in rows]
    right = [all(_is_number(row[i]) for row in cells) and bool(cells) for i in range(len(headers))]
    widths = [max(len(header), *(len(row[i]) for row in cells), 0) for i, header in enumerate(headers)]
    for number, row in enumerate([list(headers), *cells]):
        parts = [text.rjust(w) if r else text.ljust(w) for text, w, r in zip(row, widths, right, strict=True)]
        text = "  ".join(parts).rstrip()
        line(_bold(text) if number == 0 else text)


def pairs(facts: Mapping[str, object]) -> None:
    """Print names and values, one pair per line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        line(f"{name.ljust(width)}  {plain(str(value))}")


def note(text: str) -> None:
    """Tell the person something that is no data."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def report(error: PenstockError) -> None:
    """An error as one line, and what to do about it as another."""
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    mark = "\x1b[31mpenstock:\x1b[0m" if colour else "penstock:"
    # Statement errors draw a caret under the place, so their line breaks stay.
    text = "\n".join(plain(part) for part in str(error).splitlines())
    note(f"{mark} {text}")
    if error.advice:
        note(f"  hint: {error.advice}")


def log_level(usual: str) -> str:
    """The level of log events that PENSTOCK_LOG_LEVEL asks for, or the usual one."""
    level = os.environ.get(_LEVEL_VARIABLE) or usual
    if level.lower() not in _LEVELS:
        raise InvalidSetting(f"no such level: {level[:40]!r}; one of {', '.join(_LEVELS)}", variable=_LEVEL_VARIABLE)
    return level


def warn_of_plain_kernels() -> None:
    """Say loudly when the kernels run as plain Python, before anything that they make slow."""
    if (reason := kernels.complaint()) is not None:
        log.warning("kernels are plain Python", reason=reason, remedy=kernels.REMEDY)


def progress_console() -> Console:
    """Where progress bars are drawn: standard error, so that they never mix with data."""
    return Console(stderr=True)


def plain(text: str) -> str:
    """Text without control characters."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def size(count: int) -> str:
    """A number of bytes for people."""
    value = float(count)
    for unit in _SIZE_UNITS:
        if value < 1024 or unit == _SIZE_UNITS[-1]:
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def count(number: int, noun: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def instant(time_us: int | None) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC; times that the calendar does not reach stay numbers."""
    if time_us is None:
        return "-"
    try:
        return (EPOCH + datetime.timedelta(microseconds=time_us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except OverflowError:
        return f"{time_us}us"


def reader_is_gone() -> bool:
    """Whether whoever reads our standard output has closed it: a silent `tail -f | head` must still end."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in poll.poll(0))
    except (OSError, ValueError):
        # Standard output is no real file, as under a test runner.
        return False


def _end_quietly() -> NoReturn:
    """Whoever read our output has had enough, as `| head` has. The interpreter must not complain at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.,]+( ?([KMGT]i)?B|%|/s| ms)?|-", text))


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text
