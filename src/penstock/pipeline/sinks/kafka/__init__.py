"""The Kafka sink: topics, a schema registry, and producers with and without transactions."""
