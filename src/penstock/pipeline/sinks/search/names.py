"""Names of indices and fields: what a search cluster allows, made of what databases allow.

A name that is allowed stays as it is. Any other is changed so that two different names never become the same one: a
name of an index gets a piece of a hash of the true name, a name of a field writes the characters in question as
numbers, as the change record does.
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
_SEPARATES = re.compile(r"\.|_(?=x)")
# Fields that a cluster keeps for itself at the top of a document.
_OWN_FIELDS = {
    "_context",
    "_data_stream_timestamp",
    "_doc_count",
    "_feature",
    "_field_names",
    "_id",
    "_ignored",
    "_index",
    "_nested_path",
    "_primary_term",
    "_routing",
    "_seq_no",
    "_size",
    "_source",
    "_tier",
    "_type",
    "_version",
}


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


def field_name(column: str) -> str:
    """The field of a column. A dot would make an object of it, and some names are the cluster's own."""
    if not column.strip():
        return "_x_" + "".join(f"{ord(character):04X}_" for character in column)
    name = _SEPARATES.sub(lambda found: f"_x{ord(found[0]):04X}_", column)
    return f"_x005F{column}" if name in _OWN_FIELDS else name
