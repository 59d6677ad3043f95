"""Penstock: change data capture for operational databases.

These names are the public interface; everything else may move. They are imported when first used, so that
`import penstock` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.log.reader import LogReader
    from penstock.log.subscription import Subscription
    from penstock.log.table_log import TableLog
    from penstock.model.batch import ChangeBatch
    from penstock.model.change import Change, Op
    from penstock.model.position import Position
    from penstock.model.schema import Column, Role, TableId, TableSchema
    from penstock.model.types import Type
    from penstock.settings import Settings

__all__ = [
    "Change",
    "ChangeBatch",
    "Column",
    "LogReader",
    "Op",
    "PenstockError",
    "Position",
    "Role",
    "Settings",
    "Subscription",
    "TableId",
    "TableLog",
    "TableSchema",
    "Type",
]

_HOMES = {
    "Change": "penstock.model.change",
    "ChangeBatch": "penstock.model.batch",
    "Column": "penstock.model.schema",
    "LogReader": "penstock.log.reader",
    "Op": "penstock.model.change",
    "PenstockError": "penstock.errors",
    "Position": "penstock.model.position",
    "Role": "penstock.model.schema",
    "Settings": "penstock.settings",
    "Subscription": "penstock.log.subscription",
    "TableId": "penstock.model.schema",
    "TableLog": "penstock.log.table_log",
    "TableSchema": "penstock.model.schema",
    "Type": "penstock.model.types",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("penstock")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
