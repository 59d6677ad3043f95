"""Comparing a table in a target with its source, range by range, and repairing what differs."""
