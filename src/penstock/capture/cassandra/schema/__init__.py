"""Schema: the tables of a Cassandra, learned from its log, from the node or from a file."""
