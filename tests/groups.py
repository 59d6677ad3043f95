"""Which tests belong together: those that use the same Cassandra node or other server, the same peer or the same build.

Every other test is a group of its own.

The marker that pytest-xdist has for this goes by a private part of a test's name, which newer versions of pytest
ignore; the name itself says as much.
"""

from __future__ import annotations

import re

_ON_CASSANDRA = re.compile(r"tests/integration/cassandra/(\w+)\.py::\w+(?:\[(.*)\])?", re.DOTALL)
_WITH_A_SERVER = re.compile(
    r"tests/integration/pipeline/(test_kafka|test_kafka_progress|test_losses|test_search)\.py::.*", re.DOTALL
)
_ON_DELTA_SPARK = re.compile(r"tests/integration/pipeline/test_(?:delta_spark|spark_connect)\.py::.*", re.DOTALL)
_ON_SPARK = re.compile(r"tests/integration/pipeline/test_(?:pipeline|source|dead_letters)\w*\.py::.*", re.DOTALL)
_INSTALLING = re.compile(r"tests/integration/test_install\.py::.*", re.DOTALL)
_WITH_A_PEER = re.compile(r"tests/integration/(test_commit_log_(?:writer_)?referee)\.py::.*", re.DOTALL)


def group_of(name: str) -> str:
    """The group of the test with this name: its kind of node, else its module, where it runs on Cassandra at all."""
    if match := _WITH_A_PEER.fullmatch(name):
        return f"peers of {match.group(1)}"
    if _INSTALLING.fullmatch(name):
        return "install"
    if _ON_SPARK.fullmatch(name):
        return "spark"
    if _ON_DELTA_SPARK.fullmatch(name):
        return "spark with delta"
    if match := _WITH_A_SERVER.fullmatch(name):
        return f"server of {match.group(1)}"
    match = _ON_CASSANDRA.fullmatch(name)
    if match is None:
        return name
    from tests.integration.cassandra.variants import VARIANTS

    module, parameters = match.group(1), match.group(2) or ""
    # `4.1` also begins the names of its encrypted kind.
    for variant in sorted((variant.name for variant in VARIANTS), key=len, reverse=True):
        if parameters == variant or parameters.startswith(f"{variant}-"):
            return f"cassandra {variant}"
    return f"cassandra {module}"
