"""Node: what there is to know of the Cassandra beside us, its configuration and its CQL port."""
