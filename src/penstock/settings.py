"""Settings: one typed model, a section per part. Unknown names are refused with the nearest known one."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A group of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")


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


class LogSettings(Section):
    """The change log of one table."""

    codec: Codec = Codec.NULL
    acknowledge: Acknowledge = Acknowledge.SYNCED
    # A new file is begun when the current one has reached this size.
    file_bytes_max: int = Field(default=256 << 20, ge=4096)
    # One block holds at most this much before compression; a larger batch is refused.
    block_bytes_max: int = Field(default=16 << 20, ge=4096, le=1 << 30)
    # The index is synced each time that the log has grown by this much; recovery reads no more than this.
    index_bytes: int = Field(default=4 << 20, ge=4096)


class RetentionSettings(Section):
    """When consumed files go, and when even unconsumed ones do. None means no cap."""

    bytes_max: int | None = Field(default=None, ge=0)
    age_s_max: int | None = Field(default=None, ge=0)
    # A subscription that has not committed for this long no longer holds files back. None: it always does.
    subscriber_expiry_s: int | None = Field(default=None, ge=1)
