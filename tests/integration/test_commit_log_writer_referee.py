"""Whatever a table and a mutation are: Cassandra's own commit-log reader reads what our writer writes."""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.commit_log_peer import VERSION, VERSION_OF_9, CommitLogPeer, statements
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.segment import FORMATS
from penstock.model.schema import TableId
from penstock.sandbox.commit_log.writer import CommitLogWriter
from tests import referee
from tests.commit_logs import CODECS, normal, normal_update, tables, updates

# Encrypted ones have a test beside those of genuine segments: the key has to stand in a key store.
PLAIN_AND_COMPRESSED = sorted(name for name in CODECS if name != "encrypted")
KEYSPACES = itertools.count()
# 6.0 reads each table's definition again from CQL of its own, in which these names of columns stand without the quotes
# that they need. Of all words that its grammar knows, only these.
UNSAYABLE = {"true", "false"}


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], CommitLogPeer]]:
    """The peer for each format, started when it is first asked for."""
    place = tmp_path_factory.mktemp("peers")
    # Otherwise 5.0 takes the seconds after 2038 for an overflow.
    settings = {"storage_compatibility_mode": "NONE"}
    with ExitStack() as stack:

        @cache
        def running(version: str) -> CommitLogPeer:
            return stack.enter_context(CommitLogPeer(place / version, version=version, settings=settings))

        yield lambda format_: running(VERSION_OF_9 if format_ > 8 else VERSION)


def test_the_versions_are_those_that_read_these_formats() -> None:
    assert (VERSION.split(".")[0], VERSION_OF_9.split(".")[0], FORMATS[-1]) == ("5", "6", 9)


@pytest.mark.parametrize("format_", FORMATS)
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_cassandra_reads_what_we_write(
    peers: Callable[[int], CommitLogPeer], tmp_path: Path, format_: int, data: st.DataObject
) -> None:
    peer = peers(format_)
    codec = CODECS[data.draw(st.sampled_from(PLAIN_AND_COMPRESSED))]
    table = _in_new_keyspace(data.draw(tables().filter(_sayable) if format_ > 8 else tables()))
    mutations = data.draw(st.lists(updates(table, format_), min_size=1, max_size=3))
    schema = tmp_path / "schema.cql"
    schema.write_text(statements([table]), encoding="utf-8", newline="")
    peer.schema(schema)
    with tempfile.TemporaryDirectory() as directory:
        log = CommitLogWriter(
            f"{directory}/commitlog",
            f"{directory}/cdc_raw",
            format=format_,
            segment_bytes=1 << 20,
            durable=False,
            **codec,
        )
        path = log.segment
        positions = []
        for number, changes in enumerate(mutations):
            positions.append(log.append([(table, changes)])[1])
            if number % 2:
                log.mark()
        log.close()
        lines, summary = peer.dump(Path(path))
    assert summary["errors"] == []
    assert summary["aborted"] is None
    found = referee.expected(lines, {str(table.id): table}, Path(path).name)
    assert [entry.position for entry in found] == positions
    for entry, changes in zip(found, mutations, strict=True):
        expected = normal_update(table.schema, [referee.tidied(change) for change in changes])
        read = [normal(table.schema, referee.tidied(change)) for _, change in entry.changes]
        assert [before_2038(change) for change in read] == [before_2038(change) for change in expected]


def before_2038(change: Any) -> Any:
    """A normal form's deletions without their second when it is later than an int can say: Cassandra reads none there.

    Cells' seconds are read. Those of rows, collections, ranges and partitions are added up as ints and overflow.
    """

    def legible(deletion: Any) -> Any:
        return (deletion[0], None) if deletion is not None and deletion[1] >= 1 << 31 else deletion

    op, key, cells, marker, deletion, where = change
    deltas = {
        name: (cell[0], legible(cell[1]), *cell[2:]) if cell[0] == "delta" else cell for name, cell in cells.items()
    }
    return op, key, deltas, marker, legible(deletion), where


def _sayable(table: CassandraTable) -> bool:
    """Whether 6.0 can make the table at all."""
    return UNSAYABLE.isdisjoint(column.name for column in table.schema.columns)


def _in_new_keyspace(table: CassandraTable) -> CassandraTable:
    """Tables and types of an example must not meet those of another one."""
    number = next(KEYSPACES)
    schema = replace(table.schema, table=TableId(f"ks{number}", "t"))
    return replace(table, schema=schema, id=uuid.UUID(int=number << 64 | table.id.int >> 64))
