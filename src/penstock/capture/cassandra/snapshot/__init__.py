"""Snapshots: the rows that a table held before its commit log was read, as changes that merge with the log's."""

from __future__ import annotations

from penstock.system import kernels

native: bool = kernels.choose(__name__, __file__, ("_page",))
