"""Masks: values that are hidden before they are logged or delivered, so that what must not be known cannot be.

`hash` replaces a value by a salted HMAC-SHA-256 in hexadecimal: equal values stay equal, and without the salt nobody
can try values out. `truncate:N` keeps the first N characters or bytes. `null` keeps that a value was set and not which.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidSetting
from penstock.model.schema import Column, Role
from penstock.model.types import TEXT, Kind

_MASK = re.compile(r"hash|null|truncate:(\d{1,9})", re.ASCII)
_TEXTS = {Kind.TEXT, Kind.ASCII}
# What Arrow holds in a form that can be hashed as it is, or as its decimal text.
_NUMBERS = {
    Kind.BOOLEAN,
    Kind.INT8,
    Kind.INT16,
    Kind.INT32,
    Kind.INT64,
    Kind.UINT8,
    Kind.UINT16,
    Kind.UINT32,
    Kind.UINT64,
    Kind.FLOAT32,
    Kind.FLOAT64,
    Kind.DATE,
    Kind.TIMESTAMP,
}
_RAW = {Kind.BYTES, Kind.UUID, Kind.TIMEUUID, Kind.INET, Kind.VARINT}


@dataclass(frozen=True, slots=True)
class Mask:
    """A mask made ready for one column: what the column is afterwards, and what is done to its values."""

    column: Column
    apply: Callable[[pa.Array], pa.Array]


def check(text: str, setting: str) -> None:
    """Refuse what is no mask, before any table is known."""
    if not _MASK.fullmatch(text):
        raise InvalidSetting(f"not a mask: {text[:40]!r}; known: hash, null, truncate:N", setting=setting)


def mask(column: Column, text: str, salt: bytes | None, setting: str) -> Mask:
    """A mask for a column. InvalidSetting when it does not suit the column's type or role."""
    check(text, setting)
    kind = column.type.kind
    if column.type.multi_cell or kind not in _TEXTS | _NUMBERS | _RAW:
        raise InvalidSetting("values of this type cannot be masked; exclude the column", setting=setting)
    if column.role in (Role.PARTITION, Role.CLUSTERING) and (text != "hash" or column.role is Role.CLUSTERING):
        raise InvalidSetting("of a key, only partition columns can be masked, and only by hash", setting=setting)
    if text == "null":
        return Mask(column, lambda values: pa.nulls(len(values), values.type))
    if text == "hash":
        if not salt:
            raise InvalidSetting("a hash needs transform.mask_salt or mask_salt_file", setting=setting)
        key = salt
        return Mask(replace(column, type=TEXT, source_type=""), lambda values: hashed(values, kind, key))
    return Mask(column, _truncated(kind, int(text.removeprefix("truncate:")), setting))


def logged_mask(column: Column, text: str, salt: bytes | None, setting: str) -> Mask:
    """A mask for a column of a change log, which keeps its type. InvalidSetting when it does not suit the column."""
    check(text, setting)
    kind = column.type.kind
    if column.role in (Role.PARTITION, Role.CLUSTERING):
        raise InvalidSetting(
            "a key column cannot be masked in the log: rows could not be told apart, or compared with their source",
            setting=setting,
        )
    if column.type.multi_cell:
        raise InvalidSetting("a column of several cells cannot be masked; exclude it", setting=setting)
    masked = replace(column, mask=text)
    if text == "null":
        return Mask(masked, lambda values: pa.nulls(len(values), values.type))
    if text != "hash":
        return Mask(masked, _truncated(kind, int(text.removeprefix("truncate:")), setting))
    if kind not in _TEXTS and kind is not Kind.BYTES:
        raise InvalidSetting("in the log only text and bytes can be hashed; use null, or exclude it", setting=setting)
    if not salt:
        raise InvalidSetting("a hash needs agent.mask_salt or mask_salt_file", setting=setting)
    key = salt
    if kind is Kind.BYTES:
        return Mask(masked, lambda values: _raw(hashed(values, kind, key)))
    return Mask(masked, lambda values: hashed(values, kind, key))


def _raw(digests: pa.Array) -> pa.Array:
    """Hashes as bytes instead of their hexadecimal text."""
    coded = digests.dictionary_encode()
    raw = pa.array([bytes.fromhex(one) for one in coded.dictionary.to_pylist()], pa.binary())
    return pa.DictionaryArray.from_arrays(coded.indices, raw).cast(pa.binary())


def _truncated(kind: Kind, width: int, setting: str) -> Callable[[pa.Array], pa.Array]:
    if kind in _TEXTS:
        return lambda values: pc.utf8_slice_codeunits(values, 0, width)
    if kind is not Kind.BYTES:
        raise InvalidSetting("only text and bytes can be truncated", setting=setting)
    return lambda values: pc.binary_slice(values, 0, width)


def hashed(values: pa.Array, kind: Kind, salt: bytes) -> pa.Array:
    """The salted hashes of values, in hexadecimal. Each different value is hashed once."""
    if kind in _RAW:
        plain = values.cast(pa.binary())
    elif kind in (Kind.DATE, Kind.TIMESTAMP):
        plain = values.view(pa.int32() if kind is Kind.DATE else pa.int64()).cast(pa.string())
    else:
        plain = values.cast(pa.string())
    coded = plain.dictionary_encode()
    digests = [
        hmac.new(salt, one if isinstance(one, bytes) else one.encode(), hashlib.sha256).hexdigest()
        for one in coded.dictionary.to_pylist()
    ]
    return pa.DictionaryArray.from_arrays(coded.indices, pa.array(digests, pa.string())).cast(pa.string())
