"""The Spark source `penstock`: change logs of any number of nodes and tables as DataFrames and streams.

from penstock.pipeline.source.source import register
register(spark)
"""

from __future__ import annotations

from penstock.pipeline import spark_version

# What is imported from Spark is not there in older ones.
spark_version.check()
