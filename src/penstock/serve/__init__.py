"""Serving: what pulls from the log or is pushed changes over a socket."""
