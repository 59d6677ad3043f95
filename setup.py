"""Builds the native kernels when there is a compiler; without one the same sources run as plain Python, and it says so.

With PENSTOCK_NATIVE=1 a build without compiled kernels fails instead.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
FLAGS = ["-O2", "-D_FORTIFY_SOURCE=2"]
COMPLAINT = """
*** penstock: {count} of {all} kernels were NOT compiled. It works, and is many times slower. ***
*** Install a C compiler and Python's headers, then install penstock again:                ***
***     apt-get install gcc libc6-dev python3-dev                                           ***
*** or install a wheel. `penstock version` says whether the kernels are native.             ***
"""


def extensions() -> list[Extension]:
    """One extension for each kernel source that has C types in a .pxd file beside it."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    modules = []
    for types in kernels():
        source = types.with_suffix(".py")
        name = ".".join(source.with_suffix("").relative_to(SOURCE).parts)
        modules.append(Extension(name, [str(source)], extra_compile_args=FLAGS))
    built = cythonize(modules, include_path=[str(SOURCE)], language_level=3, build_dir="build/cython")
    for extension in built:
        # cythonize() makes new extensions and drops this mark of the ones it was given.
        extension.optional = True
    return list(built)


def kernels() -> list[Path]:
    """The files with C types."""
    return sorted(SOURCE.glob("penstock/**/_*.pxd"))


class BuildKernels(build_ext):
    """Builds what it can, then says loudly what it could not."""

    def run(self) -> None:
        super().run()
        built = [one for one in self.extensions if os.path.exists(self.get_ext_fullpath(one.name))]
        if len(built) == len(kernels()):
            return
        complain(COMPLAINT.format(count=len(kernels()) - len(built), all=len(kernels())))
        if os.environ.get("PENSTOCK_NATIVE") == "1":
            raise SystemExit("PENSTOCK_NATIVE is 1, and the kernels were not compiled")


def complain(text: str) -> None:
    """Tell it where it is seen: pip shows nothing of a build that went well, unless the terminal itself is told."""
    sys.stderr.write(text)
    with suppress(OSError), open("/dev/tty", "w", encoding="utf-8") as terminal:
        if not sys.stderr.isatty():
            terminal.write(text)


# The kernels are independent of each other, and gcc takes its time with some.
setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildKernels},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
