"""Indices: made and extended to fit their tables, or refused when they cannot fit.

An index is made with the table's mapping. One that is there is extended by columns that it lacks, as the schema policy
says; one whose fields do not take the columns' values, or that belongs to another table, is refused before anything is
written to it. A key column that was renamed gets its new name in all documents. When a table was dropped and made anew,
an index of the new one takes the old one's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import structlog

from penstock.deliver.known_schemas import LeftOut
from penstock.deliver.search.client import Answer, Client, NoAnswer
from penstock.deliver.search.mapping import IndexNote, MappingMaker, conflicts, missing
from penstock.deliver.search.names import successor_name
from penstock.deliver.search.patience import Patience
from penstock.deliver.search.stock import Copy, Stock
from penstock.deliver.search.target import Target
from penstock.errors import SchemaRefused, SchemaUnfit, TargetRefused
from penstock.formats.search_fields import field_name
from penstock.model.schema import TableId, TableSchema
from penstock.settings.pipeline import SchemaPolicy

log = structlog.get_logger()

_BUSY = {408, 429, 502, 503, 504}
_SHOWN = 5
# Someone else may make or drop the index meanwhile; more often than this is a fight.
_TRIES = 5
# Settings that an index has of itself.
_ITS_OWN = {"uuid", "creation_date", "provided_name", "version", "resize", "creation_date_string"}


@dataclass(slots=True)
class Seen:
    """What this run has found out about indices. It travels to the tasks."""

    # Which table each index is for.
    owners: dict[str, TableId] = field(default_factory=dict)
    # What the index of each table has noted of it.
    notes: dict[TableId, IndexNote] = field(default_factory=dict)
    # By the fingerprint of an older version: fields that hold other values by now.
    dropped: dict[str, frozenset[str]] = field(default_factory=dict)


class Indices:
    """The indices of one cluster."""

    def __init__(
        self,
        target: Target,
        client: Client,
        patience: Patience,
        seen: Seen | None = None,
        left_out: LeftOut | None = None,
    ) -> None:
        self._target = target
        self._client = client
        self._patience = patience
        self._maker: MappingMaker | None = None
        self._seen = Seen() if seen is None else seen
        self._left_out = LeftOut() if left_out is None else left_out

    def fit(self, schema: TableSchema) -> None:
        """Make the table's index fit, or raise SchemaRefused."""
        index = self._target.index_of(schema.table)
        if not schema.key:
            raise SchemaUnfit("a table without a key has no documents: nothing could name them", table=schema.table)
        owner = self._seen.owners.setdefault(index, schema.table)
        if owner != schema.table:
            raise _taken(index, schema.table, str(owner))
        for _ in range(_TRIES):
            found = self._mappings(index)
            if found is None:
                if self._create(index, schema):
                    self._seen.notes[schema.table] = IndexNote.of(schema)
                    return
                continue
            for name, mapping in found.items():
                if self._begun_anew(index, name, schema, mapping, alone=len(found) == 1):
                    return
                self._check(index, schema, mapping, name if len(found) == 1 else None)
            return
        raise SchemaUnfit("the index comes and goes", index=index, table=schema.table)

    def _begun_anew(
        self, index: str, name: str, schema: TableSchema, mapping: Mapping[str, Any], *, alone: bool
    ) -> bool:
        """Where the schema is of another table of that name: whether nothing more is to be done."""
        note = IndexNote.read(mapping)
        if note.table != str(schema.table) or not note.is_of_another_table(schema):
            return False
        self._seen.notes[schema.table] = note
        if schema.order < note.order:
            # Of a table that is no more; nothing of it will come.
            return True
        policy = self._target.policy
        if policy is SchemaPolicy.FAIL:
            raise SchemaRefused(
                "the table was dropped and made anew, and the sink is set to stop then", index=index, table=schema.table
            )
        if policy is SchemaPolicy.EVOLVE:
            if not alone:
                raise SchemaUnfit(
                    "the table was dropped and made anew, and its name stands for several indices",
                    index=index,
                    table=schema.table,
                )
            self._succeed(index, name, schema, successor_name(index, schema.id))
            self._seen.notes[schema.table] = IndexNote.of(schema)
            return True
        self._note_left_out(
            index, schema, _without_place(self._mapping_maker().properties(schema), mapping.get("properties", {}))
        )
        deleted = Stock(self._client, self._patience, name).delete_all()
        log.warning("search index emptied", index=name, table=str(schema.table), documents=deleted)
        self._seen.notes[schema.table] = IndexNote.of(schema)
        self._note(index, schema, mapping, self._seen.notes[schema.table])
        return True

    def _succeed(self, index: str, old: str, schema: TableSchema, new: str, copy: Copy | None = None) -> None:
        """Make another index, and let the name be that one's, in one step for those who search.

        Without `copy` it begins empty.
        """
        content = {"settings": {"index": self._settings(old)}, "mappings": self._mapping_maker().mapping(schema)}
        answer = self._ask("PUT", f"/{quote(new, safe='')}", content)
        # An earlier try may have come as far as this.
        if not (answer.status == 400 and answer.reason() == "resource_already_exists_exception"):
            self._expect(answer, new, schema.table)
        if copy is not None:
            count = Stock(self._client, self._patience, old).copy(new, copy)
            log.info("search index copied", index=old, to=new, without=sorted(copy.without), documents=count)
        answer = self._ask("GET", f"/{quote(old, safe='')}/_alias")
        self._expect(answer, old, schema.table)
        aliases = {**answer.json()[old]["aliases"], **({index: {}} if old == index else {})}
        actions = [{"add": {"index": new, "alias": alias, **rest}} for alias, rest in aliases.items()]
        answer = self._ask("POST", "/_aliases", {"actions": [*actions, {"remove_index": {"index": old}}]})
        self._expect(answer, index, schema.table)
        log.warning("search index begun anew", index=index, now=new, before=old, table=str(schema.table))

    def _settings(self, index: str) -> dict[str, Any]:
        """The settings of an index that another one may have too."""
        answer = self._ask("GET", f"/{quote(index, safe='')}/_settings")
        self._expect(answer, index)
        found = answer.json()[index]["settings"]["index"]
        return {name: value for name, value in found.items() if name not in _ITS_OWN}

    def columns(self, schema: TableSchema) -> frozenset[str] | None:
        """The columns that get into documents; None: all of them."""
        if self._target.policy is not SchemaPolicy.IGNORE:
            return None
        found = self._mappings(self._target.index_of(schema.table)) or {}
        wanted = self._mapping_maker().properties(schema)
        without = [name for mapping in found.values() for name in _without_place(wanted, mapping.get("properties", {}))]
        return frozenset(column.name for column in schema.columns if field_name(column.name) not in without)

    def _mapping_maker(self) -> MappingMaker:
        if self._maker is None:
            opensearch = is_opensearch(self._ask("GET", "/"))
            target = self._target
            self._maker = MappingMaker(opensearch=opensearch, text=target.text_fields, maps=target.map_fields)
        return self._maker

    def _mappings(self, index: str) -> dict[str, dict[str, Any]] | None:
        """The mappings behind a name, which may be that of several indices; None when there is no such index."""
        answer = self._ask("GET", f"/{quote(index, safe='')}/_mapping")
        if answer.status == 404:
            return None
        self._expect(answer, index)
        return {name: content.get("mappings", {}) for name, content in answer.json().items()}

    def _create(self, index: str, schema: TableSchema) -> bool:
        """Make the index; False when someone else was quicker."""
        content = {
            "settings": {"index": self._target.index_settings},
            "mappings": self._mapping_maker().mapping(schema),
        }
        answer = self._ask("PUT", f"/{quote(index, safe='')}", content)
        if answer.status == 400 and answer.reason() == "resource_already_exists_exception":
            return False
        self._expect(answer, index, schema.table)
        log.info("search index made", index=index, table=str(schema.table))
        return True

    def _check(self, index: str, schema: TableSchema, found: Mapping[str, Any], name: str | None) -> None:
        """Make an index fit that is there. `name`: its own, unless there are several behind the table's."""
        note = IndexNote.read(found)
        if note.table is not None and note.table != str(schema.table):
            raise _taken(index, schema.table, note.table)
        fields = found.get("properties", {})
        made = self._followed(index, schema, note)
        self._seen.notes[schema.table] = made
        wanted = self._mapping_maker().properties(schema)
        if schema.order < note.order:
            # The key has another name by now.
            own = [field_name(column.name) for column in schema.key]
            wanted = {name: field for name, field in wanted.items() if name not in own or name in made.key}
        if self._target.policy is SchemaPolicy.IGNORE:
            self._note_left_out(index, schema, _without_place(wanted, fields))
            self._note(index, schema, found, made)
            return
        if self._moved(index, schema, found, note, name):
            return
        against = list(conflicts(wanted, fields))
        if against and schema.order < note.order:
            # What an older version has under these names was dropped.
            dropped = frozenset(path.split(".")[0] for path, _, _ in against)
            self._seen.dropped[schema.fingerprint] = dropped
            wanted = {path: field for path, field in wanted.items() if path not in dropped}
        elif against:
            wrong = [f"{path} is {have}, not {want}" for path, want, have in against]
            raise SchemaUnfit(
                f"fields of the index do not take their columns: {_few(wrong)}; make a new index and copy the table",
                index=index,
                table=schema.table,
            )
        self._extend(index, schema, found, made, missing(wanted, fields))

    def _moved(
        self, index: str, schema: TableSchema, found: Mapping[str, Any], note: IndexNote, name: str | None
    ) -> bool:
        """Let the documents move to another index where this one cannot follow; whether it was so.

        A field cannot get another type, as that of a column that was dropped and added again; what the old column held
        stays behind. Names that key columns have exchanged cannot be exchanged twice, as a crash might have it.
        """
        if name is None or self._target.policy is not SchemaPolicy.EVOLVE or schema.order < note.order:
            return False
        wanted = self._mapping_maker().properties(schema)
        anew = {path.split(".")[0] for path, _, _ in conflicts(wanted, found.get("properties", {}))}
        again = {field_name(column.name) for column in schema.cells if column.dropped_us is not None}
        renamed = _renamed(note, IndexNote.of(schema))
        exchanged = bool(renamed.keys() & set(renamed.values()))
        if not (anew or exchanged) or not anew <= again:
            return False
        copy = Copy(frozenset(anew), renamed)
        self._succeed(index, name, schema, successor_name(index, f"{schema.id}/{schema.order}"), copy)
        self._seen.notes[schema.table] = IndexNote.of(schema)
        return True

    def _extend(
        self,
        index: str,
        schema: TableSchema,
        found: Mapping[str, Any],
        made: IndexNote,
        lacking: Mapping[str, Any],
    ) -> None:
        """Give the index the fields that it lacks, and its documents the names that key columns have now."""
        note = IndexNote.read(found)
        if lacking and self._target.policy is SchemaPolicy.FAIL:
            raise SchemaRefused(f"the index lacks {_few(sorted(lacking))}", index=index, table=schema.table)
        renamed = _renamed(note, made)
        if lacking:
            self._put(index, schema.table, found, note if renamed else made, lacking)
            log.info("search index extended", index=index, fields=sorted(lacking))
        if renamed:
            # The note comes last: after a crash the rest of the documents is renamed.
            count = Stock(self._client, self._patience, index).rename(renamed)
            log.info("search index has its key renamed", index=index, fields=renamed, documents=count)
            self._put(index, schema.table, found, made, {})
        elif not lacking:
            self._note(index, schema, found, made)

    def _followed(self, index: str, schema: TableSchema, note: IndexNote) -> IndexNote:
        """What the index notes for this schema. Raises where a key was renamed and the policy is not to follow."""
        own = IndexNote.of(schema)
        made = replace(note, table=own.table, id=note.id or own.id)
        if not note.key:
            return replace(made, key=own.key, order=max(note.order, own.order))
        if note.key == own.key or schema.order < note.order:
            return made
        if len(note.key) != len(own.key):
            raise SchemaUnfit(
                "the table's key has more or fewer columns than the index's", index=index, table=schema.table
            )
        if self._target.policy is not SchemaPolicy.EVOLVE:
            raise SchemaRefused(
                "a key column has another name, and the sink is not set to follow", index=index, table=schema.table
            )
        return replace(made, key=own.key, order=own.order)

    def _note(self, index: str, schema: TableSchema, found: Mapping[str, Any], note: IndexNote) -> None:
        """Keep the note with the index, if it says more than before. An index of one's own is left as it is."""
        if IndexNote.read(found) != note and schema.id:
            self._put(index, schema.table, found, note, {})

    def _put(
        self, index: str, table: TableId, found: Mapping[str, Any], note: IndexNote, lacking: Mapping[str, Any]
    ) -> None:
        meta = {**(found.get("_meta") or {}), "penstock": note.to_json()}
        answer = self._ask("PUT", f"/{quote(index, safe='')}/_mapping", {"_meta": meta, "properties": dict(lacking)})
        self._expect(answer, index, table)

    def _note_left_out(self, index: str, schema: TableSchema, without: list[str]) -> None:
        """Say once which columns get into no document; a key has to."""
        keys = sorted({field_name(column.name) for column in schema.key} & set(without))
        if keys:
            raise SchemaUnfit(f"the index has no place for the key: {_few(keys)}", index=index, table=schema.table)
        self._left_out.note(schema, without)

    def _expect(self, answer: Answer, index: str, table: TableId | None = None) -> None:
        if answer.status == 200:
            return
        if answer.status in (401, 403):
            why = f"the search cluster refuses access to an index: {answer.reason()}"
            raise TargetRefused(why, index=index, table=table)
        raise SchemaUnfit(f"the search cluster refuses the mapping: {answer.reason()}", index=index, table=table)

    def _ask(self, method: str, path: str, content: object = None) -> Answer:
        while True:
            place = self._client.place
            try:
                answer = self._client.request(method, path, content)
            except NoAnswer as error:
                self._patience.wait(error.message, url=place)
                continue
            if answer.status not in _BUSY:
                self._patience.over()
                return answer
            self._patience.wait(answer.reason(), url=place)


def is_opensearch(answer: Answer) -> bool:
    """Whether the answer to `GET /` is OpenSearch's; anything else speaks as Elasticsearch does."""
    content = answer.json()
    version = content.get("version") if isinstance(content, dict) else None
    return isinstance(version, dict) and version.get("distribution") == "opensearch"


def _renamed(old: IndexNote, new: IndexNote) -> dict[str, str]:
    """Fields of key columns that have another name now."""
    return {one: other for one, other in zip(old.key, new.key, strict=False) if one != other}


def _without_place(wanted: Mapping[str, Any], fields: Mapping[str, Any]) -> list[str]:
    """Fields that the index does not have, or has for values of another kind."""
    wrong = {path.split(".")[0] for path, _, _ in conflicts(wanted, fields)}
    return sorted(wrong | {name for name in wanted if name not in fields})


def _taken(index: str, table: TableId, owner: str) -> SchemaUnfit:
    return SchemaUnfit(
        'the index is that of another table; put both names into it, as search.index = "{keyspace}.{table}"',
        index=index,
        table=table,
        other=owner,
    )


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
