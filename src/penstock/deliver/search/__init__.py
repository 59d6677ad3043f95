"""Elasticsearch and OpenSearch as targets: one document per row, kept current by external versions."""
