"""Tables from a CQL script: what `DESCRIBE … WITH INTERNALS`, or the `schema.cql` of a snapshot, prints.

CREATE and ALTER of types, tables and views are followed in their order, DROP and USE too; any other statement is passed
over. What such a script says about the past is kept: columns that it creates and then drops with a timestamp become
dropped columns. A table with COMPACT STORAGE gets the columns that Cassandra gives it inside, which its log has.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.cql_tokens import END, Token, Tokens, statements
from penstock.capture.cassandra.schema.cql_types import UserTypes
from penstock.capture.cassandra.schema.table import CassandraTable, DroppedColumn, in_order
from penstock.errors import InvalidSchema
from penstock.model.schema import Column, Role, TableId, TableSchema

# What may follow a column's type.
_TYPE_ENDS = (",", ")", "STATIC", "PRIMARY", "MASKED", "CHECK", "NOT", "USING", "WITH", "AND")

# From 4.0 on DESCRIBE hides tables with COMPACT STORAGE in a comment; their log is to be read all the same.
_OMITTED = re.compile(r"\s*Warning: Table \S+ omitted because")
_HIDDEN = "CREATE TABLE "


def _uncovered(text: str) -> str:
    """The script with the statements in such comments, each on its own lines."""
    parts: list[str] = []
    at = begin = end = hidden = 0
    while (begin := text.find("/*", begin)) >= 0:
        begin += 2
        # What was found once is not looked for again: a script of nothing but begins takes no longer for it.
        end = end if end >= begin else text.find("*/", begin)
        if end < 0:
            break
        warning = _OMITTED.match(text, begin, end)
        if warning is None:
            continue
        hidden = hidden if hidden >= warning.end() else text.find(_HIDDEN, warning.end())
        if hidden < 0:
            break
        if hidden < end:
            parts += text[at : begin - 2], "\n" * text.count("\n", begin, hidden), text[hidden:end]
            at = begin = end + 2
    return "".join(parts) + text[at:]


@dataclass
class _Column:
    name: str
    type: str
    line: int
    role: Role = Role.REGULAR
    descending: bool = False


@dataclass
class TableDraft:
    """A table as the script has it so far. Without an id it cannot be used yet."""

    name: TableId
    line: int
    columns: dict[str, _Column] = field(default_factory=dict)
    partition: list[str] = field(default_factory=list)
    clustering: list[str] = field(default_factory=list)
    id: uuid.UUID | None = None
    cdc: bool = False
    view: bool = False
    compact: bool = False
    # By column: the type's text, the role, and the time of the drop.
    dropped: dict[str, tuple[_Column, int]] = field(default_factory=dict)


class Script:
    """A script that is followed statement by statement."""

    def __init__(self) -> None:
        self.tables: dict[TableId, TableDraft] = {}
        # The names that tables were made under, by keyspace; they may be gone.
        self._made: dict[str, list[TableId]] = {}
        self._types: dict[str, dict[str, dict[str, str]]] = {}
        self._keyspace: str | None = None

    def run(self, text: str) -> None:
        """Follow a whole script. InvalidSchema names the line."""
        for statement in statements(_uncovered(text)):
            tokens = Tokens(statement)
            for words, follow in self._known():
                if tokens.accept(*words):
                    follow(tokens)
                    break

    def _known(self) -> tuple[tuple[tuple[str, ...], Callable[[Tokens], None]], ...]:
        return (
            (("USE",), self._use),
            (("CREATE", "TYPE"), self._create_type),
            (("CREATE", "TABLE"), self._create_table),
            (("CREATE", "COLUMNFAMILY"), self._create_table),
            (("CREATE", "MATERIALIZED", "VIEW"), self._create_view),
            (("ALTER", "TYPE"), self._alter_type),
            (("ALTER", "TABLE"), self._alter_table),
            (("DROP", "TABLE"), self._drop_table),
            (("DROP", "MATERIALIZED", "VIEW"), self._drop_table),
            (("DROP", "KEYSPACE"), self._drop_keyspace),
        )

    def _use(self, tokens: Tokens) -> None:
        self._keyspace = tokens.name()

    def _full_name(self, tokens: Tokens) -> TableId:
        """A name, with the keyspace of the last USE where it has none of its own."""
        tokens.accept("IF", "NOT", "EXISTS")
        tokens.accept("IF", "EXISTS")
        first = tokens.name()
        if tokens.accept("."):
            return TableId(first, tokens.name())
        if self._keyspace is None:
            raise tokens.wrong(f"{first} has no keyspace: write keyspace.{first}, or USE a keyspace before it")
        return TableId(self._keyspace, first)

    # Types.

    def _create_type(self, tokens: Tokens) -> None:
        name = self._full_name(tokens)
        tokens.expect("(")
        fields: dict[str, str] = {}
        while True:
            key = tokens.name()
            fields[key] = _type(tokens)
            if not tokens.accept(","):
                break
        tokens.expect(")")
        self._types.setdefault(name.keyspace, {})[name.table] = fields

    def _alter_type(self, tokens: Tokens) -> None:
        name = self._full_name(tokens)
        fields = self._types.get(name.keyspace, {}).get(name.table)
        if fields is None:
            raise tokens.wrong(f"the type {name} is not known here")
        if tokens.accept("ADD"):
            tokens.accept("IF", "NOT", "EXISTS")
            key = tokens.name()
            fields[key] = _type(tokens)
        elif tokens.accept("RENAME"):
            tokens.accept("IF", "EXISTS")
            renamed = dict(_renames(tokens))
            self._types[name.keyspace][name.table] = {renamed.get(key, key): text for key, text in fields.items()}

    def user_types(self, keyspace: str) -> UserTypes:
        found = self._types.get(keyspace, {})
        return UserTypes({name: (tuple(fields), tuple(fields.values())) for name, fields in found.items()})

    # Tables.

    def _create_table(self, tokens: Tokens) -> None:
        draft = TableDraft(self._full_name(tokens), tokens.line)
        tokens.expect("(")
        while True:
            if tokens.accept("PRIMARY", "KEY"):
                _primary_key(tokens, draft)
            else:
                _column_definition(tokens, draft)
            if not tokens.accept(","):
                break
        tokens.expect(")")
        _options(tokens, draft)
        if not draft.partition:
            raise tokens.wrong(f"the table {draft.name} has no primary key")
        self._keep(draft)

    def _create_view(self, tokens: Tokens) -> None:
        draft = TableDraft(self._full_name(tokens), tokens.line, view=True)
        tokens.expect("AS")
        tokens.expect("SELECT")
        selected = [token for token in tokens.until("FROM") if token.text != ","]
        tokens.expect("FROM")
        base = self.tables.get(self._full_name(tokens))
        if base is None:
            raise tokens.wrong(f"the base table of the view {draft.name} is not known here")
        every = [token.text for token in selected] == ["*"]
        names = list(base.columns) if every else [Tokens([token]).name() for token in selected]
        for name in names:
            if name not in base.columns:
                raise tokens.wrong(f"the base table of the view {draft.name} has no column {name}")
            draft.columns[name] = _Column(name, base.columns[name].type, draft.line)
        tokens.until("PRIMARY")
        tokens.expect("PRIMARY")
        tokens.expect("KEY")
        _primary_key(tokens, draft)
        _options(tokens, draft)
        self._keep(draft)

    def _keep(self, draft: TableDraft) -> None:
        self.tables[draft.name] = draft
        self._made.setdefault(draft.name.keyspace, []).append(draft.name)

    def _drop_table(self, tokens: Tokens) -> None:
        self.tables.pop(self._full_name(tokens), None)

    def _drop_keyspace(self, tokens: Tokens) -> None:
        tokens.accept("IF", "EXISTS")
        keyspace = tokens.name()
        # Each is looked at once, however many keyspaces are dropped.
        for name in self._made.pop(keyspace, ()):
            self.tables.pop(name, None)
        self._types.pop(keyspace, None)

    def _alter_table(self, tokens: Tokens) -> None:
        name = self._full_name(tokens)
        draft = self.tables.get(name)
        if draft is None:
            raise tokens.wrong(f"the table {name} is not known here")
        if tokens.accept("ADD"):
            tokens.accept("IF", "NOT", "EXISTS")
            bracket = tokens.accept("(")
            _column_definition(tokens, draft)
            while tokens.accept(","):
                _column_definition(tokens, draft)
            if bracket:
                tokens.expect(")")
        elif tokens.accept("DROP"):
            _drop_columns(tokens, draft)
        elif tokens.accept("RENAME"):
            tokens.accept("IF", "EXISTS")
            for old, new in _renames(tokens):
                _rename(tokens, draft, old, new)
        else:
            _options(tokens, draft)


def _type(tokens: Tokens) -> str:
    """The text of a type, checked, with its place."""
    line = tokens.line
    parts = tokens.until(*_TYPE_ENDS)
    text = "".join(f"{token.text} " if token.text == "," else token.text for token in parts)
    try:
        cql_types.term(text)
    except InvalidSchema as error:
        raise InvalidSchema(error.message, line=line) from error
    return text


def _column_definition(tokens: Tokens, draft: TableDraft) -> None:
    line = tokens.line
    name = tokens.name()
    column = _Column(name, _type(tokens), line)
    draft.columns[name] = column
    while tokens.peek() is not END and tokens.peek().text not in (",", ")"):
        if tokens.accept("STATIC"):
            column.role = Role.STATIC
        elif tokens.accept("PRIMARY", "KEY"):
            draft.partition = [name]
        else:
            # Masks and constraints do not change what the log holds.
            tokens.take()
            tokens.until(",", ")", "STATIC", "PRIMARY")


def _primary_key(tokens: Tokens, draft: TableDraft) -> None:
    tokens.expect("(")
    draft.partition = tokens.names() if tokens.peek().text == "(" else [tokens.name()]
    draft.clustering = []
    while tokens.accept(","):
        draft.clustering.append(tokens.name())
    tokens.expect(")")
    for name in draft.partition + draft.clustering:
        if name not in draft.columns:
            raise tokens.wrong(f"the primary key of {draft.name} names {name}, which is no column")


def _options(tokens: Tokens, draft: TableDraft) -> None:
    if not tokens.accept("WITH"):
        return
    while True:
        if tokens.accept("COMPACT", "STORAGE"):
            draft.compact = True
        elif tokens.accept("CLUSTERING", "ORDER", "BY"):
            _clustering_order(tokens, draft)
        else:
            _option(tokens, draft)
        if not tokens.accept("AND"):
            return


def _option(tokens: Tokens, draft: TableDraft) -> None:
    name = tokens.name()
    tokens.expect("=")
    value = tokens.until("AND")
    if name == "id" and value:
        try:
            draft.id = uuid.UUID(value[0].text.strip("'"))
        except ValueError as error:
            raise tokens.wrong(f"the id of {draft.name} is no UUID") from error
    elif name == "cdc" and value:
        draft.cdc = value[0].text.strip("'").lower() == "true"


def _clustering_order(tokens: Tokens, draft: TableDraft) -> None:
    tokens.expect("(")
    while True:
        name = tokens.name()
        descending = tokens.accept("DESC")
        tokens.accept("ASC")
        if name in draft.clustering:
            draft.columns[name].descending = descending
        elif not draft.compact:
            # With COMPACT STORAGE it may be a column that the statement does not show.
            raise tokens.wrong(f"the clustering order of {draft.name} names {name}, which is no clustering column")
        if not tokens.accept(","):
            break
    tokens.expect(")")


def _drop_columns(tokens: Tokens, draft: TableDraft) -> None:
    tokens.accept("IF", "EXISTS")
    if tokens.accept("COMPACT", "STORAGE"):
        _make_plain(draft)
        return
    names = tokens.names() if tokens.peek().text == "(" else [tokens.name()]
    while tokens.accept(","):
        names.append(tokens.name())
    time_us = 0
    if tokens.accept("USING", "TIMESTAMP"):
        token: Token = tokens.take()
        if not token.text.lstrip("-").isdigit():
            raise tokens.wrong("a timestamp is a whole number of microseconds")
        time_us = int(token.text)
    for name in names:
        column = draft.columns.pop(name, None)
        if column is None:
            raise tokens.wrong(f"{draft.name} has no column {name}")
        draft.dropped[name] = column, time_us


def _renames(tokens: Tokens) -> Iterator[tuple[str, str]]:
    while True:
        old = tokens.name()
        tokens.expect("TO")
        yield old, tokens.name()
        if not tokens.accept("AND"):
            return


def _rename(tokens: Tokens, draft: TableDraft, old: str, new: str) -> None:
    column = draft.columns.pop(old, None)
    if column is None:
        raise tokens.wrong(f"{draft.name} has no column {old}")
    draft.columns[new] = replace(column, name=new)
    for names in (draft.partition, draft.clustering):
        if old in names:
            names[names.index(old)] = new


def _make_plain(draft: TableDraft) -> None:
    """What DROP COMPACT STORAGE does: the columns that were inside become visible."""
    _show_inner_columns(draft)
    draft.compact = False


def _show_inner_columns(draft: TableDraft) -> None:
    """Give a table with COMPACT STORAGE the columns that Cassandra gives it inside."""
    regular = [c for name, c in draft.columns.items() if name not in draft.partition + draft.clustering]
    if draft.clustering:
        if not regular:
            _add(draft, "value", "empty")
        return
    counters = any(cql_types.term(column.type).name == "counter" for column in regular)
    for column in regular:
        column.role = Role.STATIC
    draft.clustering = [_add(draft, "column1", "text")]
    _add(draft, "value", "counter" if counters else "blob")


def _add(draft: TableDraft, wanted: str, text: str) -> str:
    name, count = wanted, 1
    while name in draft.columns:
        name, count = f"{wanted}{count}", count + 1
    draft.columns[name] = _Column(name, text, draft.line)
    return name


def finished(draft: TableDraft, table_id: uuid.UUID, types: UserTypes) -> CassandraTable:
    """The table that a draft has become. InvalidSchema names the line of a column that cannot be."""
    if draft.compact:
        _show_inner_columns(draft)
    roles = dict.fromkeys(draft.partition, Role.PARTITION) | dict.fromkeys(draft.clustering, Role.CLUSTERING)
    order = draft.partition + draft.clustering
    others = [name for name in draft.columns if name not in roles]
    columns = []
    for column in (draft.columns[name] for name in order + others):
        kind = _resolved(draft, column, types)
        role = roles.get(column.name, column.role)
        columns.append(Column(column.name, kind.type, role, column.descending, kind.source_type))
    dropped = {}
    for name, (column, time_us) in draft.dropped.items():
        kind = _resolved(draft, column, types)
        text = cql_types.dropped_text(kind.type)
        gone = Column(name, cql_types.parse_dropped(text), column.role, source_type=text)
        dropped[name] = DroppedColumn(gone, time_us)
    try:
        schema = TableSchema(draft.name, in_order(columns), source="cassandra")
    except InvalidSchema as error:
        raise InvalidSchema(error.message, table=draft.name, line=draft.line) from error
    return CassandraTable(table_id, schema, draft.cdc, draft.view, dropped)


def _resolved(draft: TableDraft, column: _Column, types: UserTypes) -> Column:
    try:
        kind = cql_types.parse(column.type, types)
    except InvalidSchema as error:
        raise InvalidSchema(error.message, table=draft.name, column=column.name, line=column.line) from error
    custom = cql_types.term(column.type)
    text = column.type if custom.custom or custom.name == "empty" else cql_types.text_of(kind)
    return Column(column.name, kind, source_type=text)
