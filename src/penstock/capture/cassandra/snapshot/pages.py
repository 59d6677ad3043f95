"""Pages: reading a token range over CQL, page by page, as raw bytes, and telling apart what can go wrong.

The driver would make a Python object of every value, and cannot read the lists of nulls that Cassandra 5.0 gives for
times to live; so a protocol handler of our own leaves the rows as they came. The driver is imported when it is needed.
"""

from __future__ import annotations

import struct
import threading
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.capture.cassandra.node.connection import Connection
from penstock.capture.cassandra.snapshot.encoding import Page
from penstock.system.clock import Clock

if TYPE_CHECKING:
    from cassandra.cluster import ResponseFuture
    from cassandra.pool import Host

_HALT_LOOK_S = 0.1


class Trouble(Enum):
    """What a failed request asks for."""

    # The node or the cluster cannot answer now: wait, then ask the same again.
    WAIT = "wait"
    # It could not answer in time: wait, then ask for less.
    SLOW = "slow"
    # No node is connected any more: connect anew.
    CONNECTION = "connection"
    # The statement does not fit the table any more: look at the schema again.
    SCHEMA = "schema"


def trouble(error: Exception) -> Trouble:
    """What to do about an error of the driver."""
    from cassandra import InvalidRequest, OperationTimedOut, ReadFailure, ReadTimeout
    from cassandra.cluster import NoHostAvailable

    if isinstance(error, NoHostAvailable):
        # All hosts may have been tried and failed for one of the other reasons.
        inner = [part for part in getattr(error, "errors", {}).values() if isinstance(part, Exception)]
        kinds = {trouble(part) for part in inner if not isinstance(part, NoHostAvailable)}
        return Trouble.SLOW if Trouble.SLOW in kinds else Trouble.CONNECTION
    if isinstance(error, ReadTimeout | ReadFailure | OperationTimedOut):
        return Trouble.SLOW
    if isinstance(error, InvalidRequest):
        return Trouble.SCHEMA
    return Trouble.WAIT


def consistency_level(name: str) -> int:
    """The driver's number for a consistency level."""
    from cassandra import ConsistencyLevel

    known: dict[str, int] = ConsistencyLevel.name_to_value
    return known[name]


class PageReader:
    """Reads pages through one connection. Safe to use from many threads."""

    def __init__(self, connection: Connection, consistency: str, timeout_s: float, clock: Clock) -> None:
        from cassandra.cluster import EXEC_PROFILE_DEFAULT

        self._clock = clock
        # A session of its own, because the handler of raw rows is the session's.
        self._session = connection.session.cluster.connect()
        self._session.client_protocol_handler = _raw_handler()
        self._profile = self._session.execution_profile_clone_update(
            EXEC_PROFILE_DEFAULT,
            consistency_level=consistency_level(consistency),
            request_timeout=timeout_s,
            row_factory=_as_it_is,
        )

    def column_names(self, text: str) -> list[str]:
        """The names of a statement's result. Raises what the driver raises."""
        return list(self._session.execute(text, execution_profile=self._profile).column_names)

    def ask(self, text: str, rows_max: int, more: bytes | None, host: Host | None) -> PendingPage:
        """Ask for a page without waiting for it. `host` is to coordinate when it is up."""
        from cassandra.query import SimpleStatement

        asked_us = self._clock.now_us()
        future = self._session.execute_async(
            SimpleStatement(text, fetch_size=rows_max),
            execution_profile=self._profile,
            paging_state=more,
            host=host if host is not None and host.is_up else None,
        )
        return PendingPage(future, asked_us)

    def close(self) -> None:
        self._session.shutdown()


class PendingPage:
    """A page that was asked for."""

    def __init__(self, future: ResponseFuture, asked_us: int) -> None:
        self._future = future
        self._asked_us = asked_us
        self._arrived = threading.Event()
        future.add_callbacks(self._arrive, self._arrive)

    def _arrive(self, _outcome: object) -> None:
        self._arrived.set()

    def wait(self, halt: threading.Event) -> Page | None:
        """The page, when it is there; None when `halt` is set before that. Raises what the driver raises."""
        while not self._arrived.wait(_HALT_LOOK_S):
            if halt.is_set():
                return None
        result = self._future.result()
        rows, body = result.current_rows or (0, b"")
        return Page(rows, body, result.paging_state, self._asked_us)


def _as_it_is(_names: Any, rows: Any) -> Any:
    return rows


def _raw_handler() -> Any:
    """A protocol handler that leaves the rows of a result as bytes."""
    from cassandra.protocol import ProtocolHandler, ResultMessage

    class RawResult(ResultMessage):  # type: ignore[misc]
        def recv_results_rows(self, f: Any, _version: Any, user_type_map: Any, metadata: Any, _policy: Any) -> None:
            self.recv_results_metadata(f, user_type_map)
            columns = self.column_metadata or metadata
            self.column_names = [column[2] for column in columns]
            self.column_types = [column[3] for column in columns]
            (count,) = struct.unpack(">i", f.read(4))
            self.parsed_rows = (count, f.read())

    opcodes = {**ProtocolHandler.message_types_by_opcode, ResultMessage.opcode: RawResult}
    return type("RawHandler", (ProtocolHandler,), {"message_types_by_opcode": opcodes})
