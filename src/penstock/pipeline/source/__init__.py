"""The Spark source `penstock`: change logs of any number of nodes and tables as DataFrames and streams.

from penstock.pipeline.source.datasource import PenstockDataSource
spark.dataSource.register(PenstockDataSource)
"""
