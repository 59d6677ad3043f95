"""The agent of any source: the order of its steps, told by a source that is played by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.capture.repeats import ChangeKeys
from penstock.capture.replay.log_keys import LogKeys
from penstock.capture.source import Place, Reading
from penstock.capture.source_agent import SourceAgent
from penstock.capture.status import Check
from penstock.errors import CorruptCheckpoint, InvalidInput, TooManyFiles
from penstock.model.schema import TableSchema
from penstock.settings import Settings
from tests import sample
from tests.scripted_agent import Script, SteppedClock


class PlayedSource:
    """Gives what the test puts into `given`: a number, nothing, or an error."""

    kind = "played"

    def __init__(self, data: Path, *given: int | Exception | None) -> None:
        self.keys: ChangeKeys = LogKeys()
        self.ended = False
        self.given = list(given)
        self.opened: list[Place | None] = []
        # For each place that the source was told of: what the log held, and which place was saved.
        self.told: list[tuple[int, list[int], Any]] = []
        self.closed = 0
        self._data = data

    def open(self, place: Place | None) -> tuple[str, str]:
        self.opened.append(place)
        return "played node", "dc"

    def read(self, bytes_max: int) -> Reading | None:
        assert bytes_max == 4096
        if not self.given:
            self.ended = True
            return None
        found = self.given.pop(0)
        if isinstance(found, Exception):
            raise found
        return None if found is None else Reading([sample.batch(found)], {"after": found})

    def durable(self, place: Place) -> None:
        self.told.append((place["after"], sample.stored(str(self._data / "shop.orders")), saved(self._data)))

    def tables(self) -> Sequence[TableSchema]:
        return [sample.SCHEMA]

    def figures(self) -> Mapping[str, float | int]:
        return {"penstock_replay_tables": 1}

    def checks(self) -> Sequence[Check]:
        return [Check("played", True, "by hand")]

    def close(self) -> None:
        self.closed += 1


def saved(data: Path) -> Any:
    """The newest place on disk, as the file has it."""
    states = [json.loads(path.read_text()) for path in (data / ".agent").glob("place.*.json")]
    return max(states, key=lambda state: state["number"])["place"]


def agent(data: Path, source: PlayedSource, clock: SteppedClock, **options: Any) -> SourceAgent:
    tree = {"agent": {"directory": data, "chunk_bytes": 4096, "place_interval_s": 0}, "log": {"reserve_bytes": 0}}
    return SourceAgent(Settings.model_validate(tree), source, clock=clock, background=False, **options)


def run(data: Path, source: PlayedSource, *steps: Callable[[], object], **options: Any) -> SourceAgent:
    clock = SteppedClock()
    made = agent(data, source, clock, **options)
    made.run(Script(clock, steps))
    return made


def test_a_source_is_told_only_of_places_that_are_saved_and_whose_changes_are_durable(tmp_path: Path) -> None:
    source = PlayedSource(tmp_path, 1, 2, None, 3)
    status = run(tmp_path, source).status()
    assert [place for place, _, _ in source.told] == [1, 2, 3]
    for place, held, on_disk in source.told:
        assert set(range(1, place + 1)) <= set(held)
        assert on_disk["after"] >= place
    assert (source.opened, source.closed) == ([None], 1)
    assert (status.node, status.data_centre, status.source) == ("played node", "dc", "played")
    assert status.source_checks() == (Check("played", True, "by hand"),)


def test_the_next_agent_opens_the_source_at_the_place(tmp_path: Path) -> None:
    run(tmp_path, PlayedSource(tmp_path, 1, 2))
    source = PlayedSource(tmp_path, 3)
    run(tmp_path, source)
    assert source.opened == [{"after": 2}]
    assert sample.stored(str(tmp_path / "shop.orders")) == [1, 2, 3]


def test_an_error_ends_the_agent_after_what_was_read_is_saved(tmp_path: Path) -> None:
    source = PlayedSource(tmp_path, 1, InvalidInput("cannot go on"))
    clock = SteppedClock()
    made = agent(tmp_path, source, clock)
    with pytest.raises(InvalidInput, match="cannot go on"):
        made.run(Script(clock, ()))
    assert saved(tmp_path) == {"after": 1}
    assert made.status().failure == "cannot go on"
    assert source.closed == 1


def test_what_ran_out_is_waited_for(tmp_path: Path) -> None:
    source = PlayedSource(tmp_path, 1, TooManyFiles("none left"), 2)
    made = run(tmp_path, source)
    assert sample.stored(str(tmp_path / "shop.orders")) == [1, 2]
    assert made.status().waiting is None


def test_a_stop_ends_the_wait_and_keeps_the_place(tmp_path: Path) -> None:
    source = PlayedSource(tmp_path, 1, *[TooManyFiles("none left")] * 100)
    run(tmp_path, source)
    assert saved(tmp_path) == {"after": 1}


def test_each_table_is_announced_once(tmp_path: Path) -> None:
    announced: list[TableSchema] = []
    run(tmp_path, PlayedSource(tmp_path, 1, 2, None, 3), announce=announced.append)
    assert announced == [sample.SCHEMA]


def test_a_place_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    run(tmp_path, PlayedSource(tmp_path, 1))
    for path in (tmp_path / ".agent").glob("place.*.json"):
        path.write_text(path.read_text().replace('"place"', '"palce"'))
    with pytest.raises(CorruptCheckpoint):
        run(tmp_path, PlayedSource(tmp_path, 2))
    assert sample.stored(str(tmp_path / "shop.orders")) == [1]
