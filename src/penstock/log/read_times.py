"""ReadTimes: since when the files of a log are known to be read by every subscription, as a small file beside them.

Files are read in order, so an entry says of all files up to a number that they were read by a time. Whatever is wrong
with the file, it counts as empty: what was read is then kept once more for the whole time, and nothing goes early.
docs/formats/checkpoint.md has the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log import sealed
from penstock.system.files import Files
from penstock.telemetry import Logger

log = Logger()

NAME = "retention.json"
FORMAT = 1
# Of more entries every second one goes; the files that it spoke for are then kept until the time of the next.
_ENTRIES_MAX = 1000


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """Pairs of a file's number and a time in microseconds, both rising: up to that file all was read by that time."""

    entries: tuple[tuple[int, int], ...] = ()

    def of(self, number: int, now_us: int) -> int:
        """By when the file was read; now, when that is news."""
        return next((time for last, time in self.entries if last >= number), now_us)

    def seen(self, first: int, last: int, now_us: int) -> ReadTimes:
        """The times after a look that found files `first` to `last` read, and no others; `last` 0 means none."""
        kept = [(number, time) for number, time in self.entries if first <= number <= last]
        if last and (not kept or kept[-1][0] < last):
            kept.append((last, now_us))
        while len(kept) > _ENTRIES_MAX:
            kept = kept[1::2] if len(kept) % 2 == 0 else [kept[0], *kept[2::2]]
        return ReadTimes(tuple(kept))


def load(files: Files, directory: str, log_id: str) -> ReadTimes:
    """What is noted for this log; nothing when there is no file, or one that cannot be used."""
    path = f"{directory}/{NAME}"
    try:
        if not files.exists(path):
            return ReadTimes()
        content = sealed.read(files, path)
        if content.get("format") != FORMAT or content.get("log") != log_id:
            raise ValueError("another format or another log")
        return ReadTimes(_entries(content.get("read")))
    except (OSError, ValueError) as error:
        log.warning("note of what was read not usable; files are kept anew", file=path, error=str(error))
        return ReadTimes()


def save(files: Files, directory: str, log_id: str, times: ReadTimes) -> None:
    """Note the times. A disk that refuses costs only that files are kept for longer."""
    content = {"format": FORMAT, "log": log_id, "read": [list(entry) for entry in times.entries]}
    try:
        sealed.write(files, directory, NAME, content)
    except OSError as error:
        log.warning("note of what was read not written", directory=directory, errno=error.errno)


def _entries(found: object) -> tuple[tuple[int, int], ...]:
    if not isinstance(found, list):
        raise ValueError("no list of files")
    out = tuple(_entry(one) for one in found)
    if list(out) != sorted(out):
        raise ValueError("files out of order")
    return out


def _entry(found: object) -> tuple[int, int]:
    match found:
        case [int() as number, int() as time]:
            return number, time
    raise ValueError("not a file and a time")
