"""The source inside Spark: batches and streams say exactly what the logs say."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException

from penstock.capture.status import AgentStatus
from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model import types as t
from penstock.model.position import Position
from penstock.pipeline.source.flat import RESERVED, FlatBatches, flat_schema
from penstock.pipeline.source.reach import from_offset
from penstock.pipeline.source.stretches import Gathered
from penstock.records import runs
from penstock.serve.http import HttpServer
from penstock.serve.log_blocks import LogBlocks
from penstock.settings import HttpSettings, RetentionSettings
from tests.certificates import make_certificate
from tests.every_type import every_type_table
from tests.many_logs import SMALL_FILES, ids_in, schema_of, with_column, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Collected:
    """What a stream delivered, batch by batch."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def take(self, frame: DataFrame, batch: int) -> None:
        assert batch not in self.batches
        self.batches[batch] = [row["id"] for row in frame.select("id").collect()]

    @property
    def ids(self) -> list[int]:
        return [number for batch in sorted(self.batches) for number in self.batches[batch]]


def stream(spark: SparkSession, checkpoint: Path, **options: str) -> Collected:
    """Read what is there, and what came since the last time."""
    out = Collected()
    frame = spark.readStream.format("penstock").options(**options).load()
    run(lambda: frame.writeStream.foreachBatch(out.take).trigger(availableNow=True), checkpoint)
    return out


def run(make: Callable[[], DataStreamWriter], checkpoint: Path) -> None:
    """Run a stream to its end.

    Spark gives the process of a Python source ten seconds to come up and cannot be told otherwise; on a busy machine it
    takes longer now and then, and whoever runs a stream starts it again.
    """
    for attempt in range(10):
        query = make().option("checkpointLocation", str(checkpoint)).start()
        try:
            query.awaitTermination()
            return
        except StreamingQueryException as error:
            if "connect back" not in str(error) or attempt == 9:
                raise
        finally:
            query.stop()


def test_a_batch_has_every_change_of_every_node_with_its_place(spark: SparkSession, tmp_path: Path) -> None:
    logs = {}
    for node in ("n1", "n2"):
        first = 0 if node == "n1" else 1000
        logs[node] = write(
            tmp_path / node, "orders", first, 30, each=5, settings=SMALL_FILES, note="x" * 200, node=node
        )
    write(tmp_path / "n1", "other", 0, 5)
    options = {"table": "shop.orders", "columns": "*,_cells,_origin"}
    frame = spark.read.format("penstock").options(**options).load(f"{tmp_path}/n1,{tmp_path}/n2")
    found = {
        (row["_node"], Position(*row["_position"])): (
            row["id"],
            row["note"],
            row["_time"],
            row["_cells"]["note"]["state"],
        )
        for row in frame.collect()
    }
    wanted = {}
    for node, directory in logs.items():
        with LogReader(directory) as reader:
            for batch in reader.read():
                for ordinal, change in enumerate(avro.decode(batch)):
                    place = Position(batch.file, batch.offset, ordinal)
                    wanted[node, place] = change.key["id"], "x" * 200, change.time, 1
    assert found == wanted
    kinds = {(row["_op"], row["_change_type"], row["_origin"]["file"]) for row in frame.limit(20).collect()}
    assert kinds == {("insert", "insert", "log")}


def test_columns_nodes_operations_and_times_are_chosen_at_the_source(spark: SparkSession, tmp_path: Path) -> None:
    for node in ("n1", "n2"):
        write(tmp_path / node, "orders", 0, 30, each=5, settings=SMALL_FILES, note="x" * 200, node=node)
    options = {"table": "shop.orders", "path": f"{tmp_path}/n1,{tmp_path}/n2"}
    frame = spark.read.format("penstock").options(**options, columns="id,_node", nodes="n2", starting="1000140").load()
    assert frame.columns == ["id", "_node"]
    assert sorted(tuple(row) for row in frame.collect()) == [(number, "n2") for number in range(140, 150)]
    assert frame.where("id > 147").count() == 2
    assert frame.count() == 10
    assert spark.read.format("penstock").options(**options, operations="delete,update").load().count() == 0
    pruned = spark.read.format("penstock").schema("_op string, id bigint").options(**options).load()
    assert sorted(tuple(row) for row in pruned.where("id < 1").collect()) == [("insert", 0), ("insert", 0)]


