"""Units: sizes and times as people write them, `10GiB` or `5s`, in the unit that a setting's name has.

The name says which: `bytes` in it is a size, `s` a number of seconds, `ms` of milliseconds, `hours` of hours. A bare
number counts in that unit, so what was written before units were known means what it meant.
"""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-zµ]+)", re.ASCII)
_BYTES = {"b": 1}
for _power, _letter in enumerate("kmgt", 1):
    # A letter alone is what Java and Spark mean by it: powers of 1024.
    _BYTES |= {_letter: 1024**_power, f"{_letter}ib": 1024**_power, f"{_letter}b": 1000**_power}
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
    "w": 7 * 86400 * 10**9,
}
# The part of a setting's name that is its unit, what that is worth, and the units that may be written instead.
_KINDS = {
    "bytes": (1, _BYTES, "a size as 10GiB, 512MiB or 65536"),
    "ms": (10**6, _NANOSECONDS, "a time as 500ms, 5s or 5000"),
    "s": (10**9, _NANOSECONDS, "a time as 500ms, 5s, 10m, 12h, 7d or 300"),
    "hours": (3600 * 10**9, _NANOSECONDS, "a time as 12h, 7d or 168"),
}
_NOTHING = frozenset(("none", "off"))


def in_unit_of(name: str, value: object, *, optional: bool) -> object:
    """The value in the unit of the setting `name`; one without a unit as it is. `none` turns an optional number off.

    Raises ValueError on an amount whose unit is not known.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if optional and text.lower() in _NOTHING:
        return None
    kind = next((_KINDS[part] for part in name.split("_") if part in _KINDS), None)
    if kind is None:
        return value
    amount = _AMOUNT.fullmatch(text)
    if amount is None:
        return value
    worth, units, example = kind
    factor = units.get(amount[2].lower())
    if factor is None:
        raise ValueError(f"unknown unit; write {example}")
    exact = float(amount[1]) * factor / worth if "." in amount[1] else int(amount[1]) * factor / worth
    return int(exact) if exact == int(exact) else exact
