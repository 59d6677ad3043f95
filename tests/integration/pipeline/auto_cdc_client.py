"""Runs the definitions of examples/auto_cdc.py against a Spark Connect server, as `spark-pipelines run` does.

That command itself ends with UNKNOWN_RESPONSE once a run is complete, whenever Python ran in it: PySpark 4.2.0 does not
know one of the server's answers. Here the run's own events say how it went.
"""

from __future__ import annotations

import runpy
import sys

from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import PySparkValueError
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run
from pyspark.sql import SparkSession


def main(definitions: str, home: str, catalog: str) -> None:
    configuration = {"penstock.table": "shop.people", "penstock.logs": f"{home}/n1", "penstock.keys": "id"}
    spark = SparkSession.builder.getOrCreate()
    for name, value in configuration.items():
        spark.conf.set(name, value)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.lake")
    graph = create_dataflow_graph(spark, default_catalog=catalog, default_database="lake", sql_conf=configuration)
    with graph_element_registration_context(SparkConnectGraphElementRegistry(spark, graph)), block_session_mutations():
        runpy.run_path(definitions)
    answers = start_run(
        spark,
        graph,
        full_refresh=None,
        full_refresh_all=False,
        refresh=None,
        dry=False,
        storage=f"file://{home}/pipeline",
    )
    try:
        for answer in answers:
            if "pipeline_event_result" in answer:
                _say(answer["pipeline_event_result"].event.message)
    except PySparkValueError as error:
        if error.getCondition() != "UNKNOWN_RESPONSE":
            raise
    except PySparkException as error:
        if "connect back" in str(error):
            # Spark lost patience with a process of its own; whoever started this starts it again.
            raise
        _say(str(error))
        return
    for row in spark.sql(f"SELECT id, name, age FROM {catalog}.lake.people ORDER BY id").collect():
        _say(str(tuple(row)))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