def test_a_stream_takes_no_more_than_its_limit_and_restarts_without_loss_or_repeat(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, checkpoint = tmp_path / "n1", tmp_path / "checkpoint"
    directory = write(root, "orders", 0, 35, settings=SMALL_FILES, note="x" * 200)
    options = {"path": str(root), "table": "shop.orders", "maxRowsPerTrigger": "10", "subscription": "test"}
    first = stream(spark, checkpoint, **options)
    assert [len(batch) for batch in first.batches.values()] == [10, 10, 10, 5]
    # Ten of these are too many to come along with the plan: a task reads them, and the last two come along again.
    write(root, "orders", 35, 12, settings=SMALL_FILES, note="x" * 4_000)
    second = stream(spark, checkpoint, **options)
    assert sorted(first.ids) == list(range(35))
    assert sorted(second.ids) == list(range(35, 47))
    assert min(second.batches) == max(first.batches) + 1
    assert not stream(spark, checkpoint, **options).batches
    # The subscription has followed, and Spark's own offset says the same.
    lines = (checkpoint / "offsets" / str(max(second.batches))).read_text().splitlines()
    [reach] = from_offset(json.loads(lines[-1])).values()
    with LogReader(directory) as reader:
        assert reach.last == reader.end()
        assert reach.rows == 47
    assert (Path(directory) / "test.checkpoint").exists()


def test_runs_carry_many_tables_and_versions_in_one_stream(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / "n1", f"t{number}", 100 * number, 10, each=3)
    wider = with_column(schema_of("t0"), "paid", t.BOOLEAN)
    write(tmp_path / "n1", "t0", 1000, 2, schema=wider)
    frame = spark.read.format("penstock").options(path=f"{tmp_path}/n1", shape="runs", buckets="3").load()
    found = [run for batch in frame.toArrow().to_batches() for run in runs.from_arrow(batch)]
    ids = sorted(change.key["id"] for run in found for change in avro.decode(run.batch()))
    assert ids == sorted([100 * n + i for n in range(5) for i in range(30)] + [1000, 1001])
    assert {(run.schema.table.table, run.schema.version) for run in found} == {
        *((f"t{number}", 1) for number in range(5)),
        ("t0", 2),
    }
    assert len(found) <= 6 * 3


def test_a_new_column_ends_a_stream_of_columns_and_a_restart_has_it(spark: SparkSession, tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "n1", tmp_path / "checkpoint"
    write(root, "orders", 0, 3)
    options = {"path": str(root), "table": "shop.orders"}
    out = Collected()
    frame = spark.readStream.format("penstock").options(**options).load()
    wider = with_column(schema_of("orders"), "paid", t.BOOLEAN)
    write(root, "orders", 3, 2, schema=wider)
    with pytest.raises(Exception, match=r"SchemaChanged.*no place for the new columns.*column paid"):
        run(lambda: frame.writeStream.foreachBatch(out.take).trigger(processingTime="0 seconds"), checkpoint)
    assert out.ids == [0, 1, 2]
    again = spark.readStream.format("penstock").options(**options).load()
    assert "paid" in again.columns
    assert stream(spark, checkpoint, **options).ids == [3, 4]


def test_damage_and_loss_reach_the_user_with_their_place(spark: SparkSession, tmp_path: Path) -> None:
    root, checkpoint = tmp_path / "n1", tmp_path / "checkpoint"
    directory = write(root, "orders", 0, 40, settings=SMALL_FILES, note="x" * 500)
    options = {"path": str(root), "table": "shop.orders"}
    stream(spark, checkpoint, **options, maxRowsPerTrigger="30")
    write(root, "orders", 40, 40, settings=SMALL_FILES, note="x" * 500)
    with LogReader(directory) as reader:
        damaged, offset = reader.path(5), [batch for batch in reader.read() if batch.file == 5][1].offset
    with open(damaged, "r+b") as file:
        file.seek(offset + 30)
        file.write(b"\0\0\0")
    with pytest.raises(Exception, match=f"CorruptLog.*damage inside the log.*{damaged}, offset {offset}"):
        spark.read.format("penstock").options(**options).load().count()
    for number in range(1, 6):
        with LogReader(directory) as reader:
            Path(reader.path(number)).unlink()
    stream(spark, tmp_path / "fresh", **options)
    write(root, "orders", 80, 20, settings=SMALL_FILES, note="x" * 500)
    with LogReader(directory) as reader:
        for number in reader.numbers()[:-1]:
            Path(reader.path(number)).unlink()
        through = reader.first()
    with pytest.raises(Exception, match=f"ChangesLost.*removed before they were read.*through {through}"):
        stream(spark, tmp_path / "fresh", **options)
    rest = stream(spark, tmp_path / "fresh", **options, onLoss="skip")
    assert rest.ids == ids_in(directory)


def test_agents_are_read_over_tls_with_a_token(spark: SparkSession, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("a token of some length")
    for node in ("n1", "n2"):
        write(
            tmp_path / node, "orders", 0 if node == "n1" else 100, 20, settings=SMALL_FILES, note="x" * 300, node=node
        )
    settings = HttpSettings(
        port=0, token_file=token, tls_certificate_file=certificate.file, tls_key_file=certificate.key_file
    )
    status = AgentStatus(node="n1", data_centre="dc1", started_time_us=0, running=True)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                HttpServer(settings, lambda: status, LogBlocks(str(tmp_path / node), RetentionSettings(keep_s=0)))
            )
            for node in ("n1", "n2")
        ]
        options = {
            "agents": ",".join(server.address for server in servers),
            "token_file": str(token),
            "tls_ca_file": str(certificate.file),
            "table": "shop.orders",
            "subscription": "remote",
            "maxRowsPerTrigger": "25",
        }
        found = stream(spark, tmp_path / "checkpoint", **options)
        assert sorted(found.ids) == [*range(20), *range(100, 120)]
        assert [len(batch) for batch in found.batches.values()] == [25, 15]
        write(tmp_path / "n2", "orders", 120, 5, settings=SMALL_FILES)
        assert sorted(stream(spark, tmp_path / "checkpoint", **options).ids) == [*range(120, 125)]
        assert all((tmp_path / node / "shop.orders" / "remote.checkpoint").exists() for node in ("n1", "n2"))
    with pytest.raises(Exception, match=r"AgentUnreachable.*does not answer"):
        spark.read.format("penstock").options(**options, retry_s="0").load().count()


def same(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays hold the same; what stands in a struct that is null does not count, and NaN is NaN."""
    if not one.is_valid().equals(other.is_valid()):
        return False
    one, other = one.drop_null(), other.drop_null()
    if pa.types.is_struct(one.type):
        fields = range(one.type.num_fields)
        return all(same(pc.struct_field(one, at), pc.struct_field(other, at)) for at in fields)
    return str(one) == str(other) if pa.types.is_floating(one.type) else bool(one.equals(other.cast(one.type)))


def test_every_type_goes_through_spark_unharmed(spark: SparkSession, tmp_path: Path) -> None:
    schema, changes = every_type_table()
    with TableLog.open(str(tmp_path / "ks.every"), schema, node="n1") as log:
        log.append(avro.encode(schema, changes))
    options = {"table": "ks.every", "columns": ",".join(("*", *RESERVED))}
    frame = spark.read.format("penstock").options(**options).load(str(tmp_path))
    found = frame.toArrow().combine_chunks()
    batch = avro.encode(schema, changes)
    gathered = Gathered(schema, 1, [bytes(batch.rows)], [(0, 0, batch.count)], len(batch.rows), batch.count)
    columns = [name for name in frame.columns if name != "_position"]
    wanted = FlatBatches(schema, flat_schema(schema, columns)).convert(gathered, "n1")
    streamed = spark.readStream.format("penstock").options(**options).load(str(tmp_path))
    taken: list[pa.Table] = []
    into = streamed.writeStream.foreachBatch(lambda some, _: taken.append(some.toArrow())).trigger(availableNow=True)
    run(lambda: into, tmp_path / "checkpoint")
    along = pa.concat_tables(taken).combine_chunks()
    for name in columns:
        assert same(found.column(name).combine_chunks(), wanted.column(name)), name
        assert same(along.column(name).combine_chunks(), wanted.column(name)), name


def test_a_mistake_in_the_options_is_told_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, "orders", 0, 1)
    for options, said in (
        ({"table": "shop.nothing"}, "there is no log of this table"),
        ({"table": "shop.orders", "columns": "id,colour"}, "no column 'colour'"),
        ({"table": "shop.orders", "startign": "latest"}, "no option 'startign'"),
    ):
        with pytest.raises(Exception, match=said):
            spark.read.format("penstock").options(**options).load(str(tmp_path))
