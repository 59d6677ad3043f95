"""How tests are shared out among processes, and what they counted: figures without which a green line says little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings

from tests import counted
from tests.groups import group_of
from tests.order import rank
from tests.quick import is_quick

# How long an example takes says how busy the machine is, and nothing about the code.
settings.register_profile("untimed", settings(deadline=None))
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that are quick and need no server")


def pytest_configure(config: pytest.Config) -> None:
    # Groups are begun in the order of the tests, not by how many tests they have.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item.nodeid)])
        items[:] = [item for item in items if is_quick(item.nodeid)]
    items.sort(key=lambda item: rank(item.nodeid))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    recorded = [one for report in reports if report.when == "call" for one in report.user_properties]
    for line in counted.summary(recorded):
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    """The command line sets up logging for the whole process: put it back, or others write to a stream that is gone."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests that share a server go to one process, so that it is started once; all others wherever there is room."""
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)
