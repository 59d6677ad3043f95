"""Three real nodes beside each other, and how to wait until they agree on the schema."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path

from cassandra.cluster import Session

from penstock.sandbox.cassandra_jars import LATEST
from penstock.sandbox.cassandra_server import CassandraServer, free_address
from tests.integration.cassandra.variants import CACHE

_AGREE_S = 60


def started(home: Path, stack: ExitStack) -> list[CassandraServer]:
    """The first node alone, then the others beside it."""
    addresses = [free_address() for _ in range(3)]
    nodes = [
        CassandraServer(
            LATEST,
            home / f"node{number}",
            cache=CACHE,
            address=address,
            seeds=addresses[:1],
            token=-(2**63) + number * (2**64 // 3),
            heap="384m",
            settings={"storage_compatibility_mode": "NONE"},
        )
        for number, address in enumerate(addresses)
    ]
    stack.enter_context(nodes[0])
    for node in nodes[1:]:
        stack.callback(node.stop)
        node.start(wait=False)
    for node in nodes[1:]:
        node.ready()
    return nodes


def agreed(session: Session) -> None:
    """Wait until all nodes have the same schema."""
    query = "SELECT schema_version FROM system.local"
    deadline = time.monotonic() + _AGREE_S
    while len({session.execute(query, host=host).one() for host in session.cluster.metadata.all_hosts()}) > 1:
        assert time.monotonic() < deadline, "the nodes do not agree on a schema"
        threading.Event().wait(0.1)
