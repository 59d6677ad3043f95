"""Patterns: how settings name tables and columns.

`shop.orders` and `shop.orders.total` name one; `*` stands for any characters within one part, and the parts are
separated by dots. Names with dots in them are put in double quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeVar

from penstock.errors import InvalidSetting
from penstock.model.schema import TableId

_PART = re.compile(r'"((?:[^"]|"")*)"|([^".]+)')

T = TypeVar("T")


@lru_cache(maxsize=4096)
def parts(pattern: str, count: int, setting: str) -> tuple[re.Pattern[str], ...]:
    """The parts of a pattern, each to be matched as a whole; InvalidSetting when it has not so many."""
    found: list[re.Pattern[str]] = []
    at = 0
    while at < len(pattern):
        match = _PART.match(pattern, at)
        if match is None:
            break
        quoted, plain = match.groups()
        text = quoted.replace('""', '"') if quoted is not None else plain
        expression = re.escape(text) if quoted is not None else re.escape(text).replace(r"\*", ".*")
        found.append(re.compile(expression, re.DOTALL))
        at = match.end()
        if at < len(pattern):
            if pattern[at] != ".":
                break
            at += 1
            if at == len(pattern):
                break
    if at != len(pattern) or len(found) != count:
        shape = ".".join(("keyspace", "table", "column")[:count])
        raise InvalidSetting(f"not a pattern: {pattern[:80]!r}; it looks like {shape}", setting=setting)
    return tuple(found)


def fits(pattern: str, names: tuple[str, ...], setting: str) -> bool:
    """Whether a pattern names this table or column."""
    return all(part.fullmatch(name) for part, name in zip(parts(pattern, len(names), setting), names, strict=True))


def first_for_table(choices: Mapping[str, T], table: TableId, setting: str) -> T | None:
    """The choice of the first pattern that fits a table."""
    return next((choice for pattern, choice in choices.items() if fits(pattern, tuple(table), setting)), None)
