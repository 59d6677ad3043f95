"""Records: changes of one table with their rows before and after, which is what is folded, delivered and compared."""

from __future__ import annotations

from penstock.system import kernels

native: bool = kernels.choose(__name__, __file__, ("_keys", "_groups"))
