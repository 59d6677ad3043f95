"""A real OpenSearch node."""

from __future__ import annotations

from typing import ClassVar

from testkit.search_server import Product, SearchServer

PRODUCT = Product(
    name="OpenSearch",
    word="opensearch",
    version="2.19.6",
    node="OpenSearchNode",
    sources=("OpenSearchNode.java",),
    options=("-Dopensearch.set.netty.runtime.available.processors=false",),
)


class OpenSearchServer(SearchServer):
    """One node of OpenSearch."""

    product: ClassVar[Product] = PRODUCT
