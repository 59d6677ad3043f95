"""Decoding: from the bytes of mutations to changes, natively."""

from __future__ import annotations

from penstock.system import kernels

# Like the formats' kernels, these are one source that runs compiled or as plain Python.
native: bool = kernels.choose(__name__, __file__, ("_values", "_cells", "_plain_rows", "_updates", "_mutations"))
