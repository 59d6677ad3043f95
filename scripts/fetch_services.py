"""Fetch what the tests' real targets of the pipeline need into a cache directory: jars, through Maven."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.errors import PenstockError
from testkit import apicurio_registry, elasticsearch_server, kafka_broker, opensearch_server


def main(cache: Path) -> int:
    try:
        for product in (opensearch_server.PRODUCT, elasticsearch_server.PRODUCT):
            product.prepare(cache, print)
        for server in (kafka_broker, apicurio_registry):
            server.prepare(cache, print)
    except PenstockError as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
