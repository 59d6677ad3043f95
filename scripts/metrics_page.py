"""Makes docs/reference/metrics.md from the list of metrics, so that page and code cannot differ.

`python scripts/metrics_page.py` prints the page, `--write` writes it. A unit test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.pipeline.metrics import StatusCollector
from penstock.pipeline.status import PipelineStatus, SinkStatus, TableStatus, TroubleStatus
from penstock.serve.metrics import METRICS, Metric

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
_HEAD = """# Metrics

<!-- Made by scripts/metrics_page.py from src/penstock/serve/metrics.py; `make docs` writes it. -->

The agent's [HTTP server](http.md) gives these under `/metrics`, in Prometheus's text format. A counter counts since the
agent was started, unless its meaning says otherwise; sizes of logs and places of subscriptions are looked at every five
seconds. A log is named by its directory. The last column is the attribute of Debezium's MBeans
`debezium.cassandra:type=connector-metrics,context=snapshot|streaming,server=…` that says the same.

| metric | kind | labels | meaning | Debezium's JMX |
| --- | --- | --- | --- | --- |
"""
_TAIL = """
Both the agent and the pipeline also count `penstock_turned_away_clients_total`, by `server` (`http`, `listener`) and
`reason`: connections beyond the bounds, silent ones that gave up their place, wrong tokens or frames at the listener.

Debezium's `SnapshotPaused`, `SnapshotSkipped`, `CapturedTables` and the chunk attributes never change in its Cassandra
connector and have no counterpart. `CommitLogFilename` is text, which a metric cannot be; the number in the segment's
name, `CommitLog-8-1794726648383.log` for one, says the same.

What to be warned about is in [Monitoring](../operate/monitoring.md), with rules for Prometheus.
"""


_PIPELINE = """
## The pipeline

With `pipeline.http_port`, the pipeline gives these of its own under `/metrics`:

| metric | kind | labels | meaning |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(map(_row, METRICS)) + _TAIL + _PIPELINE + "".join(_pipeline_rows())


def _pipeline_rows() -> Iterator[str]:
    # The status of no pipeline in particular, with a table and a sink, so that no metric is left out.
    status = PipelineStatus(
        tables={"ks.t": TableStatus(lag_ms=0.0)},
        sinks={"kafka": SinkStatus(left_out={"ks.t": 0})},
        troubles={"ks.t": TroubleStatus("CorruptLog", "", 0)},
    )
    for family in StatusCollector(lambda: status).collect():
        labels = ", ".join(f"`{label}`" for label in family.samples[0].labels)
        name = family.samples[0].name
        yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    debezium = f"`{metric.debezium}`" if metric.debezium else ""
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {debezium} |\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())
