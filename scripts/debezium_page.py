"""Makes docs/reference/debezium.md from the table of Debezium's properties, so that page and code cannot differ.

`python scripts/debezium_page.py` prints the page, `--write` writes it. A unit test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.capture.cassandra.debezium.driver_config import DRIVER_KEYS, SSL_KEYS
from penstock.capture.cassandra.debezium.table import TABLE, Known, Origin, Status

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "debezium.md"
_HEAD = """# Debezium's properties

<!-- Made by scripts/debezium_page.py from src/penstock/capture/cassandra/debezium/table.py; `make docs` writes it. -->

The agent takes a configuration file of Debezium's Cassandra connector unchanged:

```
penstock agent config.properties
```

A file whose name ends in `.properties` is read as Java reads it: the same escapes, continuation lines and separators,
and of equal names the last one counts. Each property has one of four fates:

- **mapped**: it becomes the named setting. An environment variable still wins: `PENSTOCK_HTTP__PORT=8001`.
- **kept for the pipeline**: it concerns what is sent on to Kafka. The agent takes it and writes every change to the
  table's log in full; the property waits for the pipeline that reads the log.
- **accepted without effect**: Penstock does not need it. All such properties of a file make one warning.
- **refused**: the agent does not start, and says what to do instead.

A name that stands nowhere on this page is refused too, with the nearest one that does, because a misspelt name would
otherwise be a setting that silently does not hold:

```
penstock: unknown property; did you mean http.port? (file config.properties, line 3, property http.prot)
```

Values are checked even where they have no effect yet. Passwords never appear in a message, whatever is wrong.

What differs from Debezium when nothing is said about it:

- Changes are read as soon as Cassandra's index says that they are durable (`agent.tail = "synced"`), not when a segment
  is full. `PENSTOCK_AGENT__TAIL=written` brings them milliseconds after the write, and also what Cassandra itself
  forgets when its process is killed: with `commitlog_sync: periodic` it replays only up to its last sync marker.
- The HTTP server listens on the loopback only.
- Segments that could not be read stay in `error` of the relocation directory. Debezium's default deletes them.
- Debezium's own offset files are not used: the agent begins with the oldest segment in cdc_raw.
"""
_FILES = """
## The driver's file

`cassandra.driver.config.file` names a file for the Java driver, in the format HOCON. These keys of its
`datastax-java-driver` are read, with substitutions from the file and the environment:

{driver}

Its other keys tune the Java driver and have no effect; one warning names them. Includes, `+=` and objects inside lists
are refused with their line. Without the property, `application.conf` in the working directory is read when it exists.
What the driver's file says wins over `cassandra.hosts` and the other older properties.

The older `cassandra.ssl.config.path` names a properties file with these keys:

{ssl}

## Key stores

JKS and PKCS12 stores are read as they are: `trustStore.location` and `truststore-path` name the certificates to trust,
`keyStore.location` and `keystore-path` the client's own certificate and key, of which the first is shown. The type is
taken from the file, not from `trustStore.type`. A PEM file may stand in the place of either. JCEKS stores are refused;
`keytool -importkeystore -deststoretype PKCS12` converts them. The node's certificate must name the address that was
connected to, unless `hostname-validation = false` or `PENSTOCK_CASSANDRA__TLS_VERIFY_HOST=false` says otherwise.

The key store of an encrypted commit log is another matter: `cassandra.keystore_file` reads JCEKS and PKCS12.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for origin in Origin:
        parts.append(f"\n## {origin}\n\n| property | default | what becomes of it | how |\n| --- | --- | --- | --- |\n")
        parts += [_row(entry) for entry in TABLE if entry.origin is origin]
    parts.append(_FILES.format(driver=_listed(DRIVER_KEYS), ssl=_listed(SSL_KEYS)))
    return "".join(parts)


def _row(entry: Known) -> str:
    default = f"`{entry.default}`" if entry.default else ""
    return f"| `{entry.name}` | {default} | {_fate(entry)} | {entry.note} |\n"


def _fate(entry: Known) -> str:
    if entry.status is Status.MAPPED and entry.settings:
        return ", ".join(f"`{name}`" for name in entry.settings)
    if entry.now:
        return f"{entry.status} as `{entry.now}`"
    return str(entry.status)


def _listed(names: tuple[str, ...]) -> str:
    return "\n".join(f"- `{name}`" for name in names)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
