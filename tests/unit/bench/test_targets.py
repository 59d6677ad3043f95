"""Each target stands on the line that it was set for, and not on a line that is easier to reach."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench import append, change_json, growth, lakehouse, tail
from bench.avro import maxscale_table
from bench.harness import CheckFailed, Run, Sample
from penstock.formats import avro


def _targets(run: Run) -> dict[str, str]:
    return {figure.name: figure.target for figure in run.figures if figure.passed is not None}


def _missed(run: Run) -> list[str]:
    return [figure.name for figure in run.figures if figure.passed is False]


def _sample(rate: float, ack_us: float = 100.0) -> list[Sample]:
    return [Sample(rate, 1.0, 1.0, (ack_us,))] * 5


def test_appends_are_judged_with_as_many_syncs_as_the_raw_side(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[tuple[str, bool], bool] = {}

    def noted(_: object, __: object, name: str, *, reserve: bool, judged: bool, **___: int) -> None:
        found[name, reserve] = judged

    monkeypatch.setattr(append, "rate", noted)
    monkeypatch.setattr(append, "latency", lambda *_, **__: None)
    append.against_raw(cast(append.Bench, None), quick=True)
    assert found == {("one at a time", True): True, ("one at a time", False): False, ("two under way", True): False}


def test_appenders_are_judged_as_threads_and_as_callbacks() -> None:
    run = Run("append", quick=False)
    ours = {"threads": _sample(20_000), "asyncio tasks": _sample(90_000), "callbacks": _sample(60_000)}
    append._report_kafka(run, {0: _sample(10_000, 1000.0)}, ours, 0)
    assert _targets(run) == {
        f"64 appenders × 1 KB ({shape}) ÷ Kafka, {what}": target
        for shape in ("threads", "callbacks")
        for what, target in (("rec/s", "≥ 5"), ("ack p99", "≤ 0.3"))
    }
    assert _missed(run) == ["64 appenders × 1 KB (threads) ÷ Kafka, rec/s"]


def _lane(delivered_us: float) -> tail.Lane:
    rounds = [[delivered_us]] * 5
    lane = SimpleNamespace(after_durable=rounds, after_call=rounds, cpu_us_per_delivery=[1.0], disk_read=0)
    return cast(tail.Lane, lane)


def test_a_hundred_subscribers_are_judged_as_iterators_and_as_callbacks() -> None:
    run = Run("tail", quick=False)
    lanes = {
        f"{count} in {where}, {shape}": _lane(1500.0 if (count, shape) == (100, "iterators") else 100.0)
        for where in ("another process", "the same process")
        for shape in ("callbacks", "iterators")
        for count in (1, 100)
    }
    tail._report(run, lanes, {}, 300)
    many = {name: target for name, target in _targets(run).items() if "100 ÷ 1" in name}
    assert len(many) == 4
    assert set(many.values()) == {"≤ 2"}
    assert _missed(run) == [
        f"durable → delivered p99, 100 ÷ 1 subscribers, {where}, iterators"
        for where in ("another process", "the same process")
    ]


def test_the_lakehouse_is_judged_over_the_whole_query() -> None:
    run = Run("lakehouse", quick=False)
    ours, theirs = [Sample(1000, 3.0, 3.0)] * 5, [Sample(1000, 13.0, 13.0)] * 5
    our_batches, their_batches = [Sample(1000, 2.0, 2.0)] * 5, [Sample(1000, 12.0, 12.0)] * 5
    lakehouse.compare(run, (ours, theirs), (our_batches, their_batches), "")
    whole = "pipeline ÷ Spark's aggregate and MERGE, whole query, changes per second"
    assert _targets(run) == {whole: "≥ 5"}
    assert _missed(run) == [whole]
    starts = {figure.name: figure.value for figure in run.figures if figure.name.startswith("start and end")}
    assert starts == {"start and end of a query, ours": 1.0, "start and end of a query, Spark's": 1.0}


class _Log:
    """A log of which each scan costs so much, and whose forgetting is noted."""

    def __init__(self, name: str, notes: list[str], cpu_s: dict[str, float]) -> None:
        self.batches, self.acknowledged, self.found = 4, 1000, 1000
        self._name, self._notes, self._cpu_s, self._cache = name, notes, cpu_s, "warm"

    def forget(self) -> None:
        self._cache = "cold"
        self._notes.append(f"forget {self._name}")

    def warm(self) -> None:
        self._notes.append(f"warm {self._name}")

    def child(self, what: str) -> dict[str, Any]:
        self._notes.append(f"{what} {self._name}")
        cache, self._cache = self._cache, "warm"
        fetched = 4 * growth.BATCH_BYTES if cache == "cold" else 0
        answer = {"cpu_s": self._cpu_s[cache], "wall_s": 1.0, "changes": self.found, "fetched": fetched}
        return {**answer, "VmHWM": 100}


def _scanned(run: Run, small: _Log, large: _Log) -> list[float]:
    return growth.scanning(run, cast(growth.Grown, small), cast(growth.Grown, large))


def test_whole_scans_are_judged_with_both_logs_cold_and_with_both_warm() -> None:
    run, notes = Run("growth", quick=False), list[str]()
    small, large = _Log("small", notes, {"cold": 2.0, "warm": 0.5}), _Log("large", notes, {"cold": 5.0, "warm": 0.5})
    assert _scanned(run, small, large) == [1.0] * 10
    scan = "CPU per change, scan of the whole log, {}, 100× ÷ 1× data"
    assert _targets(run) == {scan.format("cold"): "≤ 1.1", scan.format("warm"): "≤ 1.1"}
    assert _missed(run) == [scan.format("cold")]
    cold, warm = notes[:20], notes[20:]
    assert cold[:8] == [
        f"{what} {name}" for name in ("small", "large", "large", "small") for what in ("forget", "scan")
    ]
    assert warm[:2] == ["warm small", "warm large"]
    assert warm[2:] == [f"scan {name}" for name in ("small", "large", "large", "small") * 3][:10]
    [note] = [figure.note for figure in run.figures if figure.name == scan.format("cold")]
    assert note == "from disk: 100% of the large log, 100% of the small one"


def test_a_scan_that_missed_changes_ends_the_run() -> None:
    small, large = (_Log(name, [], {"cold": 1.0, "warm": 1.0}) for name in ("small", "large"))
    large.found = 999
    with pytest.raises(CheckFailed, match="did not find every"):
        _scanned(Run("growth", quick=False), small, large)


def test_json_is_judged_by_cpu_time_and_single_changes_by_what_they_cost_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Four times the changes in the same CPU time; the wall clock says more, and does not count.
    rates = {"ours": Sample(4000, 0.1, 1.0), "peer": Sample(1000, 1.0, 1.0)}
    monkeypatch.setattr(change_json, "interleave", lambda *_: ([rates["ours"]] * 5, [rates["peer"]] * 5))
    run = Run("json", quick=False)
    schema, changes = maxscale_table(20)
    change_json.frames(run, "a table", avro.encode(schema, changes), 5)
    change_json.printing(run, "a table", schema, changes, str(tmp_path), 5)
    subscribers, cat = "subscribers, frames of {}, a table ÷ an object per change, per CPU-second", "log cat --json, {}"
    many, single = subscribers.format("64 KiB"), subscribers.format("one change")
    printed = cat.format("a table ÷ an object per change, per CPU-second")
    assert _targets(run) == {many: "≥ 5", single: "≥ 1", printed: "≥ 5"}
    assert _missed(run) == [many, printed]


def test_json_that_differs_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_json, "frame_by_object", lambda _: b"another")
    schema, changes = maxscale_table(20)
    with pytest.raises(CheckFailed, match="the same bytes"):
        change_json.frames(Run("json", quick=False), "a table", avro.encode(schema, changes), 5)
