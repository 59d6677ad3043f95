"""The data pipeline on Spark: from the change logs of all nodes, merged, to the targets."""
