"""Names of fields in a search cluster's documents: what it allows, made of what databases allow.

A name that is allowed stays as it is. Any other writes the characters in question as numbers, as the change record
does, so that two different names never become the same one.
"""

from __future__ import annotations

import re

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


def field_name(column: str) -> str:
    """The field of a column. A dot would make an object of it, and some names are the cluster's own."""
    if not column.strip():
        return "_x_" + "".join(f"{ord(character):04X}_" for character in column)
    name = _SEPARATES.sub(lambda found: f"_x{ord(found[0]):04X}_", column)
    return f"_x005F{column}" if name in _OWN_FIELDS else name
