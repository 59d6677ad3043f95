"""The formats with kernels that run as plain Python, beside the compiled ones in the same process."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TypeVar

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
    json_rows: ModuleType


Loaded = TypeVar("Loaded")


def _modules(packages: Sequence[str]) -> dict[str, ModuleType]:
    return {
        name: module
        for name, module in sys.modules.items()
        if any(name == package or name.startswith(f"{package}.") for package in packages)
    }


def second_copy(packages: Sequence[str], load: Callable[[], Loaded]) -> Loaded:
    """What `load` imports, once more and as plain Python; everyone else keeps the modules that are there."""
    load()
    before = os.environ.get("PENSTOCK_NATIVE")
    kept = _modules(packages)
    for name in kept:
        del sys.modules[name]
    os.environ["PENSTOCK_NATIVE"] = "0"
    try:
        return load()
    finally:
        for name in _modules(packages):
            del sys.modules[name]
        sys.modules.update(kept)
        # Importing a package also sets it as an attribute of its parent.
        for package in packages:
            parent, _, name = package.rpartition(".")
            setattr(sys.modules[parent], name, kept[package])
        if before is None:
            del os.environ["PENSTOCK_NATIVE"]
        else:
            os.environ["PENSTOCK_NATIVE"] = before


def _load() -> Formats:
    names = ("avro", "arrow", "_kernel", "_encoder", "json_rows")
    return Formats(
        importlib.import_module(_PACKAGE), *[importlib.import_module(f"{_PACKAGE}.{name}") for name in names]
    )


@cache
def pure_python() -> Formats:
    """A second copy of the modules. Schemas keep programs with them: never give one object to both sides."""
    pure = second_copy((_PACKAGE,), _load)
    assert not pure.package.native
    return pure


def as_installed() -> Formats:
    """The modules that everyone uses: compiled where there is a compiler."""
    return _load()
