"""The console sink: records as lines of JSON on standard output."""
