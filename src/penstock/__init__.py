"""Penstock: change data capture for operational databases.

These names are the public interface; everything else may move. They are imported when first used, so that
`import penstock` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.deliver.dead_letter import dead_letter
    from penstock.deliver.sink import Delivered, Sink, Task, Writer
    from penstock.errors import PenstockError
    from penstock.formats.avro import decode, encode
    from penstock.log.reader import LogReader
    from penstock.log.subscription import Subscription
    from penstock.log.table_log import TableLog
    from penstock.model.batch import ChangeBatch
    from penstock.model.change import Change, Deleted, Op, Set
    from penstock.model.position import Position
    from penstock.model.schema import Column, Role, TableId, TableSchema
    from penstock.model.types import Type
    from penstock.pipeline.source.source import register
    from penstock.records.records import Records
    from penstock.settings import RecordType, Settings

__all__ = [
    "Change",
    "ChangeBatch",
    "Column",
    "Deleted",
    "Delivered",
    "LogReader",
    "Op",
    "PenstockError",
    "Position",
    "RecordType",
    "Records",
    "Role",
    "Set",
    "Settings",
    "Sink",
    "Subscription",
    "TableId",
    "TableLog",
    "TableSchema",
    "Task",
    "Type",
    "Writer",
    "dead_letter",
    "decode",
    "encode",
    "register",
]

_HOMES = {
    "Change": "penstock.model.change",
    "ChangeBatch": "penstock.model.batch",
    "Column": "penstock.model.schema",
    "Deleted": "penstock.model.change",
    "Delivered": "penstock.deliver.sink",
    "LogReader": "penstock.log.reader",
    "Op": "penstock.model.change",
    "PenstockError": "penstock.errors",
    "Position": "penstock.model.position",
    "RecordType": "penstock.settings",
    "Records": "penstock.records.records",
    "Role": "penstock.model.schema",
    "Set": "penstock.model.change",
    "Settings": "penstock.settings",
    "Sink": "penstock.deliver.sink",
    "Subscription": "penstock.log.subscription",
    "TableId": "penstock.model.schema",
    "TableLog": "penstock.log.table_log",
    "TableSchema": "penstock.model.schema",
    "Task": "penstock.deliver.sink",
    "Type": "penstock.model.types",
    "Writer": "penstock.deliver.sink",
    "dead_letter": "penstock.deliver.dead_letter",
    "decode": "penstock.formats.avro",
    "encode": "penstock.formats.avro",
    "register": "penstock.pipeline.source.source",
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
