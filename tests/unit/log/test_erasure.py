"""Erasure: what is asked for is gone from every byte, and everything else is where it was."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest

from penstock.errors import CorruptLog, InvalidInput
from penstock.formats import avro, container
from penstock.log import erased, retention, segment, subscriptions
from penstock.log import erasure as erasure_module
from penstock.log.erasure import Report, erase
from penstock.log.follow import Follower, Tail
from penstock.log.forgotten import Target, target
from penstock.log.reader import LogReader
from penstock.log.recent import time_after
from penstock.log.subscription import Subscription
from penstock.log.table_log import TableLog
from penstock.log.verify import verify
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import NO_ORIGIN, Bound, Change, Deletion, Marker, Op, Origin, Range, Set
from penstock.model.position import Position
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.settings import Codec, LogSettings, RetentionSettings
from penstock.system.files import Files
from testkit.crash_files import CrashFiles
from testkit.power_loss import Crash, Mode
from tests.every_type import every_type_table

SCHEMA = TableSchema(
    TableId("shop", "people"),
    (
        Column("email", t.TEXT, Role.PARTITION),
        Column("line", t.DECIMAL, Role.CLUSTERING),
        Column("name", t.TEXT),
        Column("amount", t.INT64),
    ),
    source="sandbox",
)
ANNA, BERT = "anna@example.org", "bert@example.org"
SECRET = "an address that nobody may know"


def person(email: str, line: int, number: int, *, origin: Origin = NO_ORIGIN) -> Change:
    cells = {"name": Set(SECRET if email == ANNA else f"name {number}"), "amount": Set(number)}
    return Change(
        Op.INSERT, {"email": email, "line": Decimal(line)}, cells, time=1_700_000_000_000_000 + number, marker=Marker(),
        origin=origin,
    )  # fmt: skip


def write(
    directory: str, blocks: Sequence[Sequence[Change]], codec: Codec = Codec.NULL, files: Files | None = None
) -> None:
    """One block each, two or three to a file."""
    settings = LogSettings(codec=codec, file_bytes_max=6000, reserve_bytes=0)
    with TableLog.open(directory, SCHEMA, settings=settings, files=files) as log:
        for block in blocks:
            log.append(avro.encode(SCHEMA, block))


def blocks_of(seed: int, count: int = 8) -> list[list[Change]]:
    rng = Random(seed)
    origins = [NO_ORIGIN, Origin("n1", "dc1", "CommitLog-7-1.log", 4711, None, 2)]
    people = [ANNA, BERT, "c@example.org", "dora@example.org"]
    numbers = iter(range(10_000))
    return [
        [person(rng.choice(people), rng.randrange(3), next(numbers), origin=rng.choice(origins)) for _ in range(size)]
        for size in (rng.choice([1, 2, 3, 25]) for _ in range(count))
    ]


def placed(directory: str, files: Files | None = None) -> dict[Position, Change]:
    out = {}
    with LogReader(directory, files=files) as reader:
        for batch in reader.read():
            for ordinal, change in enumerate(avro.decode(batch), batch.skip):
                out[Position(batch.file, batch.offset, ordinal)] = change
    return out


def forget(directory: str, *keys: dict[str, Any], files: Files | None = None, **more: Any) -> Report:
    like = (lambda _old, _new: None) if files is not None else None
    options = {**more, **({"like": like} if like is not None else {})}
    return erase(directory, lambda schema: [target(schema, key) for key in keys], files=files, **options)


def raw(directory: str, files: CrashFiles | None = None) -> bytes:
    """Every byte of the directory, and of every block after decompression, without any code of the log's readers."""
    contents = (
        {path.name: path.read_bytes() for path in Path(directory).iterdir()}
        if files is None
        else {name: data for name, data in files.contents().items() if name.startswith(directory)}
    )
    out = []
    for name, data in contents.items():
        out.append(data)
        if not name.endswith((".avro", ".avro.tmp")) or not data:
            continue
        header = container.parse_header(data)
        at = header.size
        while at < len(data):
            head = container.parse_block_head(data, at)
            payload = data[at + head.head : at + head.head + head.size]
            out.append(container.decompress(header.codec, payload, 1 << 24))
            at += head.head + head.size + container.SYNC_BYTES
    return b"\0\0".join(out)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("seed", range(6))
