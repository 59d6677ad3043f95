"""Choices of settings, in a module of their own: processes of Spark need these and no other setting."""

from __future__ import annotations

from enum import StrEnum


class Codec(StrEnum):
    """The Avro codecs of the change log's blocks."""

    NULL = "null"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    ZSTANDARD = "zstandard"


class Acknowledge(StrEnum):
    """When an append returns: after the sync (survives power loss) or after the write (survives a killed process)."""

    SYNCED = "synced"
    WRITTEN = "written"


class OnLoss(StrEnum):
    """What to do when files that were not read yet are gone from a log."""

    FAIL = "fail"
    SKIP = "skip"
    SNAPSHOT = "snapshot"
