"""The command line sets up logging for the whole process; tests put it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)
