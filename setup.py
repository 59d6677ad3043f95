"""Builds the native kernels when there is a compiler; without one the same sources run as plain Python."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

SOURCE = Path("src")
FLAGS = ["-O2", "-D_FORTIFY_SOURCE=2"]


def extensions() -> list[Extension]:
    """One extension for each kernel source that has C types in a .pxd file beside it."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = []
    for types in sorted(SOURCE.glob("penstock/**/_*.pxd")):
        source = types.with_suffix(".py")
        name = ".".join(source.with_suffix("").relative_to(SOURCE).parts)
        modules.append(Extension(name, [str(source)], extra_compile_args=FLAGS))
    built = cythonize(modules, include_path=[str(SOURCE)], language_level=3, build_dir="build/cython")
    for extension in built:
        # cythonize() makes new extensions and drops this mark of the ones it was given.
        extension.optional = True
    return list(built)


# The kernels are independent of each other, and gcc takes its time with some.
setup(ext_modules=extensions(), options={"build_ext": {"parallel": os.cpu_count() or 1}})
