"""The benchmarks' own arithmetic: a wrong median would make every figure wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import __main__ as bench_main
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
    run.ratio("too slow", [0.5], Target(at_least=0.9))
    run.check("all was read back", True)
    assert run.finish(options("append", "", ["--directory", str(tmp_path)])) == 1
    runs = report.load(tmp_path)
    text = report.page(runs)
    assert "| share of the disk | **0.95 ×** | 0.91 … 0.97 | ≥ 0.9 | yes | 400 / 421 MB/s |  |" in text
    assert "| too slow | **0.5 ×** |  | ≥ 0.9 | **missed** |" in text
    assert "- all was read back" in text
    assert report.summary(runs).endswith("1 of 2 targets met")


def test_quick_runs_leave_no_results_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.harness.RESULTS", tmp_path)
    run = Run("append", quick=True)
    run.ratio("missed", [0.5], Target(at_least=0.9))
    assert run.finish(options("append", "", ["--quick", "--directory", str(tmp_path)])) == 0
    assert report.load(tmp_path) == []


@pytest.mark.parametrize(
    "given",
    [["CommitLog-7-1.log"], ["--schema", "tables.cql"], ["--no-kafka"], ["--quick"], ["--bytes", "1000"]],
    ids=lambda given: given[0],
)
def test_a_run_on_data_of_ones_own_leaves_the_published_results_alone(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published, own = tmp_path / "published", tmp_path / "own"
    monkeypatch.setattr("bench.harness.RESULTS", published)
    given = [*given, "--directory", str(tmp_path)]
    run = Run("commit-log", quick=False)
    run.finish(options("commit_log", "", given, files="segments", bytes=0))
    assert not published.exists()
    run.finish(options("commit_log", "", [*given, "--out", str(own)], files="segments", bytes=0))
    assert not published.exists()
    assert [file.name for file in own.iterdir()] == ["commit-log.json"]
    run.finish(options("commit_log", "", ["--directory", str(tmp_path)], files="segments", bytes=0))
    assert [file.name for file in published.iterdir()] == ["commit-log.json"]


def test_what_is_said_of_segments_and_results_reaches_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = tmp_path / "CommitLog-7-1.log"
    segment.touch()
    called: list[tuple[str, list[str]]] = []

    def noted(name: str, passed_on: Sequence[str]) -> None:
        called.append((name, list(passed_on)))

    monkeypatch.setattr(bench_main, "run", noted)
    bench_main.main(["commit-log", str(segment), "--out", str(tmp_path / "own")])
    assert called == [("commit-log", ["--out", str(tmp_path / "own"), str(segment)])]
