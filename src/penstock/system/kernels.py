"""Kernels: which form of the native modules is used, the compiled one or the same source as plain Python.

A kernel is a source `_name.py` with C types in `_name.pxd` beside it. The environment variable PENSTOCK_NATIVE forces a
side: 0 runs the sources even where compiled ones exist, 1 refuses to run without the compiled ones. It is one choice
for the whole package, because compiled kernels cannot call into plain ones, nor the other way round.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from pathlib import Path

from penstock.errors import InvalidSetting
from penstock.system import uncompiled

# How to get compiled kernels.
REMEDY = (
    "Install a C compiler and Python's headers (apt-get install gcc libc6-dev python3-dev), then install Penstock "
    "again, or install a wheel; `penstock version` says when they are native."
)
_VARIABLE = "PENSTOCK_NATIVE"
_COMPILER = "cython"
_ROOT = Path(__file__).parent.parent


@cache
def all_compiled() -> bool:
    """Whether every kernel of the package has a compiled form."""
    sources = [types.with_suffix("") for types in _ROOT.glob("**/_*.pxd")]
    return all(any(source.with_name(source.name + s).exists() for s in EXTENSION_SUFFIXES) for source in sources)


def complaint() -> str | None:
    """Why the kernels run as plain Python, many times slower; None when they are compiled."""
    if not all_compiled():
        return "they were not compiled when this Penstock was installed, so that it works, many times slower"
    if os.environ.get(_VARIABLE) == "0":
        return f"{_VARIABLE} is 0, so that it works, many times slower"
    return None


def choose(package: str, file: str, kernels: tuple[str, ...]) -> bool:
    """Whether the compiled kernels are used; if not, the sources of these are loaded in their place.

    `kernels` are the names in one package, whose `__file__` is given, in the order of their imports of each other.
    """
    wanted = os.environ.get(_VARIABLE, "")
    if wanted not in ("", "0", "1"):
        raise InvalidSetting("PENSTOCK_NATIVE is 0, 1 or not set at all")
    if wanted == "1" and not all_compiled():
        raise InvalidSetting(f"PENSTOCK_NATIVE is 1, but the kernels are not compiled. {REMEDY}")
    if wanted != "0" and all_compiled():
        return True
    with _uncompiled():
        for name in kernels:
            full = f"{package}.{name}"
            loader = SourceFileLoader(full, str(Path(file).with_name(f"{name}.py")))
            spec = importlib.util.spec_from_file_location(full, loader.path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[full] = module
            loader.exec_module(module)
    return False


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Sources that are loaded in here get our stand-in for `cython`; nobody else sees it."""
    real = {name: module for name, module in sys.modules.items() if name == _COMPILER}
    sys.modules[_COMPILER] = uncompiled
    try:
        yield
    finally:
        del sys.modules[_COMPILER]
        sys.modules.update(real)
