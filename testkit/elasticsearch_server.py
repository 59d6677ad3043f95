"""A real Elasticsearch node.

Of its modules only the transport is published as a jar. So `GET /`, which is a module's work, is answered by a class of
ours, and there are neither the text analysers nor the field `unsigned_long` of the distribution. Everything else is
Elasticsearch's own.
"""

from __future__ import annotations

from typing import ClassVar

from testkit.search_server import Product, SearchServer

PRODUCT = Product(
    name="Elasticsearch",
    word="elasticsearch",
    version="8.19.5",
    node="org.elasticsearch.node.ElasticsearchNode",
    sources=("ElasticsearchNode.java", "ElasticsearchPlugins.java"),
    options=("-Des.set.netty.runtime.available.processors=false",),
)


class ElasticsearchServer(SearchServer):
    """One node of Elasticsearch."""

    product: ClassVar[Product] = PRODUCT
