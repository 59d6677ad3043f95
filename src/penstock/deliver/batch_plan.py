"""BatchPlan: which batch this is, beyond its number.

A target knows the batches of a pipeline by their numbers. A checkpoint that was restored from an older copy gives a
number a second time, to other changes; a target that went by numbers would take them for those that it has, and leave
them out. So a batch has an identity: a digest of where in each log it begins and ends, and of its time. Both are noted
in the checkpoint before anything is delivered, so a batch that is done again has the same one, and no other has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.errors import CorruptCheckpoint

# Forty bits: with another batch of the same number, one in a million million is taken for the same.
ID_BITS = 40
_ID_DIGITS = ID_BITS // 4
# An error names so many logs, and counts the others.
_LOGS_NAMED = 2
_UNTOLD = "its positions are not known"


@dataclass(frozen=True, slots=True)
class BatchMark:
    """What a target says of the last batch that it has. Without a plan: an earlier version has written it."""

    batch: int
    plan: str = ""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch. `span` is for people: where it begins and ends in the logs that it reads, and when it was planned.

    Records that are given to a target by hand, as dead letters, are of no plan: they have a number only.
    """

    batch: int
    id: str = ""
    span: str = ""

    @classmethod
    def of(cls, batch: int, now_us: int, before: Mapping[str, str], after: Mapping[str, str]) -> BatchPlan:
        """The plan of a batch by its time and the reach of every log before and after it."""
        moved = [(one, before.get(one), after[one]) for one in sorted(after) if before.get(one) != after[one]]
        text = json.dumps([batch, now_us, moved], separators=(",", ":"))
        return cls(batch, hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS], _span(moved, now_us))

    @property
    def mark(self) -> BatchMark:
        return BatchMark(self.batch, self.id)


def has_batch(found: BatchMark | None, plan: BatchPlan, tell: Callable[[], str], **place: object) -> bool:
    """Whether a target has a batch already, by what it says of its last one. `tell` gives the span of that.

    Only the last batch can come again. An older one, or another one of the same number, means that the checkpoint is
    not the one that the target was written with; going on would lose changes. Where one of the two is not told, the
    number decides.
    """
    if found is None or found.batch < plan.batch:
        return False
    if found.batch > plan.batch or (found.plan and plan.id and found.plan != plan.id):
        raise not_ours(found.batch, tell(), plan, **place)
    return True


def not_ours(found: int, span: str, plan: BatchPlan, **place: object) -> CorruptCheckpoint:
    """The error that a target's last batch is not of this checkpoint. `span`: that batch's, where it is known."""
    return CorruptCheckpoint(
        f"the target has batch {found} of this pipeline already, and not from this checkpoint: it was deleted, or "
        "restored from an older copy. Give the pipeline another name; what has changed since is written again. "
        f"The target's batch {found}: {span or _UNTOLD}. This batch {plan.batch}: {plan.span or _UNTOLD}",
        **place,
        batch=plan.batch,
    )


def _span(moved: list[tuple[str, str | None, str]], now_us: int) -> str:
    named = [f"log {one} from {_place(start)} to {_place(end)}" for one, start, end in moved[:_LOGS_NAMED]]
    more = [f"{len(moved) - len(named)} more logs"] if len(moved) > len(named) else []
    planned = datetime.fromtimestamp(now_us // 1_000_000, UTC).strftime("planned at %Y-%m-%d %H:%M:%SZ")
    return ", ".join([*(named or ["no new changes"]), *more, planned])


def _place(reach: str | None) -> str:
    """File and byte, which are the first two numbers of a reach."""
    return "the beginning" if reach is None else ":".join(reach.split(":")[:2])