def test_every_byte_of_the_erased_is_gone_and_all_else_is_where_it_was(tmp_path: Path, codec: Codec, seed: int) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(seed), codec)
    before = placed(directory)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "log").glob("*.avro")}
    assert ANNA.encode() in raw(directory)

    report = forget(directory, {"email": ANNA})

    gone = {position for position, change in before.items() if change.key["email"] == ANNA}
    assert report.complete
    assert report.before.changes == len(gone) > 0
    found = raw(directory)
    assert ANNA.encode() not in found
    assert SECRET.encode() not in found
    assert placed(directory) == {position: change for position, change in before.items() if position not in gone}
    for name, size in sizes.items():
        assert (tmp_path / "log" / name).stat().st_size == size
    with LogReader(directory) as reader:
        verdict = verify(reader)
    assert verdict.sound
    assert (verdict.changes, verdict.erased) == (len(before), len(gone))
    # The judge outside: fastavro gives every record, the erased ones without key and values.
    records: list[Any] = []
    for path in sorted((tmp_path / "log").glob("*.avro")):
        with path.open("rb") as file:
            records += fastavro.reader(file)
    assert len(records) == len(before)
    blank = [one for one in records if one["key"]["email"] is None]
    assert len(blank) == len(gone)
    assert all(one["key"]["line"] is None and not any(one["cells"].values()) and one["op"] == "update" for one in blank)


def test_a_second_run_has_nothing_to_do_and_writes_nothing(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(1))
    assert forget(directory, {"email": ANNA}).files
    states = {path.name: path.stat() for path in (tmp_path / "log").iterdir()}
    again = forget(directory, {"email": ANNA})
    assert again.complete
    assert not again.files
    assert again.after.erased > 0
    same = ("st_ino", "st_size", "st_mtime_ns")
    for path in (tmp_path / "log").glob("*.0*"):
        assert [getattr(path.stat(), name) for name in same] == [getattr(states[path.name], name) for name in same]


def test_one_row_goes_and_the_others_of_its_partition_stay(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    start, end = Bound((Decimal(1),), True), Bound((Decimal(2),), True)
    only = Change(Op.DELETE_RANGE, {"email": ANNA}, deletion=Deletion(9), range=Range(start, start))
    wider = Change(Op.DELETE_RANGE, {"email": ANNA}, deletion=Deletion(9), range=Range(start, end))
    rows = [person(ANNA, 1, 1), person(ANNA, 2, 2), person(BERT, 1, 3)]
    # Another spelling of the same row.
    spelled = replace(rows[0], key={"email": ANNA, "line": Decimal("1.00")})
    write(directory, [[*rows, only, spelled, wider]])
    report = forget(directory, {"email": ANNA, "line": Decimal("1.0")})
    assert report.complete
    assert report.before.changes == 3
    assert report.after.ranges == 1
    assert list(placed(directory).values()) == [rows[1], rows[2], wider]
    assert forget(directory, {"email": ANNA}).after.ranges == 0
    assert list(placed(directory).values()) == [rows[2]]


def test_a_dry_run_tells_and_changes_nothing(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(2))
    before = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    report = forget(directory, {"email": ANNA}, dry_run=True)
    assert report.before.changes > 0
    assert report.files == report.before.files
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} == before


