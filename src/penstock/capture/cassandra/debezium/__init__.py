"""Debezium: a configuration of its Cassandra connector, read unchanged."""
