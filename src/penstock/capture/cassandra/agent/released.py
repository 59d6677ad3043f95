"""Released: hands finished segments to the transfer, offers them again when it refuses, and watches the cdc space.

Nothing here can hold the tail up or lose a change: a segment that is released is durable in the change logs. A transfer
that fails leaves the file in cdc_raw, where it takes space, so it is asked again until it has taken it.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import structlog

from penstock.capture.cassandra.agent.directory import SegmentFile
from penstock.capture.cassandra.agent.failed_segments import FailedSegments
from penstock.capture.cassandra.agent.place import Place
from penstock.capture.cassandra.agent.tail import Tail
from penstock.capture.cassandra.agent.transfer import ProcessedSegment, SegmentTransfer
from penstock.errors import PenstockError
from penstock.settings import AgentSettings
from penstock.system.clock import Clock

log = structlog.get_logger()

_WARN_AGAIN_S = 60.0
_NEARLY_FULL = 0.95
_TRY_AGAIN_S_MAX = 60.0


class Released:
    """The segments of one run of the agent that are done."""

    def __init__(
        self,
        tail: Tail,
        transfer: SegmentTransfer,
        space_bytes_max: int,
        settings: AgentSettings,
        clock: Clock,
        failed: FailedSegments,
    ) -> None:
        self.done = 0
        # Segments that the transfer has refused.
        self.refused = 0
        self._tail = tail
        self._transfer = transfer
        self._space_bytes_max = space_bytes_max
        self._settings = settings
        self._clock = clock
        self._warned = -_WARN_AGAIN_S
        # Segments that the transfer has had, by name; with `keep`, or after an error, they are still in cdc_raw.
        self._handed: dict[str, None] = {}
        self._failed: dict[str, ProcessedSegment] = {}
        self._tries: dict[str, int] = {}
        self._try_at: dict[str, float] = {}
        self._records = failed

    def release(self, segment: ProcessedSegment) -> bool:
        """Hand a segment over; whether the transfer took it."""
        try:
            if segment.error is None:
                self._transfer.done(segment)
            else:
                self._transfer.failed(segment)
        except Exception as error:  # noqa: BLE001
            # The operator's own code may raise anything. The file is still there, and the next try may succeed.
            reason = str(error) if isinstance(error, PenstockError | OSError) else type(error).__name__
            log.error("segment not transferred", segment=segment.name, reason=reason)
            self.refused += 1
            self._failed[segment.name] = segment
            self._tries[segment.name] = tries = self._tries.get(segment.name, 0) + 1
            self._try_at[segment.name] = self._clock.monotonic() + min(_TRY_AGAIN_S_MAX, 2.0**tries)
            return False
        self.done += 1
        for kept in (self._failed, self._tries, self._try_at):
            kept.pop(segment.name, None)
        self._handed[segment.name] = None
        return True

    def keep_up(self, saved: Place | None, waiting: Collection[int]) -> None:
        """Offer again what was refused, what a crash left behind and what the node brought back; look at the space.

        Only segments that the saved place calls finished are touched, and not those that wait to be released.
        """
        now = self._clock.monotonic()
        for segment in [segment for segment in self._failed.values() if now >= self._try_at[segment.name]]:
            self.release(segment)
        listing = self._tail.listing
        if saved is not None:
            for file in listing.segments:
                done = file.id in saved.finished or file.id < saved.finished_below
                if done and file.in_cdc_raw and file.id not in waiting:
                    self._leftover(file)
            for id_, path in listing.orphans:
                if id_ in saved.finished and self._settings.transfer != "keep":
                    _remove_index(path)
        present = {file.name.name for file in listing.segments}
        self._handed = {name: None for name in self._handed if name in present}
        self._watch_space()

    def _leftover(self, file: SegmentFile) -> None:
        name = file.name.name
        if name in self._handed or name in self._failed:
            return
        error = next((record.message for record in self._records.all() if record.name == name), None)
        self.release(ProcessedSegment(name, file.path, file.index_path, 0, 0, error))

    def _watch_space(self) -> None:
        used, limit = self._tail.listing.bytes, self._space_bytes_max
        if used < limit * self._settings.space_warning:
            return
        now = self._clock.monotonic()
        if now - self._warned < _WARN_AGAIN_S:
            return
        self._warned = now
        facts = {"used_bytes": used, "limit_bytes": limit, "segments": len(self._tail.listing.segments)}
        if used >= limit * _NEARLY_FULL:
            log.error("cdc space nearly used up, the node will refuse writes", **facts)
        else:
            log.warning("cdc space fills", **facts)


def _remove_index(path: str) -> None:
    """An index file that the node wrote after its segment had gone."""
    try:
        os.unlink(path)
    except OSError:
        return
