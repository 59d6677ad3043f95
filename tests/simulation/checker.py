"""The judge: decides from histories alone whether a log kept its promises. It knows nothing of the log's code.

A history says what was attempted, what was acknowledged, what readers saw and which checkpoints were committed, up to
the moment of a crash; a finding says what was there afterwards. Every broken promise becomes one line of text:

- lost: an acknowledged change, or one that a reader had seen, is not there (nor was it consumed by every subscriber);
- invented: something is there that nobody appended, twice, or with other values;
- gap: a change is missing between others, without its append having failed;
- order: changes do not stand in the order of their appends, or positions do not rise;
- moved: a change stands at another position than the acknowledged one;
- torn: a part of a batch is there;
- checkpoint: one went back, ran ahead of the log, or vanished;
- note: what retention has noted, since when a file was read by all, is damaged, gone or another time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

# A place in the log; any totally ordered value will do. None stands for the place before the first change.
Place = tuple[int, ...]
Value = Hashable


# Beside the judge's own words: damage that is told, an error that nobody expected, a run or a caller that went wrong.
_PROMISE = re.compile(r"(?:lost|invented|gap|order|moved|torn|checkpoint|note|damage|conduct|raised|does not run)(?=:)")


def promises(problems: Iterable[str]) -> Counter[str]:
    """Which promises these lines say are broken, each once."""
    found = (_PROMISE.search(problem) for problem in problems)
    return Counter({match.group() if match is not None else "unknown" for match in found})


@dataclass
class History:
    """What happened up to now. It only grows."""

    # One entry per batch, in the order of the appends: the changes in it.
    attempted: list[tuple[Value, ...]] = field(default_factory=list)
    # Batch number → place of its last change.
    acknowledged: dict[int, Place] = field(default_factory=dict)
    # Batches whose append raised: they may be there or not.
    failed: set[int] = field(default_factory=set)
    # Batches that were in doubt at a crash and not there when the log was opened again: they must not come back.
    absent: set[int] = field(default_factory=set)
    # What a reader was given: place → change. From then on it must stay.
    seen: dict[Place, Value] = field(default_factory=dict)
    # Per subscription: places whose commit was begun, and the last one that was acknowledged.
    commits: dict[str, list[Place]] = field(default_factory=dict)
    committed: dict[str, Place] = field(default_factory=dict)
    # File → the time by which it was read by all, as the last run of retention that ended has noted it.
    noted: dict[int, int] = field(default_factory=dict)

    def owes(self) -> bool:
        """Whether there is anything whose loss would be a broken promise."""
        return bool(self.acknowledged or self.seen or self.committed)

    def extent(self) -> tuple[object, ...]:
        """How far it has come: within one run, two histories of the same extent are the same."""
        return (
            *map(len, (self.attempted, self.acknowledged, self.failed, self.absent, self.seen)),
            *((name, len(places), self.committed.get(name)) for name, places in sorted(self.commits.items())),
            *sorted(self.noted.items()),
        )

    def copy(self) -> History:
        return History(
            list(self.attempted),
            dict(self.acknowledged),
            set(self.failed),
            set(self.absent),
            dict(self.seen),
            {name: list(places) for name, places in self.commits.items()},
            dict(self.committed),
            dict(self.noted),
        )


@dataclass
class Finding:
    """What was there after the crash."""

    changes: Sequence[tuple[Place, Value]]
    checkpoints: dict[str, Place | None] = field(default_factory=dict)
    # The numbers of the files that are there, and what is noted of them.
    files: Sequence[int] = ()
    noted: dict[int, int] = field(default_factory=dict)


def settle(history: History, finding: Finding) -> None:
    """After the log was opened again: what was in doubt and is not there now is gone for good."""
    history.noted = dict(finding.noted)
    there = {value for _, value in finding.changes}
    for number, values in enumerate(history.attempted):
        if number not in history.acknowledged and values[0] not in there:
            history.absent.add(number)


def check(history: History, finding: Finding) -> list[str]:
    """The broken promises; empty when all were kept."""
    problems = _check_order(finding)
    batches = _batches_found(history, finding, problems)
    if problems:
        return problems
    consumed = _consumed(finding)
    problems += _check_presence(history, finding, batches, consumed)
    problems += _check_gaps(history, batches, consumed)
    problems += _check_checkpoints(history, finding)
    problems += _check_notes(history, finding)
    return problems


def _check_order(finding: Finding) -> list[str]:
    places = [place for place, _ in finding.changes]
    return [f"order: {later} stands behind {earlier}" for earlier, later in pairwise(places) if later <= earlier]


def _batches_found(history: History, finding: Finding, problems: list[str]) -> dict[int, Place]:
    """Batch number → place of its last change, for every batch that is there as a whole."""
    origin = {
        value: (batch, ordinal)
        for batch, values in enumerate(history.attempted)
        for ordinal, value in enumerate(values)
    }
    found: dict[int, Place] = {}
    partial: dict[int, int] = {}
    previous = (-1, -1)
    for place, value in finding.changes:
        source = origin.get(value)
        if source is None:
            problems.append(f"invented: {place} was never appended")
            continue
        if source <= previous:
            problems.append(
                f"{'invented' if source == previous else 'order'}: {source} at {place} comes after {previous}"
            )
        previous = source
        batch, ordinal = source
        partial[batch] = partial.get(batch, 0) + 1
        if ordinal == len(history.attempted[batch]) - 1:
            found[batch] = place
    for batch, count in partial.items():
        if count != len(history.attempted[batch]):
            problems.append(f"torn: batch {batch} has {count} of {len(history.attempted[batch])} changes")
    return found


def _consumed(finding: Finding) -> Place | None:
    """Up to here every subscription is done, so that retention may have deleted it."""
    places = list(finding.checkpoints.values())
    if not places:
        return None
    slowest: Place | None = None
    for place in places:
        if place is None:
            return None
        slowest = place if slowest is None or place < slowest else slowest
    return slowest


def _check_presence(history: History, finding: Finding, batches: dict[int, Place], consumed: Place | None) -> list[str]:
    problems = [f"invented: batch {batch} was gone and came back" for batch in history.absent if batch in batches]
    for batch, place in history.acknowledged.items():
        there = batches.get(batch)
        if there is None:
            if consumed is None or place > consumed:
                problems.append(f"lost: batch {batch}, acknowledged at {place}")
        elif there != place:
            problems.append(f"moved: batch {batch} was acknowledged at {place} and is at {there}")
    found = dict(finding.changes)
    for place, value in history.seen.items():
        if place not in found:
            if consumed is None or place > consumed:
                problems.append(f"lost: {place}, which a reader had seen")
        elif found[place] != value:
            problems.append(f"moved: {place} holds another change than a reader had seen")
    return problems


def _check_gaps(history: History, batches: dict[int, Place], consumed: Place | None) -> list[str]:
    """Nothing is missing before the last batch that is there, but for failed ones and a consumed beginning."""
    if not batches:
        return []
    first, last = min(batches), max(batches)
    return [
        f"gap: batch {batch} is missing before batch {last}"
        for batch in range(last)
        if batch not in batches.keys() | history.failed | history.absent and (batch > first or consumed is None)
    ]


def _check_checkpoints(history: History, finding: Finding) -> list[str]:
    problems = []
    end = finding.changes[-1][0] if finding.changes else None
    for name, place in finding.checkpoints.items():
        committed = history.committed.get(name)
        if place is None:
            if committed is not None:
                problems.append(f"checkpoint: {name} lost {committed}")
            continue
        if committed is not None and place < committed:
            problems.append(f"checkpoint: {name} went back from {committed} to {place}")
        if place not in history.commits.get(name, []):
            problems.append(f"checkpoint: {name} is at {place}, which nobody committed")
        if (end is None or place > end) and place not in history.acknowledged.values():
            problems.append(f"checkpoint: {name} is at {place}, ahead of the log's end {end}")
    return problems


def _check_notes(history: History, finding: Finding) -> list[str]:
    """What was noted of a file that is still there stays; what came on top since is later than all that."""
    problems = []
    newest = max(history.noted.values(), default=0)
    for number in finding.files:
        before, now = history.noted.get(number), finding.noted.get(number)
        if before is not None and now != before:
            problems.append(f"note: file {number} was read at {before}, and now at {now}")
        elif before is None and now is not None and now <= newest:
            problems.append(f"note: file {number} was read at {now}, which nobody noted")
    return problems
