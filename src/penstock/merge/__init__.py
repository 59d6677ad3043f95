"""Merge: the copies of a change from many replicas, in any order and any number, become one state."""
