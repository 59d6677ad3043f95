"""Changes in foreign shapes: Avro rows, Arrow columns, JSON, and the container that the rows stand in.

The kernels behind these modules are one source that runs compiled or as plain Python. `native` says which is in use;
the environment variable PENSTOCK_NATIVE forces a side: 0 runs the Python sources even where compiled ones exist, 1
refuses to run without the compiled ones.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from pathlib import Path

from penstock.errors import InvalidSetting

# In the order of their imports of each other.
_KERNELS = ("_kernel", "_columns", "_rows", "_encoder")


def _choose() -> bool:
    """Whether the compiled kernels are used; if not, the sources are loaded in their place."""
    wanted = os.environ.get("PENSTOCK_NATIVE", "")
    if wanted not in ("", "0", "1"):
        raise InvalidSetting("PENSTOCK_NATIVE is 0, 1 or not set at all")
    here = Path(__file__).parent
    built = all(any((here / (name + suffix)).exists() for suffix in EXTENSION_SUFFIXES) for name in _KERNELS)
    if wanted == "1" and not built:
        raise InvalidSetting("PENSTOCK_NATIVE is 1, but the kernels are not compiled")
    if built and wanted != "0":
        return True
    for name in _KERNELS:
        full = f"{__name__}.{name}"
        loader = SourceFileLoader(full, str(here / f"{name}.py"))
        spec = importlib.util.spec_from_file_location(full, loader.path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        loader.exec_module(module)
    return False


native: bool = _choose()
