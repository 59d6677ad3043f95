"""Schema rows over CQL, from a session that answers as Cassandra does."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from cassandra import OperationTimedOut

from penstock.capture.cassandra.schema import query as schema_query
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.errors import Unreachable
from penstock.model import types as t
from penstock.model.schema import TableId
from tests.schema_changes import column, gone

ID = uuid.UUID(int=0x1111)


class Session:
    """Answers a query by the table that it reads."""

    def __init__(self, answers: dict[str, list[tuple[Any, ...]]]) -> None:
        self._answers = answers
        self.queries: list[str] = []

    def execute(self, query: str) -> list[tuple[Any, ...]]:
        self.queries.append(query)
        return self._answers.get(query.rpartition(".")[2], [])


def node() -> Session:
    return Session(
        {
            "types": [("ks", "addr", ["a"], ["int"], 50, 50)],
            "tables": [("ks", "orders", ID, True, {"compound"}, 100, 120, 100)],
            "columns": [
                ("ks", "orders", "k", "none", "partition_key", 0, "int", 100, 100, 100, 100),
                ("ks", "orders", "c", "desc", "clustering", 0, "text", 100, 100, 100, 100),
                ("ks", "orders", "home", "none", "regular", -1, "frozen<addr>", 100, 100, 100, 100),
                ("ks", "half", "k", "none", None, None, None, 100, None, None, None),
            ],
            # A column of one of Cassandra's own tables, with a time that no calendar reaches.
            "dropped_columns": [("ks", "orders", "old", 9223372036854775, "regular", "int", 100, 100, 100)],
            "views": [("ks", "mv", uuid.UUID(int=2), None, 100, None)],
        }
    )


def test_tables_are_read_with_their_write_times() -> None:
    session: Any = node()
    (table,) = schema_query.read(session)
    assert (table.id, table.cdc, table.view) == (ID, True, False)
    assert [(one.name, one.descending) for one in table.schema.columns] == [("k", False), ("c", True), ("home", False)]
    assert table.schema.by_name["home"].type == t.user("addr", {"a": t.INT32})
    assert table.dropped["old"].time_us == 9223372036854775000
    assert all("writetime(" in query for query in session.queries)


def test_rows_merge_with_the_log_by_their_time() -> None:
    session: Any = node()
    schemas = Schemas()
    schemas.load(schema_query.read_rows(session))
    older = gone("columns", 99, ("orders", "home"))
    assert schemas.learn(older.table, [older.change]) == set()
    newer = column(101, "orders", "note", "regular", -1, "text")
    assert schemas.learn(newer.table, [newer.change]) == {ID}
    found = schemas.by_name(TableId("ks", "orders"))
    assert found is not None
    assert [one.name for one in found.schema.cells] == ["home", "note"]


def test_a_node_that_does_not_answer_is_unreachable() -> None:
    class Slow:
        def execute(self, query: str) -> Any:
            raise OperationTimedOut

    session: Any = Slow()
    with pytest.raises(Unreachable, match="the node did not tell its schema"):
        schema_query.read_rows(session)
