"""Reading and searching, from any position."""

import gc
from pathlib import Path

import pytest

from penstock.errors import ChangesLost, CorruptLog, InvalidValue, PositionAhead, StorageError
from penstock.formats import avro
from penstock.log.names import INDEX, file_name
from penstock.log.reader import LogReader
from penstock.log.segment import Heading
from penstock.log.table_log import TableLog
from penstock.model.position import START, Position
from penstock.settings import LogSettings
from penstock.system.files import OsFiles
from tests import sample
from tests.numbered import fill

COUNT = 600


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Blocks of one to four changes over many files; times and transactions rise with the numbers."""
    path = str(tmp_path_factory.mktemp("reader") / "log")
    settings = LogSettings(file_bytes_max=100_000, index_bytes=30_000)
    with TableLog.open(path, sample.SCHEMA, settings=settings) as log:
        number = 0
        while number < COUNT:
            size = 1 + number % 4
            changes = [sample.change(n, "n" * 900, domain=f"d{n % 2}") for n in range(number, number + size)]
            log.append(avro.encode(sample.SCHEMA, changes))
            number += size
    return path


def test_reading_goes_on_after_every_position(directory: str) -> None:
    reader = LogReader(directory)
    assert len(reader.numbers()) > 4
    position = START
    expected = 0
    total = len(sample.stored(directory))
    while expected < total:
        batch = next(reader.read(position))
        found = avro.decode(batch)
        assert found[0].key["id"] == expected
        position = batch.first
        expected += 1
    assert list(reader.read(position)) == []


@pytest.mark.parametrize("number", [0, 1, 2, 3, 99, 100, 101, 333, COUNT - 1])
def test_seek_finds_times_and_transactions(directory: str, number: int) -> None:
    reader = LogReader(directory)
    by_time = reader.seek_time(1_000_000 + number)
    by_transaction = reader.seek_transaction(f"d{number % 2}", number)
    assert by_time == by_transaction
    assert sample.numbers(reader.read(by_time))[0] == number


@pytest.mark.parametrize("damage", ["missing", "flipped"])
def test_seek_works_without_a_sound_index(tmp_path: Path, damage: str) -> None:
    directory = tmp_path / "log"
    with TableLog.open(str(directory), sample.SCHEMA) as log:
        for number in range(200):
            log.append(sample.batch(number, note="n" * 1000, domain="d"))
    path = directory / file_name(sample.TABLE, 1, INDEX)
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:48] + bytes(byte ^ 1 for byte in data[48:]))
    reader = LogReader(str(directory))
    for number in (0, 7, 111, 199):
        assert sample.numbers(reader.read(reader.seek_time(1_000_000 + number)))[0] == number
        place = reader.seek_transaction("d", number)
        assert place is not None
        assert sample.numbers(reader.read(place))[0] == number


def test_seek_beyond_the_end_gives_the_end(directory: str) -> None:
    reader = LogReader(directory)
    assert reader.seek_time(10**15) == reader.end()
    assert reader.seek_time(0) == START
    assert reader.seek_transaction("d0", 10**9) is None
    assert reader.seek_transaction("elsewhere", 0) is None


def test_times_that_go_back_do_not_hide_a_change(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, sample.SCHEMA) as log:
        for number, when in enumerate([10, 50, 20, 60, 30]):
            log.append(avro.encode(sample.SCHEMA, [sample.change(number, when=when)]))
    reader = LogReader(directory)
    assert sample.numbers(reader.read(reader.seek_time(20))) == [1, 2, 3, 4]
    assert sample.numbers(reader.read(reader.seek_time(55))) == [3, 4]


def test_a_position_behind_the_end_is_refused(directory: str) -> None:
    reader = LogReader(directory)
    with pytest.raises(PositionAhead, match="behind the log's end"):
        list(reader.read(Position(99, 0, 0)))


def test_a_position_between_two_blocks_is_refused(directory: str) -> None:
    reader = LogReader(directory)
    batch = next(reader.read())
    with pytest.raises(InvalidValue, match="no change stands at"):
        list(reader.read(Position(batch.file, batch.offset + 1, 0)))


def test_removed_files_are_told_from_missing_ones(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with TableLog.open(str(directory), sample.SCHEMA, settings=LogSettings(file_bytes_max=8192)) as log:
        positions = [log.append(sample.batch(number, note="n" * 500)) for number in range(20)]
    (directory / "shop.orders.000001.avro").unlink()
    reader = LogReader(str(directory))
    with pytest.raises(ChangesLost, match="begins with file 2"):
        list(reader.read(positions[0]))
    left = sample.numbers(reader.read())
    assert left == list(range(20 - len(left), 20))
    assert sample.numbers(reader.read(reader.first())) == left
    # What is older than all that is left begins where that begins, not at the end.
    for when in (0, 1_000_000, 1_000_000 + left[0]):
        assert sample.numbers(reader.read(reader.seek_time(when))) == left


class _TakenAfterTheLook(OsFiles):
    """Files whose oldest goes as soon as the directory was listed, as a retention run would take it."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def list(self, path: str) -> list[str]:
        names = super().list(path)
        if self.taken:
            self.unlink(f"{path}/{self.taken.pop(0)}")
        return names


