"""Every type and every kind of write, on real nodes: the decoded log, folded, is what the node itself answers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.capture.cassandra.segments.segment import index_name, parse_index
from penstock.model.change import Op, Set
from tests.integration.cassandra import matrix
from tests.integration.cassandra.folding import decode, differences, fold, segments
from tests.integration.cassandra.recording import Recording, cases_of, name_of
from tests.integration.cassandra.variants import Variant, runnable

NODES = runnable()


def tables_of(variant: Variant) -> list[str]:
    return [table.strip('"') for case in cases_of(variant) for table in case.tables]


def every_table() -> list[Any]:
    return [
        pytest.param(variant, table, id=f"{variant.name}-{table}") for variant in NODES for table in tables_of(variant)
    ]


on_every_node = pytest.mark.parametrize("variant", NODES, ids=lambda variant: variant.name)
# Where the whole matrix runs.
on_whole_matrix = pytest.mark.parametrize(
    "variant", [variant for variant in NODES if not variant.cases], ids=lambda variant: variant.name
)


@pytest.mark.parametrize(("variant", "table"), every_table())
def test_folded_log_is_what_the_node_selects(recording: Recording, table: str) -> None:
    definition = recording.alone.schemas.by_name(name_of(table))
    assert definition is not None
    state = fold(definition, recording.alone.changes[name_of(table)])
    assert differences(definition, state, recording.answers[table]) == []


@pytest.mark.parametrize(("variant", "table"), every_table())
def test_folded_log_with_the_schema_of_the_driver_is_the_same(recording: Recording, table: str) -> None:
    definition = recording.tables[table]
    state = fold(definition, recording.told.changes[name_of(table)])
    assert differences(definition, state, recording.answers[table]) == []


@on_every_node
def test_nothing_is_damaged_or_left_waiting(recording: Recording) -> None:
    for decoded in (recording.alone, recording.told):
        assert decoded.damage == []
        assert decoded.counts.damaged == 0
        assert list(decoded.parking.entries()) == []
    assert recording.alone.counts.parked == 0
    assert recording.alone.counts.changes > 500


@on_every_node
def test_node_answers_about_every_table_of_the_matrix(recording: Recording) -> None:
    hidden = {"batch_hidden"}
    assert set(recording.answers) == {*tables_of(recording.variant), *hidden}
    empty = [table for table, answer in recording.answers.items() if not answer.rows]
    assert empty == ["emptied"] * ("emptied" in recording.answers)


@on_every_node
def test_definitions_learned_from_the_log_are_those_of_the_driver(recording: Recording) -> None:
    for name, table in recording.tables.items():
        learned = recording.alone.schemas.by_name(name_of(name))
        assert learned is not None
        assert learned.schema.columns == table.schema.columns
        assert (learned.id, learned.cdc, learned.view, learned.dropped) == (
            table.id,
            table.cdc,
            table.view,
            table.dropped,
        )


@on_whole_matrix
def test_only_what_is_captured_comes_out_and_from_where_it_is_captured(recording: Recording) -> None:
    decoded = decode(recording.segments, captures=lambda table: table.cdc)
    keys = {
        name: [change.key["k"] for _, change in decoded.changes[name_of(name)]]
        for name in ("batch_hidden", "switched", "late_cdc")
    }
    assert keys == {"batch_hidden": [], "switched": [1, 3], "late_cdc": [2]}
    assert all(table.keyspace == matrix.KEYSPACE for table, changes in decoded.changes.items() if changes)


@on_whole_matrix
def test_table_that_was_made_again_is_told_from_the_dropped_one(recording: Recording) -> None:
    decoded = decode(recording.segments, captures=lambda table: table.schema.table == name_of("recreated"))
    changes = decoded.changes[name_of("recreated")]
    assert [(change.op, change.key["k"]) for _, change in changes] == [(Op.INSERT, 1), (Op.INSERT, 2)]
    first, second = (schema for schema, _ in changes)
    assert [column.source_type for column in first.columns] == ["int", "int"]
    assert [column.source_type for column in second.columns] == ["int", "text", "text"]


@on_whole_matrix
def test_statements_that_were_not_applied_are_not_in_the_log(recording: Recording) -> None:
    changes = [change for _, change in recording.alone.changes[name_of("conditions")]]
    written = {change.cells["v"] for change in changes if "v" in change.cells}
    # The values that only a refused statement would have written.
    assert not {4, 6, 7} & {cell.value for cell in written if isinstance(cell, Set)}
    assert sum(change.op is Op.DELETE for change in changes) == 1


@on_every_node
def test_index_files_of_a_stopped_node_cover_their_segments(recording: Recording) -> None:
    paths = [path for path in segments(recording.directory / "cdc_raw") if path.parent.name == "cdc_raw"]
    assert paths
    found = {}
    for path in paths:
        index = path.parent / index_name(path.name)
        if index.exists():
            found[path.name] = parse_index(index.read_bytes())
    # 3.11 has no index files: there a segment is complete when it appears.
    if recording.variant.log_format == 6:
        assert found == {}
        return
    last: dict[str, int] = {}
    for changes in recording.told.changes.values():
        for _, change in changes:
            assert change.origin.file is not None
            assert change.origin.position is not None
            last[change.origin.file] = max(last.get(change.origin.file, 0), change.origin.position)
    assert set(last) <= set(found)
    for name, covered in found.items():
        assert covered is not None
        assert covered.completed
        assert covered.offset >= last.get(name, 0)
