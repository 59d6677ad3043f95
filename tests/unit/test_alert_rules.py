"""The alert rules for Prometheus ask for metrics and labels that there are, and their page lists all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import telemetry
from penstock.pipeline.metrics import StatusCollector
from penstock.pipeline.status import PipelineStatus, SinkStatus, TableStatus, TroubleStatus
from penstock.serve.metrics import METRICS

ROOT = Path(__file__).parent.parent.parent
OPERATE = ROOT / "examples" / "operate"
PAGE = (ROOT / "docs" / "operate" / "monitoring.md").read_text(encoding="utf-8")
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((OPERATE / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
# What Prometheus itself adds to every series.
ADDED = {"instance", "job"}


def labels() -> dict[str, set[str]]:
    """The labels of every metric that is published."""
    status = PipelineStatus(
        tables={"ks.t": TableStatus(lag_ms=0.0)},
        sinks={"kafka": SinkStatus(left_out={"ks.t": 0})},
        troubles={"ks.t": TroubleStatus("CorruptLog", "", 0)},
    )
    families = StatusCollector(lambda: status).collect()
    found = {family.samples[0].name: set(family.samples[0].labels) for family in families}
    found |= {metric.name: set(metric.labels) for metric in METRICS}
    return {**found, telemetry.CLIENTS_TURNED_AWAY: {"server", "reason"}}


LABELS = labels()


def metrics_of(rule: dict[str, Any]) -> set[str]:
    names = set(re.findall(r"penstock_[a-z_]+", rule["expr"]))
    return {name.removesuffix("_bucket") if name.removesuffix("_bucket") in LABELS else name for name in names}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_asks_for_what_there_is(rule: dict[str, Any]) -> None:
    names = metrics_of(rule)
    assert names
    assert names <= set(telemetry.METRICS)
    known = ADDED.union(*(LABELS[name] for name in names))
    selected = {
        label for part in re.findall(r"\{([^}]*)\}", rule["expr"]) for label in re.findall(r"(\w+)\s*!?=", part)
    }
    grouped = {label for part in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in re.split(r",\s*", part)}
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert selected | shown <= known
    assert grouped <= known | {"le"}
    if grouped:
        assert shown <= grouped


def test_the_labels_are_those_of_all_metrics() -> None:
    assert set(LABELS) == set(telemetry.METRICS)


def test_the_page_lists_every_rule_with_its_severity() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert listed == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]


def test_the_rules_that_are_tried_are_there() -> None:
    tried = yaml.safe_load((OPERATE / "alerts-test.yml").read_text())["tests"]
    named = {case["alertname"] for test in tried for case in test["alert_rule_test"]}
    assert named <= {rule["alert"] for rule in RULES}


def test_what_is_scraped_is_what_the_rules_ask_for() -> None:
    configuration = yaml.safe_load((OPERATE / "prometheus.yml").read_text())
    jobs = {job["job_name"] for job in configuration["scrape_configs"]}
    assert jobs == {job for rule in RULES for job in re.findall(r'job="([^"]+)"', rule["expr"])}
    assert configuration["rule_files"] == ["alerts.yml"]
    shown = PAGE.split("```yaml\n", 1)[1].split("```", 1)[0]
    assert yaml.safe_load(shown)["scrape_configs"] == configuration["scrape_configs"]
