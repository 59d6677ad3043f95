"""TablePatterns: which tables are captured, by name: an include pattern names them and no exclude pattern does."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from penstock.errors import InvalidSetting
from penstock.model.schema import TableId


class TablePatterns:
    """The choice that the settings of a source make. Patterns look like `shop.*`."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        self.include, self.exclude = tuple(include), tuple(exclude)
        check(*self.include, *self.exclude)

    def names(self, table: TableId) -> bool:
        """Whether a table of this name is wanted."""
        text = str(table)
        return _fits(text, self.include) and not _fits(text, self.exclude)


def check(*patterns: str) -> None:
    """Refuse what cannot be the name of any table."""
    for pattern in patterns:
        if "." not in pattern:
            raise InvalidSetting(f"not a pattern of tables: {pattern!r}; patterns look like shop.* or shop.orders")


def _fits(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