def test_whoever_reads_is_told_the_range_when_its_next_file_goes(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with TableLog.open(str(directory), sample.SCHEMA, settings=LogSettings(file_bytes_max=8192)) as log:
        positions = [log.append(sample.batch(number, note="n" * 500)) for number in range(40)]
    ends = {position.file: position for position in positions}
    files = _TakenAfterTheLook()
    reader = LogReader(str(directory), files=files)
    batches = reader.read()
    assert next(batches).last == positions[0]
    for number in (1, 2):
        (directory / f"shop.orders.{number:06}.avro").unlink()
    # What it had in hand it still gets; the third file goes while it is asked which ones are left.
    files.taken = ["shop.orders.000003.avro"]
    with pytest.raises(ChangesLost) as caught:
        list(batches)
    assert (caught.value.place["after"], caught.value.place["through"]) == (ends[1], ends[3])


def test_whoever_had_read_a_file_to_its_end_loses_nothing_when_it_goes(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with TableLog.open(str(directory), sample.SCHEMA, settings=LogSettings(file_bytes_max=8192)) as log:
        positions = [log.append(sample.batch(number, note="n" * 500)) for number in range(40)]
    done = max(position for position in positions if position.file == 1)
    files = _TakenAfterTheLook()
    reader = LogReader(str(directory), files=files)
    # The first look at the watermark lists the files too.
    reader.end()
    files.taken = ["shop.orders.000001.avro"]
    assert sample.numbers(reader.read(done)) == list(range(positions.index(done) + 1, 40))
    assert not files.taken


def test_a_file_of_another_log_is_noticed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with TableLog.open(str(tmp_path / name), sample.SCHEMA) as log:
            log.append(sample.batch(1))
    stranger = (tmp_path / "two" / "shop.orders.000001.avro").read_bytes()
    (tmp_path / "one" / "shop.orders.000001.avro").write_bytes(stranger)
    with pytest.raises(CorruptLog, match="another log"):
        sample.stored(str(tmp_path / "one"))


def test_a_directory_without_a_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"log\.json"):
        LogReader(str(tmp_path / "nothing"))


def test_a_reader_that_lives_long_holds_no_headings_of_files_that_are_gone(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with (
        TableLog.open(str(directory), sample.SCHEMA, settings=LogSettings(file_bytes_max=4096)) as log,
        LogReader(str(directory)) as reader,
    ):
        position = START
        for number in range(200):
            log.append(sample.batch(number, note="n" * 4096))
            for batch in reader.read(position):
                position = batch.last
            for gone in reader.numbers()[:-2]:
                for file in directory.glob(f"*.{gone:06d}.*"):
                    file.unlink()
        # The collector knows all of them, whoever holds them. It also knows weak proxies of other tests, whose
        # class must not be asked for: what they stood for may be gone.
        gc.collect()
        held = {one.number for one in gc.get_objects() if type(one) is Heading and one.log == reader.log_id}
    assert position.file == 200
    assert len(held) < 40


def test_files_that_retention_removes_meanwhile_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(str(tmp_path / "log"), 12)
    reader = LogReader(str(tmp_path / "log"))
    listed = reader.numbers()
    for number in listed[:2]:
        Path(reader.path(number)).unlink()
    answers = iter([listed])
    there = reader.numbers
    monkeypatch.setattr(reader, "numbers", lambda: next(answers, None) or there())
    assert [info.number for info in reader.files()] == listed[2:]
