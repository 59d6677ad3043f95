"""DeltaSink: current rows, exactly once, read back by delta-rs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from penstock.deliver.delta.sink import DeltaSink
from penstock.deliver.sink import Task
from penstock.errors import CorruptCheckpoint, DeliveryFailed, InvalidSetting, SchemaRefused, UnsupportedFormat
from penstock.formats import avro
from penstock.model import types
from penstock.model.change import Change, Op
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Unit
from penstock.pipeline.dead_letters import records_of
from penstock.records.records import Records, row_type
from penstock.settings import RecordType, SchemaPolicy
from penstock.settings.sinks import DeltaSettings
from tests.lake_records import SCHEMA, TABLE, actions, by_key, deliver, query, records

Rows = dict[tuple[Any, ...], dict[str, Any]]


def make(directory: Path, *schemas: TableSchema, **settings: Any) -> DeltaSink:
    sink = DeltaSink(DeltaSettings(directory=directory, **settings))
    sink.check()
    sink.prepare(schemas or (SCHEMA,))
    return sink


def row(note: str | None, amount: int | None = 1) -> dict[str, Any]:
    return {"note": note, "amount": amount}


def current(directory: Path) -> Rows:
    return by_key(query(directory / "shop/orders"))


def test_rows_are_inserted_changed_and_deleted_by_key(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((1, "b"), row("two")), ((2, "a"), row("three"))])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "b"), None), ((2, "a"), row("four", None)), ((9, "z"), None)])]})
    assert current(tmp_path) == {(1, "a"): row("one"), (2, "a"): row("four", None)}


@pytest.mark.parametrize("vectors", [True, False])
def test_partition_without_rows_is_a_row_without_clustering_values_until_it_has_one(
    tmp_path: Path, vectors: bool
) -> None:
    sink = make(tmp_path, deletion_vectors=vectors)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, None), row("static")), ((2, None), row("other"))])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, None), row("again")), ((2, "a"), row("real")), ((2, None), None)])]})
    assert current(tmp_path) == {(1, None): row("again"), (2, "a"): row("real")}


def test_a_batch_is_one_commit_with_the_pipelines_transaction(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 7, {0: [records(SCHEMA, [((1, "a"), row("x"))])], 1: [records(SCHEMA, [((2, "a"), row("y"))])]})
    table = DeltaTable(str(tmp_path / "shop/orders"))
    assert (table.version(), table.transaction_version("p/shop.orders")) == (1, 7)
    assert len([each for each in actions(tmp_path / "shop/orders", 1) if "add" in each]) == 2


def test_the_later_of_two_records_of_one_row_in_a_task_counts(tmp_path: Path) -> None:
    sink = make(tmp_path)
    first = records(SCHEMA, [((1, "a"), row("old")), ((2, "a"), row("old")), ((3, "a"), None)])
    second = records(SCHEMA, [((1, "a"), row("new")), ((2, "a"), None), ((3, "a"), row("new"))])
    deliver(sink, 0, {0: [first, second]})
    assert current(tmp_path) == {(1, "a"): row("new"), (3, "a"): row("new")}


def test_a_task_with_much_to_write_makes_several_files(tmp_path: Path) -> None:
    sink = make(tmp_path, buffer_bytes=1 << 20, rows_per_file=10_000)
    long = "x" * 200
    parts = [records(SCHEMA, [((n, "a"), row(f"{long}{part}")) for n in range(1000 * part, 6000)]) for part in range(3)]
    deliver(sink, 0, {0: parts})
    expected = {(n, "a"): row(f"{long}{min(n // 1000, 2)}") for n in range(6000)}
    assert current(tmp_path) == expected
    assert len([each for each in actions(tmp_path / "shop/orders", 1) if "add" in each]) == 3


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    sink = make(tmp_path)
    first = {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]}
    second = {0: [records(SCHEMA, [((1, "a"), row("three")), ((2, "a"), None)])]}
    deliver(sink, 0, first)
    payloads = deliver(sink, 1, second)
    sink.commit("p", 1, payloads)
    again = make(tmp_path)
    assert deliver(again, 1, second) == [b""]
    assert current(tmp_path) == {(1, "a"): row("three")}
    assert DeltaTable(str(tmp_path / "shop/orders")).version() == 2


def test_a_batch_older_than_the_tables_last_one_is_refused_for_the_checkpoint_is_not_the_tables(tmp_path: Path) -> None:
    sink = make(tmp_path)
    for batch in range(3):
        deliver(sink, batch, {0: [records(SCHEMA, [((1, "a"), row(f"b{batch}"))])]})
    with pytest.raises(CorruptCheckpoint, match="batch 2 of this pipeline already"):
        deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), row("b0"))])]})


def test_another_pipeline_with_other_buckets_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    rows = [((number, "a"), row("one")) for number in range(6)]
    sink = make(tmp_path)
    deliver(sink, 0, {bucket: [records(SCHEMA, rows[bucket::2])] for bucket in range(2)})
    deliver(sink, 1, {bucket: [records(SCHEMA, rows[bucket::2])] for bucket in range(2)})
    again = [((number, "a"), row("two")) for number in range(6)]
    for batch in range(2):
        parts = {bucket: [records(SCHEMA, again[bucket::3])] for bucket in range(3)}
        deliver(make(tmp_path), batch, parts, pipeline="q")
    assert current(tmp_path) == {(number, "a"): row("two") for number in range(6)}


def test_a_restarted_pipeline_goes_on_with_the_index_it_had(tmp_path: Path) -> None:
    deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]})
    deliver(make(tmp_path), 1, {0: [records(SCHEMA, [((1, "a"), row("three"))])]})
    assert current(tmp_path) == {(1, "a"): row("three"), (2, "a"): row("two")}


@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_a_lost_or_damaged_index_is_built_again_from_the_table(tmp_path: Path, damage: str) -> None:
    deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]})
    for file in (tmp_path / "shop/orders/_penstock/index").iterdir():
        if damage == "deleted":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes()[:-30])
    deliver(make(tmp_path), 1, {0: [records(SCHEMA, [((1, "a"), None), ((3, "a"), row("three"))])]})
    assert current(tmp_path) == {(2, "a"): row("two"), (3, "a"): row("three")}


def test_records_of_partitions_and_ranges_are_no_rows(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    wide = avro.encode(SCHEMA, [Change(Op.DELETE_PARTITION, {"id": 1}, {})])
    deliver(sink, 1, {0: [Records(SCHEMA, wide, pa.array([None], row_type(SCHEMA)), None, pa.array([2], pa.int64()))]})
    assert current(tmp_path) == {(1, "a"): row("one")}


def test_a_file_without_living_rows_leaves_the_table(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "a"), None), ((2, "a"), None)])]})
    assert query(tmp_path / "shop/orders") == []
    assert not DeltaTable(str(tmp_path / "shop/orders")).file_uris()


def test_small_files_are_written_anew_as_larger_ones(tmp_path: Path) -> None:
    sink = make(tmp_path)
    for batch in range(40):
        deliver(sink, batch, {0: [records(SCHEMA, [((batch, "a"), row(f"n{batch}")), ((0, "z"), row(f"n{batch}"))])]})
    assert current(tmp_path) == {**{(n, "a"): row(f"n{n}") for n in range(40)}, (0, "z"): row("n39")}
    assert len(DeltaTable(str(tmp_path / "shop/orders")).file_uris()) < 12


def test_checkpoints_of_the_log_keep_deletion_vectors_and_transactions(tmp_path: Path) -> None:
    sink = make(tmp_path, checkpoint_every=2)
    for batch in range(5):
        rows = [((number, "a"), row(f"b{batch}")) for number in range(batch, 10)]
        deliver(sink, batch, {0: [records(SCHEMA, rows)]})
    names = {file.name for file in (tmp_path / "shop/orders/_delta_log").iterdir()}
    assert "00000000000000000004.checkpoint.parquet" in names
    for name in names:
        if name.endswith(".json") and int(name[:20]) < 4:
            (tmp_path / "shop/orders/_delta_log" / name).unlink()
    assert deliver(make(tmp_path), 4, {0: [records(SCHEMA, [((0, "a"), row("never"))])]}) == [b""]
    deliver(make(tmp_path), 5, {0: [records(SCHEMA, [((0, "a"), row("b5"))])]})
    expected = {(n, "a"): row(f"b{min(n, 4)}") for n in range(10)}
    assert current(tmp_path) == {**expected, (0, "a"): row("b5")}


def test_commits_beyond_the_tables_retention_are_cleaned_up_once_in_a_while(tmp_path: Path) -> None:
    sink = make(tmp_path, checkpoint_every=1, properties={"delta.logRetentionDuration": "interval 0 days"})
    for batch in range(21):
        deliver(sink, batch, {0: [records(SCHEMA, [((batch, "a"), row("x"))])]})
    assert len(list((tmp_path / "shop/orders/_delta_log").glob("*.json"))) < 21
    deliver(make(tmp_path), 21, {0: [records(SCHEMA, [((0, "a"), None)])]})
    assert len(current(tmp_path)) == 20


def test_a_table_can_be_partitioned_and_clustered(tmp_path: Path) -> None:
    sink = make(tmp_path, partition_by={"shop.*": ("note",)}, cluster_by={"*.orders": ("amount",)})
    deliver(sink, 0, {0: [records(SCHEMA, [((n, "a"), row("xy"[n % 2], 10 - n)) for n in range(6)])]})
    deliver(sink, 1, {0: [records(SCHEMA, [((0, "a"), row("y", 3)), ((1, "a"), row(None, 4)), ((2, "a"), None)])]})
    table = DeltaTable(str(tmp_path / "shop/orders"))
    assert table.metadata().partition_columns == ["note"]
    assert {each["note"] for each in table.partitions()} == {"x", "y", None}
    expected = {(n, "a"): row("xy"[n % 2], 10 - n) for n in range(3, 6)}
    assert current(tmp_path) == {**expected, (0, "a"): row("y", 3), (1, "a"): row(None, 4)}
    # The index is made of the partition values as well, when a key column is one.
    (tmp_path / "shop/orders/_penstock/index/x").touch()
    deliver(make(tmp_path), 2, {0: [records(SCHEMA, [((0, "a"), None)])]})
    assert (0, "a") not in current(tmp_path)


def test_a_partition_column_that_the_source_drops_is_null_from_then_on(tmp_path: Path) -> None:
    sink = make(tmp_path, history=True, partition_by={"*.*": ("amount",)}, cluster_by={"*.*": ("amount",)})
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]})
    narrower = columns()
    sink.prepare([narrower])
    deliver(sink, 1, {0: [records(narrower, [((1, "a"), {"note": "three"})])]})
    assert current(tmp_path) == {(1, "a"): row("three", None), (2, "a"): row("two")}
    assert len(query(tmp_path / "shop/orders_history")) == 3


@pytest.mark.parametrize("choice", ["partition_by", "cluster_by"])
def test_a_column_that_is_not_there_cannot_divide_or_sort(tmp_path: Path, choice: str) -> None:
    with pytest.raises(SchemaRefused, match="column typo"):
        make(tmp_path, **{choice: {"*.*": ("typo",)}})


def test_two_tables_never_share_a_directory(tmp_path: Path) -> None:
    other = TableSchema(TableId("other", "orders"), SCHEMA.columns, source="sandbox")
    with pytest.raises(InvalidSetting, match="would share a directory"):
        make(tmp_path, SCHEMA, other, path="{table}")


def test_a_key_column_can_be_the_partition_of_an_existing_table(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "line": ["a", "a"], "note": ["x", "y"], "amount": pa.array([1, 1], pa.int32())})
    write_deltalake(
        str(tmp_path / "shop/orders"),
        rows,
        partition_by=["id"],
        configuration={"delta.enableDeletionVectors": "true"},
    )
    deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), None), ((2, "a"), row("z"))])]})
    assert current(tmp_path) == {(2, "a"): row("z")}


def test_another_programs_compaction_is_noticed_and_the_batch_done_again(tmp_path: Path) -> None:
    sink = make(tmp_path)
    for batch in range(3):
        deliver(sink, batch, {0: [records(SCHEMA, [((n, "a"), row(f"b{batch}")) for n in range(batch, 5)])]})
    DeltaTable(str(tmp_path / "shop/orders")).optimize.compact()
    last = {0: [records(SCHEMA, [((0, "a"), row("last")), ((4, "a"), None)])]}
    with pytest.raises(DeliveryFailed, match="another program has changed the table"):
        deliver(sink, 3, last)
    deliver(sink, 3, last)
    assert current(tmp_path) == {
        (0, "a"): row("last"),
        (1, "a"): row("b1"),
        (2, "a"): row("b2"),
        (3, "a"): row("b2"),
    }


def test_rows_that_another_program_added_are_changed_and_deleted_too(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    rows = pa.table({"id": [5, 6], "line": ["a", "a"], "note": ["x", "y"], "amount": pa.array([1, 1], pa.int32())})
    write_deltalake(str(tmp_path / "shop/orders"), rows, mode="append")
    again = make(tmp_path)
    deliver(again, 1, {0: [records(SCHEMA, [((5, "a"), None), ((6, "a"), row("z"))])]})
    assert current(tmp_path) == {(1, "a"): row("one"), (6, "a"): row("z")}


def test_a_commit_that_changes_no_files_does_not_disturb(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    table = DeltaTable(str(tmp_path / "shop/orders"))
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    deliver(sink, 1, {0: [records(SCHEMA, [((1, "a"), row("two"))])]})
    assert current(tmp_path) == {(1, "a"): row("two")}
    assert DeltaTable(str(tmp_path / "shop/orders")).version() == 3


def test_an_existing_table_with_rows_is_taken_over(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "line": ["a", "a"], "note": ["x", "y"], "amount": pa.array([1, 1], pa.int32())})
    write_deltalake(
        str(tmp_path / "shop/orders"),
        rows,
        configuration={"delta.enableDeletionVectors": "true"},
        commit_properties=CommitProperties(custom_metadata={"by": "hand"}),
    )
    deliver(
        make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), row("new"))])], 1: [records(SCHEMA, [((2, "a"), None)])]}
    )
    assert current(tmp_path) == {(1, "a"): row("new")}


def test_a_table_without_deletion_vectors_is_refused_with_the_way_out(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "shop/orders"), pa.table({"id": [1], "line": ["a"]}))
    with pytest.raises(SchemaRefused, match="deletion_vectors of the sink to false"):
        make(tmp_path)


def test_a_target_whose_key_does_not_fit_is_refused_with_its_name(tmp_path: Path) -> None:
    rows = pa.table({"id": ["one"], "line": ["a"], "note": ["x"]})
    write_deltalake(str(tmp_path / "shop/orders"), rows, configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(SchemaRefused, match=r"table shop\.orders, column id"):
        make(tmp_path)


def test_a_table_with_features_that_are_not_known_is_refused(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    log = tmp_path / "shop/orders/_delta_log/00000000000000000000.json"
    log.write_text(log.read_text().replace('"writerFeatures":[', '"writerFeatures":["rowTracking",'))
    with pytest.raises(UnsupportedFormat, match="rowTracking"):
        make(tmp_path)


def test_a_sink_travels_to_tasks_without_its_tables(tmp_path: Path) -> None:
    sink = make(tmp_path)
    there = pickle.loads(pickle.dumps(sink))
    with there.writer(Task("p", 0, 0, 0)) as writer:
        writer.write(records(SCHEMA, [((1, "a"), row("one"))]))
        payload = writer.finish().payload
    sink.commit("p", 0, [payload])
    assert current(tmp_path) == {(1, "a"): row("one")}


def test_a_time_that_no_table_can_hold_goes_to_the_dead_letters(tmp_path: Path) -> None:
    schema = TableSchema(
        TABLE, (Column("id", types.INT64, Role.PARTITION), Column("at", types.timestamp(Unit.MS))), source="sandbox"
    )
    sink = make(tmp_path, schema)
    far = (1 << 63) - 1
    rows = pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array([0, far]).cast(pa.timestamp("ms", "UTC"))], fields=list(row_type(schema))
    )
    changes = avro.encode(schema, [Change(Op.INSERT, {"id": number}, {}) for number in (1, 2)])
    given = Records(schema, changes, rows, None, pa.array([1, 2], pa.int64()))
    with sink.writer(Task("p", 0, 0, 0)) as writer:
        writer.write(given)
        done = writer.finish()
    sink.commit("p", 0, [done.payload])
    assert [(letter.key, letter.table) for letter in done.dead] == [('{"id":2}', "shop.orders")]
    again = records_of(schema, [done.dead[0].row], RecordType.AFTER)
    assert again.after == rows[1:]
    assert again.versions.to_pylist() == [2]
    assert [each["id"] for each in query(tmp_path / "shop/orders")] == [1]


def columns(*extra: Column, version: int = 2) -> TableSchema:
    return TableSchema(TABLE, (*SCHEMA.columns[:3], *extra), version=version, source="sandbox")


def test_a_new_column_is_added_and_older_rows_have_null_in_it(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    wider = columns(SCHEMA.columns[3], Column("paid", types.BOOLEAN))
    sink.prepare([wider])
    newer = records(wider, [((2, "a"), {"note": "two", "amount": 2, "paid": True})])
    deliver(sink, 1, {0: [newer, records(SCHEMA, [((3, "a"), row("old version"))])]})
    assert current(tmp_path) == {
        (1, "a"): {**row("one"), "paid": None},
        (2, "a"): {**row("two", 2), "paid": True},
        (3, "a"): {**row("old version"), "paid": None},
    }


def test_a_dropped_column_stays_and_is_null_in_new_rows(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    narrower = columns()
    sink.prepare([narrower])
    deliver(sink, 1, {0: [records(narrower, [((2, "a"), {"note": "two"})])]})
    assert current(tmp_path) == {(1, "a"): row("one"), (2, "a"): row("two", None)}


def test_a_widened_column_is_widened_in_the_table_and_read_from_old_files(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    wider = columns(Column("amount", types.INT64))
    sink.prepare([wider])
    deliver(sink, 1, {0: [records(wider, [((2, "a"), row("two", 1 << 40))]), records(SCHEMA, [((3, "a"), row("x"))])]})
    assert current(tmp_path) == {(1, "a"): row("one"), (2, "a"): row("two", 1 << 40), (3, "a"): row("x")}


def test_a_column_that_comes_back_with_another_type_gets_a_column_of_its_own(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    other = columns(Column("amount", types.TEXT))
    sink.prepare([other])
    deliver(sink, 1, {0: [records(other, [((2, "a"), {"note": "two", "amount": "many"})])]})
    assert current(tmp_path) == {
        (1, "a"): {**row("one"), "amount__2": None},
        (2, "a"): {**row("two", None), "amount__2": "many"},
    }


def test_a_user_type_with_a_new_field_is_followed(tmp_path: Path) -> None:
    small, large = types.user("u", {"a": types.INT32}), types.user("u", {"a": types.INT32, "b": types.TEXT})
    before, after = columns(Column("u", small)), columns(Column("u", large), version=3)
    sink = make(tmp_path, before)
    deliver(sink, 0, {0: [records(before, [((1, "a"), {"note": "x", "u": {"a": 1}})])]})
    sink.prepare([after])
    deliver(sink, 1, {0: [records(after, [((2, "a"), {"note": "y", "u": {"a": 2, "b": "t"}})])]})
    found = {key: each["u"] for key, each in current(tmp_path).items()}
    assert found == {(1, "a"): {"a": 1, "b": None}, (2, "a"): {"a": 2, "b": "t"}}


def test_the_policy_ignore_leaves_new_columns_out_and_fail_stops(tmp_path: Path) -> None:
    deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), row("one"))])]})
    wider = columns(SCHEMA.columns[3], Column("paid", types.BOOLEAN))
    with pytest.raises(SchemaRefused, match=r"table shop\.orders, column paid"):
        make(tmp_path, wider, schema_policy=SchemaPolicy.FAIL)
    sink = make(tmp_path, wider, schema_policy=SchemaPolicy.IGNORE)
    deliver(sink, 1, {0: [records(wider, [((1, "a"), {**row("two"), "paid": True})])]})
    assert current(tmp_path) == {(1, "a"): row("two")}


def test_a_table_of_an_earlier_run_takes_records_before_its_schema_is_seen_again(tmp_path: Path) -> None:
    deliver(make(tmp_path), 0, {0: [records(SCHEMA, [((1, "a"), row("one")), ((2, "a"), row("two"))])]})
    deliver(DeltaSink(DeltaSettings(directory=tmp_path)), 1, {0: [records(SCHEMA, [((1, "a"), None)])]})
    assert current(tmp_path) == {(2, "a"): row("two")}


def test_records_of_a_table_that_nobody_has_prepared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeliveryFailed, match="was not prepared"):
        deliver(DeltaSink(DeltaSettings(directory=tmp_path)), 0, {0: [records(SCHEMA, [((1, "a"), None)])]})


def test_a_partition_with_static_values_only_is_a_row_without_clustering_values(tmp_path: Path) -> None:
    sink = make(tmp_path)
    deliver(sink, 0, {0: [records(SCHEMA, [((1, None), row("static")), ((1, "a"), row("x")), ((2, None), row("y"))])]})
    assert current(tmp_path) == {(1, None): row("static"), (1, "a"): row("x"), (2, None): row("y")}
    deliver(sink, 1, {0: [records(SCHEMA, [((1, None), None), ((2, None), row("z")), ((3, None), None)])]})
    assert current(tmp_path) == {(1, "a"): row("x"), (2, None): row("z")}
