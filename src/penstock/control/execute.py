"""Execute: does what a statement says, in the catalog, and opens the logs that the catalog describes.

A statement is checked completely before anything is written. Running agents learn of a new log when they open the
table's logs, or when someone adds it to their TableLogs.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.control.complaint import complaint
from penstock.control.statements import parse, parse_predicate
from penstock.errors import InvalidSchema, InvalidStatement
from penstock.filters.filter import Filter
from penstock.filters.functions import Functions
from penstock.log.catalog import Catalog, LogEntry, TableEntry
from penstock.log.table_logs import DEFAULT, LogSpec, Storage, TableLogs
from penstock.model.predicate import Predicate, quoted_name
from penstock.model.schema import TableId, TableSchema
from penstock.model.spelling import did_you_mean
from penstock.model.statement import CreateLog, CreateTable, DropLog, Statement


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a statement: whether the catalog changed, one line for people, and notes."""

    statement: Statement
    changed: bool
    message: str
    notes: tuple[str, ...] = ()


def execute(text: str, catalog: Catalog, functions: Functions, *, keyspace: str | None = None) -> Outcome:
    """Parse and execute one statement. `keyspace` is that of tables named without one."""
    statement = parse(text)
    try:
        match statement:
            case CreateTable():
                return _create_table(statement, catalog, keyspace)
            case CreateLog():
                return _create_log(statement, catalog, functions, keyspace)
            case DropLog():
                return _drop_log(statement, catalog, keyspace)
    except InvalidStatement as error:
        at = error.place.get("at")
        if isinstance(at, int):
            raise complaint(text, at, error.message) from None
        raise


def log_specs(catalog: Catalog, table: TableId) -> list[LogSpec]:
    """The logs that the catalog describes for a table, the default one first."""
    entry = _known_table(catalog, table)
    specs = [LogSpec(DEFAULT)] if entry.cdc else []
    for found in catalog.logs(table):
        predicate = None if found.predicate is None else parse_predicate(found.predicate)
        specs.append(LogSpec(found.name, predicate, found.data_centres))
    return specs


def open_table_logs(catalog: Catalog, table: TableId, storage: Storage, functions: Functions) -> TableLogs:
    """Open all logs of a table that this node writes."""
    schema = _known_table(catalog, table).schema
    specs = [spec for spec in log_specs(catalog, table) if spec.includes(storage.data_centre)]
    for spec in specs:
        if spec.predicate is not None:
            _check(f"log {quoted_name(spec.name)} on {_shown(table)}", spec.predicate, schema, functions)
    return TableLogs(storage, schema, specs, functions)


def _check(name: str, predicate: Predicate, schema: TableSchema, functions: Functions) -> None:
    """Refuse a predicate that was fine once: since then the table has changed, or a function left the settings."""
    try:
        Filter(predicate, schema, functions)
    except InvalidStatement as error:
        at = error.place.get("at")
        # The catalog's text is the predicate's own, so places in it are places in what is shown.
        raise complaint(str(predicate), at if isinstance(at, int) else None, f"{name}: {error.message}") from None


def _create_table(statement: CreateTable, catalog: Catalog, keyspace: str | None) -> Outcome:
    table = statement.table.resolve(keyspace)
    try:
        schema = TableSchema(table, statement.columns, source="cassandra")
    except InvalidSchema as error:
        raise InvalidStatement(error.message, **error.place) from error
    name = _shown(table)
    if catalog.add_table(schema, cdc=statement.cdc):
        log = "with its change log" if statement.cdc else "without a change log"
        return Outcome(statement, True, f"table {name} created {log}", statement.notes)
    if not statement.if_not_exists:
        raise InvalidStatement(f"table {name} exists already")
    return Outcome(statement, False, f"table {name} exists already and was left as it is", statement.notes)


def _create_log(statement: CreateLog, catalog: Catalog, functions: Functions, keyspace: str | None) -> Outcome:
    table = statement.table.resolve(keyspace)
    entry = _known_table(catalog, table)
    if statement.predicate is not None:
        # Only for its checks: a log that cannot be filtered must not come into being.
        Filter(statement.predicate, entry.schema, functions)
    predicate = None if statement.predicate is None else str(statement.predicate)
    name = f"{quoted_name(statement.name)} on {_shown(table)}"
    if catalog.add_log(LogEntry(table, statement.name, predicate, statement.data_centres)):
        return Outcome(statement, True, f"log {name} created")
    if not statement.if_not_exists:
        raise InvalidStatement(f"log {name} exists already")
    return Outcome(statement, False, f"log {name} exists already and was left as it is")


def _drop_log(statement: DropLog, catalog: Catalog, keyspace: str | None) -> Outcome:
    table = statement.table.resolve(keyspace)
    name = f"{quoted_name(statement.name)} on {_shown(table)}"
    if catalog.remove_log(table, statement.name):
        return Outcome(statement, True, f"log {name} dropped", ("its files stay until they are deleted",))
    if statement.if_exists:
        return Outcome(statement, False, f"there is no log {name}")
    hint = did_you_mean(statement.name, [entry.name for entry in catalog.logs(table)])
    raise InvalidStatement(f"there is no log {name}{hint}")


def _known_table(catalog: Catalog, table: TableId) -> TableEntry:
    entry = catalog.table(table)
    if entry is not None:
        return entry
    hint = did_you_mean(str(table), [str(known.schema.table) for known in catalog.tables()])
    raise InvalidStatement(f"there is no table {_shown(table)}{hint}")


def _shown(table: TableId) -> str:
    return f"{quoted_name(table.keyspace)}.{quoted_name(table.table)}"
