"""The dead letter of one record: what a sink gives back of a record that its target refuses for good."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from penstock.deliver.sink import DeadLetter
from penstock.errors import InvalidValue
from penstock.formats.arrow import arrow_schema, from_arrow, to_arrow
from penstock.model.batch import ChangeBatch
from penstock.records.json_lines import key_text
from penstock.records.records import Records
from penstock.records.row_changes import cells, stamps
from penstock.settings import RecordType

REASON_CHARACTERS_MAX = 2000
KEY_CHARACTERS_MAX = 4096


def dead_letter(
    sink: str, records: Records, number: int, reason: str, record: RecordType = RecordType.AFTER
) -> DeadLetter:
    """The letter of one record, with all that is needed to deliver it again."""
    one = records.take([number])
    changes, whole = one.changes, False
    if record is not RecordType.CHANGE and one.after is not None:
        # A row can hold what no change can say as a whole, such as a list with an item of no bytes: then the change
        # itself is kept, because a letter that cannot be written would stop the batch for ever.
        with suppress(InvalidValue):
            changes, whole = _whole_row(one), True
    return DeadLetter(
        sink=sink,
        table=str(records.schema.table),
        key=key_text(one.changes)[0].as_py()[:KEY_CHARACTERS_MAX],
        reason=reason[:REASON_CHARACTERS_MAX],
        schema=records.schema,
        row=bytes(changes.rows),
        whole=whole,
    )


def _whole_row(records: Records) -> ChangeBatch:
    """Rows as changes that say all of it: each cell set, and the version as the time of the marker or the deletion."""
    schema = records.schema
    batch = to_arrow(records.changes)
    assert records.after is not None
    there = records.after.is_valid()
    columns: dict[str, pa.Array] = {name: batch.column(name) for name in batch.schema.names}
    columns["marker"] = stamps(batch.schema.field("marker").type, there, records.versions)
    columns["deletion"] = stamps(batch.schema.field("deletion").type, pc.invert(there), records.versions)
    if schema.cells:
        columns["cells"] = cells(batch.schema.field("cells").type, records.after)
    if records.before is not None:
        type_ = batch.schema.field("before").type
        old = [
            pa.StructArray.from_arrays(
                [pc.struct_field(records.before, [c.name])], fields=list(type_.field(c.name).type)
            )
            for c in schema.columns
        ]
        columns["before"] = pa.StructArray.from_arrays(
            old, fields=list(type_), mask=pc.invert(records.before.is_valid())
        )
    wanted = arrow_schema(schema)
    return from_arrow(schema, pa.RecordBatch.from_arrays([columns[name] for name in wanted.names], schema=wanted))
