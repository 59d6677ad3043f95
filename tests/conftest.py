"""What the tests counted, shown at the end of a run: figures without which a green line says little."""

from __future__ import annotations

from collections import Counter

import pytest

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
