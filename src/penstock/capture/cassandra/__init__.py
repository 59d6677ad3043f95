"""Cassandra: every change from the commit log, on each node, without a JVM."""
