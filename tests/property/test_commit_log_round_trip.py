"""Whatever a table and a mutation are: what the writer writes, the reader and the decoder give back."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.segment import FORMATS
from penstock.model.change import Change
from penstock.sandbox.commit_log.statements import create_keyspace, create_table
from penstock.sandbox.commit_log.writer import CommitLogWriter
from tests.commit_logs import CODECS, normal, normal_update, read_back, tables, updates

TIME = 1_700_000_000_000_000


def write(
    directory: str, format_: int, codec: dict[str, Any], table: CassandraTable, mutations: list[list[Change]]
) -> list[str]:
    """A log of one table; the paths of its segments."""
    paths = []
    log = CommitLogWriter(
        f"{directory}/commitlog", f"{directory}/cdc_raw", format=format_, segment_bytes=1 << 20, durable=False, **codec
    )
    paths.append(log.segment)
    log.append(create_keyspace("ks", TIME))
    log.append(create_table(table, TIME))
    for number, changes in enumerate(mutations):
        log.append([(table, changes)])
        if number % 2:
            log.mark()
        if number % 3 == 2:
            log.roll()
            paths.append(log.segment)
    log.close()
    return paths


@pytest.mark.parametrize("format_", FORMATS)
@settings(deadline=None, max_examples=80)
@given(st.data())
def test_what_is_written_is_read_back(format_: int, data: st.DataObject) -> None:
    codec = CODECS[data.draw(st.sampled_from(sorted(CODECS)))]
    live = data.draw(st.booleans())
    table = data.draw(tables())
    mutations = data.draw(st.lists(updates(table, format_), min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as directory:
        found = read_back(write(directory, format_, codec, table, mutations), live=live)
    assert found.damage == []
    learned = found.schemas.table(table.id)
    assert learned is not None
    assert learned.schema.columns == table.schema.columns
    expected = [one for changes in mutations for one in normal_update(table.schema, changes)]
    changes = found.changes.get(table.id, [])
    assert [normal(table.schema, change) for change in changes] == expected
    ordinals = [change.origin.ordinal for change in changes]
    assert ordinals == [n for update in mutations for n in range(len(normal_update(table.schema, update)))]
