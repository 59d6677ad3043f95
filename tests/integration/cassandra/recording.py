"""One run of the matrix on one node: the statements, the node's answers, and its log decoded in two ways.

First while the node runs, from the files as they are at that moment and with nothing known but the log itself; then
after it has stopped, with a schema that the driver had told before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.query import tuple_factory

from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.model.schema import TableId
from tests.integration.cassandra import matrix
from tests.integration.cassandra.answers import Answer, Asker
from tests.integration.cassandra.folding import Decoded, chosen, decode, segments
from tests.integration.cassandra.snapshotting import COPIED, Copied, take
from tests.integration.cassandra.variants import Variant

_REQUEST_S = 60
_REPLICATION = "{'class': 'SimpleStrategy', 'replication_factor': 1}"


@dataclass
class Recording:
    """What one node did and said, and what its log says."""

    variant: Variant
    directory: Path
    # As the driver reads them in the end, by name.
    tables: dict[str, CassandraTable]
    answers: dict[str, Answer]
    # The log alone, while the node ran; and after it stopped, with the driver's schema known from the start.
    alone: Decoded
    told: Decoded
    # What a snapshot wrote, while the node ran.
    copied: Copied

    @property
    def segments(self) -> list[Path]:
        return segments(self.directory / "commitlog", self.directory / "cdc_raw")


@contextmanager
def connected(*addresses: str) -> Iterator[Cluster]:
    """The driver, without the schema that it would read after every statement."""
    # What the driver says of versions that it tries is no news here.
    logging.getLogger("cassandra").setLevel(logging.ERROR)
    profile = ExecutionProfile(request_timeout=_REQUEST_S, row_factory=tuple_factory)
    cluster = Cluster(
        list(addresses),
        schema_metadata_enabled=False,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=_REQUEST_S,
        control_connection_timeout=_REQUEST_S,
    )
    try:
        yield cluster
    finally:
        cluster.shutdown()


def record(variant: Variant, directory: Path) -> Recording:
    with variant.server(directory) as server, connected(server.address) as cluster:
        session: Session = cluster.connect()
        session.execute(f"CREATE KEYSPACE {matrix.KEYSPACE} WITH replication = {_REPLICATION}")
        session.set_keyspace(matrix.KEYSPACE)
        for case in cases_of(variant):
            for statement in case.statements:
                session.execute(statement)
        tables = {table.schema.table.table: table for table in schema_query.read(session)}
        asker = Asker(cluster, matrix.KEYSPACE, variant.number)
        if "lifetimes" in tables:
            asker.wait_for_expiry("SELECT k FROM lifetimes WHERE k = 2 AND c = 1")
        answers = {name: asker.ask(table) for name, table in tables.items()}
        captured = chosen(table.id for table in tables.values())
        keys = variant.keys(directory)
        alone = decode(segments(server.commitlog, server.cdc_raw), captures=captured, keys=keys)
        rows = schema_query.read_rows(session)
        copied = take(server.address, directory / "copied", captured, splits=4) if variant.name in COPIED else {}
    schemas = Schemas()
    schemas.load(rows)
    told = decode(segments(server.commitlog, server.cdc_raw), captures=captured, schemas=schemas, keys=keys)
    return Recording(variant, directory, tables, answers, alone, told, copied)


def cases_of(variant: Variant) -> list[matrix.Case]:
    return [
        case
        for case in matrix.CASES
        if case.runs_on(variant.number, variant.log_format) and (not variant.cases or case.name in variant.cases)
    ]


def name_of(table: str) -> TableId:
    return TableId(matrix.KEYSPACE, table)
