"""StateStore: the state of a pipeline on disk, one stack of runs per bucket, as the driver sees it.

Tasks write run files (`bucket`); the driver commits a batch by writing its manifest, which names the runs of every
bucket. The last two manifests and their files are kept, because the tasks of a batch that is done again read the state
of the batch before it. The number of buckets is fixed when the state is made.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import InvalidSetting, PipelineFenced
from penstock.fold import bootstrap
from penstock.fold import manifest as manifests
from penstock.fold.bucket import RUNS
from penstock.fold.manifest import BucketRuns, Manifest
from penstock.fold.state_file import RunId
from penstock.model.batch import ChangeBatch

# The number of the batch that loads rows from elsewhere, before the first batch of the stream.
BEFORE_ALL = -1
_RUN = re.compile(r"b\d{5}-(-?\d{11,12})-\w+\.(?:arrow|tmp)")
# How many manifests stay.
_KEPT = 2


@dataclass(frozen=True, slots=True)
class StateStore:
    """A directory of state."""

    directory: str
    buckets: int

    @property
    def committed(self) -> int:
        """The last batch that has a manifest; -1 when there is none."""
        batches = manifests.batches(self.directory)
        return batches[-1] if batches else BEFORE_ALL

    def commit(self, batch: int, tokens: Mapping[int, bytes]) -> None:
        """Make a batch's state visible. `tokens` are what `BucketState.finish` gave, by bucket.

        Buckets without one stay as they are. Doing it again for the same batch changes nothing.
        """
        batches = manifests.batches(self.directory)
        if batches and batches[-1] >= batch:
            return
        if not manifests.write(self.directory, self._next(batch, tokens)):
            raise PipelineFenced("another driver has committed this batch", directory=self.directory, batch=batch)
        self._forget(batch)

    def _next(self, batch: int, tokens: Mapping[int, bytes]) -> Manifest:
        known = self._last()
        state = dict(known.state) if known else {}
        for bucket, token in tokens.items():
            state[bucket] = BucketRuns.from_json(json.loads(token))
        return Manifest(batch, self.buckets, state)

    def size_with(self, tokens: Mapping[int, bytes]) -> tuple[int, int]:
        """Rows and bytes that the state would have with a batch that is not committed."""
        return _size(self._next(self.committed + 1, tokens).runs())

    def discard(self, batch: int) -> None:
        """Remove what the tasks of a batch have written that will not be committed now."""
        self._remove_runs(lambda number: number == batch, set())

    def size(self) -> tuple[int, int]:
        """Rows and bytes of the state after the last committed batch."""
        known = self._last()
        return _size(known.runs() if known else [])

    def next_due_s(self) -> int | None:
        """The first second at which something expires in any bucket; None when nothing does."""
        known = self._last()
        due = [bucket.due_s for bucket in known.state.values() if bucket.due_s] if known else []
        return min(due, default=None)

    def expired(self) -> dict[int, int]:
        """By bucket the second up to which expiries were delivered."""
        known = self._last()
        state = known.state if known else {}
        return {bucket: state[bucket].expired_to if bucket in state else 0 for bucket in range(self.buckets)}

    def load(self, batches: Iterable[ChangeBatch]) -> None:
        """Begin with the rows of these changes, of a snapshot or of a target's rows: no record is made of them."""
        bootstrap.load(self, batches)

    def _last(self) -> Manifest | None:
        batches = manifests.batches(self.directory)
        if not batches:
            return None
        known = manifests.read(self.directory, batches[-1])
        if known.buckets != self.buckets:
            message = f"the state has {known.buckets} buckets; that number cannot change to {self.buckets}"
            raise InvalidSetting(message, directory=self.directory)
        return known

    def _forget(self, batch: int) -> None:
        """Remove manifests and runs that no batch can ask for any more."""
        batches = manifests.batches(self.directory)
        needed = {run.file for known in batches[-_KEPT:] for run in manifests.read(self.directory, known).runs()}
        for known in batches[:-_KEPT]:
            os.unlink(manifests.path(self.directory, known))
        self._remove_runs(lambda number: number <= batch, needed)

    def _remove_runs(self, of_batch: Callable[[int], bool], needed: Container[str]) -> None:
        runs = os.path.join(self.directory, RUNS)
        try:
            names = os.listdir(runs)
        except FileNotFoundError:
            return
        for name in names:
            match = _RUN.fullmatch(name)
            if match and of_batch(int(match[1])) and name not in needed:
                os.unlink(os.path.join(runs, name))


def _size(runs: Iterable[RunId]) -> tuple[int, int]:
    found = list(runs)
    return sum(run.entries for run in found), sum(run.bytes for run in found)
