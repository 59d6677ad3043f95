"""The search sink: current rows as documents of Elasticsearch or OpenSearch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import structlog

from penstock.deliver.known_schemas import LeftOut
from penstock.deliver.outages import Waiting
from penstock.deliver.search.client import Client, NoAnswer
from penstock.deliver.search.indices import Indices, Seen
from penstock.deliver.search.patience import Patience
from penstock.deliver.search.stock import Stock
from penstock.deliver.search.target import Target
from penstock.deliver.search.writer import SearchWriter
from penstock.deliver.sink import Sink, Task, Writer, about
from penstock.errors import DeliveryFailed, TargetRefused
from penstock.model.schema import TableSchema
from penstock.settings import RecordType
from penstock.settings.sinks import SearchSettings

log = structlog.get_logger()

_LOOK_S = 1.0


class SearchSink(Sink):
    """One document per row; there is nothing to commit, for versions alone decide what a document becomes."""

    name: ClassVar[str] = "search"

    def __init__(self, settings: SearchSettings, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.record = RecordType.AFTER
        self.every = False
        self._target = Target.of(settings)
        self._sleep = sleep
        self._seen = Seen()
        self._left_out = LeftOut()
        self._given_up = False

    def left_out(self) -> Mapping[str, Sequence[str]]:
        return self._left_out

    def check(self) -> None:
        client = Client(self._target.access)
        try:
            answer = client.request("GET", "/")
        except NoAnswer as error:
            raise DeliveryFailed(f"the search cluster cannot be reached: {error.message}", **error.place) from error
        finally:
            client.close()
        if answer.status != 200:
            raise TargetRefused(f"the search cluster refuses us: {answer.reason()}", url=client.place)
        if not isinstance(answer.json().get("version"), dict):
            raise TargetRefused("this is neither Elasticsearch nor OpenSearch", url=client.place)

    def prepare(self, schemas: Sequence[TableSchema]) -> None:
        client = Client(self._target.access)
        try:
            indices = Indices(self._target, client, self._drivers_patience(), self._seen, self._left_out)
            for schema in schemas:
                with about(schema.table):
                    indices.fit(schema)
        finally:
            client.close()

    def end_eras(self, schemas: Sequence[TableSchema]) -> None:
        """Delete all documents of these tables. Those that a task writes after this are of the new era."""
        client = Client(self._target.access)
        try:
            for schema in schemas:
                index = self._target.index_of(schema.table)
                with about(schema.table):
                    deleted = Stock(client, self._drivers_patience(), index).delete_all()
                log.info("search index emptied", index=index, table=str(schema.table), documents=deleted)
        finally:
            client.close()

    def writer(self, task: Task) -> Writer:
        client = Client(self._target.access)
        patience = self._patience(task.waiting(self.name))
        indices = Indices(self._target, client, patience)
        return SearchWriter(self.name, self._target, client, patience, indices, self._seen)

    def give_up(self) -> None:
        self._given_up = True

    def _patience(self, waiting: Waiting | None = None) -> Patience:
        return Patience(self._target.retry_s_max, sleep=self._sleep, waiting=waiting)

    def _drivers_patience(self) -> Patience:
        """Nothing ends the driver's own thread from outside, so this looks again and again whether it is to end."""
        wait_s_max = min(self._target.retry_s_max, _LOOK_S)
        return Patience(wait_s_max, sleep=self._sleep, given_up=lambda: self._given_up)
