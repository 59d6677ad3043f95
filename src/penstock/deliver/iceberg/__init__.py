"""The Iceberg sink: current rows and the history of changes in Iceberg tables."""
