"""Fold: the copies of a change from all replicas become one, and changes become whole rows.

docs/concepts/fold.md tells what is joined and when a record is made of it.
"""

from __future__ import annotations

from penstock.system import kernels

native: bool = kernels.choose(__name__, __file__, ("_merge", "_parts", "_join"))
