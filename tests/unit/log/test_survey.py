"""Survey: what a node's logs amount to, read from their files."""

from __future__ import annotations

from pathlib import Path

from penstock.log.subscription import Subscription
from penstock.log.survey import Survey
from tests.many_logs import write
from tests.numbered import ManualClock, fill


def test_sizes_and_places_are_those_of_the_files(tmp_path: Path) -> None:
    directory = tmp_path / "shop.orders"
    positions = fill(str(directory), 12)
    with Subscription.open(str(directory), "a") as one:
        one.commit(positions[7])
    fill(str(tmp_path / "shop.orders@big!parked"), 3)
    found = Survey(str(tmp_path)).look()
    log, parked = found["shop.orders"], found["shop.orders@big!parked"]
    assert (log.files, log.bytes) == (4, sum(path.stat().st_size for path in directory.glob("*.avro")))
    assert (log.parked, parked.parked) == (None, 3)
    assert [(state.name, state.behind) for state in log.subscriptions] == [("a", 4)]


def test_files_are_looked_at_now_and_then_only(tmp_path: Path) -> None:
    clock = ManualClock()
    survey = Survey(str(tmp_path), clock=clock)
    assert survey.look() == {}
    fill(str(tmp_path / "shop.orders"), 1)
    assert survey.look() == {}
    clock.now_s += 5
    assert list(survey.look()) == ["shop.orders"]


def test_a_damaged_log_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "bad", 0, 1)
    (tmp_path / "shop.bad" / "log.json").write_text("{")
    fill(str(tmp_path / "shop.orders"), 1)
    assert list(Survey(str(tmp_path)).look()) == ["shop.orders"]
