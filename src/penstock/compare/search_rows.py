"""An index of Elasticsearch or OpenSearch as one side of a comparison, repaired through the sink that wrote it.

A row is shown as the JSON of each of its fields. Versions decide what a document becomes, so a repair gives the least
version that the index takes: that of the document itself, or the least of all where there is none. A change that the
pipeline delivers meanwhile then always wins over the repair.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa

from penstock.compare.comparison import Kind, Report
from penstock.compare.shape import Shape
from penstock.compare.sides import TargetRows
from penstock.compare.spelling import Spelling, spelled_columns
from penstock.deliver.search.client import Answer, Client, NoAnswer
from penstock.deliver.search.documents import document_ids
from penstock.deliver.search.indices import Indices
from penstock.deliver.search.patience import Patience
from penstock.deliver.search.sink import SearchSink
from penstock.deliver.search.target import Target
from penstock.deliver.sink import Sink, Writer
from penstock.errors import InvalidInput, TargetRefused
from penstock.formats.json_columns import Form, field, render
from penstock.formats.search_fields import field_name
from penstock.model.schema import TableSchema
from penstock.settings.sinks import SearchSettings

_ID = "_id"
_VERSION = "\x00version"
_PAGE_DOCUMENTS = 1000
_DELETES = 1000
_KEEP = "5m"
_BUSY = {408, 429, 502, 503, 504}
_TRIES = 10


def search_settings(settings: SearchSettings, url: str) -> SearchSettings:
    """The settings of a target that is named as `https://host:9200/index`; the login stays that of the settings."""
    parts = urlsplit(url)
    prefix, _, index = parts.path.rpartition("/")
    if not parts.hostname or not index or parts.query or parts.fragment:
        raise InvalidInput("an index is named as https://host:9200/index")
    if parts.username is not None:
        raise InvalidInput("a login belongs into section search of the settings, not into a URL")
    name = unquote(index).replace("{", "{{").replace("}", "}}")
    return settings.model_copy(update={"urls": (f"{parts.scheme}://{parts.netloc}{prefix}",), "index": name})


class SearchShape(Shape):
    """Rows as documents: the id, and the JSON of each field."""

    def __init__(self) -> None:
        # The columns that get into documents; None: all of them.
        self.columns: frozenset[str] | None = None

    def key(self, schema: TableSchema) -> Sequence[str]:
        return _key(schema)

    def spelled(self, schema: TableSchema) -> Mapping[str, Spelling]:
        return _spelled(schema)

    def shown(self, schema: TableSchema, rows: pa.StructArray) -> pa.StructArray:
        there = rows.drop_null()
        return there.filter(_ids(schema, there).is_valid())

    def rows(self, schema: TableSchema, rows: pa.StructArray) -> pa.RecordBatch:
        names, arrays = [_ID], [_ids(schema, rows)]
        needed = {column.name for column in schema.key} if spelled_columns(schema) else frozenset[str]()
        for at, column in enumerate(schema.columns):
            if self.columns is None or column.name in self.columns or column.name in needed:
                text = render(column.type, field(rows, at), Form.SEARCH).to_pylist()
                names.append(field_name(column.name))
                arrays.append(
                    pa.array([None if one is None else _canonical(json.loads(one)) for one in text], pa.string())
                )
        return pa.RecordBatch.from_arrays(arrays, names=names)


def _ids(schema: TableSchema, rows: pa.StructArray) -> pa.Array:
    keys = [field(rows, rows.type.get_field_index(column.name)) for column in schema.key]
    return document_ids(schema, pa.StructArray.from_arrays(keys, names=[column.name for column in schema.key]))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _key(schema: TableSchema) -> Sequence[str]:
    """The id; or the key's fields, where one row can have several ids."""
    return [field_name(column.name) for column in schema.key] if spelled_columns(schema) else [_ID]


def _spelled(schema: TableSchema) -> Mapping[str, Spelling]:
    """The fields of those columns, which hold JSON, and the id, which is made of them."""
    columns = {field_name(name): _of_json(spelling) for name, spelling in spelled_columns(schema).items()}
    return columns | {_ID: str} if columns else {}


def _of_json(spelling: Spelling) -> Spelling:
    return lambda text: None if text is None else spelling(json.loads(text))


