"""Metrics: every number of the status is there once, under its documented name."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock import telemetry
from penstock.capture.cassandra.agent.agent import Agent
from penstock.capture.cassandra.agent.status import CassandraStatus
from penstock.capture.cassandra.snapshot.status import SnapshotStatus, Stage, TableProgress
from penstock.log.subscriptions import SubscriptionState
from penstock.log.survey import LogFigures
from penstock.model.position import Position
from penstock.model.schema import TableId
from penstock.serve.http import health_checks
from penstock.serve.metrics import METRICS, AgentMetrics
from penstock.settings import AgentSettings, Settings
from penstock.system.timing import BOUNDS_S, Durations
from scripts import metrics_page

SNAPSHOT = SnapshotStatus(
    "initial",
    running=True,
    completed=True,
    aborted=True,
    retries=101,
    tables_total=102,
    tables_remaining=103,
    duration_s=104.5,
    rows={"shop.orders": 105},
    tables=(TableProgress(TableId("shop", "orders"), Stage.RUNNING, 1, 105, 2, 0.25, None, 0, None),),
)
# A different number in every field, so that no two can be mixed up.
FULL = CassandraStatus(
    node="node1",
    data_centre="dc1",
    started_time_us=1_000_000,
    running=True,
    waiting="x",
    segment="CommitLog-8-2.log",
    position=3,
    saved_segment="CommitLog-8-4.log",
    saved_position=5,
    mutations=6,
    changes=7,
    skipped=8,
    parked=9,
    parked_waiting=10,
    parked_bytes=11,
    damaged=12,
    segments_done=13,
    segments_failed=14,
    segments_lost=15,
    foreign_files=16,
    appended_bytes=17,
    table_changes={"shop.orders": 18, "shop.carts": 19},
    cdc_gaps={"shop.carts": 28},
    unreadable_checkpoints={"shop.orders": 27},
    cdc_raw_bytes=20,
    cdc_raw_bytes_max=21,
    cdc_raw_segments=22,
    lag_bytes=23,
    lag_s=24.5,
    last_write_time_us=25_000_000,
    last_capture_time_us=26_000_000,
    queryable=True,
    append_durations=Durations((1, *(0,) * 10, 2), 28.5),
    sync_durations=Durations((0, 3, *(0,) * 10), 29.5),
    logs={
        "shop.orders": LogFigures(
            30,
            31,
            None,
            (
                SubscriptionState("billing", Position(1, 2, 3), 4, 5, 32, 33_000_000, 34),
                SubscriptionState("broken", error="checkpoint not readable"),
            ),
        ),
        "shop.orders@big!parked": LogFigures(35, 36, 37),
    },
    lost_changes={("shop.orders", "billing"): 38, ("shop.carts", ""): 39},
    listener_clients=40,
    time_us=34_000_000,
    snapshot=SNAPSHOT,
)


def samples(status: CassandraStatus) -> dict[tuple[str, tuple[str, ...]], float]:
    text = AgentMetrics(lambda: status).text().decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_number_stands_under_its_name() -> None:
    steps = [f"{bound:g}" for bound in BOUNDS_S]
    expected: dict[tuple[str, tuple[str, ...]], float] = {
        ("penstock_append_seconds_bucket", (step,)): 1.0 for step in steps
    }
    expected |= {("penstock_sync_seconds_bucket", (step,)): 3.0 for step in steps}
    expected |= {
        ("penstock_sync_seconds_bucket", (steps[0],)): 0.0,
        ("penstock_sync_seconds_bucket", ("+Inf",)): 3.0,
        ("penstock_append_seconds_bucket", ("+Inf",)): 3.0,
    }
    assert samples(FULL) == expected | {
        ("penstock_agent_info", ("dc1", "node1", penstock.__version__)): 1,
        ("penstock_agent_running", ()): 1,
        ("penstock_agent_waiting", ()): 1,
        ("penstock_agent_start_time_seconds", ()): 1,
        ("penstock_cassandra_queryable", ()): 1,
        ("penstock_commit_log_segment_id", ()): 2,
        ("penstock_commit_log_position_bytes", ()): 3,
        ("penstock_commit_log_saved_segment_id", ()): 4,
        ("penstock_commit_log_saved_position_bytes", ()): 5,
        ("penstock_commit_log_mutations_total", ()): 6,
        ("penstock_commit_log_skipped_mutations_total", ()): 8,
        ("penstock_parked_entries_total", ()): 9,
        ("penstock_parked_entries", ()): 10,
        ("penstock_parked_bytes", ()): 11,
        ("penstock_commit_log_damaged_places_total", ()): 12,
        ("penstock_commit_log_segments_total", ("done",)): 13,
        ("penstock_commit_log_segments_total", ("failed",)): 14,
        ("penstock_commit_log_segments_total", ("lost",)): 15,
        ("penstock_cdc_raw_foreign_files", ()): 16,
        ("penstock_appended_bytes_total", ()): 17,
        ("penstock_appended_changes_total", ("shop.orders",)): 18,
        ("penstock_appended_changes_total", ("shop.carts",)): 19,
        ("penstock_cdc_raw_bytes", ()): 20,
        ("penstock_cdc_raw_limit_bytes", ()): 21,
        ("penstock_cdc_raw_segments", ()): 22,
        ("penstock_capture_lag_bytes", ()): 23,
        ("penstock_capture_lag_seconds", ()): 24.5,
        ("penstock_last_write_time_seconds", ()): 25,
        ("penstock_last_capture_time_seconds", ()): 26,
        ("penstock_cdc_gaps_total", ("shop.carts",)): 28,
        ("penstock_unreadable_checkpoint_files", ("shop.orders",)): 27,
        ("penstock_append_seconds_sum", ()): 28.5,
        ("penstock_append_seconds_count", ()): 3,
        ("penstock_sync_seconds_sum", ()): 29.5,
        ("penstock_sync_seconds_count", ()): 3,
        ("penstock_log_files", ("shop.orders",)): 30,
        ("penstock_log_bytes", ("shop.orders",)): 31,
        ("penstock_log_files", ("shop.orders@big!parked",)): 35,
        ("penstock_log_bytes", ("shop.orders@big!parked",)): 36,
        ("penstock_parked_changes_total", ("shop.orders@big!parked",)): 37,
        ("penstock_subscription_lag_bytes", ("shop.orders", "billing")): 32,
        ("penstock_subscription_lag_seconds", ("shop.orders", "billing")): 1,
        ("penstock_delivered_changes_total", ("shop.orders", "billing")): 34,
        ("penstock_lost_changes_total", ("shop.orders", "billing")): 38,
        ("penstock_lost_changes_total", ("shop.carts", "")): 39,
        ("penstock_listener_clients", ()): 40,
        ("penstock_snapshot_running", ()): 1,
        ("penstock_snapshot_completed", ()): 1,
        ("penstock_snapshot_aborted", ()): 1,
        ("penstock_snapshot_retries_total", ()): 101,
        ("penstock_snapshot_tables", ()): 102,
        ("penstock_snapshot_remaining_tables", ()): 103,
        ("penstock_snapshot_seconds", ()): 104.5,
        ("penstock_snapshot_rows_total", ("shop.orders",)): 105,
        ("penstock_snapshot_progress_ratio", ("shop.orders",)): 0.25,
    }


def test_what_is_not_known_is_not_said() -> None:
    found = {name for name, _ in samples(CassandraStatus(node="n", data_centre="", started_time_us=0))}
    assert not {name for name in found if "snapshot" in name}
    unknown = ["cassandra_queryable", "commit_log_segment_id", "cdc_raw_limit_bytes", "last_write_time_seconds"]
    assert not found & {f"penstock_{name}" for name in unknown}
    assert "penstock_agent_running" in found


def test_a_strange_segment_name_is_no_number() -> None:
    assert ("penstock_commit_log_segment_id", ()) not in samples(replace(FULL, segment="strange"))


def test_every_number_of_the_status_is_published() -> None:
    read = {field.name for field in fields(CassandraStatus)}
    # Texts are health's matter, and the sum over the tables is left to whoever asks.
    unpublished = read - {"failure", "changes"}
    shown = samples(FULL)
    for name in unpublished - {"node", "data_centre", "snapshot", "table_changes"}:
        blank = CassandraStatus(node="node1", data_centre="dc1", started_time_us=0, snapshot=SNAPSHOT)
        assert samples(replace(FULL, **{name: getattr(blank, name)})) != shown, name


def test_a_checkpoint_that_cannot_be_read_is_named_and_makes_nobody_start_the_agent_again() -> None:
    checks = health_checks(replace(FULL, waiting=None, cdc_raw_bytes=0, snapshot=None))
    assert checks["subscriptions"]["healthy"]
    assert "shop.orders" in checks["subscriptions"]["message"]
    assert "subscriptions" not in health_checks(replace(FULL, unreadable_checkpoints={}))


def test_health_names_tables_that_had_cdc_off_and_stays_up() -> None:
    checks = health_checks(FULL)
    assert checks["cdc"]["healthy"]
    assert "shop.carts" in checks["cdc"]["message"]
    assert "cdc" not in health_checks(replace(FULL, cdc_gaps={}))


def test_an_agent_that_has_not_begun_can_be_asked(tmp_path: Path) -> None:
    agent = Agent(Settings(agent=AgentSettings(directory=tmp_path, node="node1")))
    found = samples(agent.status())
    assert found["penstock_agent_running", ()] == 0
    assert found["penstock_agent_info", ("", "node1", penstock.__version__)] == 1
    checks = health_checks(agent.status())
    assert checks["agent"] == {"healthy": False, "message": "not running"}


def test_names_are_those_of_telemetry_and_come_once() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert set(names) <= set(telemetry.METRICS)
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in METRICS)


def test_every_metric_that_has_a_name_is_published() -> None:
    page = metrics_page.page()
    assert [name for name in telemetry.METRICS if f"`{name}`" not in page] == []


def test_every_changing_attribute_of_debezium_has_its_metric() -> None:
    assert {metric.debezium for metric in METRICS if metric.debezium} == {
        "CommitLogFilename",
        "CommitLogPosition",
        "NumberOfProcessedMutations",
        "NumberOfUnrecoverableErrors",
        "CdcDirectoryTotalBytes",
        "TotalTableCount",
        "RemainingTableCount",
        "SnapshotRunning",
        "SnapshotCompleted",
        "SnapshotAborted",
        "SnapshotDurationInSeconds",
        "RowsScanned",
    }


def test_the_page_is_made_from_the_list_and_up_to_date() -> None:
    page = metrics_page.PAGE.read_text(encoding="utf-8")
    assert page == metrics_page.page(), "run `make docs`"
