"""The example of an own sink works, is named in the settings as its page says, and keeps to the interface."""

from __future__ import annotations

import json
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.deliver.choice import make_sinks
from penstock.deliver.sink import Sink, Task
from penstock.errors import InvalidSetting, StorageError
from penstock.settings import RecordType, build
from tests import sample
from tests.row_records import gone, put, records_of

EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


@pytest.fixture
def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sink:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return made_of({"file": str(tmp_path / "rows.db")})


def made_of(options: dict[str, str]) -> Sink:
    pipeline = {
        "sinks": ["sqlite"],
        "own_sinks": {"sqlite": "own_sink:SqliteSink"},
        "own_sink_options": {"sqlite": options},
    }
    (made,) = make_sinks(build({"pipeline": pipeline}, {}))
    return made


def rows(file: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(file)) as database:
        found = database.execute('SELECT key, row FROM "shop.orders" WHERE row IS NOT NULL').fetchall()
    return {key: json.loads(row) for key, row in found}


def test_the_example_keeps_current_rows(sink: Sink, tmp_path: Path) -> None:
    sink.check()
    sink.prepare([sample.SCHEMA])
    sink.prepare([sample.SCHEMA])
    assert (sink.record, sink.every) == (RecordType.AFTER, False)
    batches = [
        [put({"id": 1}, 5, note="a"), put({"id": 2}, 5, note="b")],
        [put({"id": 1}, 6, note="c"), gone({"id": 2}, 7)],
    ]
    # The first batch comes again, late.
    for number, changes in enumerate([*batches, batches[0]]):
        with pickle.loads(pickle.dumps(sink)).writer(Task("p", number, 0, 0)) as writer:
            writer.write(records_of(sample.SCHEMA, changes))
            assert writer.finish().records == 2
    assert rows(tmp_path / "rows.db") == {'{"id":1}': {"id": 1, "note": "c"}}


def test_a_failed_task_of_the_example_leaves_nothing(sink: Sink, tmp_path: Path) -> None:
    sink.prepare([sample.SCHEMA])

    def fail() -> None:
        with sink.writer(Task("p", 1, 0, 0)) as writer:
            writer.write(records_of(sample.SCHEMA, [put({"id": 1}, 5, note="a")]))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert rows(tmp_path / "rows.db") == {}


def test_the_example_tells_what_is_wrong_with_its_options(sink: Sink, tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="needs a file"):
        made_of({})
    with pytest.raises(StorageError, match="SQLite refuses the file"):
        made_of({"file": str(tmp_path / "nowhere" / "rows.db")}).check()
