"""Opening after a crash: a torn tail is cut, damage is reported and kept, the rest is as it was."""

import shutil
from pathlib import Path

import pytest

from penstock.errors import CorruptLog
from penstock.log import watermark
from penstock.log.names import INDEX, file_name
from penstock.log.reader import LogReader
from penstock.log.table_log import TableLog
from penstock.settings import Acknowledge, LogSettings
from tests import sample

DATA = "shop.orders.000001.avro"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A log of ten changes whose writer was killed: a copy taken while it was open."""
    live, copy = tmp_path / "live", tmp_path / "copy"
    with TableLog.open(str(live), sample.SCHEMA) as log:
        for number in range(10):
            log.append(sample.batch(number, note="n" * 100))
        shutil.copytree(live, copy)
    return copy


def block_ends(directory: Path) -> list[int]:
    reader = LogReader(str(directory))
    offsets = [batch.offset for batch in reader.read()]
    return [*offsets[1:], reader.watermark().end]


def test_a_killed_writers_log_goes_on_in_a_new_file(crashed: Path) -> None:
    with TableLog.open(str(crashed), sample.SCHEMA) as log:
        assert log.damage == ()
        assert log.rows == 10
        log.append(sample.batch(10))
    assert LogReader(str(crashed)).numbers() == [1, 2]
    assert sample.stored(str(crashed)) == list(range(11))


@pytest.mark.parametrize("kept", [1, 5, 20, 50, 100, 150])
def test_a_torn_tail_is_cut(crashed: Path, kept: int) -> None:
    path = crashed / DATA
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(path.read_bytes()[-160:][:kept])
    with TableLog.open(str(crashed), sample.SCHEMA) as log:
        assert log.damage == ()
        log.append(sample.batch(10))
    assert path.stat().st_size == whole
    assert sample.stored(str(crashed)) == list(range(11))


def test_opening_again_and_again_makes_no_heap_of_empty_files(crashed: Path, tmp_path: Path) -> None:
    for attempt in range(4):
        copy = tmp_path / f"again{attempt}"
        log = TableLog.open(str(crashed), sample.SCHEMA)
        shutil.copytree(crashed, copy)
        log.close()
        crashed = copy
    assert LogReader(str(crashed)).numbers() == [1, 2]
    assert sample.stored(str(crashed)) == list(range(10))


def test_damage_inside_is_reported_and_left_as_it_is(crashed: Path) -> None:
    path = crashed / DATA
    ends = block_ends(crashed)
    data = bytearray(path.read_bytes())
    data[ends[3] + 40] ^= 1
    path.write_bytes(data)
    with TableLog.open(str(crashed), sample.SCHEMA) as log:
        (damage,) = log.damage
        assert damage.place == {"file": str(path), "offset": ends[3]}
        log.append(sample.batch(10))
    assert path.read_bytes() == data
    reader = LogReader(str(crashed))
    found: list[list[int]] = []
    with pytest.raises(CorruptLog, match="checksum") as caught:
        found.extend(sample.numbers([batch]) for batch in reader.read())
    assert caught.value.place["offset"] == ends[3]
    assert sample.numbers(reader.read(skip_damage=True)) == [0, 1, 2, 3, *range(5, 11)]


def test_damage_to_the_last_acknowledged_block_is_not_taken_for_a_torn_tail(crashed: Path) -> None:
    path = crashed / DATA
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    with TableLog.open(str(crashed), sample.SCHEMA) as log:
        assert len(log.damage) == 1
    assert path.read_bytes() == data


def test_a_truncated_file_is_noticed(crashed: Path) -> None:
    path = crashed / DATA
    path.write_bytes(path.read_bytes()[: block_ends(crashed)[6]])
    with TableLog.open(str(crashed), sample.SCHEMA) as log:
        assert len(log.damage) == 1
    with pytest.raises(CorruptLog, match="ends inside"):
        list(LogReader(str(crashed)).read())


@pytest.mark.parametrize("damage", ["missing", "empty", "foreign", "flipped"])
def test_the_index_is_rebuilt_from_the_data(crashed: Path, damage: str) -> None:
    path = crashed / file_name(sample.TABLE, 1, INDEX)
    if damage == "missing":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "foreign":
        path.write_bytes(b"something else" * 100)
    else:
        path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()))
    with TableLog.open(str(crashed), sample.SCHEMA) as log:
        assert (log.damage, log.rows) == ((), 10)
    reader = LogReader(str(crashed))
    assert sample.numbers(reader.read(reader.seek_time(1_000_007))) == [7, 8, 9]


@pytest.mark.parametrize("content", [b"", b"x" * 68, None])
def test_a_lost_watermark_is_made_anew(crashed: Path, content: bytes | None) -> None:
    path = crashed / watermark.NAME
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert len(sample.stored(str(crashed))) <= 10
    with TableLog.open(str(crashed), sample.SCHEMA) as log:
        assert log.rows == 10
    assert sample.stored(str(crashed)) == list(range(10))


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with TableLog.open(str(directory), sample.SCHEMA, settings=LogSettings(file_bytes_max=4096)) as log:
        for number in range(30):
            log.append(sample.batch(number, note="n" * 500))
    (directory / "shop.orders.000003.avro").unlink()
    with pytest.raises(CorruptLog, match="file number 3 is missing"):
        sample.stored(str(directory))
    with TableLog.open(str(directory), sample.SCHEMA) as log:
        assert "file number 3 is missing" in str(log.damage[0])
    found = sample.numbers(LogReader(str(directory)).read(skip_damage=True))
    assert found == sorted(found)
    assert 0 < len(found) < 30


@pytest.mark.parametrize("content", [b"", b"Obj", b"Obj\x01garbage", b"PAR1 something else entirely"])
def test_a_foreign_or_empty_last_file_is_refused_and_kept(crashed: Path, content: bytes) -> None:
    path = crashed / "shop.orders.000002.avro"
    path.write_bytes(content)
    with pytest.raises((CorruptLog, Exception), match=r"000002\.avro"):
        TableLog.open(str(crashed), sample.SCHEMA)
    assert path.read_bytes() == content
    assert sample.stored(str(crashed)) == list(range(10))


def test_data_without_an_identity_is_refused(crashed: Path) -> None:
    (crashed / "log.json").unlink()
    with pytest.raises(CorruptLog, match=r"no log\.json"):
        TableLog.open(str(crashed), sample.SCHEMA)


def test_an_edited_identity_is_refused(crashed: Path) -> None:
    path = crashed / "log.json"
    path.write_text(path.read_text().replace("orders", "others"))
    with pytest.raises(CorruptLog, match="edited"):
        TableLog.open(str(crashed), sample.SCHEMA)


def test_transactions_and_times_survive_a_crash(tmp_path: Path) -> None:
    live, copy = tmp_path / "live", tmp_path / "copy"
    settings = LogSettings(acknowledge=Acknowledge.SYNCED)
    with TableLog.open(str(live), sample.SCHEMA, settings=settings) as log:
        for number in range(300):
            log.append(sample.batch(number, note="n" * 1000, domain=str(number % 3)))
        shutil.copytree(live, copy)
    with TableLog.open(str(copy), sample.SCHEMA) as log:
        log.append(sample.batch(300, domain="0"))
    reader = LogReader(str(copy))
    for number in (0, 1, 2, 150, 298, 299, 300):
        place = reader.seek_transaction(str(number % 3), number)
        assert place is not None
        assert sample.numbers(reader.read(place))[0] == number
    assert reader.seek_transaction("0", 1) is None
