"""Functions: the Python callables that filters may name.

They are registered in the settings (`functions.name = "module:callable"`) and imported when the program starts; a
statement can only name them. Names follow CQL: case does not count, unless the name is in double quotes.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.errors import InvalidSetting
from penstock.model.predicate import quoted_name

Function = Callable[..., Any]
# The settings that name functions.
_SECTION = "functions"


class Functions(Mapping[str, Function]):
    """Callables by name. Lookup is by the name that a parsed statement holds."""

    def __init__(self, callables: Mapping[str, Function] | None = None, setting: str = _SECTION) -> None:
        self._callables: dict[str, Function] = {}
        for name, function in (callables or {}).items():
            known = canonical_name(name)
            if known in self._callables:
                raise InvalidSetting(f"two functions have the name {quoted_name(known)}", setting=f"{setting}.{name}")
            if not callable(function):
                raise InvalidSetting("the function cannot be called", setting=f"{setting}.{name}")
            self._callables[known] = function

    @classmethod
    def load(cls, section: Mapping[str, str], setting: str = _SECTION) -> Functions:
        """Import what the settings name. InvalidSetting says which setting cannot be used, and why."""
        return cls({name: _imported(f"{setting}.{name}", path) for name, path in section.items()}, setting)

    def __getitem__(self, name: str) -> Function:
        return self._callables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._callables)

    def __len__(self) -> int:
        return len(self._callables)


def canonical_name(name: str) -> str:
    """The name as a parsed statement holds it: `MyUdf` is myudf, `"MyUdf"` in double quotes is MyUdf."""
    if len(name) > 2 and name[0] == name[-1] == '"':
        return name[1:-1].replace('""', '"')
    return name.lower()


def takes(function: Function, count: int) -> bool:
    """Whether the function can be called with so many arguments; True when Python cannot tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _imported(setting: str, path: str) -> Function:
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise InvalidSetting(f'{path!r} does not name a function; write "module:callable"', setting=setting)
    try:
        target: Any = importlib.import_module(module_name)
    # A module runs its own code when it is imported, so anything can come out of it.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidSetting(f"cannot import module {module_name}: {reason}", setting=setting) from error
    for part in attribute.split("."):
        target = getattr(target, part, None)
        if target is None:
            raise InvalidSetting(f"module {module_name} has no {attribute}", setting=setting)
    if not callable(target):
        raise InvalidSetting(f"{path} cannot be called", setting=setting)
    function: Function = target
    return function