class SearchRows(TargetRows):
    """The documents of one index, of the fields that the source has columns for."""

    def __init__(
        self, settings: SearchSettings, schema: TableSchema, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._settings = settings
        self._schema = schema
        self._sleep = sleep
        self._target = Target.of(settings)
        self._index = self._target.index_of(schema.table)
        self.name = f"{settings.urls[0]}/{self._index}"

    def key(self) -> Sequence[str]:
        return _key(self._schema)

    def spelled(self) -> Mapping[str, Spelling]:
        return _spelled(self._schema)

    def columns(self) -> frozenset[str] | None:
        """The columns that get into documents; None: all of them."""
        client = Client(self._target.access)
        try:
            patience = Patience(self._target.retry_s_max, sleep=self._sleep)
            return Indices(self._target, client, patience).columns(self._schema)
        finally:
            client.close()

    def batches(self) -> Iterator[pa.RecordBatch]:
        client = Client(self._target.access)
        path = f"/{quote(self._index, safe='')}"
        scroll: str | None = None
        try:
            # Documents are found a moment after they were written, unless someone asks for it.
            self._ask(client, "POST", f"{path}/_refresh")
            query = {"size": _PAGE_DOCUMENTS, "version": True, "sort": ["_doc"], "query": {"match_all": {}}}
            page = self._ask(client, "POST", f"{path}/_search?scroll={_KEEP}", query)
            while True:
                scroll = str(page["_scroll_id"])
                hits = page["hits"]["hits"]
                if not hits:
                    return
                yield self._batch(hits)
                page = self._ask(client, "POST", "/_search/scroll", {"scroll": _KEEP, "scroll_id": scroll})
        finally:
            if scroll is not None:
                self._forget(client, scroll)
            client.close()

    def _forget(self, client: Client, scroll: str) -> None:
        try:
            client.request("DELETE", "/_search/scroll", {"scroll_id": [scroll]})
        except NoAnswer:
            # It ends by itself after a while.
            pass

    def _batch(self, hits: list[dict[str, Any]]) -> pa.RecordBatch:
        sources = [hit.get("_source") or {} for hit in hits]
        columns: dict[str, pa.Array] = {_ID: pa.array([hit["_id"] for hit in hits], pa.string())}
        for column in self._schema.columns:
            name = field_name(column.name)
            found = (source.get(name) for source in sources)
            columns[name] = pa.array([None if one is None else _canonical(one) for one in found], pa.string())
        columns[_VERSION] = pa.array([hit.get("_version", 0) for hit in hits], pa.int64())
        return pa.RecordBatch.from_pydict(columns)

    def sink(self, report: Report) -> Sink:  # noqa: ARG002
        return SearchSink(self._settings, sleep=self._sleep)

    def versions(self, kind: Kind, found: pa.Table | None, count: int, attempt: int, now_us: int) -> pa.Int64Array:
        if kind is Kind.DIFFERENT and found is not None:
            return found.column(_VERSION).combine_chunks()
        # Where the least version was not enough, the index remembers a deletion whose version it does not tell.
        return pa.repeat(pa.scalar(now_us if attempt else 0, pa.int64()), count)

    def delete(self, writer: Writer, found: pa.Table, now_us: int) -> int:  # noqa: ARG002
        """Delete documents by their ids, for one that is too many need not be one that we have named."""
        ids, versions = found.column(_ID).to_pylist(), found.column(_VERSION).to_pylist()
        client = Client(self._target.access)
        try:
            for start in range(0, len(ids), _DELETES):
                part = slice(start, start + _DELETES)
                self._send_deletes(client, list(zip(ids[part], versions[part], strict=True)))
        finally:
            client.close()
        return len(ids)

    def _send_deletes(self, client: Client, documents: list[tuple[str, int]]) -> None:
        """A deletion that comes too late for the document's version does nothing, and one sent twice does no harm."""
        actions = [
            {"_index": self._index, "_id": id_, "version": version, "version_type": "external_gte"}
            for id_, version in documents
        ]
        body = b"".join(json.dumps({"delete": action}).encode() + b"\n" for action in actions)
        items = self._tried(lambda: client.bulk("/_bulk", body)).get("items", [])
        refused = {result["status"] for item in items for result in item.values()} - {200, 404, 409}
        if refused or len(items) != len(documents):
            raise TargetRefused("the search cluster has not deleted all documents that are too many", index=self._index)

    def _ask(self, client: Client, method: str, path: str, content: object = None) -> Any:
        return self._tried(lambda: client.request(method, path, content))

    def _tried(self, send: Callable[[], Answer]) -> Any:
        """What the cluster answers, asked again when it is busy or away."""
        patience = Patience(self._target.retry_s_max, sleep=self._sleep)
        for _ in range(_TRIES):
            try:
                answer = send()
            except NoAnswer as error:
                patience.wait(error.message, index=self._index)
                continue
            if answer.status == 404 and answer.reason() == "index_not_found_exception":
                raise InvalidInput("there is no such index", index=self._index)
            if answer.status == 200:
                return answer.json()
            if answer.status not in _BUSY:
                raise TargetRefused(f"the search cluster refuses us: {answer.reason()}", index=self._index)
            patience.wait(answer.reason(), index=self._index)
        raise NoAnswer("the search cluster is busy or away", index=self._index)
