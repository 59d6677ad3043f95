"""A table kept by Spark's own Auto CDC: definitions for `spark-pipelines`, with the source as the change feed.

The pipeline's spec names this file under `libraries`, and under `configuration` what to read:

    penstock.table: shop.orders
    penstock.logs: logs/node1
    penstock.keys: id

The target must be in a catalog whose tables take MERGE from Spark 4.2 itself; docs/guides/spark.md says which do.
"""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock import register

spark = SparkSession.active()
register(spark)
table = spark.conf.get("penstock.table")
keys = spark.conf.get("penstock.keys").split(",")
logs = spark.conf.get("penstock.logs")
target = table.partition(".")[2]
# A query function may not look at columns, so they are looked at here; the table's own stand before `_op`.
known = spark.read.format("penstock").option("table", table).load(logs).columns
wanted = [*known[: known.index("_op")], "_change_type", "_commit_version"]


@dp.temporary_view(name=f"{target}_changes")
def changes() -> DataFrame:
    """Changes of single rows. Auto CDC has no word for deletions of partitions, ranges and tables."""
    feed = spark.readStream.format("penstock").option("table", table).option("columns", ",".join(wanted)).load(logs)
    return feed.where("_change_type IN ('insert', 'update_postimage', 'delete')")


dp.create_streaming_table(target)
dp.create_auto_cdc_flow(
    target=target,
    source=f"{target}_changes",
    keys=keys,
    sequence_by="_commit_version",
    apply_as_deletes="_change_type = 'delete'",
    except_column_list=["_change_type", "_commit_version"],
    stored_as_scd_type=1,
)
