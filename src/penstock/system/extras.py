"""Extras: the packages that only some parts of Penstock need, and the sentence that says how to install them.

`pyproject.toml` declares what each extra brings; PACKAGES says what of it is imported, and a test holds the two
together. Whoever needs an extra asks for it with `need` before anything begins, so that what is missing is told in one
sentence, and no node was started and no directory made for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from penstock.errors import ExtraMissing

# By extra: the modules that are imported, and the packages that bring them.
PACKAGES = {
    "cassandra": {"cassandra": "scylla-driver", "cryptography": "cryptography", "yaml": "PyYAML"},
    "spark": {"pyspark": "pyspark", "pandas": "pandas", "py4j": "py4j"},
    "connect": {"grpc": "grpcio", "google.rpc": "googleapis-common-protos", "grpc_status": "grpcio-status"},
    "kafka": {"confluent_kafka": "confluent-kafka"},
    "delta": {"deltalake": "deltalake", "pyroaring": "pyroaring"},
    "iceberg": {"pyiceberg": "pyiceberg", "sqlalchemy": "SQLAlchemy"},
}
# Two packages that bring the same module, each over the other's files.
DRIVERS = ("scylla-driver", "cassandra-driver")


def need(what: str, extras: Iterable[str]) -> None:
    """Raise ExtraMissing, with the line that installs what is missing, unless all of these extras are here."""
    lacking = {extra: missing for extra in sorted(set(extras)) if (missing := _missing(extra))}
    if not lacking:
        return
    packages = [package for missing in lacking.values() for package in missing]
    named = packages[0] if len(packages) == 1 else f"{', '.join(packages[:-1])} and {packages[-1]}"
    verb = "is" if len(packages) == 1 else "are"
    raise ExtraMissing(f"{what} needs {named}, which {verb} not installed: {install_line(lacking)}")


def install_line(extras: Iterable[str]) -> str:
    """What to type to get these extras."""
    return f'pip install "penstock[{",".join(sorted(extras))}]"'


def installed_drivers() -> list[str]:
    """The Cassandra drivers that are here, with their versions. With both, which one's files were kept is unknown."""
    from importlib import metadata

    found = []
    for name in DRIVERS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def _missing(extra: str) -> list[str]:
    """The packages of one extra that are not here."""
    return [package for module, package in PACKAGES[extra].items() if not _is_here(module)]


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        # The package that it is in is not here.
        return False
