"""The target: which cluster, which index for which table, and how much at once. It travels to the tasks."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.deliver.search.client import Access
from penstock.deliver.search.names import index_name
from penstock.model.schema import TableId
from penstock.settings.pipeline import SchemaPolicy
from penstock.settings.sinks import MapFields, SearchSettings, TextFields


@dataclass(frozen=True, slots=True)
class Target:
    """What a task must know of the settings, with the secrets read."""

    access: Access
    template: str
    bulk_bytes_max: int
    bulk_documents_max: int
    refused_documents_max: int
    retry_s_max: float
    policy: SchemaPolicy
    text_fields: TextFields
    map_fields: MapFields
    # Of the indices that are made.
    index_settings: dict[str, str]

    @classmethod
    def of(cls, settings: SearchSettings) -> Target:
        return cls(
            access=Access.of(settings),
            template=settings.index,
            bulk_bytes_max=settings.bulk_bytes_max,
            bulk_documents_max=settings.bulk_documents_max,
            refused_documents_max=settings.refused_documents_max,
            retry_s_max=settings.retry_s_max,
            policy=settings.schema_policy,
            text_fields=settings.text_fields,
            map_fields=settings.map_fields,
            index_settings={"gc_deletes": f"{settings.remember_deletes_s}s", **settings.index_settings},
        )

    def index_of(self, table: TableId) -> str:
        return index_name(self.template, table)
