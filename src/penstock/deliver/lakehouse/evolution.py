"""How a target table's columns follow the source's: what is added, widened, renamed, or kept apart.

A key column goes to the target's key column of the same place: a source can rename it, and older versions of the schema
may still come after that. So does a field of a user type, to the field of its place in the target's struct. Any other
column goes to the target's column that is noted for it, when that one can hold its values, now or after it was widened.
A column that was dropped stays, null in new rows. One that the source itself has dropped and added again with another
type takes the old one's place; where nobody says that it was dropped, it goes to a column of its own (`name__2`,
`name__3`, …), and what the old one holds keeps its meaning.

Readers of lakehouse tables do not tell names apart that differ by case only. Of such columns the one in lower case
keeps its name, else the first; the others get a number (`A__2`). A column that the target has never changes its name
for that.

Where a column goes is a function of the schemas and of the target's note (source_note.py), so tasks and driver agree
about it without talking.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import structlog

from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.lakehouse.types import lake_type, merged
from penstock.errors import SchemaRefused, SchemaUnfit
from penstock.model.schema import Column, TableSchema
from penstock.settings import SchemaPolicy

log = structlog.get_logger()

_NUMBERS_MAX = 1000


@dataclass(frozen=True)
class TargetShape:
    """A target table: its columns, and what it has noted of its source."""

    schema: pa.Schema
    note: SourceNote = field(default_factory=SourceNote)

    @cached_property
    def owned(self) -> dict[str, list[str]]:
        """The columns that were made for each of the source's, the one with its own name first."""
        found: dict[str, list[str]] = {}
        for name in self.schema.names:
            found.setdefault(self.note.source_name(name), []).append(name)
        return {source: sorted(names, key=lambda name: name != source) for source, names in found.items()}

    @cached_property
    def found_places(self) -> dict[str, dict[str, str]]:
        """What `places` has found for versions of the source, by fingerprint and id."""
        return {}


@dataclass(slots=True)
class Evolution:
    """What a source schema asks of a target: the target afterwards, and what changed."""

    shape: TargetShape
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    # Old name → new name of key columns.
    renamed: dict[str, str] = field(default_factory=dict)
    # Columns that hold values of another one from now on, with none of the old.
    retyped: list[str] = field(default_factory=list)
    # Columns of the source that found no place because the policy is to ignore them.
    ignored: list[str] = field(default_factory=list)

    @property
    def altered(self) -> bool:
        """Whether the columns have changed, and not only the note."""
        return bool(self.added or self.widened or self.renamed or self.retyped)

    def note(self, table: object) -> None:
        """Log what became of a table's columns, if they have changed."""
        if self.altered:
            log.info(
                "lakehouse table altered",
                table=table,
                added=self.added,
                widened=self.widened,
                renamed=self.renamed,
                retyped=self.retyped,
            )


def fresh(source: TableSchema, more: Iterable[pa.Field] = ()) -> TargetShape:
    """The shape of a target that is made for a source; `more` are columns that the sink adds."""
    more = list(more)
    names = _free_names(source, more)
    fields = [pa.field(names[column.name], lake_type(column.type)) for column in source.columns]
    note = SourceNote(
        source.id,
        source.order,
        tuple(names[column.name] for column in source.key),
        {name: column for column, name in names.items() if name != column},
    )
    return TargetShape(pa.schema([*fields, *more]), note)


def _free_names(source: TableSchema, more: list[pa.Field]) -> dict[str, str]:
    """By the source's names the target's, no two of which differ by case only."""
    taken = {part.name.lower() for part in more}
    wanted = {column.name.lower() for column in source.columns}
    names: dict[str, str] = {}
    for column in _lower_case_first(source.columns):
        names[column.name] = _free_name(column.name, taken, wanted)
        taken.add(names[column.name].lower())
    return names


def _lower_case_first(columns: Iterable[Column]) -> list[Column]:
    """Columns in lower case keep their names, so they choose first; the others are in their own order."""
    return sorted(columns, key=lambda column: column.name != column.name.lower())


def _free_name(name: str, taken: set[str], wanted: set[str]) -> str:
    """The name, or the first numbered one that neither the target has nor the source has for another column."""
    if name.lower() not in taken:
        return name
    numbered = (f"{name}__{number}" for number in range(2, _NUMBERS_MAX))
    return next(one for one in numbered if one.lower() not in taken and one.lower() not in wanted)


