"""Campaigns leave records, and the page is made of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from scripts import campaigns_page
from tests import campaigns


def test_page_is_what_the_records_give() -> None:
    assert campaigns_page.PAGE.read_text(encoding="utf-8") == campaigns_page.page(), "run `make docs`"


def test_record_says_what_was_run_and_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CAMPAIGN", "make kill-campaign AGENT_KILLS=4")
    broken = Counter(lost=2, invented=1, order=3)
    campaigns.keep("kills", "agent", 7, {"agent": 4, "node": 1}, {"rows": 12_345}, broken, records=tmp_path)
    (file,) = tmp_path.iterdir()
    record = json.loads(file.read_text())
    assert (record["lost"], record["invented"], record["otherwise_broken"], record["seed"]) == (2, 1, 3, 7)
    text = campaigns_page.page(tmp_path)
    assert "| agent | 5 | 2 | 1 | 3 |" in text
    assert "`make kill-campaign AGENT_KILLS=4` |" in text
    assert "- *agent*: 4 × agent, 1 × node; rows: 12,345; seed 7.\n" in text


def test_what_was_measured_over_time_is_shown_with_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CAMPAIGN", "make soak")
    levels = {
        name: {"first": 61_000, "last": last, "rise": 12, "bound": 4096, "peak": 70_000, "flat": flat, "values": [1]}
        for name, last, flat in (("memory, KiB", 61_100, True), ("disk, KiB", 99_000, False))
    }
    campaigns.keep("soak", "soak", 7, {"kill -9": 4}, {}, {}, levels=levels, records=tmp_path)
    text = campaigns_page.page(tmp_path)
    assert "| memory, KiB | 61,000 | 61,100 | 12 | 4,096 | 70,000 |" in text
    assert "| disk, KiB **(grows)** | 61,000 | 99,000 |" in text


def test_ordinary_test_run_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_CAMPAIGN", raising=False)
    campaigns.keep("kills", "agent", 7, {"agent": 4}, {}, {}, records=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert "No campaign has been kept yet." in campaigns_page.page(tmp_path)
