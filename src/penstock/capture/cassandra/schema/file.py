"""Schema files: tables from CQL text (`.cql`) or JSON, and the JSON of tables that are known.

The commit log names tables by id alone, so each table of a file needs its id: `WITH ID = …` in CQL (DESCRIBE … WITH
INTERNALS and a snapshot's schema.cql have it), `id` in JSON, or the name of the table's data directory, which ends with
it. docs/concepts/cassandra-schema.md has both formats.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.cql_schema import Script, finished
from penstock.capture.cassandra.schema.cql_types import UserTypes
from penstock.capture.cassandra.schema.table import CassandraTable, DroppedColumn, in_order
from penstock.errors import InvalidSchema, StorageError
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.model.types import Kind, Type
from penstock.system import json_text

FORMAT = 1
# Larger than any schema; a wrong file is refused before it is read whole.
_BYTES_MAX = 256 << 20
_NAMED_MAX = 5
_DATA_DIRECTORY = re.compile(r"(.+)-([0-9a-f]{32})", re.ASCII)


def load(path: str, *, ids: Mapping[TableId, uuid.UUID] | None = None) -> list[CassandraTable]:
    """The tables of a file. `ids` are for tables that have none there. InvalidSchema names the line or the table."""
    try:
        with open(path, "rb") as file:
            data = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise StorageError(f"cannot read the schema file: {error.strerror}", file=path) from error
    if len(data) > _BYTES_MAX:
        raise InvalidSchema(f"a schema file has at most {_BYTES_MAX} bytes", file=path)
    try:
        text = data.decode("utf-8-sig")
        if path.lower().endswith(".json") or (not path.lower().endswith(".cql") and text.lstrip().startswith("{")):
            return _from_json(text, ids or {})
        return _from_cql(text, ids or {})
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidSchema("the schema file is not UTF-8 text", file=path, line=line) from error
    except InvalidSchema as error:
        raise InvalidSchema(error.message, file=path, **error.place) from error


def ids_in(data_directory: str) -> dict[TableId, uuid.UUID]:
    """The ids of tables by name, from the directories that Cassandra keeps their data in: the newest of each."""
    found: dict[TableId, tuple[float, uuid.UUID]] = {}
    try:
        for keyspace in sorted(entry.name for entry in os.scandir(data_directory) if entry.is_dir()):
            for entry in os.scandir(os.path.join(data_directory, keyspace)):
                match = _DATA_DIRECTORY.fullmatch(entry.name)
                if match is not None and entry.is_dir():
                    table, made = TableId(keyspace, match[1]), entry.stat().st_mtime
                    if table not in found or found[table][0] < made:
                        found[table] = made, uuid.UUID(match[2])
    except OSError as error:
        raise StorageError(f"cannot look for tables: {error.strerror}", directory=data_directory) from error
    return {table: table_id for table, (_, table_id) in found.items()}


def _from_cql(text: str, ids: Mapping[TableId, uuid.UUID]) -> list[CassandraTable]:
    script = Script()
    script.run(text)
    known = {name: draft.id or ids.get(name) for name, draft in script.tables.items()}
    _demand_ids([name for name, table_id in known.items() if table_id is None])
    types = {name.keyspace: script.user_types(name.keyspace) for name in known}
    return [
        finished(script.tables[name], table_id, types[name.keyspace])
        for name, table_id in known.items()
        if table_id is not None
    ]


def _demand_ids(lacking: list[TableId]) -> None:
    if lacking:
        shown = ", ".join(map(str, lacking[:_NAMED_MAX])) + (", …" if len(lacking) > _NAMED_MAX else "")
        raise InvalidSchema(
            f"the file does not tell the id of {shown}; make it with DESCRIBE … WITH INTERNALS, which prints WITH ID, "
            "or name Cassandra's data directory"
        )


def _from_json(text: str, ids: Mapping[TableId, uuid.UUID]) -> list[CassandraTable]:
    try:
        data = json_text.parse(text)
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        raise InvalidSchema("the schema file is not JSON", line=line) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidSchema(f'a JSON schema file is an object with "format": {FORMAT}')
    try:
        types = {
            keyspace: UserTypes({name: (tuple(fields), tuple(fields.values())) for name, fields in named.items()})
            for keyspace, named in data.get("types", {}).items()
        }
        records = list(data["tables"])
        names = [TableId(record["keyspace"], record["table"]) for record in records]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidSchema(f"the schema file lacks a part: {type(error).__name__} {error}") from error
    _demand_ids([n for n, record in zip(names, records, strict=True) if not record.get("id") and n not in ids])
    return [
        _table(name, record, types.get(name.keyspace, cql_types.NO_USER_TYPES), ids)
        for name, record in zip(names, records, strict=True)
    ]


def _table(
    name: TableId, record: Mapping[str, Any], types: UserTypes, ids: Mapping[TableId, uuid.UUID]
) -> CassandraTable:
    try:
        table_id = uuid.UUID(record["id"]) if record.get("id") else ids[name]
        columns = [
            Column(
                str(column["name"]),
                cql_types.parse(column["type"], types),
                Role(column["role"]),
                column.get("descending", False) is True,
                column["type"],
            )
            for column in record["columns"]
        ]
        schema = TableSchema(name, in_order(columns), source="cassandra")
        if not schema.partition:
            raise InvalidSchema("the table has no partition column")
        dropped = {}
        for gone in record.get("dropped", ()):
            role = Role(gone.get("role", "regular"))
            column = Column(gone["name"], cql_types.parse_dropped(gone["type"]), role, source_type=gone["type"])
            dropped[column.name] = DroppedColumn(column, int(gone["time"]))
    except InvalidSchema as error:
        raise InvalidSchema(error.message, table=name) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidSchema(f"a table's definition is wrong: {type(error).__name__} {error}", table=name) from error
    return CassandraTable(table_id, schema, record.get("cdc") is True, record.get("view") is True, dropped)


def dump(tables: Iterable[CassandraTable]) -> dict[str, Any]:
    """Tables as a JSON schema file has them; `load` gives them back."""
    types: dict[str, dict[str, dict[str, str]]] = {}
    records = []
    for table in tables:
        keyspace, name = table.schema.table
        for column in table.schema.columns:
            _note_types(types.setdefault(keyspace, {}), column.type)
        record: dict[str, Any] = {"keyspace": keyspace, "table": name, "id": str(table.id)}
        record |= {flag: True for flag in ("cdc", "view") if getattr(table, flag)}
        record["columns"] = [_column_record(column) for column in table.schema.columns]
        if table.dropped:
            record["dropped"] = [
                {**_column_record(gone.column), "time": gone.time_us} for gone in table.dropped.values()
            ]
        records.append(record)
    return {
        "format": FORMAT,
        "types": {keyspace: named for keyspace, named in types.items() if named},
        "tables": records,
    }


def _column_record(column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {"name": column.name, "type": column.source_type or cql_types.text_of(column.type)}
    out["role"] = column.role.value
    if column.descending:
        out["descending"] = True
    return out


def _note_types(types: dict[str, dict[str, str]], kind: Type) -> None:
    for element in kind.elements:
        _note_types(types, element)
    if kind.kind is Kind.USER:
        types[kind.name] = dict(zip(kind.names, map(cql_types.text_of, kind.elements), strict=True))
