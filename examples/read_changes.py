"""Reads a table's change logs into a DataFrame and says what happened to it.

python examples/read_changes.py shop.orders logs/node1 logs/node2
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock import register


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", help="as keyspace.table")
    parser.add_argument("directories", nargs="+", help="directories of logs, one per node")
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("read-changes").getOrCreate()
    register(spark)
    changes = spark.read.format("penstock").option("table", arguments.table).load(",".join(arguments.directories))

    changes.printSchema()
    changes.groupBy("_node", "_op").agg(
        f.count("*").alias("changes"), f.max("_commit_timestamp").alias("newest")
    ).orderBy("_node", "_op").show(truncate=False)


if __name__ == "__main__":
    main()