def places(source: TableSchema, target: TargetShape) -> dict[str, str]:
    """Where each column of the source goes: source name → target name; columns without a place are left out."""
    version = f"{source.fingerprint}/{source.id}"
    known = target.found_places.get(version)
    if known is None:
        known = target.found_places[version] = _places(source, target)
    return known


def _places(source: TableSchema, target: TargetShape) -> dict[str, str]:
    found = dict(_key_places(source, target))
    for column in source.cells:
        fitting = [name for name in _candidates(column, target) if _takes(source, target, name, column)]
        if fitting:
            found[column.name] = fitting[0]
    return found


def _key_places(source: TableSchema, target: TargetShape) -> Iterator[tuple[str, str]]:
    note = target.note
    by_place = len(note.key) == len(source.key) and not note.is_of_another_table(source)
    for place, column in enumerate(source.key):
        names = [note.key[place]] if by_place else _candidates(column, target, all_columns=True)
        fitting = [name for name in names if name in target.schema.names and _takes(source, target, name, column)]
        if fitting:
            yield column.name, fitting[0]


def _takes(source: TableSchema, target: TargetShape, name: str, column: Column) -> bool:
    """Whether a column of the target can hold the values of a source's column as it is."""
    there, wanted = target.schema.field(name).type, lake_type(column.type)
    if merged(there, wanted) == there:
        return True
    # Fields that had other names in an older version have the newer ones in the target.
    return bool(target.note.is_older(source) and merged(wanted, there) == there)


def _candidates(column: Column, target: TargetShape, *, all_columns: bool = False) -> list[str]:
    """The target's columns that were made for a column of the source, its own name first."""
    key = () if all_columns else target.note.key
    return [name for name in target.owned.get(column.name, ()) if name not in key]


def evolve(
    source: TableSchema,
    target: TargetShape,
    policy: SchemaPolicy,
    *,
    keyed: bool = True,
    fixed: frozenset[str] = frozenset(),
) -> Evolution:
    """What a target becomes so that rows of `source` fit. Columns in `fixed` never change their type; those of the key
    only where it is a struct, whose fields can be renamed and become more.

    `keyed`: the target has a row per key. One that only adds rows has key columns like any other, and keeps the rows of
    a table that was dropped: a key of another type gets columns of its own.
    """
    out = Evolution(target)
    if not keyed and target.note.is_of_another_table(source):
        out.shape = replace(target, note=replace(target.note, key=()))
    elif not target.note.key:
        out.shape = replace(target, note=replace(target.note, key=_first_key(source, target)))
    if out.shape.note.key or keyed:
        _follow_key(source, out, policy)
    cells = source.cells if out.shape.note.key else source.columns
    _follow_cells(source, cells, out, policy, fixed)
    note = out.shape.note
    if not note.key:
        where = dict(_key_places(source, out.shape))
        note = replace(note, key=tuple(where[column.name] for column in source.key if column.name in where))
    if source.id and note.id != source.id and (not note.id or not keyed):
        note = replace(note, id=source.id)
    if out.altered or note != target.note:
        note = replace(note, order=max(note.order, source.order))
    out.shape = replace(out.shape, note=note)
    return out


def of_new_table(source: TableSchema, target: TargetShape, policy: SchemaPolicy) -> SourceNote | None:
    """What a target of current rows notes when the source's table was dropped and another one made of that name.

    None: the target is to be made anew, with the columns of the new table. Else its columns stay, and only rows go.
    """
    if policy is SchemaPolicy.FAIL:
        raise SchemaRefused(
            "the table was dropped and made anew, and the sink is set to stop then", table=source.table, id=source.id
        )
    if policy is SchemaPolicy.EVOLVE:
        return None
    note = replace(target.note, id=source.id, order=source.order)
    shape = replace(target, note=note)
    # Raises where the key of the new table has no place in the target.
    _follow_key(source, Evolution(shape), policy)
    return note


def _first_key(source: TableSchema, target: TargetShape) -> tuple[str, ...]:
    """The key columns of a target that has none noted: by their names, or those that stand where we would put them."""
    names = tuple(column.name for column in source.key)
    if set(names) <= set(target.schema.names):
        return names
    first = target.schema.names[: len(names)]
    for column, name in zip(source.key, first, strict=False):
        fits = target.schema.field(name).type == lake_type(column.type)
        if not fits or (name != column.name and name in source.by_name):
            return names
    return tuple(first) if len(first) == len(names) else names


