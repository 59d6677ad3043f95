"""The subscriptions of a log, for who looks after them: how far each is, and moving or dropping one by hand.

Whoever reads under a name holds its lease, and nobody moves a subscription under a reader's hands: that is refused.
Retention is held back while one moves, so that what it is moved to is still there afterwards. A checkpoint that cannot
be read is listed with its error; dropping or resetting it is how an operator gets rid of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from penstock.errors import ChangesLost, CorruptData, InvalidInput, PenstockError, PositionAhead
from penstock.log import checkpoint, names, recent, retention, sealed
from penstock.log.checkpoint import Checkpoint
from penstock.log.reader import LogReader
from penstock.log.refusal import refused
from penstock.log.subscription import take_lease
from penstock.model.instant import parse_instant
from penstock.model.position import Position
from penstock.system.clock import Clock, SystemClock
from penstock.system.files import Files, OsFiles
from penstock.telemetry import Logger

log = Logger()

_POSITION = re.compile(r"\d+:\d+:\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """How far one subscription is. `error` in place of the rest when its checkpoint cannot be read."""

    name: str
    position: Position | None = None
    committed_us: int | None = None
    # Changes and bytes that it has yet to commit, and the time of the first of these changes.
    behind: int | None = None
    behind_bytes: int | None = None
    waiting_since_us: int | None = None
    # Changes of this log up to what is committed.
    delivered: int | None = None
    error: str | None = None

    def lag_s(self, now_us: int) -> float | None:
        """How old the first change is that it has not committed; 0 when there is none, None when that is not known."""
        if self.error is not None:
            return None
        return 0.0 if self.waiting_since_us is None else max(0.0, (now_us - self.waiting_since_us) / 1e6)

    def to_json(self, now_us: int) -> dict[str, Any]:
        """As the command line and HTTP show it; times in microseconds since 1970."""
        return {
            "name": self.name,
            "position": None if self.position is None else str(self.position),
            "committed": self.committed_us,
            "behind": self.behind,
            "behind_bytes": self.behind_bytes,
            "lag_s": self.lag_s(now_us),
            "delivered": self.delivered,
            **({} if self.error is None else {"error": self.error}),
        }


@dataclass(frozen=True, slots=True)
class Move:
    """A subscription that was moved. `again` counts the changes that come once more, `skipped` those left out."""

    name: str
    before: Position | None
    after: Position
    again: int = 0
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """As the command line and HTTP show it."""
        before = None if self.before is None else str(self.before)
        return {
            "name": self.name,
            "before": before,
            "position": str(self.after),
            "again": self.again,
            "skipped": self.skipped,
        }


def states(reader: LogReader, files: Files | None = None) -> list[SubscriptionState]:
    """Every subscription of a log, by name."""
    found = checkpoint.load_all(files or OsFiles(), reader.directory)
    return [_state(reader, path, one) for path, one in found.items()]


def _state(reader: LogReader, path: str, found: Checkpoint | PenstockError) -> SubscriptionState:
    name = path.rsplit("/", 1)[-1].removesuffix(names.CHECKPOINT)
    if isinstance(found, PenstockError):
        return SubscriptionState(name, error=str(found))
    try:
        checkpoint.check(found, path, reader, found.subscription)
        delivered = recent.changes_through(reader, found.position)
        return SubscriptionState(
            found.subscription,
            found.position,
            found.time,
            max(0, reader.watermark().rows - delivered),
            recent.bytes_after(reader, found.position),
            recent.time_after(reader, found.position),
            delivered,
        )
    except PenstockError as error:
        return SubscriptionState(found.subscription, found.position, found.time, error=str(error))


def drop(directory: str, name: str, *, files: Files | None = None, dry_run: bool = False) -> None:
    """Forget a subscription, also one whose checkpoint cannot be read: it no longer holds files back."""
    files = files or OsFiles()
    path = _existing(files, directory, name)
    if dry_run:
        return
    lease = take_lease(files, directory, name)
    try:
        files.unlink(path)
        files.sync_directory(directory)
    except OSError as error:
        raise refused(error, "dropping the subscription", path) from error
    finally:
        lease.close()
    log.warning("subscription dropped", directory=directory, subscription=name)


def move(
    directory: str,
    name: str,
    to: str,
    *,
    back_only: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
    dry_run: bool = False,
) -> Move:
    """Set a subscription to `to`: `begin`, `end`, a position, or a time. With `back_only`, going forward is refused.

    Raises SubscriptionLocked while somebody reads under the name, ChangesLost when what is asked for is gone.
    """
    files, clock = files or OsFiles(), clock or SystemClock()
    path = _existing(files, directory, name)
    lease = take_lease(files, directory, name)
    try:
        with LogReader(directory, files=files) as reader, retention.paused(files, directory, clock):
            target = find(reader, to, clock.now_us())
            before = _committed(files, path, reader, name)
            if back_only and before is not None and target > before:
                raise InvalidInput(
                    "this lies ahead of what is committed: a rewind goes back, a reset anywhere",
                    subscription=name,
                    position=target,
                    committed=before,
                )
            done = _difference(reader, name, before, target)
            if not dry_run:
                made = Checkpoint(reader.log_id, reader.table, name, target, clock.now_us())
                sealed.write(files, directory, names.checkpoint_name(name), made.to_json())
    except OSError as error:
        raise refused(error, "moving the subscription", path) from error
    finally:
        lease.close()
    if not dry_run:
        log.warning(
            "subscription moved",
            directory=directory,
            subscription=name,
            before=str(before),
            after=str(target),
            again=done.again,
            skipped=done.skipped,
        )
    return done


def find(reader: LogReader, to: str, now_us: int) -> Position:
    """The position that is meant by `begin`, `end`, `000001:4096:0`, `2026-11-15T10:00:00Z` or `10m` (ago)."""
    text = to.strip()
    if text.lower() == "begin":
        return reader.first()
    if text.lower() == "end":
        return reader.end()
    if _POSITION.fullmatch(text) is None:
        return reader.seek_time(parse_instant(text, now_us))
    position, first = Position.parse(text), reader.first()
    if position < first:
        raise ChangesLost("retention removed what comes behind this position", after=position, through=first)
    if not checkpoint.is_in_log(reader, position):
        raise PositionAhead("this position lies ahead of the log", position=position, end=reader.end())
    if position != first and not _is_a_change(reader, position):
        raise InvalidInput(f"there is no change at {position}; `penstock log cat` shows the positions of changes")
    return position


def _is_a_change(reader: LogReader, position: Position) -> bool:
    try:
        mark, numbers = reader.watermark(), reader.numbers()
        limit = reader.file_end(position.file, mark, numbers)
        block = next(reader.blocks(position.file, position.offset, limit), None)
    except PenstockError:
        return False
    return block is not None and block.offset == position.offset and position.ordinal < block.count


def _committed(files: Files, path: str, reader: LogReader, name: str) -> Position | None:
    """What is committed; None when the checkpoint cannot be read or belongs elsewhere."""
    try:
        found = checkpoint.load(files, path)
        if found is not None:
            checkpoint.check(found, path, reader, name)
    except (CorruptData, PositionAhead):
        return None
    return None if found is None else found.position


def _difference(reader: LogReader, name: str, before: Position | None, after: Position) -> Move:
    if before is None:
        return Move(name, before, after)
    moved = recent.changes_through(reader, before) - recent.changes_through(reader, after)
    return Move(name, before, after, again=max(0, moved), skipped=max(0, -moved))


def _existing(files: Files, directory: str, name: str) -> str:
    path = f"{directory}/{names.checkpoint_name(name)}"
    if not files.exists(path):
        known = [one.removesuffix(names.CHECKPOINT) for one in files.list(directory) if one.endswith(names.CHECKPOINT)]
        listed = ", ".join(sorted(known)) or "none"
        raise InvalidInput(f"no subscription {name[:60]!r} here; there are: {listed}", directory=directory)
    return path
