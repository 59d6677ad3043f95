"""The durable change log: one directory per table and log, read by any number of subscribers."""
