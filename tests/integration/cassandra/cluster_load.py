"""A load for several real nodes that leaves nothing out: each kind of write, with ties, late times and short lives.

Half of the writes take their times from a few small numbers, so that the order of writing says nothing and many are
equal. What has a time to live of seconds is gone when `expired` returns.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from penstock.deliver.lakehouse.types import lake_schema
from penstock.model.schema import TableSchema
from tests.integration.cassandra.answers import Asker, quoted

TABLES = ("things", "plain", "hits")
_STATEMENTS = 420
_SECONDS_TO_LIVE = 3


def definitions(keyspace: str) -> list[str]:
    return [
        f"CREATE TYPE {keyspace}.pair (x int, y text)",
        (
            f"CREATE TABLE {keyspace}.things (k int, c int, d text, v text, n int, m map<text, int>, l list<int>, "
            "st set<text>, u pair, f frozen<list<int>>, s text static, sm map<text, int> static, "
            "PRIMARY KEY (k, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC) AND cdc = true"
        ),
        f"CREATE TABLE {keyspace}.plain (k int PRIMARY KEY, v text, n int) WITH cdc = true",
        f"CREATE TABLE {keyspace}.hits (k int, c int, n counter, PRIMARY KEY (k, c)) WITH cdc = true",
    ]


def write(session: Session, keyspace: str, random: Random, level: int) -> None:
    """All of it. The driver takes another coordinator each time."""
    for number in range(_STATEMENTS):
        kind = random.choice((_things, _things, _things, _plain, _hits))
        session.execute(SimpleStatement(kind(keyspace, random, number), consistency_level=level))
    session.execute(SimpleStatement(last_write(keyspace), consistency_level=level))


def any_write(keyspace: str, random: Random, number: int) -> str:
    """One statement of any kind; counters only count, for one that was deleted may not be written again."""
    return random.choice((_things, _things, _things, _plain, _increment))(keyspace, random, number)


def last_write(keyspace: str) -> str:
    """What lives as long as anything that has seconds to live, and is gone when `expired` returns."""
    return f"INSERT INTO {keyspace}.plain (k, v) VALUES (99, 'last') USING TTL {_SECONDS_TO_LIVE}"


def expired(asker: Asker) -> None:
    """Wait until everything is gone that has seconds to live: what was written last lives longest."""
    asker.wait_for_expiry("SELECT k FROM plain WHERE k = 99")


def _using(random: Random, *, lives: bool = True) -> str:
    parts = []
    if random.random() < 0.5:
        parts.append(f"TIMESTAMP {random.randint(1, 9)}")
    if lives and random.random() < 0.3:
        parts.append(f"TTL {random.choice((86_400, *range(1, _SECONDS_TO_LIVE + 1)))}")
    return f"USING {' AND '.join(parts)}" if parts else ""


def _things(keyspace: str, random: Random, number: int) -> str:
    table = f"{keyspace}.things"
    k, c, d = random.randint(1, 6), random.randint(1, 4), random.choice("ab")
    row = f"k = {k} AND c = {c} AND d = '{d}'"
    element = random.choice("xyz")
    low, high = sorted(random.sample(range(6), 2))
    cells = random.sample(
        [
            f"v = 'v{number % 7}'",
            f"n = {number % 5}",
            f"m['{element}'] = {number}",
            f"l = l + [{number}]",
            f"st = st + {{'{element}'}}",
            f"u.x = {number}",
            f"f = [{number}, 1]",
            f"sm['{element}'] = {number}",
        ],
        2,
    )
    lost = random.choice(("v", "n", "m", f"m['{element}']", "l", "st", "u", "u.y", "f"))
    using, when = _using(random), _using(random, lives=False)
    key = f"({k}, {c}, '{d}'"
    whole = f"INSERT INTO {table} (k, c, d, v, m, st, u) VALUES {key}, 'w{number % 3}', {{'x': {number}}}, "
    made = f"INSERT INTO {table} (k, c, d, n, l, f) VALUES {key}, {number % 4}, [{number}], [2]) {using}"
    both = (
        f"BEGIN BATCH {_using(random, lives=False)} UPDATE {table} SET v = 'b{k}', m = {{'b': 1}} WHERE {row}; "
        f"DELETE n FROM {table} WHERE {row}; DELETE FROM {table} WHERE k = {k} AND c = {low}; APPLY BATCH"
    )
    return random.choices(
        [
            whole + f"{{'{element}'}}, {{x: {number}, y: 'p'}}) {using}",
            made,
            f"UPDATE {table} {using} SET {', '.join(cells)} WHERE {row}",
            f"UPDATE {table} {using} SET s = 's{number % 4}', sm = sm + {{'{element}': {number}}} WHERE k = {k}",
            f"DELETE {lost} FROM {table} {when} WHERE {row}",
            f"DELETE {random.choice(('s', 'sm', 's, sm'))} FROM {table} {when} WHERE k = {k}",
            f"DELETE FROM {table} {when} WHERE {row}",
            f"DELETE FROM {table} {when} WHERE k = {k} AND c > {low} AND c <= {high}",
            f"DELETE FROM {table} {when} WHERE k = {k} AND c = {c}",
            f"DELETE FROM {table} {when} WHERE k = {k}",
            both,
            whole + f"{{'{element}'}}, {{x: 0, y: 'q'}}) IF NOT EXISTS",
        ],
        weights=[20, 12, 30, 10, 8, 3, 4, 4, 2, 2, 5, 1],
    )[0]


def _plain(keyspace: str, random: Random, number: int) -> str:
    table, k = f"{keyspace}.plain", random.randint(1, 12)
    return random.choice(
        [
            f"INSERT INTO {table} (k, v, n) VALUES ({k}, 'v{number % 5}', {number}) {_using(random)}",
            f"INSERT INTO {table} (k, n) VALUES ({k}, {-number % 3}) {_using(random)}",
            f"UPDATE {table} {_using(random)} SET v = 'u{number % 3}' WHERE k = {k}",
            f"UPDATE {table} {_using(random)} SET n = null, v = 'n{number % 2}' WHERE k = {k}",
            f"DELETE v FROM {table} {_using(random, lives=False)} WHERE k = {k}",
            f"DELETE FROM {table} {_using(random, lives=False)} WHERE k = {k}",
        ]
    )


def _hits(keyspace: str, random: Random, number: int) -> str:
    table, k, c = f"{keyspace}.hits", random.randint(1, 4), random.randint(1, 3)
    # A counter that was deleted is not written again, as Cassandra demands.
    if number > _STATEMENTS - 20:
        return f"DELETE FROM {table} WHERE k = 4" if number % 2 else f"DELETE FROM {table} WHERE k = 3 AND c = {c}"
    return _counted(table, random, number, random.randint(1, 2) if number > _STATEMENTS // 2 else k, c)


def _increment(keyspace: str, random: Random, number: int) -> str:
    return _counted(f"{keyspace}.hits", random, number, random.randint(1, 4), random.randint(1, 3))


def _counted(table: str, random: Random, number: int, k: int, c: int) -> str:
    return f"UPDATE {table} SET n = n {random.choice('+-')} {number} WHERE k = {k} AND c = {c}"


def selected(session: Session, schema: TableSchema, level: int) -> list[dict[str, Any]]:
    """What SELECT gives, with values as a lakehouse table has them."""
    shape = lake_schema(schema)
    query = f"SELECT {', '.join(map(quoted, shape.names))} FROM {schema.table}"
    rows = list(session.execute(SimpleStatement(query, consistency_level=level)))
    columns = list(zip(*rows, strict=True)) or [()] * len(shape)
    values = [pa.array(map(_lake_value, column), field.type) for column, field in zip(columns, shape, strict=True)]
    return sorted(pa.table(values, schema=shape).to_pylist(), key=repr)


def _lake_value(value: Any) -> Any:
    name = type(value).__name__
    if name == "SortedSet":
        return list(value)
    if name == "OrderedMapSerializedKey":
        return list(value.items())
    return value._asdict() if hasattr(value, "_asdict") else value
