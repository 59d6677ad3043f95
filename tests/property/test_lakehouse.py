"""Delta tables of current rows against a dictionary: any changes, any batches, any repetition, any maintenance."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.deliver.delta.sink import DeltaSink
from penstock.errors import DeliveryFailed
from penstock.records.records import Records
from penstock.settings.sinks import DeltaSettings
from tests.lake_records import SCHEMA, by_key, deliver, query, records

KEYS = st.tuples(st.integers(0, 8), st.sampled_from(["a", "", "a longer text than one word"]))
ROWS = st.none() | st.fixed_dictionaries({"note": st.none() | st.text(max_size=3), "amount": st.integers(0, 9)})
BATCH = st.lists(st.tuples(KEYS, ROWS), max_size=12)
# What happens around a batch: nothing, it comes again, the driver starts anew, another program compacts the table.
EVENT = st.sampled_from(["nothing", "nothing", "again", "restart", "optimize", "lose the index"])


def make(directory: Path) -> DeltaSink:
    sink = DeltaSink(DeltaSettings(directory=directory, rows_per_file=7, file_bytes=4096, checkpoint_every=4))
    sink.prepare([SCHEMA])
    return sink


def parts_of(changes: list[Any], cut: int) -> dict[int, list[Records]]:
    """Two buckets, each given its changes in two portions, so that a row may be in both."""
    parts: dict[int, list[Records]] = {}
    for bucket in range(2):
        mine = [each for each in changes if each[0][0] % 2 == bucket]
        if mine:
            parts[bucket] = [records(SCHEMA, dict(mine[:cut]).items()), records(SCHEMA, dict(mine[cut:]).items())]
    return parts


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(BATCH, EVENT, st.integers(0, 4)), min_size=1, max_size=10))
def test_a_table_of_current_rows_is_the_dictionary_of_the_last_changes(batches: list[Any]) -> None:
    model: dict[Any, Any] = {}
    with TemporaryDirectory() as name:
        directory = Path(name)
        table = directory / "shop/orders"
        sink = make(directory)
        compacted = False
        for number, (changes, event, cut) in enumerate(batches):
            if event == "optimize":
                DeltaTable(str(table)).optimize.compact()
                compacted = True
            parts = parts_of(changes, cut)
            try:
                deliver(sink, number, parts)
            except DeliveryFailed:
                assert compacted
                deliver(sink, number, parts)
            # A batch without changes does not look at the table.
            compacted = compacted and not parts
            model.update(changes)
            if event == "lose the index":
                for file in (table / "_penstock/index").iterdir():
                    file.unlink()
            if event in ("restart", "lose the index"):
                sink = make(directory)
            if event == "again":
                deliver(sink, number, parts)
        assert by_key(query(table)) == {key: row for key, row in model.items() if row is not None}
