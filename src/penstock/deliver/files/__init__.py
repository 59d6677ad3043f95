"""The files sink: records as JSON lines, Parquet, CSV or Avro files."""
