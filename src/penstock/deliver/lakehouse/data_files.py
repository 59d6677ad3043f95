"""Data files: rows as Parquet, divided by partition columns, with the statistics that readers skip files by."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

# Delta's own writers keep statistics of so many columns, and so many characters of text.
_STATISTICS_COLUMNS_MAX = 32
_TEXT_MAX = 32
# So many values of a column tell whether values come again.
_SAMPLED = 1024


def to_parquet(rows: pa.Table, codec: str) -> tuple[pa.Buffer, pq.FileMetaData]:
    """The bytes of a Parquet file, and what its footer says."""
    collected: list[pq.FileMetaData] = []
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        rows.schema,
        compression=codec,
        coerce_timestamps="us",
        use_dictionary=list(_repeating(rows)),
        metadata_collector=collected,
    ) as writer:
        writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
    return sink.getvalue(), collected[0]


def _repeating(rows: pa.Table) -> Iterator[str]:
    """The columns, by their paths in the file, for which a dictionary pays: where values come again.

    A dictionary of values that are all different takes twice the time to write, and more room than none.
    """
    sampled = np.arange(0, rows.num_rows, max(1, rows.num_rows // _SAMPLED))
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_nested(field.type):
            yield from _leaves(field.name, field.type)
            continue
        values = column.take(pa.array(sampled))
        if 2 * pc.count_distinct(values).as_py() <= len(values):
            yield field.name


def _leaves(path: str, type_: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(type_):
        yield from _leaves(f"{path}.key_value.key", type_.key_type)
        yield from _leaves(f"{path}.key_value.value", type_.item_type)
    elif pa.types.is_nested(type_):
        yield from _leaves(f"{path}.list.element", type_.value_type)
    else:
        yield path


def statistics(rows: pa.Table, footer: pq.FileMetaData) -> dict[str, Any]:
    """Delta's statistics of a file, from those that the Parquet writer has made anyway."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in list(rows.schema)[:_STATISTICS_COLUMNS_MAX]:
        if pa.types.is_nested(field.type):
            continue
        nulls[field.name] = rows.column(field.name).null_count
        bounds = _bounds(footer, field)
        if bounds is not None:
            least[field.name], greatest[field.name] = bounds
    greatest = {name: value for name, value in greatest.items() if value is not None}
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bounds(footer: pq.FileMetaData, field: pa.Field) -> tuple[Any, Any] | None:
    type_ = field.type
    if not (pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_temporal(type_)):
        # Floats are left out because of NaN, which readers order differently; decimals and bytes because of JSON.
        return None
    index = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == field.name)
    groups = [footer.row_group(i).column(index).statistics for i in range(footer.num_row_groups)]
    if not groups or any(group is None or not group.has_min_max for group in groups):
        return None
    try:
        least, greatest = min(group.min for group in groups), max(group.max for group in groups)
    except (ValueError, OverflowError):
        # Python's calendar ends sooner than Parquet's.
        return None
    return _to_json(least, type_, up=False), _to_json(greatest, type_, up=True)


def _to_json(value: Any, type_: pa.DataType, *, up: bool) -> Any:
    """A bound in the form of Delta's log; None for a greatest text that would have to be cut."""
    if isinstance(value, str):
        if len(value) <= _TEXT_MAX:
            return value
        return None if up else value[:_TEXT_MAX]
    if isinstance(value, datetime.datetime):
        # The log has milliseconds: down for the least, up for the greatest.
        over = value.microsecond % 1000
        if up and over:
            return None if value.year == datetime.MAXYEAR else _to_json(_next_ms(value, over), type_, up=True)
        value -= datetime.timedelta(microseconds=over)
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text + ("Z" if type_.tz else "")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def _next_ms(value: datetime.datetime, over: int) -> datetime.datetime:
    return value + datetime.timedelta(microseconds=1000 - over)


def with_partition(rows: pa.Table, schema: pa.Schema, columns: Sequence[str]) -> pa.Table:
    """The rows with all partition columns: one that the source has dropped is null from then on."""
    for name in columns:
        if name not in rows.schema.names:
            rows = rows.append_column(schema.field(name), pa.nulls(rows.num_rows, schema.field(name).type))
    return rows


def by_partition(rows: pa.Table, columns: tuple[str, ...]) -> Iterator[tuple[dict[str, str | None], Any]]:
    """For each combination of partition values: the values as text, and the numbers of its rows, in order."""
    if not columns:
        yield {}, np.arange(rows.num_rows)
        return
    if not rows.num_rows:
        return
    codes = np.zeros(rows.num_rows, np.int64)
    for name in columns:
        encoded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        first = int(group[0])
        yield {name: _partition_text(rows.column(name)[first]) for name in columns}, group


def _partition_text(value: pa.Scalar) -> str | None:
    plain = value.as_py()
    if plain is None or plain == "":
        return None
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, datetime.datetime):
        return plain.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")
    return str(plain)


def partition_value(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """The inverse, for columns that a file's name stands for."""
    if text is None:
        return pa.scalar(None, type_)
    if pa.types.is_timestamp(type_) and type_.tz:
        return pa.scalar(text.rstrip("Z")).cast(pa.timestamp("us")).cast(type_)
    return pa.scalar(text).cast(type_)


def read_columns(path: str, wanted: pa.Schema, partition: Mapping[str, str | None]) -> pa.Table:
    """Columns of a data file in the types of the table: narrower ones widened, missing ones null."""
    from penstock.deliver.lakehouse.values import fit

    file = pq.ParquetFile(path)
    there = set(file.schema_arrow.names)
    found = file.read(columns=[name for name in wanted.names if name in there])
    count = file.metadata.num_rows
    columns = []
    for field in wanted:
        if field.name in partition:
            columns.append(pa.repeat(partition_value(partition[field.name], field.type), count))
        elif field.name in there:
            column = found.column(field.name)
            array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
            columns.append(fit(_plain_layout(array), field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.table(columns, schema=wanted)


def _plain_layout(array: pa.Array) -> pa.Array:
    """Other writers may have used large strings, dictionaries or nanoseconds for the same values."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_large_string(array.type):
        return array.cast(pa.string())
    return array.cast(pa.binary()) if pa.types.is_large_binary(array.type) else array


def sorted_by(rows: pa.Table, columns: tuple[str, ...]) -> Any:
    """The order of rows by the clustering columns, for files whose statistics let readers skip; None: as they came."""
    keys = [(name, "ascending") for name in columns if name in rows.schema.names]
    return pc.sort_indices(rows, sort_keys=keys).to_numpy() if keys and rows.num_rows else None


def stats_text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))
