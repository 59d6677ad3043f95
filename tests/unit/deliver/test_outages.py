"""Targets that are away: what a waiting task leaves for the driver, and what status and metrics make of it."""

from __future__ import annotations

from pathlib import Path

from penstock.deliver import outages
from penstock.deliver.outages import Outage, Waiting
from penstock.deliver.search.sink import SearchSink
from penstock.deliver.sink import Task
from penstock.pipeline.metrics import StatusCollector
from penstock.pipeline.status import StatusBoard
from penstock.settings.sinks import SearchSettings
from tests import sample
from tests.row_records import put, records_of
from tests.scripted_search import DROP_BEFORE, scripted_search


def figures(board: StatusBoard) -> dict[tuple[str, ...], float]:
    families = list(StatusCollector(board.read).collect())
    return {(sample.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_a_wait_is_seen_while_it_lasts_and_its_retries_count_for_ever(tmp_path: Path) -> None:
    board = StatusBoard()
    board.watch(tmp_path / "outages")
    board.began()
    assert board.read().waiting is None
    waiting = Waiting(str(tmp_path / "outages"), "kafka", 3)
    for _ in range(2):
        waiting.again("brokers away")
    status = board.read()
    assert status.waiting is not None
    assert status.waiting.startswith("kafka for ")
    assert status.waiting.endswith("brokers away")
    assert figures(board)["penstock_sink_down_seconds", "kafka"] > 0
    waiting.over()
    assert board.read().waiting is None
    # Another task of the same bucket, and one of another, go on counting.
    Waiting(str(tmp_path / "outages"), "kafka", 3).again("brokers away")
    Waiting(str(tmp_path / "outages"), "kafka", 4).again("brokers away")
    found = figures(board)
    assert found["penstock_sink_retries_total", "kafka"] == 4
    assert found["penstock_pipeline_waiting",] == 1


def test_a_task_that_was_killed_waits_no_longer_once_a_batch_is_delivered(tmp_path: Path) -> None:
    board = StatusBoard()
    board.watch(tmp_path)
    board.began()
    Waiting(str(tmp_path), "kafka", 0).again("brokers away")
    assert board.read().sinks["kafka"].down_s > 0
    board.delivered(1, [], 0.1, 0)
    assert (board.read().sinks["kafka"].down_s, board.read().waiting) == (0.0, None)


def test_columns_that_a_target_does_not_get_are_counted_by_table() -> None:
    board = StatusBoard()
    board.leaves_out("files", {})
    board.leaves_out("kafka", {"shop.orders": ["a", "b"]})
    found = figures(board)
    assert found["penstock_sink_left_out_columns", "kafka", "shop.orders"] == 2
    assert not any(name[:2] == ("penstock_sink_left_out_columns", "files") for name in found)


def test_figures_stop_nobody(tmp_path: Path) -> None:
    (tmp_path / "kafka-0.json").write_text("no JSON", encoding="utf-8")
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert outages.read(tmp_path) == []
    assert outages.read(tmp_path / "nowhere") == []
    Waiting(str(tmp_path / "file" / "below"), "kafka", 0).again("brokers away")
    Waiting(None, "kafka", 0).again("brokers away")
    assert outages.read(tmp_path) == []


def test_a_search_cluster_that_is_away_and_busy_is_waited_for_in_sight_of_the_driver(tmp_path: Path) -> None:
    seen: list[Outage] = []
    with scripted_search() as cluster:
        settings = SearchSettings(urls=(cluster.url,))
        sink = SearchSink(settings, sleep=lambda _: seen.extend(outages.read(tmp_path)))
        sink.prepare([sample.SCHEMA])
        cluster.script = [DROP_BEFORE, 429]
        with sink.writer(Task("p", 1, 5, 0, str(tmp_path))) as writer:
            writer.write(records_of(sample.SCHEMA, [put({"id": 1}, 10, note="n")]))
            writer.finish()
    assert [(outage.retries, outage.since_s is not None) for outage in seen] == [(1, True), (2, True)]
    assert outages.read(tmp_path) == [Outage("search", 2)]
