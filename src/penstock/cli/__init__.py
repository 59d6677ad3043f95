"""The command line: `penstock …`. The only layer that prints."""