def test_readers_go_on_over_an_erased_range(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    blocks = [[person(BERT, 0, 0)], [person(ANNA, 0, 1), person(BERT, 0, 2), person(ANNA, 0, 3)], [person(ANNA, 1, 4)]]
    write(directory, [*blocks, [person(BERT, 1, 5)], [person(ANNA, 1, 6)]])
    places = list(placed(directory))
    with Subscription.open(directory, "begun") as begun, Subscription.open(directory, "done") as done:
        begun.commit(places[1])
        done.commit(places[-1])
        report = forget(directory, {"email": ANNA})
        assert report.behind == ["begun"]
        given = [change.cells["amount"] for batch in begun.batches() for change in avro.decode(batch)]
        assert given == [Set(2), Set(5)]
        # The last change is erased: who has read all is at the end, and not for ever one behind.
        begun.commit(begun._cursor)
        assert begun.position == places[-1]
        assert (begun.erased, done.erased) == (3, 0)
        assert not any(map(len, done.batches()))
    with Follower(directory) as follower, Tail(follower) as tail:
        seen: list[int] = []
        while tail.position < places[-1]:
            batch = tail.next(10)
            assert batch is not None
            seen += [change.cells["amount"].value for change in avro.decode(batch)]  # type: ignore[union-attr]
        assert seen == [0, 2, 5]
        assert tail.next(0) is None
    with LogReader(directory) as reader:
        assert time_after(reader, places[0]) == 1_700_000_000_000_002
        assert reader.seek_time(1_700_000_000_000_003) == places[2]
        assert all(subscriptions.states(reader))


def test_an_open_reader_reads_the_old_file_to_its_end(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(3))
    before = placed(directory)
    with LogReader(directory) as reader:
        batches = reader.read()
        seen = avro.decode(next(batches))
        forget(directory, {"email": ANNA})
        seen += [change for batch in batches for change in avro.decode(batch)]
    assert [change for change in seen if change.key["email"] != ANNA] == [
        change for change in before.values() if change.key["email"] != ANNA
    ]


def test_a_writer_at_work_keeps_its_file_until_it_ends_it(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    with TableLog.open(directory, SCHEMA) as log:
        log.append(avro.encode(SCHEMA, [person(ANNA, 0, 1), person(BERT, 0, 2)]))
        log.seal()
        log.append(avro.encode(SCHEMA, [person(ANNA, 0, 3)]))
        report = forget(directory, {"email": ANNA})
        assert not report.complete
        assert "another writer has this log" in report.writer
        assert (report.files, report.after.files, report.after.changes) == ([1], [2], 1)

        def seal() -> bool:
            log.seal()
            return True

        assert forget(directory, {"email": ANNA}, seal=seal).complete
        assert ANNA.encode() not in raw(directory)
        last = log.append(avro.encode(SCHEMA, [person(BERT, 0, 4)]))
        assert last.file == 3
        # Nothing is ended that has no changes.
        log.seal()
        log.seal()
    assert [change.cells["amount"] for change in placed(directory).values()] == [Set(2), Set(4)]
    with LogReader(directory) as reader:
        assert verify(reader).sound


def test_the_new_file_is_as_old_as_the_old_one_for_retention(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(4))
    first = min(path for path in (tmp_path / "log").glob("*.avro") if ANNA.encode() in path.read_bytes())
    os.utime(first, (1000, 1000))
    first.chmod(0o640)
    forget(directory, {"email": ANNA})
    assert first.stat().st_mtime == 1000
    assert first.stat().st_mode & 0o777 == 0o640
    settings = RetentionSettings(age_s_max=3600)
    oldest = min((tmp_path / "log").glob("*.avro"))
    os.utime(oldest, (1000, 1000))
    assert retention.apply(directory, settings).removed


@pytest.mark.parametrize("codec", [Codec.NULL, Codec.ZSTANDARD])
def test_power_loss_at_every_step_leaves_the_old_or_the_new_and_the_next_run_finishes(codec: Codec) -> None:
    files = CrashFiles()
    files.make_directory("/log")
    write("/log", blocks_of(5, 5), codec, files)
    before = placed("/log", files)
    kept = {position: change for position, change in before.items() if change.key["email"] != ANNA}
    assert len(kept) < len(before)
    with Subscription.open("/log", "reader", files=files) as reader:
        reader.commit(next(iter(kept)))
    crashed: list[tuple[CrashFiles, CrashFiles]] = []
    # Every step meets a few ways to lose power, and each way comes again and again.
    modes = itertools.cycle(Mode)

    def watch(now: CrashFiles) -> None:
        for crash in (Crash(next(modes)), Crash(next(modes), 1)):
            crashed.append((now.clone_after_crash(crash), now.clone_after_crash(crash)))

    files.disk.watch = watch
    assert forget("/log", {"email": ANNA}, files=files).complete
    watch(files)
    files.disk.watch = None
    assert len(crashed) > 5 * len(Mode)
    for disk, twin in crashed:
        # As it is found: everything that was kept is there, and what was erased is there or is not. A writer that opens
        # the log says again how far it is durable.
        write("/log", [], codec, twin)
        found = placed("/log", twin)
        assert {position: change for position, change in found.items() if change.key["email"] != ANNA} == kept
        assert all(before[position] == change for position, change in found.items())
        assert forget("/log", {"email": ANNA}, files=disk).complete
        assert placed("/log", disk) == kept
        assert ANNA.encode() not in raw("/log", disk)
        # The index of an empty file is not synced; whoever writes next makes it anew.
        write("/log", [], codec, disk)
        with LogReader("/log", files=disk) as log:
            verdict = verify(log, files=disk)
        assert verdict.sound, verdict.damage
        with Subscription.open("/log", "reader", files=disk) as again:
            assert sum(map(len, again.batches())) == len(kept) - 1


def test_damage_is_told_and_nothing_is_called_gone(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(1))
    path = max((tmp_path / "log").glob("*.avro"), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptLog):
        forget(directory, {"email": ANNA})


def test_every_type_of_key_is_found_by_its_bytes_and_blank_rows_come_in_every_length() -> None:
    schema, changes = every_type_table()
    for change in changes:
        blank = erased.blank(change)
        least = len(erased.encoded(schema, blank))
        for size in (*range(least + 1, least + 150), least + 8190, least + 8200, least + 70_000):
            row = erased.row_of(schema, blank, size)
            assert len(row) == size
            assert erased.ordinals(schema, row, 1) == [0]
            # What an agent and searches go by is still there.
            back = avro.decode(ChangeBatch(schema, 1, row))[0]
            assert (back.origin.file, back.origin.position, back.origin.ordinal) == (
                change.origin.file,
                change.origin.position,
                change.origin.ordinal,
            )
            assert (back.time, back.commit_time) == (change.time, change.commit_time)


def test_a_key_that_ends_in_zeros_is_not_taken_for_an_erased_change(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    zeros = Change(Op.UPDATE, {"email": "x" + "\0" * 40}, time=5)
    write(directory, [[zeros, person(ANNA, 0, 1), zeros]])
    assert forget(directory, {"email": ANNA}).complete
    assert list(placed(directory).values()) == [zeros, zeros]


def test_a_block_without_any_erased_change_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(1))
    monkeypatch.setattr(erased, "ordinals", lambda *_: pytest.fail("looked through"))
    assert placed(directory)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ({}, "all partition columns"),
        ({"line": 1}, "all partition columns"),
        ({"email": None}, "null"),
        ({"email": "a", "name": "b"}, "no key column"),
    ],
)
def test_a_key_that_is_none_is_refused(key: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        target(SCHEMA, key)


def test_files_whose_key_is_of_another_type_are_named(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    write(directory, [[person(ANNA, 0, 1)]])
    other = replace(
        SCHEMA, columns=(Column("email", t.INT64, Role.PARTITION), *SCHEMA.columns[1:]), version=2, id="other"
    )
    with TableLog.open(directory, other) as log:
        log.append(avro.encode(other, [Change(Op.UPDATE, {"email": 7, "line": Decimal(1)})]))
    report = erase(directory, lambda _: [Target((7,))])
    assert not report.complete
    assert report.after.foreign
    assert report.after.changes == 0


def test_the_segment_reader_gives_the_true_epoch_of_a_marked_block(tmp_path: Path) -> None:
    directory = str(tmp_path / "log")
    write(directory, blocks_of(1))
    forget(directory, {"email": ANNA})
    marked = 0
    with LogReader(directory) as reader:
        for number in reader.numbers():
            file, heading = reader.open(number), reader.heading(number)
            for block in segment.blocks(file, heading, heading.size, file.size()):
                assert block.epoch == 1
                marked += block.erased
    assert marked


def test_a_block_that_does_not_fit_in_its_place_stays_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = str(tmp_path / "log")
    write(directory, [[person(ANNA, 0, 1)], [person(ANNA, 0, 2), person(BERT, 0, 3)]], Codec.DEFLATE)
    before = placed(directory)
    real = erasure_module._fitted

    def fitted(codec: Codec, make: Any, size: int) -> bytes | None:
        # Stands for a block whose changes were so alike that no blank one takes as little room.
        return None if b"name 3" in make("", 0) else real(codec, make, size)

    monkeypatch.setattr(erasure_module, "_fitted", fitted)
    report = forget(directory, {"email": ANNA})
    assert not report.complete
    assert report.after.changes == 1
    ((number, offset),) = report.unfit
    left = placed(directory)
    assert [place for place in left if left[place].key["email"] == ANNA] == [Position(number, offset, 0)]
    assert len(left) == len(before) - 1
    monkeypatch.undo()
    assert forget(directory, {"email": ANNA}).complete


def test_numbers_of_a_partition_key_are_found_however_many_zeros_they_begin_with(tmp_path: Path) -> None:
    columns = (Column("number", t.VARINT, Role.PARTITION), Column("amount", t.DECIMAL, Role.PARTITION))
    schema = TableSchema(TableId("shop", "numbers"), columns, source="sandbox")
    rows = [Change(Op.UPDATE, {"number": 5, "amount": Decimal(text)}, time=7) for text in ("1.0", "1.00", "2.0")]
    batch = avro.encode(schema, rows)
    # As a source may write it: the number five in two bytes instead of one.
    data = bytes(batch.rows)
    long = data.replace(b"\x02\x02\x05", b"\x02\x04\x00\x05")
    assert len(long) == len(data) + 3
    directory = str(tmp_path / "log")
    with TableLog.open(directory, schema) as log:
        log.append(batch)
        log.append(replace(batch, rows=long))
    report = forget(directory, {"number": 5, "amount": Decimal("1.0")})
    assert report.complete
    assert report.before.changes == 2
    assert [str(change.key["amount"]) for change in placed(directory).values()] == ["1.00", "2.0"] * 2
