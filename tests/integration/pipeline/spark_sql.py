"""A Spark with Delta in a process of its own: takes SQL, one statement per line, and prints the rows as JSON lines
that begin with `answer`. It also serves Spark Connect; its first answer has the port.

It is not the tests' shared session because a JVM that runs already takes no more jars.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(jars: str, directory: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("delta").config("spark.ui.enabled", "false")
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(Path(jars).glob("*.jar"))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Else a VACUUM of ten files starts ten thousand tasks.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.local.dir": directory,
        "spark.connect.grpc.binding.port": "0",
        # Tables that take MERGE from Spark itself, which Delta's do not; from Spark's own tests of Auto CDC.
        "spark.sql.catalog.memory": (
            "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
        ),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # What Spark's plugin for Connect does when a session starts with it.
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$").__getattr__("MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    _answer([{"port": service.localPort()}])
    for line in sys.stdin:
        try:
            found: object = [row.asDict(recursive=True) for row in spark.sql(json.loads(line)).collect()]
        # Whatever Spark raises is the answer; the test shows it.
        except Exception as error:  # noqa: BLE001
            found = str(error)
        _answer(found)
    spark.stop()


def _answer(found: object) -> None:
    """Some statements print lines of their own, so answers are marked."""
    sys.stdout.write("answer " + json.dumps(found, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
