"""NodeLink: asks the node over CQL, in a thread of its own, so that the tail never waits for a node that is down.

It knows whether the node can be reached, and fetches table definitions when entries of unknown tables or columns have
come. Answers are picked up by the tail's own thread, between two entries, because definitions are used there.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable

import structlog

from penstock.capture.cassandra.node.connection import Connection
from penstock.capture.cassandra.schema.rows import SchemaRow
from penstock.errors import PenstockError

log = structlog.get_logger()

_LOOK_S = 10.0
_CONNECT_S = 2.0


class NodeLink:
    """The thread. Without contact points there is none, and nothing is ever known."""

    def __init__(
        self,
        connect: Callable[[], Connection],
        addresses: tuple[tuple[str, int], ...],
        *,
        refresh_s: float,
    ) -> None:
        # Whether the node answered when it was last asked.
        self.reachable: bool | None = None
        self._connect = connect
        self._addresses = addresses
        self._refresh_s = refresh_s
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._answers: queue.SimpleQueue[list[SchemaRow]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="penstock-node-link", daemon=True)

    def start(self) -> None:
        if self._addresses:
            self._thread.start()

    def stop(self) -> None:
        """End the thread. A question that is under way is not waited for: the thread is no reason to go on living."""
        self._stopping.set()
        self._wanted.set()

    def want_definitions(self) -> None:
        """Ask for all table definitions, soon; asking again before the answer changes nothing."""
        self._wanted.set()

    def answer(self) -> list[SchemaRow] | None:
        """Definitions that have come since the last call."""
        try:
            return self._answers.get_nowait()
        except queue.Empty:
            return None

    def _run(self) -> None:
        while not self._stopping.is_set():
            wanted = self._wanted.wait(_LOOK_S)
            if self._stopping.is_set():
                return
            if not wanted:
                self.reachable = self._look()
                continue
            self._wanted.clear()
            self._fetch()
            # However many unknown tables come, the node is not asked more often than this.
            self._stopping.wait(self._refresh_s)

    def _look(self) -> bool:
        for address in self._addresses:
            try:
                socket.create_connection(address, _CONNECT_S).close()
            except OSError:
                continue
            return True
        return False

    def _fetch(self) -> None:
        from penstock.capture.cassandra.schema import query as schema_query

        try:
            with self._connect() as connection:
                rows = schema_query.read_rows(connection.session)
        except PenstockError as error:
            self.reachable = False
            log.warning("table definitions not fetched", error=str(error))
            return
        self.reachable = True
        self._answers.put(rows)
