"""What tests count, such as crashes and kills, together with what was broken in them: figures for the end of a run.

A count is recorded before anything is asserted, so that what was lost or invented stands in the summary of a run that
fails, and a nought there was counted like any other number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

RecordProperty: TypeAlias = Callable[[str, object], None]
# In the order of the summary.
SEGMENTS = "damaged segments beside CommitLogReader"
COUNTED = ("crash schedules", "refusal schedules", "kills")


def differences(wanted: Iterable[object], found: Iterable[object]) -> Counter[str]:
    """How many of the wanted are not there, and how many are there that nobody wanted, or once too often."""
    # By iterating: of mappings the keys are counted.
    want, have = Counter(iter(wanted)), Counter(iter(found))
    return Counter(lost=(want - have).total(), invented=(have - want).total())


def record(
    record_property: RecordProperty, what: str, count: int, broken: Mapping[str, int], owing_nothing: int = 0
) -> None:
    """Put a count into the summary: how many there were, and how often which promise was broken in them."""
    assert what in COUNTED
    record_property(what, {"count": count, "owing_nothing": owing_nothing, "broken": dict(broken)})


def record_verdicts(record_property: RecordProperty, verdicts: Mapping[str, int]) -> None:
    """Put into the summary how many damaged segments were read as Cassandra reads them, and why others were not."""
    record_property(SEGMENTS, dict(verdicts))


def _verdicts(recorded: Iterable[tuple[str, object]]) -> list[str]:
    verdicts: Counter[str] = Counter()
    for what, value in recorded:
        if what == SEGMENTS and isinstance(value, Mapping):
            verdicts.update(value)
    if not verdicts:
        return []
    named = [f"{count} {reason}" for reason, count in verdicts.most_common() if reason != "segments"]
    return [f"{SEGMENTS}: {verdicts['segments']}, of which {', '.join(named)}"]


def summary(recorded: Iterable[tuple[str, object]]) -> list[str]:
    """A line for each thing that was counted."""
    recorded = list(recorded)
    counts: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    broken: dict[str, Counter[str]] = {}
    for what, value in recorded:
        if what in COUNTED and isinstance(value, Mapping):
            counts[what] += value["count"]
            apart[what] += value["owing_nothing"]
            broken.setdefault(what, Counter()).update(value["broken"])
    lines = []
    for what in COUNTED:
        if what in broken:
            lost, invented = broken[what].pop("lost", 0), broken[what].pop("invented", 0)
            text = f"{what}: {counts[what]}, lost {lost}, invented {invented}, otherwise broken {broken[what].total()}"
            lines.append(text + (f"; {apart[what]} more with nothing to lose" if apart[what] else ""))
    return lines + _verdicts(recorded)
