"""Changes in foreign shapes: Avro rows, Arrow columns, JSON, and the container that the rows stand in.

The kernels behind these modules are one source that runs compiled or as plain Python. `native` says which is in use;
the environment variable PENSTOCK_NATIVE forces a side: 0 runs the Python sources even where compiled ones exist, 1
refuses to run without the compiled ones.
"""

from __future__ import annotations

from penstock.system import kernels

native: bool = kernels.choose(
    __name__, __file__, ("_kernel", "_columns", "_rows", "_encoder", "_output", "_json_values", "_json_rows")
)
