"""Streams a table's changes into Parquet files. Run it again: it goes on where it was.

python examples/follow_changes.py shop.orders logs/node1 --out orders --checkpoint orders-checkpoint
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from penstock import register

QUICK_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="as keyspace.table")
    parser.add_argument("directories", nargs="+", help="directories of logs, one per node")
    parser.add_argument("--out", required=True, help="where the files go")
    parser.add_argument("--checkpoint", required=True, help="where Spark notes how far it is")
    parser.add_argument("--once", action="store_true", help="deliver what is there, and end")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("follow-changes")
        .config("spark.sql.streaming.checkpointFileManagerClass", QUICK_CHECKPOINTS)
        .getOrCreate()
    )
    register(spark)
    changes = (
        spark.readStream.format("penstock")
        .option("table", arguments.table)
        .option("subscription", "follow-changes")
        .option("maxRowsPerTrigger", 100_000)
        .load(",".join(arguments.directories))
    )
    writer = (
        changes.writeStream.format("parquet")
        .option("path", arguments.out)
        .option("checkpointLocation", arguments.checkpoint)
    )
    query = (writer.trigger(availableNow=True) if arguments.once else writer).start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
