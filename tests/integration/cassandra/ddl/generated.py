"""Scenarios that a seed makes: one table, random writes, and schema changes between them, all of them legal CQL.

Half of the seeds keep to what a snapshot copies exactly (docs/guides/cassandra-snapshot.md): rows are INSERTed, and
there are no lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.integration.cassandra.ddl.scenario import Scenario
from tests.integration.cassandra.ddl.scenarios import LATER
from tests.integration.cassandra.matrix import VALUES

STEPS = 4
_WRITES = 8
_SIMPLE = ["int", "text", "bigint", "boolean", "blob", "decimal", "timestamp", "uuid", "duration", "varint"]
_ELEMENTS = ["int", "text", "uuid", "bigint"]
_PLACES = {"int": ("1", "2", "3"), "text": ("''", "'a'", "'b'"), "decimal": ("1", "1.0", "2.5", "2.50")}


@dataclass(frozen=True)
class _Column:
    name: str
    kind: str
    static: bool = False

    @property
    def definition(self) -> str:
        return f"{self.name} {self.kind}{' static' if self.static else ''}"


@dataclass
class _Table:
    """A table as it is after the statements so far."""

    random: Random
    copied: bool
    clustering: str
    k: str = "k"
    c: str = "c"
    columns: dict[str, _Column] = field(default_factory=dict)
    dropped: dict[str, _Column] = field(default_factory=dict)
    # The columns that were ever dropped as of the moment, and those that were written with a time later than that.
    past: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    fields: list[tuple[str, str]] = field(default_factory=lambda: [("x", "int"), ("y", "text")])
    # How many names were given, so that none is given twice.
    numbers: int = 0

    def created(self) -> str:
        order = self.random.choice(("ASC", "DESC"))
        columns = ", ".join(column.definition for column in self.columns.values())
        return (
            f"CREATE TABLE t ({self.k} int, {self.c} {self.clustering}, {columns}, PRIMARY KEY ({self.k}, {self.c})) "
            f"WITH CLUSTERING ORDER BY ({self.c} {order}) AND cdc = true"
        )

    def another(self) -> _Column:
        """A column that the table never had."""
        self.numbers += 1
        inside = self.random.choice(_ELEMENTS)
        kinds = [*self.random.sample(_SIMPLE, 3), f"set<{inside}>", f"map<text, {inside}>", f"frozen<list<{inside}>>"]
        kinds += ["pair", "frozen<pair>", f"tuple<int, {inside}>"] + ([] if self.copied else [f"list<{inside}>"])
        return _Column(f"v{self.numbers}", self.random.choice(kinds), self.random.random() < 0.25)

    def value(self, kind: str) -> str:
        """A literal of a type."""
        random = self.random
        if kind in VALUES:
            return random.choice([one for one in VALUES[kind] if "\n" not in one])
        if kind in ("pair", "frozen<pair>"):
            chosen = random.sample(self.fields, random.randint(1, len(self.fields)))
            return "{" + ", ".join(f"{name}: {self.value(of)}" for name, of in chosen) + "}"
        inside = kind.removeprefix("frozen<").removesuffix(">" if kind.startswith("frozen") else "")
        name, of = inside[: inside.index("<")], inside[inside.index("<") + 1 : -1]
        if name == "tuple":
            return f"({random.randint(0, 9)}, {self.value(of.split(', ')[1])})"
        if name == "map":
            item = of.split(", ")[1]
            return "{" + ", ".join(f"'{key}': {self.value(item)}" for key in random.sample("abc", 2)) + "}"
        items = ", ".join(self.value(of) for _ in range(2))
        return f"[{items}]" if name == "list" else f"{{{items}}}"

    def changed(self, column: _Column) -> str:
        """One assignment of an UPDATE."""
        name, kind = column.name, column.kind
        shape = kind.split("<")[0]
        if shape in ("set", "list") and self.random.random() < 0.7:
            return f"{name} = {name} + {self.value(kind)}"
        if shape == "map" and self.random.random() < 0.7:
            return f"{name}['{self.random.choice('abc')}'] = {self.value(kind[:-1].split(', ')[1])}"
        if kind == "pair" and self.random.random() < 0.7:
            inner, of = self.random.choice(self.fields)
            return f"{name}.{inner} = {self.value(of)}"
        return f"{name} = {self.random.choice((self.value(kind), self.value(kind), 'null'))}"


def generated(seed: int) -> Scenario:
    random = Random(seed)
    copied = seed % 2 == 0
    table = _Table(random, copied, random.choice(list(_PLACES)))
    for _ in range(random.randint(2, 4)):
        column = table.another()
        table.columns[column.name] = column
    lines = ["CREATE TYPE pair (x int, y text)", table.created()]
    for step in range(STEPS):
        changes = random.randint(1, 2) if step else 0
        places = [*["write"] * _WRITES, *["change"] * changes]
        random.shuffle(places)
        for what in places:
            lines += _write(table) if what == "write" else _change(table)
        lines.append("--")
    # Without these columns Cassandra cannot read the table, and nothing would be judged at the end.
    back = [column for name, column in table.dropped.items() if name in table.later]
    lines[-1:] = [f"ALTER TABLE t ADD {column.definition}" for column in back] + lines[-1:]
    return Scenario(f"seed {seed}", "\n".join(lines[:-1]), copied=copied)


def _change(table: _Table) -> list[str]:
    """A schema change, by chance."""
    random = table.random
    kinds = [_add, _add, _drop, _drop_and_add, _drop_and_add, _drop_and_add, _add_again, _add_again, _truncate]
    kinds += [_truncate, _make_again, _rename, _grow_type, _rename_field, _options]
    return random.choice(kinds)(table)


def _add(table: _Table) -> list[str]:
    column = table.another()
    table.columns[column.name] = column
    return [f"ALTER TABLE t ADD {column.definition}"]


def _drop(table: _Table, using: str = "") -> list[str]:
    # Cassandra does not drop columns of user types that are not frozen.
    chosen = [one for one in table.columns.values() if one.kind != "pair"]
    if len(chosen) < 2:
        return _add(table)
    column = table.random.choice(chosen)
    del table.columns[column.name]
    if "pair" in column.kind:
        # It cannot come back, and with cells that are newer than its drop the table could never be read again.
        using = ""
    else:
        table.dropped[column.name] = column
    # What the drop before has taken comes back or not with one as of an earlier time: that goes by the files it was in.
    compacted = ["! t"] if using and column.name in table.past else []
    if not using:
        table.past.add(column.name)
    return [*compacted, f"ALTER TABLE t DROP {column.name}{using}"]


def _drop_and_add(table: _Table) -> list[str]:
    using = table.random.choice(("", "", " USING TIMESTAMP 5000"))
    before = set(table.dropped)
    lines = _drop(table, using)
    # A column of a user type cannot come back.
    name = next(iter(set(table.dropped) - before), None)
    return lines if name is None else [*lines, *_write(table), *_add_again(table, name)]


def _add_again(table: _Table, name: str | None = None) -> list[str]:
    if not table.dropped:
        return _add(table)
    name = name or table.random.choice(sorted(table.dropped))
    column = table.dropped.pop(name)
    if column.kind == "text" and table.random.random() < 0.5:
        column = _Column(name, "blob", column.static)
    table.columns[name] = column
    return [f"ALTER TABLE t ADD {column.definition}"]


def _truncate(table: _Table) -> list[str]:
    return ["TRUNCATE t"]


def _make_again(table: _Table) -> list[str]:
    """Drop the table and make another one of the same name, sometimes with other columns and another key."""
    for names in (table.dropped, table.past, table.later):
        names.clear()
    if table.random.random() < 0.5:
        column = table.another()
        table.columns[column.name] = column
    if table.random.random() < 0.4:
        table.clustering = table.random.choice(list(_PLACES))
    return ["DROP TABLE t", table.created()]


def _rename(table: _Table) -> list[str]:
    table.numbers += 1
    if table.random.random() < 0.5:
        old, table.k = table.k, f"k{table.numbers}"
        return [f"ALTER TABLE t RENAME {old} TO {table.k}"]
    old, table.c = table.c, f"c{table.numbers}"
    return [f"ALTER TABLE t RENAME {old} TO {table.c}"]


def _grow_type(table: _Table) -> list[str]:
    table.numbers += 1
    table.fields.append((f"f{table.numbers}", table.random.choice(_ELEMENTS)))
    name, kind = table.fields[-1]
    return [f"ALTER TYPE pair ADD {name} {kind}"]


def _rename_field(table: _Table) -> list[str]:
    table.numbers += 1
    number = table.random.randrange(len(table.fields))
    old, kind = table.fields[number]
    table.fields[number] = (f"f{table.numbers}", kind)
    return [f"ALTER TYPE pair RENAME {old} TO f{table.numbers}"]


def _options(table: _Table) -> list[str]:
    # With no grace a compaction decides whether a deletion still covers what is written later with an earlier time.
    return [f"ALTER TABLE t WITH {table.random.choice(('gc_grace_seconds = 9999', 'default_time_to_live = 86400'))}"]


# Cassandra notes the time of a drop in milliseconds, and knows it to the microsecond until it is started again: times
# are whole milliseconds.
def _using(table: _Table, *, lives: bool = True) -> str:
    random = table.random
    parts = []
    chance = random.random()
    if chance < 0.4:
        parts.append(f"TIMESTAMP {random.randint(1, 9)}000")
    elif chance < 0.45:
        parts.append(f"TIMESTAMP {LATER}")
    if lives and random.random() < 0.15:
        parts.append(f"TTL {random.choice((86400, 2))}")
    return f" USING {' AND '.join(parts)}" if parts else ""


def _write(table: _Table) -> list[str]:
    random = table.random
    regular = [one for one in table.columns.values() if not one.static]
    static = [one for one in table.columns.values() if one.static]
    partition = f"{table.k} = {random.randint(1, 3)}"
    place = random.choice(_PLACES[table.clustering])
    row = f"{partition} AND {table.c} = {place}"
    using, when = _using(table), _using(table, lives=False)
    chosen = random.sample(regular, random.randint(1, len(regular))) if regular else []
    names = ", ".join([table.k, table.c, *(one.name for one in chosen)])
    values = ", ".join([partition.split(" = ")[1], place, *(table.value(one.kind) for one in chosen)])
    inserted = f"INSERT INTO t ({names}) VALUES ({values})"
    options = [inserted + using] * 4 + [inserted + " IF NOT EXISTS"]
    options += [f"DELETE FROM t{when} WHERE {row}", f"DELETE FROM t{when} WHERE {partition}"]
    options += [f"DELETE FROM t{when} WHERE {partition} AND {table.c} >= {place}"]
    if regular:
        one = random.choice(regular)
        options.append(f"DELETE {one.name} FROM t{when} WHERE {row}")
        options.append(f"BEGIN BATCH {inserted} UPDATE t SET {table.changed(one)} WHERE {row} APPLY BATCH")
        if not table.copied:
            changes = ", ".join(table.changed(one) for one in chosen)
            options += [f"UPDATE t{using} SET {changes} WHERE {row}"] * 4
    if static:
        one = random.choice(static)
        options += [f"UPDATE t{using} SET {table.changed(one)} WHERE {partition}"] * 2
        options.append(f"DELETE {one.name} FROM t{when} WHERE {partition}")
    written = random.choice(options)
    if str(LATER) in written:
        table.later |= {one.name for one in table.columns.values() if one.name in written}
    return [written]
