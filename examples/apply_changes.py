"""Keeps a Delta table of current rows with Spark alone: every batch is folded to one row per key, and merged.

spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 \
    --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
    --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog \
    examples/apply_changes.py shop.orders logs/node1 logs/node2 --keys id --target lake/orders --checkpoint checkpoint

It decides by row, as code for change feeds does: a change that comes later than a newer one of its row has no effect.
Deletions of partitions, ranges and whole tables are left out, and of a non-frozen collection only what was written last
stays. `penstock pipeline` decides by cell and knows them all.
"""

from __future__ import annotations

import argparse

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock import register

ROW_CHANGES = ("insert", "update_postimage", "delete")


def fold(changes: DataFrame, keys: list[str], columns: list[str]) -> DataFrame:
    """One row per key: what its newest changes have set, and whether it is gone in the end."""
    version = f.col("_commit_version")
    deleted = f.col("_change_type") == "delete"

    def newest(value: Column, where: Column) -> Column:
        return f.max_by(value, f.when(where, version))

    # What was written before a deletion is gone, even when a row comes back under the same key.
    emptied = f.max(f.when(deleted, version)).over(Window.partitionBy(*keys))
    rows = changes.where(f.col("_change_type").isin(*ROW_CHANGES)).withColumn("_emptied", emptied)
    counts = f.coalesce(version > f.col("_emptied"), f.lit(True))
    touched = {name: counts & f.col(f"_cell_times.{name}").isNotNull() for name in columns}
    return rows.groupBy(*keys).agg(
        f.max(version).alias("_commit_version"),
        newest(f.col("_change_type"), f.lit(True)).alias("_change_type"),
        f.max("_emptied").isNotNull().alias("_emptied"),
        *(newest(f.col(name), touched[name]).alias(name) for name in columns),
        *(f.coalesce(f.max(touched[name]), f.lit(False)).alias(f"_touched_{name}") for name in columns),
    )


def merge_statement(target: str, keys: list[str], columns: list[str]) -> str:
    """Rows of the view `folded` into the table: newer ones only, and of each only the columns that were touched."""
    same = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in keys)
    sets = ["t.`_commit_version` = s.`_commit_version`"]
    sets += [f"t.`{name}` = IF(s._emptied OR s.`_touched_{name}`, s.`{name}`, t.`{name}`)" for name in columns]
    names = [f"`{name}`" for name in (*keys, *columns, "_commit_version")]
    return f"""
        MERGE INTO delta.`{target}` t USING folded s ON {same}
        WHEN MATCHED AND s._commit_version > t._commit_version AND s._change_type = 'delete' THEN DELETE
        WHEN MATCHED AND s._commit_version > t._commit_version THEN UPDATE SET {", ".join(sets)}
        WHEN NOT MATCHED AND s._change_type != 'delete'
            THEN INSERT ({", ".join(names)}) VALUES ({", ".join(f"s.{name}" for name in names)})
    """  # noqa: S608 - quoted names of the example's own table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="as keyspace.table")
    parser.add_argument("directories", nargs="+", help="directories of logs, one per node")
    parser.add_argument("--keys", required=True, help="the table's key columns, with commas between them")
    parser.add_argument("--target", required=True, help="the directory of the Delta table")
    parser.add_argument("--checkpoint", required=True, help="where Spark notes how far it is")
    parser.add_argument("--once", action="store_true", help="deliver what is there, and end")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("apply-changes").getOrCreate()
    register(spark)
    changes = spark.readStream.format("penstock").option("table", arguments.table).load(",".join(arguments.directories))
    keys = arguments.keys.split(",")
    # The table's own columns stand before those that the source adds.
    columns = [name for name in changes.columns[: changes.columns.index("_op")] if name not in keys]
    statement = merge_statement(arguments.target, keys, columns)
    target = arguments.target

    def apply(batch: DataFrame, _: int) -> None:
        folded = fold(batch, keys, columns)
        shape = folded.select(*keys, *columns, "_commit_version")
        shape.limit(0).write.format("delta").mode("ignore").save(target)
        folded.createOrReplaceTempView("folded")
        batch.sparkSession.sql(statement).collect()

    writer = changes.writeStream.foreachBatch(apply).option("checkpointLocation", arguments.checkpoint)
    query = (writer.trigger(availableNow=True) if arguments.once else writer).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
