"""Output: text for people, JSON for programs, the same facts in both.

Data goes to standard output and everything else to standard error. A service, as the agent and the pipeline are, has
one log there: where it is JSON, what the service has to say and the error that ends it are log events too. Streams
print one line per fact and flush after each batch, so that `| head`, `| grep` and `| jq` work while changes still come.
Text has colours on a terminal only, and none when NO_COLOR is set.
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
from penstock.telemetry import Form, set_up_logging

log = structlog.get_logger()

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

_LEVEL_VARIABLE = "PENSTOCK_LOG_LEVEL"
_FORM_VARIABLE = "PENSTOCK_LOG_FORMAT"
_LEVELS = ("debug", "info", "warning", "error", "critical")
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# Control characters in names or values must not reach the terminal, where they could redraw it.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Whether this process is a service whose log is JSON.
_all_logged = False


def take_any_text() -> None:
    """Print what the terminal's encoding, or any, cannot carry as its escape: a name in a file never ends a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def line(text: str) -> None:
    """Print one line of data."""
    lines(text + "\n")


def lines(text: str) -> None:
    """Print lines of data, each with its end."""
    try:
        sys.stdout.write(text)
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
    if _all_logged:
        log.info(text)
        return
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def told(text: str, event: str, **facts: object) -> None:
    """Say what has happened to a service: as a line of text, or where its log is JSON as a log event with the facts."""
    if _all_logged:
        log.info(event, **facts)
        return
    line(text)
    flush()


def report(error: PenstockError) -> None:
    """An error as one line, and what to do about it as another."""
    if _all_logged:
        hint = {"hint": error.advice} if error.advice else {}
        log.error(str(error), error=type(error).__name__, **hint)
        return
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    mark = "\x1b[31mpenstock:\x1b[0m" if colour else "penstock:"
    # Statement errors draw a caret under the place, so their line breaks stay.
    text = "\n".join(plain(part) for part in str(error).splitlines())
    note(f"{mark} {text}")
    if error.advice:
        note(f"  hint: {error.advice}")


def log_mistake() -> bool:
    """Log the error under way, which nobody foresaw, where this is a service's log; False: it is to be shown."""
    if _all_logged:
        log.exception("ended by a mistake in Penstock")
    return _all_logged


def set_up_log(usual: str, *, service: bool = False, json: bool = False) -> None:
    """Where log events go, from which level on, and in which form; `json`: standard output is JSON, so the log is."""
    global _all_logged
    form = log_form() or (Form.JSON if json or not sys.stderr.isatty() else Form.TEXT)
    set_up_logging(log_level(usual), form=form)
    _all_logged = service and form is Form.JSON


def end_service() -> None:
    """Whatever is told from here on is told to people."""
    global _all_logged
    _all_logged = False


def log_level(usual: str) -> str:
    """The level of log events that PENSTOCK_LOG_LEVEL asks for, or the usual one."""
    level = os.environ.get(_LEVEL_VARIABLE) or usual
    if level.lower() not in _LEVELS:
        raise InvalidSetting(f"no such level: {level[:40]!r}; one of {', '.join(_LEVELS)}", variable=_LEVEL_VARIABLE)
    return level


def log_form() -> Form | None:
    """The form of log events that PENSTOCK_LOG_FORMAT asks for; None: what fits where they go."""
    form = os.environ.get(_FORM_VARIABLE)
    if not form:
        return None
    if form.lower() not in set(Form):
        raise InvalidSetting(f"no such form: {form[:40]!r}; one of {', '.join(Form)}", variable=_FORM_VARIABLE)
    return Form(form.lower())


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
