"""The Spark source `penstock`: change logs of any number of nodes and tables as DataFrames and streams.

from penstock.pipeline.source.source import register
register(spark)
"""
