"""The change logs of a sandbox node: what a node needs of a log, and the default, one TableLog per table.

A cluster is given `open_log(node, schema)`. It returns something with `append` and `close`, or None when this node does
not capture this table. A log that can also `recover` (the default can) is what the node rebuilds its memory from after
a crash; with any other log the node keeps a journal of its own, which stands for the database's commit log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Protocol, runtime_checkable

from penstock.formats import avro
from penstock.log.names import directory_name, encode
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change
from penstock.model.schema import TableId, TableSchema
from penstock.settings import LogSettings
from penstock.system.files import Files


class NodeLog(Protocol):
    """Where a replica puts a change before it acknowledges. `append` returns when the batch is safe, or raises."""

    def append(self, batch: ChangeBatch) -> object: ...

    def close(self) -> None: ...


@runtime_checkable
class Recoverable(Protocol):
    """A log that holds every change of the table, so that the node's memory can be built from it."""

    def recover(self) -> Iterator[Change]: ...


class LoggingNode(Protocol):
    """What a factory may ask of the node that a log is for."""

    @property
    def name(self) -> str: ...

    @property
    def data_centre(self) -> str: ...

    @property
    def files(self) -> Files: ...


OpenLog = Callable[[LoggingNode, TableSchema], NodeLog | None]
Captures = Callable[[TableId, str], bool]


def everywhere(table: TableId, data_centre: str) -> bool:
    """The default choice: every data centre captures every table."""
    del table, data_centre
    return True


def log_directory(root: str, node: str, table: TableId) -> str:
    """Where a node's log of a table lies under the cluster's root."""
    return f"{root}/{encode(node)}/{directory_name(table)}"


class ChangeLog:
    """A TableLog that can also be read back."""

    def __init__(self, log: TableLog, files: Files) -> None:
        self._log = log
        self._files = files

    def append(self, batch: ChangeBatch) -> object:
        return self._log.append(batch)

    def recover(self) -> Iterator[Change]:
        with LogReader(self._log.directory, files=self._files) as reader:
            for batch in reader.read():
                yield from avro.decode(batch)

    def close(self) -> None:
        self._log.close()


def table_logs(
    root: str, *, settings: LogSettings | None = None, captures: Captures = everywhere, seed: int = 0
) -> OpenLog:
    """A factory of one TableLog per table and node under `root`; `captures` may leave out data centres."""

    def open_log(node: LoggingNode, schema: TableSchema) -> NodeLog | None:
        if not captures(schema.table, node.data_centre):
            return None
        directory = log_directory(root, node.name, schema.table)
        log = TableLog.open(
            directory,
            schema,
            settings=settings,
            files=node.files,
            # Log ids and sync markers come from the seed too, so that equal seeds give equal files.
            entropy=Random(f"{seed}/{node.name}/{schema.table}").randbytes,  # noqa: S311 - seeded, to be repeated
            node=node.name,
            data_centre=node.data_centre,
        )
        return ChangeLog(log, node.files)

    return open_log
