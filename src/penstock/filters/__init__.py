"""Filters: which changes a named log takes, judged by its WHERE and the user's functions."""
