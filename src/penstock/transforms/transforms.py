"""Transforms: the settings of section `transform`, made ready for each table and applied to its records.

In this order: operations that are skipped, the filter, own functions, masks, columns, names. Everything that can be
wrong in the settings is found before the stream starts; what depends on a table's schema, when the table is first seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import SecretStr

from penstock.control.statements import parse_predicate
from penstock.errors import InvalidSetting, InvalidStatement, InvalidValue, PenstockError
from penstock.filters.filter import Filter
from penstock.filters.functions import Functions, canonical_name
from penstock.formats import masks
from penstock.formats.arrow import from_arrow, to_arrow
from penstock.formats.masks import Mask
from penstock.model.change import Op
from penstock.model.patterns import first_for_table, fits, parts
from penstock.model.predicate import Predicate, column_names
from penstock.model.schema import Column, TableId, TableSchema
from penstock.records.records import Records
from penstock.records.row_changes import row_changes
from penstock.settings import RecordType, TransformSettings
from penstock.settings.secrets import warn_if_open
from penstock.transforms.projection import Projection

# Debezium's letters; c and i are the two that its connectors have for an insert.
_LETTERS = {
    "c": (Op.INSERT,),
    "i": (Op.INSERT,),
    "u": (Op.UPDATE,),
    "d": (Op.DELETE, Op.DELETE_PARTITION),
    "r": (Op.DELETE_RANGE,),
    "t": (Op.TRUNCATE,),
}
_ROUTE = re.compile(r"\{(keyspace|table)\}")


@dataclass(frozen=True, slots=True)
class TableTransform:
    """What is done to one version of one table."""

    skipped: pa.Array | None
    row_filter: RowFilter | None
    functions: tuple[OwnFunction, ...]
    projection: Projection | None

    @property
    def idle(self) -> bool:
        return self.skipped is None and self.row_filter is None and not self.functions and self.projection is None

    def apply(self, records: Records) -> Records | None:
        """The records that are left; None when there are none."""
        out: Records | None = records
        if self.skipped is not None:
            operations = to_arrow(records.changes, ()).column("op").cast(pa.string())
            out = select(records, pc.invert(pc.is_in(operations, value_set=self.skipped)))
        if out is not None and self.row_filter is not None:
            out = self.row_filter.apply(out)
        for function in self.functions if out is not None else ():
            assert out is not None
            out = function.apply(out)
        if out is not None and self.projection is not None:
            out = self.projection.apply(out)
        return out


class Transforms:
    """All transforms of a pipeline. It is made on the driver and in each task from the same settings."""

    def __init__(self, settings: TransformSettings, functions: Functions) -> None:
        self._settings = settings
        self._functions = functions
        self._salt = _salt(settings)
        self._skipped = _skipped(settings.skipped_operations)
        self._predicates = {pattern: _predicate(pattern, text) for pattern, text in settings.filters.items()}
        self._own = {
            "functions": Functions.load(dict(settings.functions)),
            "dataframe_functions": Functions.load(dict(settings.dataframe_functions)),
        }
        self._check_patterns()
        self._ready: dict[tuple[object, ...], TableTransform] = {}

    def settings_for_tasks(self) -> TransformSettings:
        """The settings with the salt in the place of the file that holds it."""
        salt = None if self._salt is None else SecretStr(self._salt.decode("utf-8", "surrogateescape"))
        return self._settings.model_copy(update={"mask_salt": salt, "mask_salt_file": None})

    def needs(self, record: RecordType) -> RecordType:
        """The record type that the fold must give: a filter of whole rows has to know what a row was before."""
        return RecordType.ALL if self._predicates and record is not RecordType.CHANGE else record

    def for_table(self, schema: TableSchema) -> TableTransform:
        """Made once for each version of a table. InvalidSetting or InvalidStatement when something does not fit it."""
        # Rows of equal fingerprints are read alike, but may be of another table of the same name.
        name = (schema.fingerprint, schema.id, schema.order, schema.truncated_us)
        known = self._ready.get(name)
        if known is None:
            known = self._ready[name] = self._make(schema)
        return known

    def target(self, schema: TableSchema) -> TableSchema:
        """The schema that sinks see."""
        projection = self.for_table(schema).projection
        return schema if projection is None else projection.target

    def apply(self, batches: Iterable[Records]) -> Iterable[Records]:
        for records in batches:
            transform = self.for_table(records.schema)
            left = records if transform.idle else transform.apply(records)
            if left is not None and len(left):
                yield left

    def _make(self, schema: TableSchema) -> TableTransform:
        table = schema.table
        predicate = first_for_table(self._predicates, table, "transform.filters")
        return TableTransform(
            self._skipped,
            None if predicate is None else RowFilter(predicate, schema, self._functions),
            tuple(self._own_functions(table)),
            self._projection(schema),
        )

    def _own_functions(self, table: TableId) -> Iterator[OwnFunction]:
        """Those of a table: the one over record batches, then the one over DataFrames."""
        for name, loaded in self._own.items():
            setting = f"transform.{name}"
            patterns = getattr(self._settings, name)
            pattern = next((one for one in patterns if fits(one, tuple(table), setting)), None)
            if pattern is not None:
                function = loaded[canonical_name(pattern)]
                yield OwnFunction(f"{setting}.{pattern}", function, frames=name == "dataframe_functions")

    def _projection(self, schema: TableSchema) -> Projection | None:
        chosen: dict[str, Mask] = {}
        kept: dict[str, Column] = {}
        for column in schema.columns:
            if not self._is_kept(schema, column):
                continue
            name = (*schema.table, column.name)
            new = column
            for pattern, text in self._settings.masks.items():
                if fits(pattern, name, "transform.masks"):
                    chosen[column.name] = masks.mask(column, text, self._salt, f"transform.masks.{pattern}")
                    new = chosen[column.name].column
                    break
            for pattern, other in self._settings.renames.items():
                if fits(pattern, name, "transform.renames"):
                    new = replace(new, name=other)
                    break
            kept[column.name] = new
        table = self._route(schema.table)
        columns = tuple(kept.values())
        if not chosen and columns == schema.columns and table == schema.table:
            return None
        # Several tables may be routed to one: then the id of none of them is the target's, and none of them empties it.
        target = replace(schema, table=table, columns=columns, id=schema.id if table == schema.table else "")
        return Projection.make(schema, target, kept, chosen)

    def _is_kept(self, schema: TableSchema, column: Column) -> bool:
        name = (*schema.table, column.name)
        settings = self._settings
        excluded = any(fits(pattern, name, "transform.exclude_columns") for pattern in settings.exclude_columns)
        if column in schema.key:
            return True
        if settings.include_columns:
            included = any(fits(pattern, name, "transform.include_columns") for pattern in settings.include_columns)
            return included and not excluded
        return not excluded

    def _route(self, table: TableId) -> TableId:
        other = first_for_table(self._settings.routes, table, "transform.routes")
        if other is None:
            return table
        made = _ROUTE.sub(lambda match: getattr(table, match.group(1)), other)
        keyspace, dot, name = made.rpartition(".")
        return TableId(keyspace if dot else table.keyspace, name)

    def _check_patterns(self) -> None:
        settings = self._settings
        for setting in ("include_columns", "exclude_columns", "masks", "renames"):
            for pattern in getattr(settings, setting):
                parts(pattern, 3, f"transform.{setting}")
        for setting in ("filters", "routes", "functions", "dataframe_functions"):
            for pattern in getattr(settings, setting):
                parts(pattern, 2, f"transform.{setting}")
        for pattern, text in settings.masks.items():
            masks.check(text, f"transform.masks.{pattern}")


def _predicate(pattern: str, text: str) -> Predicate:
    try:
        return parse_predicate(text)
    except InvalidStatement as error:
        raise InvalidSetting(f"not a condition: {error}", setting=f"transform.filters.{pattern}") from error


def _skipped(names: Iterable[str]) -> pa.Array | None:
    operations: set[str] = set()
    for name in names:
        if name in _LETTERS:
            operations |= {op.value for op in _LETTERS[name]}
        elif name in set(Op):
            operations.add(name)
        elif name != "none":
            known = ", ".join((*Op, *_LETTERS))
            raise InvalidSetting(
                f"no such operation: {name[:40]!r}; known: {known}", setting="transform.skipped_operations"
            )
    return pa.array(sorted(operations), pa.string()) if operations else None


def _salt(settings: TransformSettings) -> bytes | None:
    if settings.mask_salt_file is not None:
        warn_if_open(settings.mask_salt_file)
        try:
            return settings.mask_salt_file.read_bytes().strip()
        except OSError as error:
            raise InvalidSetting(
                f"cannot read the salt: {error.strerror}",
                setting="transform.mask_salt_file",
                file=settings.mask_salt_file,
            ) from error
    return (
        None if settings.mask_salt is None else settings.mask_salt.get_secret_value().encode("utf-8", "surrogateescape")
    )


def check_against(transforms: Transforms, schemas: Iterable[TableSchema]) -> None:
    """Refuse, before the stream starts, settings that do not fit the tables that are known by then."""
    for schema in schemas:
        try:
            transforms.for_table(schema)
        except PenstockError as error:
            error.place.setdefault("table", schema.table)
            raise


# RowFilter: which records of a table are delivered, by a condition in the language of CREATE CDC_LOG … WHERE.
#
# With whole rows the condition is asked of the row before and after the change: a row that enters is delivered as it
# is, one that leaves as a delete, and one that is outside both times not at all. With changes only, it is asked of
# the change, as a filtered log does.


class RowFilter:
    """A condition made ready for one version of a table."""

    def __init__(self, predicate: Predicate, schema: TableSchema, functions: Functions) -> None:
        self._changes = Filter(predicate, schema, functions)
        wanted = set(column_names(predicate))
        columns = tuple(c for c in schema.columns if c in schema.key or c.name in wanted)
        # The rows are asked as if they had just been inserted, with the columns that the condition looks at.
        self._asked = replace(schema, columns=columns)
        self._rows = Filter(predicate, self._asked, functions)

    def apply(self, records: Records) -> Records | None:
        """The records that are left."""
        if records.after is None:
            return select(records, self._changes.truths(records.changes))
        there = pc.is_valid(records.after)
        inside = self._holds(records.after)
        before = pc.is_valid(records.before) if records.before is not None else pa.array([True] * len(records))
        was_inside = self._holds(records.before) if records.before is not None else before
        leaves = pc.and_(was_inside, pc.invert(inside))
        # A deletion of more than one row is no row, and passes: what it deletes may have been inside.
        whole = pc.or_(inside, pc.or_(leaves, pc.invert(pc.or_(there, before))))
        left = select(records, whole)
        gone = leaves.filter(whole)
        return as_deletes(left, gone) if left is not None and pc.any(gone).as_py() else left

    def _holds(self, rows: pa.StructArray) -> pa.BooleanArray:
        """Whether the condition is true for each row; where there is no row it is false."""
        there = pc.is_valid(rows)
        if not len(rows):
            return there
        # A column of many cells is asked by its whole value, as SELECT gives it.
        return pc.and_(there, self._rows.truths(row_changes(self._asked, Op.INSERT, rows, nulls=True)))


def select(records: Records, keep: pa.BooleanArray) -> Records | None:
    """The records for which `keep` is true; None when there are none."""
    places = np.flatnonzero(keep.to_numpy(zero_copy_only=False))
    if not len(places):
        return None
    return records if len(places) == len(records) else records.take(places)


def as_deletes(records: Records, gone: pa.BooleanArray) -> Records:
    """The same records, of which some say that their row is gone."""
    assert records.after is not None
    old = to_arrow(records.changes)
    arrays = []
    for field in old.schema:
        found = old.column(field.name)
        if field.name == "op":
            texts = pc.if_else(gone, Op.DELETE.value, found.cast(pa.string()))
            arrays.append(texts)
        elif field.name == "cells":
            cells = [_absent_where(found.field(part.name), gone) for part in field.type]
            arrays.append(pa.StructArray.from_arrays(cells, fields=list(field.type)))
        elif field.name == "marker":
            arrays.append(_null_where(found, gone))
        else:
            arrays.append(found)
    names = old.schema.names
    changes = from_arrow(records.schema, pa.RecordBatch.from_arrays(arrays, names=names))
    return replace(records, source=changes, after=_null_where(records.after, gone), ops=None)


def _absent_where(cell: pa.StructArray, gone: pa.BooleanArray) -> pa.StructArray:
    states = pc.if_else(gone, pa.scalar(0, pa.int8()), cell.field("state"))
    parts = [states if part.name == "state" else cell.field(part.name) for part in cell.type]
    return pa.StructArray.from_arrays(parts, fields=list(cell.type))


def _null_where(found: pa.StructArray, gone: pa.BooleanArray) -> pa.StructArray:
    children = [found.field(part.name) for part in found.type]
    return pa.StructArray.from_arrays(children, fields=list(found.type), mask=pc.or_(gone, found.is_null()))


# OwnFunction: a user's Python callable between the merge and the sinks.
#
# It is given whole rows as they are after the change, as an Arrow record batch or as a pandas DataFrame whose columns
# are Arrow's, and returns as many rows with the same columns. Rows that are gone are not shown to it. Rows go back to
# their places by their order, so the key columns must come back as they were. Only records with whole rows can pass
# through one: the changed cells alone are not a row.

_WIDTHS = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}


@dataclass(frozen=True, slots=True)
class OwnFunction:
    """One callable, the setting that names it, and whether it works on DataFrames."""

    setting: str
    function: Callable[..., Any]
    frames: bool = False

    def apply(self, records: Records) -> Records:
        if records.after is None:
            raise InvalidSetting(
                "own functions need whole rows: a sink must take records of type after or all", setting=self.setting
            )
        there = pc.is_valid(records.after)
        given = pa.RecordBatch.from_struct_array(records.after.filter(there))
        if not given.num_rows:
            return records
        made = self._called(given, records.schema)
        if not _same_keys(given, made, records.schema):
            raise self._wrong("must return the rows in the order in which they came, with their keys", records.schema)
        # Each row goes back to its place; where there was none, there is none.
        places = pc.if_else(there, pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1), None)
        return replace(records, after=made.to_struct_array().take(places))

    def _called(self, given: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
        """What the function makes of the rows, in the columns and types that they had."""
        try:
            made = self.function(_as_frame(given) if self.frames else given)
        # The function is not ours, so anything can come out of it. Its message may hold values of rows.
        except Exception as error:
            raise self._wrong(f"failed with {type(error).__name__}", schema) from error
        if self.frames:
            return self._from_frame(made, given, schema)
        if not isinstance(made, pa.RecordBatch) or made.num_rows != given.num_rows:
            raise self._wrong("must return a record batch of as many rows", schema)
        try:
            return made.select(given.schema.names).cast(given.schema)
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._wrong("must return the columns that it was given", schema) from error

    def _from_frame(self, made: Any, given: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
        import pandas as pd

        if not isinstance(made, pd.DataFrame) or len(made) != given.num_rows:
            raise self._wrong("must return a DataFrame of as many rows", schema)
        try:
            return pa.RecordBatch.from_pandas(made, schema=given.schema, preserve_index=False)
        except (KeyError, pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise self._wrong("must return the columns that it was given", schema) from error

    def _wrong(self, what: str, schema: TableSchema) -> InvalidValue:
        return InvalidValue(f"the function of {self.setting} {what}", table=schema.table)


def _as_frame(batch: pa.RecordBatch) -> Any:
    """Rows as a DataFrame that holds the same memory: numbers stay exact beside nulls, and nested values nested."""
    import pandas as pd

    return batch.to_pandas(types_mapper=pd.ArrowDtype)


def _same_keys(given: pa.RecordBatch, made: pa.RecordBatch, schema: TableSchema) -> bool:
    names = [column.name for column in schema.key]
    return all(_exact(made.column(name)).equals(_exact(given.column(name))) for name in names)


def _exact(array: pa.Array) -> pa.Array:
    """A key that is NaN is itself, so numbers with a point are compared by their bits."""
    width = _WIDTHS.get(array.type)
    return array if width is None else array.view(width)
