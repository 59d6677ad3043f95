"""The console sink shows records, some of them, through the stream it is given."""

from __future__ import annotations

import io
import pickle

from penstock.deliver.console.sink import ConsoleSink
from penstock.deliver.sink import Delivered, Task
from penstock.settings import RecordType
from penstock.settings.sinks import ConsoleSettings
from tests import sample
from tests.row_records import gone, put, records_of


def delivered(sink: ConsoleSink, numbers: range, note: str = "n") -> Delivered:
    records = records_of(sample.SCHEMA, [put({"id": number}, number, note=note) for number in numbers])
    with pickle.loads(pickle.dumps(sink)).writer(Task("p", 1, 0, 0)) as writer:
        writer.write(records)
        done: Delivered = writer.finish()
        return done


def test_records_are_shown_with_their_table() -> None:
    stream = io.StringIO()
    sink = ConsoleSink(ConsoleSettings(), stream)
    records = records_of(sample.SCHEMA, [put({"id": 1}, 5, note="ż"), gone({"id": 1}, 6)])
    with sink.writer(Task("p", 1, 0, 0)) as writer:
        writer.write(records)
        done = writer.finish()
    assert stream.getvalue() == ""
    sink.commit("p", 1, [done.payload, b""])
    assert stream.getvalue() == (
        'shop.orders {"op":"insert","time":5,"version":5,"key":{"id":1},"after":{"id":1,"note":"ż"}}\n'
        'shop.orders {"op":"delete","time":6,"version":6,"key":{"id":1},"after":null}\n'
    )


def test_only_some_records_are_shown_and_the_rest_is_counted() -> None:
    sink = ConsoleSink(ConsoleSettings(record=RecordType.CHANGE, records_max=3), stream=io.StringIO())
    done = delivered(sink, range(10))
    lines = done.payload.decode().splitlines()
    assert len(lines) == 4
    assert lines[-1] == "… and 7 more"
    assert done.records == 10


def test_long_records_are_cut() -> None:
    sink = ConsoleSink(ConsoleSettings(record_characters_max=80), stream=io.StringIO())
    (line,) = delivered(sink, range(1), "x" * 500).payload.decode().splitlines()
    assert len(line) == len("shop.orders ") + 81
    assert line.endswith("…")


def test_without_a_stream_records_go_to_standard_output(capsys: object) -> None:
    sink = ConsoleSink(ConsoleSettings())
    sink.commit("p", 1, [delivered(sink, range(1)).payload])
    assert capsys.readouterr().out.startswith('shop.orders {"op":"insert"')  # type: ignore[attr-defined]
