"""A search cluster on loopback whose answers are scripted: busy, away, slow to answer, taking only a part.

Documents are kept as a cluster would keep them by external versions, so that a test can look at what came of it all.
"""

from __future__ import annotations

import gzip
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.certificates import Certificate

OPENSEARCH = {"version": {"number": "2.19.6", "distribution": "opensearch"}}
ELASTICSEARCH = {"version": {"number": "8.19.0", "build_flavor": "default"}, "tagline": "You Know, for Search"}
# What a script may do besides answering: drop the connection before or after the request was carried out, or carry it
# out and not answer before `release` is set.
DROP_BEFORE, DROP_AFTER, STALL = -1, -2, -3
_BODIES = ("application/json", "application/x-ndjson")
Item = tuple[str, str, dict[str, Any], bytes]


@dataclass
class ScriptedSearch:
    """The cluster. `script` holds what the next bulk requests are answered with; when it is empty, they are taken."""

    url: str = ""
    product: dict[str, Any] = field(default_factory=lambda: OPENSEARCH)
    script: list[int] = field(default_factory=list)
    # What an item is answered with: its status and the type of its error; None takes it.
    refuse: Callable[[str], tuple[int, str] | None] = lambda _: None
    authorization: str | None = None
    indices: dict[str, Any] = field(default_factory=dict)
    documents: dict[tuple[str, str], tuple[int, dict[str, Any] | None]] = field(default_factory=dict)
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    # Scrolls that were begun and not ended.
    scrolls: int = 0
    release: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    @property
    def bulks(self) -> list[list[Item]]:
        """The items of each bulk request that came."""
        return [list(items(body)) for _, path, body in self.requests if path == "/_bulk"]

    def rows(self, index: str) -> dict[str, dict[str, Any]]:
        found = {id_: source for (name, id_), (_, source) in self.documents.items() if name == index}
        return {id_: source for id_, source in found.items() if source is not None}

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        with self.lock:
            self.requests.append((method, path, body))
            if path == "/":
                return 200, self.product
            if path == "/_bulk":
                return self._bulk(body)
            if path.endswith("/_refresh"):
                return 200, {}
            if "/_search" in path:
                return self._search(method, unquote(path.strip("/")).partition("/")[0], json.loads(body))
            return self._index(method, unquote(path.strip("/")), json.loads(body or b"{}"))

    def _bulk(self, body: bytes) -> tuple[int, Any]:
        status = self.script.pop(0) if self.script else 200
        if status in (200, DROP_AFTER, STALL):
            results = [self._take(item) for item in items(body)]
            errors = any("error" in next(iter(result.values())) for result in results)
            return status, {"errors": errors, "items": results}
        return status, {"error": {"type": "scripted_exception", "reason": "as the script says"}, "status": status}

    def _search(self, method: str, index: str, content: Any) -> tuple[int, Any]:
        """A scroll: its name holds the index and how many documents were given."""
        if method == "DELETE":
            self.scrolls -= 1
            return 200, {"succeeded": True}
        if "scroll_id" in content:
            index, size, start = json.loads(content["scroll_id"])
        else:
            size, start = content["size"], 0
            self.scrolls += 1
            if index not in self.indices:
                return 404, {"error": {"type": "index_not_found_exception"}}
        found = [(id_, self.documents[index, id_][0], source) for id_, source in self.rows(index).items()]
        page = [{"_id": a, "_version": b, "_source": c} for a, b, c in found[start : start + size]]
        return 200, {"_scroll_id": json.dumps([index, size, start + size]), "hits": {"hits": page}}

    def _take(self, item: Item) -> dict[str, Any]:
        action, id_, meta, source = item
        refusal = self.refuse(id_)
        if refusal is not None:
            return {action: {"status": refusal[0], "error": {"type": refusal[1], "reason": "no", "caused_by": None}}}
        key = (meta["_index"], id_)
        known = self.documents.get(key)
        if known is not None and meta["version"] < known[0]:
            return {action: {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "old"}}}
        self.documents[key] = (meta["version"], json.loads(source) if action == "index" else None)
        return {action: {"status": 201 if known is None else 200}}

    def _index(self, method: str, path: str, content: Any) -> tuple[int, Any]:
        name, _, rest = path.partition("/")
        if method == "GET":
            if name not in self.indices:
                return 404, {"error": {"type": "index_not_found_exception"}}
            return 200, {name: {"mappings": self.indices[name]["mappings"]}}
        if rest == "_mapping":
            mapping = self.indices[name]["mappings"]
            mapping["_meta"] = content["_meta"]
            mapping.setdefault("properties", {}).update(content["properties"])
        elif name in self.indices:
            return 400, {"error": {"type": "resource_already_exists_exception"}}
        else:
            self.indices[name] = content
        return 200, {"acknowledged": True}


def items(body: bytes) -> Iterator[Item]:
    """Action, id, meta data and document of each item of a bulk request."""
    lines = iter(body.split(b"\n"))
    for line in lines:
        if line:
            ((action, meta),) = json.loads(line).items()
            yield action, meta["_id"], meta, next(lines) if action == "index" else b""


def _known_media(accepted: str | None, given: str | None) -> bool:
    """Whether every version takes a request: media types of a version's own clients are errors to an older one."""
    return accepted in (None, "*/*", "application/json") and given in (None, *_BODIES)


@contextmanager
def scripted_search(certificate: Certificate | None = None) -> Iterator[ScriptedSearch]:
    """The cluster, listening; with a certificate, for TLS."""
    cluster = ScriptedSearch()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if not _known_media(self.headers.get("Accept"), self.headers.get("Content-Type")):
                status, content = 400, {"error": {"type": "media_type_header_exception"}}
            elif cluster.authorization not in (None, self.headers.get("Authorization")):
                status, content = 401, {"error": {"type": "security_exception"}}
            else:
                status, content = cluster.answer(self.command, urlsplit(self.path).path, body)
            if status < 0:
                if status == STALL:
                    cluster.release.wait(60)
                self.close_connection = True
                return
            text = json.dumps(content, separators=(",", ":")).encode()
            self.send_response(status)
            if cluster.product is ELASTICSEARCH:
                self.send_header("X-elastic-product", "Elasticsearch")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_DELETE = _do  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.file, certificate.key_file)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        # A handshake that the client breaks off is no news.
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    scheme = "http" if certificate is None else "https"
    cluster.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cluster
    finally:
        cluster.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
