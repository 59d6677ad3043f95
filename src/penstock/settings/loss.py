"""What to do about a loss: a setting of its own module, because the Spark source needs it and no other setting."""

from __future__ import annotations

from enum import StrEnum


class OnLoss(StrEnum):
    """What to do when files that were not read yet are gone from a log."""

    FAIL = "fail"
    SKIP = "skip"
    SNAPSHOT = "snapshot"
