"""The Cassandras that the tests run: version, commit-log format, and settings.

4.1 and 5.0 always run. 3.11 needs an old Java, which not every machine can have: `scripts/prepare-tests` fetches one,
and where that failed this version is left out, which the end of the run says. Nothing else is optional.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.capture.cassandra.segments.keystore import KeyStore
from penstock.sandbox import cassandra_jars
from penstock.sandbox.cassandra_server import CassandraServer

CACHE = Path(__file__).parent.parent.parent.parent / ".cache"


@dataclass(frozen=True, eq=False)
class Variant:
    """One kind of node."""

    name: str
    version: str
    log_format: int
    settings: Mapping[str, object] = field(default_factory=dict)
    # The cases of the matrix that run on it; none named means all.
    cases: tuple[str, ...] = ()
    encrypted: bool = False

    @property
    def number(self) -> tuple[int, int]:
        return cassandra_jars.number_of(self.version)

    def server(self, directory: Path) -> CassandraServer:
        settings = dict(self.settings)
        if self.encrypted:
            settings["transparent_data_encryption_options"] = _encryption(keystore(self, directory))
        return CassandraServer(self.version, directory, cache=CACHE, settings=settings, options=_QUICK_SCHEMA)

    def keys(self, directory: Path) -> KeyStore | None:
        return KeyStore.open(str(keystore(self, directory)), PASSWORD) if self.encrypted else None


# A table is made in a tenth of the time when the schema is not flushed to data files each time; the log is the same.
_QUICK_SCHEMA = ["-Dcassandra.test.flush_local_schema_changes=false"]
PASSWORD = "a password of the tests"
ALIAS = "commit:1"
# Compressed and encrypted segments are written at a sync; with this every write waits for one.
_SYNCED: dict[str, object] = {"commitlog_sync": "batch", "commitlog_sync_period": None}
_SOME = ("simple", "lists", "user types", "statics", "batches", "ranges asc", "counters", "large values", "random 1")
VARIANTS = (
    Variant("5.0-format-8", "5.0.9", 8, {"storage_compatibility_mode": "NONE"}),
    Variant("4.1", "4.1.10", 7),
    Variant("6.0", "6.0-alpha2", 9),
    Variant("3.11", "3.11.19", 6),
    Variant("4.0", "4.0.19", 7),
    Variant("5.0-format-7", "5.0.9", 7),
    Variant("4.1-encrypted", "4.1.10", 7, _SYNCED, cases=_SOME, encrypted=True),
    Variant(
        "5.0-compressed",
        "5.0.9",
        8,
        {
            "storage_compatibility_mode": "NONE",
            "commitlog_compression": [{"class_name": "LZ4Compressor"}],
            **_SYNCED,
        },
        cases=_SOME,
    ),
    Variant(
        "5.0-direct",
        "5.0.9",
        8,
        {"storage_compatibility_mode": "NONE", "commitlog_disk_access_mode": "direct", **_SYNCED},
        cases=_SOME,
    ),
)


def keystore(variant: Variant, directory: Path) -> Path:
    """A Java key store with a secret key, made once with Java's own keytool."""
    path = directory / "keys.jceks"
    if not path.exists():
        keytool = cassandra_jars.java_for(variant.version, CACHE).parent / "keytool"
        words = ["-genseckey", "-alias", ALIAS, "-keyalg", "AES", "-keysize", "128", "-storetype", "JCEKS"]
        words += ["-keystore", str(path), "-storepass", PASSWORD, "-keypass", PASSWORD]
        subprocess.run([str(keytool), *words], check=True, capture_output=True, timeout=120)
    return path


def _encryption(path: Path) -> dict[str, object]:
    return {
        "enabled": True,
        "chunk_length_kb": 64,
        "cipher": "AES/CBC/PKCS5Padding",
        "key_alias": ALIAS,
        "key_provider": [
            {
                "class_name": "org.apache.cassandra.security.JKSKeyProvider",
                "parameters": [
                    {
                        "keystore": str(path),
                        "keystore_password": PASSWORD,
                        "store_type": "JCEKS",
                        "key_password": PASSWORD,
                    }
                ],
            }
        ],
    }


def left_out(cache: Path = CACHE) -> list[Variant]:
    """Those that no Java here can run."""
    return [variant for variant in VARIANTS if not cassandra_jars.has_java(variant.version, cache)]


def runnable() -> list[Variant]:
    missing = left_out()
    return [variant for variant in VARIANTS if variant not in missing]
