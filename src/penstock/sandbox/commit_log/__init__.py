"""Cassandra's commit log, written: genuine segments and index files, for tests and for the sandbox's nodes."""