def _follow_key(source: TableSchema, out: Evolution, policy: SchemaPolicy) -> None:
    """Give key columns the names that they have now, unless a newer version has been seen."""
    if policy is SchemaPolicy.EVOLVE and not out.shape.note.is_older(source):
        _widen_key(source, out)
    shape = out.shape
    known = dict(_key_places(source, shape))
    if len(shape.note.key) != len(source.key):
        raise SchemaUnfit(
            f"the target's key has {len(shape.note.key)} columns, the table's {len(source.key)}", table=source.table
        )
    for column in source.key:
        if column.name not in known:
            raise SchemaUnfit(
                "a key column is missing in the target, or has another type there",
                table=source.table,
                column=column.name,
                type=lake_type(column.type),
            )
    renamed = {known[c.name]: c.name for c in source.key if shape.note.source_name(known[c.name]) != c.name}
    if not renamed or shape.note.is_older(source):
        return
    if policy is not SchemaPolicy.EVOLVE:
        old, new = next(iter(renamed.items()))
        raise SchemaRefused(
            f"key column {old} is called {new} now, and the sink is not set to follow", table=source.table, column=new
        )
    _rename(source, out, renamed)


def _widen_key(source: TableSchema, out: Evolution) -> None:
    """Give structs in the key the fields that they have now."""
    for name, column in zip(out.shape.note.key, source.key, strict=False):
        there = out.shape.schema.field(name).type if name in out.shape.schema.names else None
        if there is None or not pa.types.is_nested(there):
            continue
        both = merged(there, lake_type(column.type))
        if both is not None and both != there:
            out.shape = TargetShape(_with_type(out.shape.schema, name, both), out.shape.note)
            out.widened.append(name)


def _rename(source: TableSchema, out: Evolution, renamed: dict[str, str]) -> None:
    note, schema = out.shape.note, out.shape.schema
    taken = {name.lower() for name in schema.names if name not in renamed}
    wanted = {column.name.lower() for column in source.columns}
    columns = {name: column for name, column in note.columns.items() if name not in renamed}
    former = {name: names for name, names in note.former.items() if name not in renamed}
    for old, name in renamed.items():
        made = _free_name(name, taken, wanted)
        taken.add(made.lower())
        if made != name:
            columns[made] = name
        before = (*note.former.get(old, ()), note.source_name(old))
        former[made] = tuple(dict.fromkeys(one for one in before if one != name))
        out.renamed[old] = made
    key = tuple(out.renamed.get(name, name) for name in note.key)
    fields = [part.with_name(out.renamed.get(part.name, part.name)) for part in schema]
    out.shape = TargetShape(pa.schema(fields), replace(note, key=key, columns=columns, former=former))


def _follow_cells(
    source: TableSchema, cells: Iterable[Column], out: Evolution, policy: SchemaPolicy, fixed: frozenset[str]
) -> None:
    for column in _lower_case_first(cells):
        candidates = _candidates(column, out.shape)
        if any(_takes(source, out.shape, name, column) for name in candidates):
            continue
        if candidates and out.shape.note.is_older(source):
            # What an older version has under this name was dropped, or has become wider.
            continue
        if policy is SchemaPolicy.FAIL:
            raise SchemaRefused("the target has no place for a column", table=source.table, column=column.name)
        if policy is SchemaPolicy.IGNORE:
            out.ignored.append(column.name)
            continue
        _make_place(source, column, out, [name for name in candidates if name not in fixed])


def _make_place(source: TableSchema, column: Column, out: Evolution, candidates: list[str]) -> None:
    wanted, schema, note = lake_type(column.type), out.shape.schema, out.shape.note
    both = {name: merged(schema.field(name).type, wanted) for name in candidates}
    wider = [name for name, type_ in both.items() if type_ is not None]
    if wider:
        out.shape = TargetShape(_with_type(schema, wider[0], both[wider[0]]), note)
        out.widened.append(wider[0])
    elif candidates and column.dropped_us is not None:
        out.shape = TargetShape(_with_type(schema, candidates[0], wanted), note)
        out.retyped.append(candidates[0])
    else:
        taken, known = ({name.lower() for name in names} for names in (schema.names, source.by_name))
        name = _free_name(column.name, taken, known)
        if name != column.name:
            note = replace(note, columns={**note.columns, name: column.name})
        out.shape = TargetShape(schema.append(pa.field(name, wanted)), note)
        out.added.append(name)


def _with_type(schema: pa.Schema, name: str, type_: pa.DataType) -> pa.Schema:
    index = schema.get_field_index(name)
    return schema.set(index, schema.field(index).with_type(type_))
