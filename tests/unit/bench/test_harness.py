"""The benchmarks' own arithmetic: a wrong median would make every figure wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report
from bench.harness import CheckFailed, Run, Sample, Target, interleave, options, percentile, quotients


def test_percentiles_are_values_that_were_seen() -> None:
    values = list(range(1, 101))
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(values, 1.0) == 100
    assert percentile([7.0], 0.99) == 7.0


def test_sides_take_turns_and_take_turns_in_going_first() -> None:
    order: list[str] = []

    def side(name: str) -> Sample:
        order.append(name)
        return Sample(1, 1, 1)

    ours, peer = interleave(lambda: side("a"), lambda: side("b"), 5)
    assert "".join(order) == "abbaabbaab"
    assert len(ours) == len(peer) == 5


def test_fewer_than_five_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5"):
        interleave(lambda: Sample(1, 1, 1), lambda: Sample(1, 1, 1), 4)


def test_a_figure_is_the_median_ratio_and_is_judged_by_its_target() -> None:
    run = Run("append", quick=False)
    run.ratio("fast", quotients([10, 20, 90], [10, 10, 10]), Target(at_least=2))
    run.ratio("slow", [1.3, 1.4, 1.2], Target(at_most=1.25))
    assert [figure.value for figure in run.figures] == [2.0, 1.3]
    assert [figure.passed for figure in run.figures] == [True, False]
    assert not run.passed


def test_a_failed_check_ends_the_run() -> None:
    with pytest.raises(CheckFailed, match="append: all there"):
        Run("append", quick=False).check("all there", False)


def test_results_come_back_as_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.harness.RESULTS", tmp_path)
    run = Run("append", quick=False)
    run.ratio("share of the disk", [0.95, 0.97, 0.91], Target(at_least=0.9), ours=400, peer=421, unit="MB/s")
    run.ratio("missed", [0.5], Target(at_least=0.9))
    run.check("all was read back", True)
    assert run.finish(options("append", "", ["--directory", str(tmp_path)])) == 1
    runs = report.load(tmp_path)
    text = report.page(runs)
    assert "| share of the disk | **0.95 ×** | 0.91 … 0.97 | ≥ 0.9 | yes | 400 / 421 MB/s |  |" in text
    assert "| missed | **0.5 ×** |  | ≥ 0.9 | **no** |" in text
    assert "- all was read back" in text
    assert report.summary(runs).endswith("1 of 2 targets met")


def test_quick_runs_leave_no_results_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.harness.RESULTS", tmp_path)
    run = Run("append", quick=True)
    run.ratio("missed", [0.5], Target(at_least=0.9))
    assert run.finish(options("append", "", ["--quick", "--directory", str(tmp_path)])) == 0
    assert report.load(tmp_path) == []
