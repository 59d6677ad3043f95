"""Kernels run as plain Python without any compiler's package installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
SOURCE = ROOT / "src"
# Nothing called cython can be imported, as where it is not installed.
LOAD = """
import importlib, sys
sys.modules["cython"] = sys.modules["Cython"] = None
for name in sys.argv[1:]:
    assert importlib.import_module(name).native is False, name
assert sys.modules["cython"] is None
"""


def packages_with_kernels() -> dict[str, list[str]]:
    """The kernels of each package that has some."""
    found: dict[str, list[str]] = {}
    for types in sorted(SOURCE.glob("penstock/**/_*.pxd")):
        found.setdefault(".".join(types.parent.relative_to(SOURCE).parts), []).append(types.stem)
    return found


def test_no_kernel_needs_the_compiler_to_run() -> None:
    command = [sys.executable, "-c", LOAD, *packages_with_kernels()]
    subprocess.run(command, env={**os.environ, "PENSTOCK_NATIVE": "0"}, check=True)


def test_every_kernel_is_chosen_by_its_package() -> None:
    for package, kernels in packages_with_kernels().items():
        text = (SOURCE / Path(*package.split(".")) / "__init__.py").read_text("utf-8")
        assert "kernels.choose(" in text, package
        assert sorted(re.findall(r'"(_\w+)"', text)) == kernels
