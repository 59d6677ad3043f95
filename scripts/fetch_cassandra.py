"""Fetch what the tests' Cassandra nodes need into a cache directory: the jars of every version, and a Java for each.

Only 3.11 may go without: it needs an old Java, which not every machine can have. Its tests are then left out, and the
end of the run says so.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.errors import PenstockError, ToolMissing
from penstock.sandbox import cassandra_jars

OPTIONAL = "3.11"


def main(cache: Path) -> int:
    for version in cassandra_jars.VERSIONS:
        try:
            cassandra_jars.java_for(version, cache, print)
            cassandra_jars.jars(version, cache, print)
        except ToolMissing as error:
            print(f"penstock: {error}", file=sys.stderr)
            if not version.startswith(OPTIONAL):
                return 1
        except PenstockError as error:
            print(f"penstock: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
