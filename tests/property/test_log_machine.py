"""The log as a state machine: whatever is appended, crashed and reopened, the model and the log agree."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.model.position import START, Position
from penstock.model.schema import TableSchema
from penstock.settings import Codec, LogSettings
from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash, Mode
from tests import sample

DIRECTORY = "/logs/shop.orders"


class LogMachine(RuleBasedStateMachine):
    """One writer, crashed and reopened at will. The model is a list of (position, number)."""

    def __init__(self) -> None:
        super().__init__()
        self.files = CrashFiles()
        self.model: list[tuple[Position, int]] = []
        self.schema: TableSchema = sample.SCHEMA
        self.counter = 0
        # Schemas that the log was told, with changes or without.
        self.told: list[TableSchema] = []

    @initialize(codec=st.sampled_from(list(Codec)), file_kib=st.integers(4, 20), index_kib=st.integers(4, 12))
    def begin(self, codec: Codec, file_kib: int, index_kib: int) -> None:
        self.settings = LogSettings(codec=codec, file_bytes_max=file_kib << 10, index_bytes=index_kib << 10)
        self.log = self.open()

    def open(self) -> TableLog:
        return TableLog.open(DIRECTORY, self.schema, settings=self.settings, files=self.files)

    def numbers(self, count: int) -> list[int]:
        self.counter += count
        return list(range(self.counter - count, self.counter))

    def note(self, last: Position, numbers: list[int]) -> None:
        first = last.ordinal - len(numbers) + 1
        self.model += [(last._replace(ordinal=first + i), number) for i, number in enumerate(numbers)]

    @rule(count=st.integers(1, 5), size=st.integers(0, 3000))
    def append(self, count: int, size: int) -> None:
        numbers = self.numbers(count)
        batch = sample.batch(*numbers, note="n" * size, schema=self.schema, domain="d")
        self.note(self.log.append(batch), numbers)

    @rule(counts=st.lists(st.integers(1, 3), min_size=2, max_size=6))
    def submit(self, counts: list[int]) -> None:
        batches = [self.numbers(count) for count in counts]
        tickets = [self.log.submit(sample.batch(*each, schema=self.schema, domain="d")) for each in batches]
        for ticket, numbers in zip(tickets, batches, strict=True):
            self.note(ticket.wait(30), numbers)

    @rule()
    def change_schema(self) -> None:
        columns = sample.WIDER.columns if self.schema.columns == sample.SCHEMA.columns else sample.SCHEMA.columns
        self.schema = TableSchema(sample.TABLE, columns, version=self.schema.version + 1, source="sandbox")

    @rule()
    def say_schema(self) -> None:
        self.log.begin(self.schema)
        if self.told[-1:] != [self.schema]:
            self.told.append(self.schema)

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.log = self.open()
        assert self.log.damage == ()

    @rule(mode=st.sampled_from(list(Mode)), seed=st.integers(0, 1000))
    def lose_power(self, mode: Mode, seed: int) -> None:
        self.log.submit(sample.batch(self.counter, schema=self.schema)).wait(30)
        self.counter += 1
        self.model.append((self.log.end, self.counter - 1))
        self.files = self.files.clone_after_crash(Crash(mode, seed))
        self.log = self.open()
        assert self.log.damage == ()

    @rule()
    def kill(self) -> None:
        self.files = self.files.kill()
        self.log = self.open()
        assert self.log.damage == ()

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def read_from_anywhere(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model) - 1))
        reader = LogReader(DIRECTORY, files=self.files)
        assert sample.numbers(reader.read(self.model[place][0])) == [number for _, number in self.model[place + 1 :]]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def search(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.model) - 1))
        number = self.model[place][1]
        reader = LogReader(DIRECTORY, files=self.files)
        by_time = reader.seek_time(1_000_000 + number)
        assert sample.numbers(reader.read(by_time))[0] == number
        by_transaction = reader.seek_transaction("d", number)
        assert by_transaction in (by_time, None)

    @invariant()
    def everything_is_there_in_order(self) -> None:
        if not hasattr(self, "log"):
            return
        reader = LogReader(DIRECTORY, files=self.files)
        found: list[tuple[Position, int]] = []
        for batch in reader.read(START):
            for ordinal, change in enumerate(avro.decode(batch), start=batch.skip):
                found.append((Position(batch.file, batch.offset, ordinal), change.key["id"]))
        assert found == self.model
        assert reader.end() == self.log.end == (self.model[-1][0] if self.model else START)
        assert self.log.rows == len(self.model)
        headers = iter([reader.heading(number).schema for number in reader.numbers()])
        assert all(any(header == schema for header in headers) for schema in self.told), "one after another"

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestLogMachine = LogMachine.TestCase
