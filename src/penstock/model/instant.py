"""Instants: points in time as people write them."""

from __future__ import annotations

import datetime
import re

from penstock.errors import InvalidInput

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

_AGO = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(us|ms|s|m|h|d)", re.ASCII)
_AGO_US = {"us": 1, "ms": 1000, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}


def parse_instant(text: str, now_us: int) -> int:
    """Microseconds since 1970 of `2026-11-15T10:00:00Z`, or of `10m`, which means ten minutes ago."""
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now_us - int(float(ago.group(1)) * _AGO_US[ago.group(2)])
    try:
        moment = datetime.datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidInput(f"not a time: {text[:60]!r}; use 2026-11-15T10:00:00Z, or 10m (ten minutes ago)") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)
