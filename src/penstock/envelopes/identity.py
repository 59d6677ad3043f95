"""Identity: where a change comes from, in its source's own coordinates, as one text.

A change has the same identity each time that it is delivered. In a table that is ordered by write time each replica
logs a change for itself: the node, its commit log's file, the position there, and the place inside the mutation. In a
table that is ordered by its source's log the place is the source's, and whoever captures it finds the same: the
domain, the transaction, its sequence in the domain, and the place inside the transaction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.envelopes._identity import Identities
from penstock.formats.arrow_plan import Path
from penstock.formats.change_columns import ChangeColumns
from penstock.model.schema import Order, TableSchema

_TRANSACTION: Path = ("origin", "transaction")
_PLACES: dict[Order, tuple[Path, ...]] = {
    Order.WRITE_TIME: tuple(("origin", name) for name in ("node", "file", "position", "ordinal")),
    Order.LOG: (*((*_TRANSACTION, name) for name in ("domain", "id", "sequence")), ("origin", "ordinal")),
}


def identities_of(schema: TableSchema, columns: ChangeColumns) -> Identities:
    """What writes the identities of a batch's changes."""
    return Identities(*(columns.input(path) for path in _PLACES[schema.ordered_by]))


def placeless(schema: TableSchema, columns: ChangeColumns) -> Any:
    """Which changes (a NumPy mask) come from nowhere in a log, as the expiry of a value does."""
    paths = (_TRANSACTION,) if schema.ordered_by is Order.LOG else _PLACES[Order.WRITE_TIME]
    without = np.ones(len(columns), bool)
    for path in paths:
        if columns.is_complete(path):
            return np.zeros(len(columns), bool)
        if columns.is_written(path):
            without &= columns.array(path).is_null().to_numpy(zero_copy_only=False)
    return without
