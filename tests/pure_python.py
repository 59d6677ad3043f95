"""The formats with kernels that run as plain Python, beside the compiled ones in the same process."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from penstock import formats as _formats

_PACKAGE = _formats.__name__


@dataclass(frozen=True, slots=True)
class Formats:
    """One set of the modules."""

    package: ModuleType
    avro: ModuleType
    arrow: ModuleType
    kernel: ModuleType
    encoder: ModuleType


def _modules() -> dict[str, ModuleType]:
    return {name: m for name, m in sys.modules.items() if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")}


def _load() -> Formats:
    names = ("avro", "arrow", "_kernel", "_encoder")
    return Formats(
        importlib.import_module(_PACKAGE), *[importlib.import_module(f"{_PACKAGE}.{name}") for name in names]
    )


@cache
def pure_python() -> Formats:
    """A second copy of the modules. Schemas keep programs with them: never give one object to both sides."""
    _load()
    before = os.environ.get("PENSTOCK_NATIVE")
    kept = _modules()
    for name in kept:
        del sys.modules[name]
    os.environ["PENSTOCK_NATIVE"] = "0"
    try:
        pure = _load()
    finally:
        for name in _modules():
            del sys.modules[name]
        sys.modules.update(kept)
        # Importing a package's module also sets it as an attribute of the parent.
        parent = sys.modules["penstock"]
        parent.formats = kept[_PACKAGE]  # type: ignore[attr-defined]
        if before is None:
            del os.environ["PENSTOCK_NATIVE"]
        else:
            os.environ["PENSTOCK_NATIVE"] = before
    assert not pure.package.native
    return pure


def as_installed() -> Formats:
    """The modules that everyone uses: compiled where there is a compiler."""
    return _load()
