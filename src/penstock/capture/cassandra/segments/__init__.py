"""Segments: the files of the commit log, their frames, compression and encryption."""
