"""ColumnMasks: columns that are left out, and values that are hidden, before anything of them reaches a change log.

Everything that the agent logs goes through here, be it from the commit log, from entries that waited, or from a
snapshot, and before filters are asked and their doubts parked. Batches are rewritten column by column, without an
object per change; a table that no setting names is passed on as it is. The log's schema says what was done, so that
a change of the settings begins a new file and a new version.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.errors import InvalidSetting, PenstockError
from penstock.formats import arrow, masks
from penstock.formats.masks import Mask
from penstock.model.batch import ChangeBatch
from penstock.model.patterns import fits, parts
from penstock.model.schema import Role, TableSchema
from penstock.settings import AgentSettings
from penstock.settings.secrets import warn_if_open

_KEYS = (Role.PARTITION, Role.CLUSTERING)
# So many versions of tables are remembered with what is done to them.
_PLANS_MAX = 4096


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is done to one version of a table; `schema` is what its log has."""

    schema: TableSchema
    columns: frozenset[str]
    masks: dict[str, Mask]


class ColumnMasks:
    """The settings' choice for all tables. May be used from several threads."""

    def __init__(self, settings: AgentSettings) -> None:
        self._excluded = settings.exclude_columns
        self._masks = dict(settings.masks)
        for pattern in self._excluded:
            parts(pattern, 3, "agent.exclude_columns")
        for pattern, text in self._masks.items():
            parts(pattern, 3, "agent.masks")
            masks.check(text, f"agent.masks.{pattern}")
        self._salt = _salt(settings)
        if "hash" in self._masks.values() and not self._salt:
            raise InvalidSetting("a hash needs agent.mask_salt or mask_salt_file", setting="agent.masks")
        self._plans: dict[TableSchema, _Plan | None] = {}

    def __bool__(self) -> bool:
        return bool(self._excluded or self._masks)

    def schema(self, schema: TableSchema) -> TableSchema:
        """What the log has of a version of a table. InvalidSetting when a setting does not suit a column."""
        plan = self._plan(schema)
        return schema if plan is None else plan.schema

    def apply(self, batch: ChangeBatch) -> ChangeBatch:
        """The same changes without what must not be logged."""
        plan = self._plan(batch.schema)
        if plan is None:
            return batch
        found = arrow.to_arrow(batch, plan.columns)
        if plan.masks:
            found = _masked(found, plan.masks)
        made = arrow.from_arrow(plan.schema, found)
        return replace(made, when_max=batch.when_max, transactions=batch.transactions)

    def _plan(self, schema: TableSchema) -> _Plan | None:
        if schema not in self._plans:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            try:
                self._plans[schema] = self._make(schema)
            except PenstockError as error:
                error.place.setdefault("table", schema.table)
                raise
        return self._plans[schema]

    def _make(self, schema: TableSchema) -> _Plan | None:
        kept, excluded, chosen = [], [], {}
        for column in schema.columns:
            name = (*schema.table, column.name)
            pattern = next((one for one in self._excluded if fits(one, name, "agent.exclude_columns")), None)
            if pattern is not None:
                if column.role in _KEYS:
                    raise InvalidSetting(
                        "a key column cannot be left out of the log: rows could not be told apart",
                        setting=f"agent.exclude_columns: {pattern}",
                        column=column.name,
                    )
                excluded.append(column.name)
                continue
            masking = next((one for one in self._masks if fits(one, name, "agent.masks")), None)
            if masking is None:
                kept.append(column)
                continue
            mask = masks.logged_mask(column, self._masks[masking], self._salt, f"agent.masks.{masking}")
            chosen[column.name] = mask
            kept.append(mask.column)
        if not excluded and not chosen:
            return None
        logged = replace(schema, columns=tuple(kept), excluded=tuple(excluded))
        return _Plan(logged, frozenset(column.name for column in kept), chosen)


def _salt(settings: AgentSettings) -> bytes | None:
    if settings.mask_salt_file is None:
        secret = settings.mask_salt
        return None if secret is None else secret.get_secret_value().encode("utf-8", "surrogateescape")
    warn_if_open(settings.mask_salt_file)
    try:
        return settings.mask_salt_file.read_bytes().strip()
    except OSError as error:
        raise InvalidSetting(
            f"cannot read the salt: {error.strerror}", setting="agent.mask_salt_file", file=settings.mask_salt_file
        ) from error


def _masked(batch: pa.RecordBatch, chosen: dict[str, Mask]) -> pa.RecordBatch:
    """The values that changes set, and those that rows had before them, hidden."""
    arrays = [
        _with_values(array, chosen) if name in ("cells", "before") else array
        for name, array in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _with_values(columns: pa.StructArray, chosen: dict[str, Mask]) -> pa.StructArray:
    made = []
    for index, field in enumerate(columns.type):
        found = columns.field(index)
        mask = chosen.get(field.name)
        made.append(found if mask is None else _replaced(found, "value", mask.apply(found.field("value"))))
    return _struct(columns, made)


def _replaced(struct: pa.StructArray, name: str, values: pa.Array) -> pa.StructArray:
    made = [values if field.name == name else struct.field(index) for index, field in enumerate(struct.type)]
    return _struct(struct, made)


def _struct(like: pa.StructArray, children: list[pa.Array]) -> pa.StructArray:
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(like.type), mask=mask)
