"""Indices: made and extended to fit their tables, or refused when they cannot fit.

An index is made with the table's mapping. One that is there is extended by columns that it lacks, as the schema policy
says; one whose fields do not take the columns' values, or that belongs to another table, is refused before anything is
written to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import structlog

from penstock.errors import SchemaRefused, TargetRefused
from penstock.model.schema import TableId, TableSchema
from penstock.pipeline.sinks.left_out import LeftOut
from penstock.pipeline.sinks.search.client import Answer, Client, NoAnswer
from penstock.pipeline.sinks.search.mapping import MappingMaker, conflicts, missing, table_of
from penstock.pipeline.sinks.search.names import field_name
from penstock.pipeline.sinks.search.patience import Patience
from penstock.pipeline.sinks.search.target import Target
from penstock.settings.pipeline import SchemaPolicy

log = structlog.get_logger()

_BUSY = {408, 429, 502, 503, 504}
_SHOWN = 5
# Someone else may make or drop the index meanwhile; more often than this is a fight.
_TRIES = 5


class Indices:
    """The indices of one cluster."""

    def __init__(
        self,
        target: Target,
        client: Client,
        patience: Patience,
        owners: dict[str, TableId] | None = None,
        left_out: LeftOut | None = None,
    ) -> None:
        self._target = target
        self._client = client
        self._patience = patience
        self._maker: MappingMaker | None = None
        self._owners = {} if owners is None else owners
        self._left_out = LeftOut() if left_out is None else left_out

    def fit(self, schema: TableSchema) -> None:
        """Make the table's index fit, or raise SchemaRefused."""
        index = self._target.index_of(schema.table)
        if not schema.key:
            raise SchemaRefused("a table without a key has no documents: nothing could name them", table=schema.table)
        owner = self._owners.setdefault(index, schema.table)
        if owner != schema.table:
            raise _taken(index, schema.table, str(owner))
        for _ in range(_TRIES):
            found = self._mappings(index)
            if found is None:
                if self._create(index, schema):
                    return
                continue
            for mapping in found.values():
                self._check(index, schema, mapping)
            return
        raise SchemaRefused("the index comes and goes", index=index, table=schema.table)

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

    def _check(self, index: str, schema: TableSchema, found: Mapping[str, Any]) -> None:
        owner = table_of(found)
        if owner is not None and owner != str(schema.table):
            raise _taken(index, schema.table, owner)
        fields = found.get("properties", {})
        wanted = self._mapping_maker().properties(schema)
        if self._target.policy is SchemaPolicy.IGNORE:
            self._note_left_out(index, schema, _without_place(wanted, fields))
            return
        wrong = [f"{path} is {have}, not {want}" for path, want, have in conflicts(wanted, fields)]
        if wrong:
            raise SchemaRefused(
                f"fields of the index do not take their columns: {_few(wrong)}; make a new index and copy the table",
                index=index,
                table=schema.table,
            )
        lacking = missing(wanted, fields)
        if not lacking:
            return
        if self._target.policy is SchemaPolicy.FAIL:
            raise SchemaRefused(f"the index lacks {_few(sorted(lacking))}", index=index, table=schema.table)
        meta = {**(found.get("_meta") or {}), "penstock": {"table": str(schema.table)}}
        content = {"_meta": meta, "properties": lacking}
        answer = self._ask("PUT", f"/{quote(index, safe='')}/_mapping", content)
        self._expect(answer, index, schema.table)
        log.info("search index extended", index=index, fields=sorted(lacking))

    def _note_left_out(self, index: str, schema: TableSchema, without: list[str]) -> None:
        """Say once which columns get into no document; a key has to."""
        keys = sorted({field_name(column.name) for column in schema.key} & set(without))
        if keys:
            raise SchemaRefused(f"the index has no place for the key: {_few(keys)}", index=index, table=schema.table)
        self._left_out.note(schema, without)

    def _expect(self, answer: Answer, index: str, table: TableId | None = None) -> None:
        if answer.status == 200:
            return
        if answer.status in (401, 403):
            why = f"the search cluster refuses access to an index: {answer.reason()}"
            raise TargetRefused(why, index=index, table=table)
        raise SchemaRefused(f"the search cluster refuses the mapping: {answer.reason()}", index=index, table=table)

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


def _without_place(wanted: Mapping[str, Any], fields: Mapping[str, Any]) -> list[str]:
    """Fields that the index does not have, or has for values of another kind."""
    wrong = {path.split(".")[0] for path, _, _ in conflicts(wanted, fields)}
    return sorted(wrong | {name for name in wanted if name not in fields})


def _taken(index: str, table: TableId, owner: str) -> SchemaRefused:
    return SchemaRefused(
        'the index is that of another table; put both names into it, as search.index = "{keyspace}.{table}"',
        index=index,
        table=table,
        other=owner,
    )


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
