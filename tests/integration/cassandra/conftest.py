"""Real nodes for the tests. A node is started once for all tests that use it, in one process, and ended by its id."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.integration.cassandra import variants
from tests.integration.cassandra.recording import Recording, record
from tests.integration.cassandra.variants import Variant


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for variant in variants.left_out():
        terminalreporter.write_line(f"Cassandra {variant.version} was left out: no Java here can run it")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Variant], Recording | Exception]:
    """The matrix, run once on each node that is asked for."""

    @cache
    def recorded(variant: Variant) -> Recording | Exception:
        try:
            return record(variant, tmp_path_factory.mktemp(f"cassandra-{variant.name}"))
        except Exception as error:  # noqa: BLE001
            # A node that does not come up is not started again for each of a hundred tests.
            return error

    return recorded


@pytest.fixture
def recording(variant: Variant, recordings: Callable[[Variant], Recording | Exception]) -> Recording:
    found = recordings(variant)
    if isinstance(found, Exception):
        raise found
    return found
