"""What kernels see as `cython` where they run as plain Python, so that no compiler has to be installed to run them.

A kernel imports `cython` for what it tells the compiler: compiled, the import is gone; as plain Python, it is this
module that `kernels.choose` gives it, whether the real one is installed or not. Only what the kernels name outside of
`if cython.compiled` is here, and none of it does anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

compiled = False
Py_ssize_t = longlong = ulonglong = schar = int


def boundscheck(_on: bool) -> Callable[[_Decorated], _Decorated]:
    """Python always checks."""
    return lambda function: function


def cast(_kind: object, value: Any) -> Any:
    """A value has the type that it has."""
    return value
