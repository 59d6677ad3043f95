"""Capture: reading databases' own logs into change batches, one package per kind of database."""
