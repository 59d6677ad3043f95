"""Targets of the pipeline; each is one module or package with one section of settings."""
