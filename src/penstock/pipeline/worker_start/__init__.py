"""What Spark's Python processes run before anything else; the directory is put on their path by `session`."""
