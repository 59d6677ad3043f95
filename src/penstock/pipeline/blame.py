"""Blame: which table an error is about, when it is about one and not about the pipeline as a whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from penstock.deliver.sink import Sink
from penstock.errors import (
    ChangesLost,
    CorruptLog,
    DeadLettersFull,
    InvalidSchema,
    PenstockError,
    PositionAhead,
    Retry,
    SchemaRefused,
)
from penstock.model.schema import TableId, TableSchema

# Errors of reading name tables of the source, others may name those of a target.
_OF_LOGS = (CorruptLog, ChangesLost, PositionAhead)
_OF_SCHEMAS = (SchemaRefused, InvalidSchema)
_PARTS = ("table", "topic", "subject", "index")
# What a sink calls the second table that it keeps of one.
_HISTORY = " (history)"


def blamed(
    error: PenstockError, known: Iterable[TableId], sources: Mapping[str, Collection[TableId]]
) -> frozenset[TableId]:
    """The tables of the source that an error is about; none when it is about something else.

    `sources`: by the name of a target's table the tables that go there.
    """
    if "table" not in error.place or isinstance(error, DeadLettersFull):
        return frozenset()
    name = str(error.place["table"]).removesuffix(_HISTORY)
    if name in sources and not isinstance(error, _OF_LOGS):
        return frozenset(sources[name])
    return frozenset(table for table in known if str(table) == name)


def prepare(sink: Sink, schemas: Sequence[TableSchema]) -> None:
    """Prepare a sink. Where it refuses one table and not all of them, the error names that table."""
    try:
        sink.prepare(schemas)
    except PenstockError as error:
        if error.retry is Retry.TIMED:
            raise
        table, refusal = _culprit(sink, schemas, error)
        if table is None:
            raise
        raise type(refusal)(refusal.message, **{**refusal.place, "table": table}) from error


def _culprit(sink: Sink, schemas: Sequence[TableSchema], error: PenstockError) -> tuple[TableId | None, PenstockError]:
    """The table that a sink refuses, and what it says of it; None when that is more than one table's matter."""
    tables = sorted({schema.table for schema in schemas})
    if len(tables) == 1:
        # What names a part of the target that is the table's own is about the table.
        own = isinstance(error, _OF_SCHEMAS) or any(part in error.place for part in _PARTS)
        return (tables[0] if own else None), error
    refused: dict[TableId, PenstockError] = {}
    for table in tables:
        try:
            sink.prepare([schema for schema in schemas if schema.table == table])
        except PenstockError as refusal:
            refused[table] = refusal
    if not refused:
        return None, error
    if len(refused) == len(tables) and not isinstance(error, _OF_SCHEMAS):
        return None, error
    return next(iter(refused.items()))
