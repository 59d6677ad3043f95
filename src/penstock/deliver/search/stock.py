"""Stock: the documents that an index has, read page by page, and deleted or written anew as a whole.

Each document is written with the version that it had when it was read, as an external one. So a request that comes
twice or late does nothing to a document that has become newer meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from penstock.deliver.search.client import Answer, Client, NoAnswer
from penstock.deliver.search.patience import Patience
from penstock.errors import TargetRefused

_PAGE_DOCUMENTS = 1000
_KEEP = "5m"
_BUSY = {408, 429, 500, 502, 503, 504}
# Taken; not there any more; newer than what we know.
_DONE = {200, 201, 404, 409}
_BUSY_ITEMS = {429, 500, 502, 503, 504}
# What an index has that is not there.
_NOTHING: dict[str, Any] = {"_scroll_id": "", "hits": {"hits": []}}


@dataclass(frozen=True, slots=True)
class Copy:
    """What documents are in another index: fields that stay behind, and fields that get another name."""

    without: frozenset[str]
    renamed: Mapping[str, str]


class Stock:
    """The documents of one index."""

    def __init__(self, client: Client, patience: Patience, index: str) -> None:
        self._client = client
        self._patience = patience
        self._index = index

    def delete_all(self) -> int:
        """Delete every document; how many there were."""
        deleted = 0
        for page in self._pages(sources=False):
            self._send([({"delete": _named(hit, self._index)}, None) for hit in page])
            deleted += len(page)
        return deleted

    def rename(self, fields: Mapping[str, str]) -> int:
        """Give fields of all documents other names (old → new); in how many there were any."""
        renamed = 0
        for page in self._pages(sources=True):
            entries = []
            for hit in page:
                source = hit.get("_source") or {}
                if fields.keys() & source.keys():
                    made = {fields.get(name, name): value for name, value in source.items()}
                    entries.append(({"index": _named(hit, self._index)}, made))
            if entries:
                self._send(entries)
                renamed += len(entries)
        return renamed

    def copy(self, index: str, copy: Copy) -> int:
        """Write every document into another index; how many there were."""
        copied = 0
        for page in self._pages(sources=True):
            entries = []
            for hit in page:
                source = (hit.get("_source") or {}).items()
                kept = {copy.renamed.get(name, name): value for name, value in source if name not in copy.without}
                entries.append(({"index": _named(hit, index)}, kept))
            self._send(entries)
            copied += len(page)
        return copied

    def _pages(self, *, sources: bool) -> Iterator[list[dict[str, Any]]]:
        path = f"/{quote(self._index, safe='')}"
        # Documents are found a moment after they were written, unless someone asks for it.
        self._ask("POST", f"{path}/_refresh")
        query = {"size": _PAGE_DOCUMENTS, "version": True, "sort": ["_doc"], "query": {"match_all": {}}}
        page = self._ask("POST", f"{path}/_search?scroll={_KEEP}", {**query, "_source": sources})
        scroll = str(page["_scroll_id"])
        try:
            while page["hits"]["hits"]:
                yield page["hits"]["hits"]
                page = self._ask("POST", "/_search/scroll", {"scroll": _KEEP, "scroll_id": scroll})
                scroll = str(page["_scroll_id"])
        finally:
            if scroll:
                self._forget(scroll)

    def _forget(self, scroll: str) -> None:
        try:
            self._client.request("DELETE", "/_search/scroll", {"scroll_id": [scroll]})
        except NoAnswer:
            # It ends by itself after a while.
            pass

    def _send(self, entries: Sequence[tuple[dict[str, Any], dict[str, Any] | None]]) -> None:
        while entries:
            lines = [line for entry in entries for line in entry if line is not None]
            body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
            items = self._tried(partial(self._client.bulk, "/_bulk", body)).get("items", [])
            statuses = [int(result["status"]) for item in items for result in item.values()]
            refused = set(statuses) - _DONE - _BUSY_ITEMS
            if refused or len(statuses) != len(entries):
                raise TargetRefused(
                    "the search cluster does not let all documents be changed",
                    index=self._index,
                    status=max(refused, default=0),
                )
            entries = [entry for entry, status in zip(entries, statuses, strict=True) if status in _BUSY_ITEMS]
            if entries:
                self._patience.wait("busy", url=self._client.place)
        self._patience.over()

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        return self._tried(lambda: self._client.request(method, path, content))

    def _tried(self, send: Callable[[], Answer]) -> Any:
        """What the cluster answers, asked again while it is busy or away."""
        while True:
            place = self._client.place
            try:
                answer = send()
            except NoAnswer as error:
                self._patience.wait(error.message, url=place)
                continue
            if answer.status == 200:
                self._patience.over()
                return answer.json()
            if answer.status == 404 and answer.reason() == "index_not_found_exception":
                return _NOTHING
            if answer.status not in _BUSY:
                raise TargetRefused(f"the search cluster refuses us: {answer.reason()}", index=self._index)
            self._patience.wait(answer.reason(), url=place)


def _named(hit: Mapping[str, Any], index: str) -> dict[str, Any]:
    return {"_index": index, "_id": hit["_id"], "version": hit.get("_version", 0), "version_type": "external_gte"}
