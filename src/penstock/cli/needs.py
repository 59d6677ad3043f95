"""Needs: which command needs which extra, under which settings. The one place that knows.

Each command asks here before it begins anything: before a directory is made, a port taken or a server started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli import output
from penstock.system import extras

if TYPE_CHECKING:
    from penstock.settings import Settings

_CASSANDRA, _SPARK, _DELTA, _ICEBERG = "cassandra", "spark", "delta", "iceberg"
# Sinks whose libraries are extras of the same name; the others need nothing that Spark does not.
_SINKS = frozenset(("kafka", _DELTA, _ICEBERG))


def for_agent(settings: Settings, what: str = "penstock agent") -> None:
    """The agent: the driver when there is a node to ask, and what reads the node's own files."""
    _need(what, _of_agent(settings))


def for_pipeline(settings: Settings, what: str = "penstock pipeline") -> None:
    """The pipeline: Spark, and what its sinks are made of."""
    _need(what, {_SPARK, *_of_sinks(settings)}, spark_runs=True)


def for_run(settings: Settings) -> None:
    """Both, in processes of their own; what one lacks is told before the other starts."""
    needed = _of_agent(settings)
    if settings.pipeline.sinks:
        needed |= {_SPARK, *_of_sinks(settings)}
    _need("penstock run", needed, spark_runs=_SPARK in needed)


def for_replay(settings: Settings) -> None:
    """Delivering dead letters again: the sinks, without Spark."""
    _need("penstock dead-letters replay", _of_sinks(settings))


def for_bootstrap() -> None:
    """Loading a state from Delta tables."""
    _need("penstock bootstrap", {_SPARK, _DELTA})


def for_compare(*, cluster: bool, delta: bool, iceberg: bool) -> None:
    """Comparing: what the two sides are read with."""
    sides = ((cluster, _CASSANDRA), (delta, _DELTA), (iceberg, _ICEBERG))
    _need("penstock compare", {extra for wanted, extra in sides if wanted})


def for_demo(*, cassandra: bool) -> None:
    """The demo with a real Cassandra node, or with the pipeline into Delta tables."""
    if cassandra:
        _need("penstock demo --cassandra", {_CASSANDRA})
    else:
        _need("penstock demo --spark", {_SPARK, _DELTA}, spark_runs=True)


def for_commit_log(command: str, *, asks: bool) -> None:
    """Looking into commit logs: nothing, unless a node, its cassandra.yaml or a key store is to be read."""
    _need(f"penstock cassandra {command}", {_CASSANDRA} if asks else set())


def _of_agent(settings: Settings) -> set[str]:
    if settings.source.kind != _CASSANDRA:
        return set()
    node = settings.cassandra
    files = (node.config_file, node.keystore_file, node.tls_trust_store_file, node.tls_key_store_file)
    return {_CASSANDRA} if node.contact_points or any(file is not None for file in files) else set()


def _of_sinks(settings: Settings) -> set[str]:
    return {name for name in settings.pipeline.sinks if name in _SINKS and name not in settings.pipeline.own_sinks}


def _need(what: str, needed: set[str], *, spark_runs: bool = False) -> None:
    extras.need(what, needed)
    if spark_runs:
        from penstock.pipeline.session import check_installed

        check_installed()
    if _CASSANDRA in needed and len(drivers := extras.installed_drivers()) > 1:
        output.note(
            f"note: {' and '.join(drivers)} are both installed, and each has overwritten files of the other; keep one: "
            "pip uninstall both, then install one again"
        )
