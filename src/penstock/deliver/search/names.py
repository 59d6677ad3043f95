"""Names of indices: what a search cluster allows, made of what databases allow.

A name that is allowed stays as it is. Any other is changed so that two different names never become the same one: it
gets a piece of a hash of the true name.
"""

from __future__ import annotations

import hashlib
import re

from penstock.model.schema import TableId

_INDEX_BYTES_MAX = 255
_HASH_DIGITS = 12
# What an index must not contain, and what it must not begin with.
_INDEX_ILLEGAL = re.compile(r"[\\/*?\"<>| ,#:\x00-\x1f\x7f]")
_INDEX_START = re.compile(r"^[-_+.]+")


def index_name(template: str, table: TableId) -> str:
    """The index of a table."""
    wanted = template.format_map({"keyspace": table.keyspace, "table": table.table})
    name = _INDEX_START.sub("", _INDEX_ILLEGAL.sub("_", wanted.lower()))
    if name == wanted and len(name.encode()) <= _INDEX_BYTES_MAX:
        return name
    mark = "-" + hashlib.sha256(wanted.encode()).hexdigest()[:_HASH_DIGITS]
    kept = name.encode()[: _INDEX_BYTES_MAX - len(mark)].decode(errors="ignore")
    return (kept or "table") + mark


def successor_name(index: str, table_id: str) -> str:
    """The index of a table that was made anew: it stands behind the name of the old one."""
    mark = "-" + hashlib.sha256(table_id.encode()).hexdigest()[:_HASH_DIGITS]
    return index.encode()[: _INDEX_BYTES_MAX - len(mark)].decode(errors="ignore") + mark
