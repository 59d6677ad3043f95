"""Lakehouse tables: current rows and the history of changes, in Delta and in Iceberg."""
