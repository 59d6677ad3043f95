"""Settings of the change log: how it is written and when its files go."""

from __future__ import annotations

from pydantic import Field

from penstock.settings.choices import Acknowledge, Codec
from penstock.settings.section import Section


class LogSettings(Section):
    """The change log of one table."""

    codec: Codec = Codec.NULL
    """How blocks are compressed."""
    acknowledge: Acknowledge = Acknowledge.SYNCED
    """When an append returns: `synced` survives power loss, `written` only a killed process."""
    file_bytes_max: int = Field(default=256 << 20, ge=4096)
    """A new file is begun when the current one has reached this size."""
    block_bytes_max: int = Field(default=16 << 20, ge=4096, le=1 << 30)
    """One block holds at most this much before compression; a larger batch is refused."""
    index_bytes: int = Field(default=64 << 20, ge=4096)
    """The index is synced each time that the log has grown by this much; recovery reads no more than this."""
    reserve_bytes: int = Field(default=32 << 20, ge=0)
    """Disk space that is set aside ahead of the log's end, which makes syncs faster; given back on close. 0: none."""
    group_read: bool = False
    """Whether users of the writer's group may read the logs, by files 0640 in directories 0750; otherwise both are the
    writer's alone. It holds for what is made from then on: open what is there by `chmod -R g+rX`."""


class RetentionSettings(Section):
    """When consumed files go, and when even unconsumed ones do. `none` turns a cap off."""

    bytes_max: int | None = Field(default=None, ge=0)
    """Files go, oldest first, when the log is larger than this, even those that a subscription still needs."""
    age_s_max: int | None = Field(default=None, ge=0)
    """Files go when their newest change is older than this, even those that a subscription still needs."""
    subscriber_expiry_s: int | None = Field(default=None, ge=1)
    """A subscription that has not committed for this long no longer holds files back. None: it always does."""
    keep_s: int = Field(default=86_400, ge=0)
    """Files stay for this long after every subscription has read them, so that one can be rewound."""
    keep_bytes_max: int | None = Field(default=None, ge=0)
    """Of files that every subscription has read, at most this much is kept, also within `keep_s`."""
    disk_share_max: float | None = Field(default=0.5, gt=0, le=1)
    """All logs of an agent together take at most this part of their disk; then the oldest files go, read or not."""
    free_bytes_min: int | None = Field(default=1 << 30, ge=0)
    """When the logs' disk has less room than this, the oldest files of an agent's logs go, read or not."""
    every_s: float = Field(default=30.0, gt=0)
    """The agent looks for files that may go this often."""
