"""When a segment is finished, and when it only looks so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.capture.cassandra.agent.directory import SegmentDirectory
from penstock.capture.cassandra.agent.place import FinishedSegments
from penstock.capture.cassandra.agent.tail import Ended, Opened, Tail
from penstock.capture.cassandra.segments.sections import Damage, Section
from penstock.settings import TailMode
from tests.scripted_agent import Node, SteppedClock


class Reading:
    """A tail that is read by hand."""

    def __init__(self, node: Node, mode: TailMode = TailMode.WRITTEN, start: tuple[int, int] | None = None) -> None:
        self.finished = FinishedSegments()
        self.clock = SteppedClock()
        directory = SegmentDirectory(str(node.cdc_raw))
        self.tail = Tail(directory, self.finished, self.clock, mode=mode, start=start)
        self.ended: list[Ended] = []
        self.damage: list[Damage] = []

    def drain(self) -> int:
        """Take everything that is there; how many bytes of sections came."""
        count = 0
        self.clock.now_s += 1
        while (item := self.tail.read()) is not None:
            if isinstance(item, Section):
                end = item.start + len(bytes(item.data).rstrip(b"\0"))
                count += end - max(item.start, self.tail.position)
                self.tail.moved(item.start + len(item.data) if item.sealed else _whole(item))
            elif isinstance(item, Ended):
                self.ended.append(item)
                self.finished.add(item.file.id, item.position)
            elif isinstance(item, Damage):
                self.damage.append(item)
            else:
                assert isinstance(item, Opened)
            self.clock.now_s += 1
        return count


def _whole(section: Section) -> int:
    """The end of the last whole entry."""
    at = 0
    while at + 12 <= len(section.data):
        size = int.from_bytes(section.data[at : at + 4], "big")
        if not size:
            break
        at += size + 12
    return section.start + at


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path, spare=True)
    made.create()
    return made


def test_silence_is_not_the_end(node: Node) -> None:
    reading = Reading(node)
    node.write(1)
    assert reading.drain()
    assert reading.drain() == 0
    node.write(2)
    assert reading.drain()
    assert reading.ended == []


def test_without_a_segment_nothing_can_come_before_the_next_scan(tmp_path: Path) -> None:
    node = Node(tmp_path, format=6)
    reading = Reading(node)
    assert reading.tail.rest_s() == 0
    assert reading.drain() == 0
    assert reading.tail.rest_s() == pytest.approx(0.1)
    node.create()
    node.write(1)
    node.log.roll()
    node.log.sync()
    node.log.discard()
    assert reading.tail.read() is None, "the directory is not looked through yet"
    reading.clock.now_s += 0.1
    assert isinstance(reading.tail.read(), Opened)
    assert reading.tail.rest_s() == 0
    assert reading.drain()
    assert len(reading.ended) == 1


def test_the_spare_segment_proves_nothing(node: Node) -> None:
    reading = Reading(node)
    node.write(1)
    node.log.sync()
    reading.drain()
    assert len(node.segments()) == 2
    assert reading.ended == []
    assert reading.tail.segment is not None
    assert reading.tail.segment.name.name == node.segments()[0]


def test_entry_in_a_newer_segment_is_no_proof_and_its_marker_is(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.create()
    node.write(1)
    node.log.abandon()
    old = os.path.basename(node.log.segment)
    node.restart()
    node.write(2)
    reading = Reading(node)
    reading.drain()
    assert reading.ended == [], "writes to the older one may still be under way"
    node.log.mark()
    reading.drain()
    assert [ended.file.name.name for ended in reading.ended] == [old]


def test_completed_ends_a_segment_after_one_more_look(node: Node) -> None:
    reading = Reading(node)
    node.write(1)
    reading.drain()
    node.write(2)
    node.log.roll()
    assert reading.drain(), "what came before the word is read, although the word was seen first"
    assert len(reading.ended) == 1


def test_segment_that_vanished_while_nobody_read_is_told_as_lost(node: Node) -> None:
    place = node.write(1)
    os.unlink(node.cdc_raw / os.path.basename(node.log.segment))
    reading = Reading(node, start=(place.segment, 3))
    reading.drain()
    assert [(ended.file.id, ended.lost) for ended in reading.ended][:1] == [(place.segment, True)]


def test_segment_that_is_gone_before_its_turn_is_read_from_its_open_file(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.create()
    node.write(1)
    reading = Reading(node)
    reading.drain()
    node.log.roll()
    for number in range(3):
        node.write(number)
        node.log.roll()
    # All are open now; then the node deletes them to make room.
    reading.clock.now_s += 1
    assert isinstance(reading.tail.read(), Ended)
    for path in list(node.cdc_raw.iterdir()):
        path.unlink()
    assert reading.drain()
    # The last but one has nothing behind it that was synced, and stays open.
    assert [ended.lost for ended in reading.ended] == [False, False]
    assert reading.tail.position > 0


def test_torn_marker_is_waited_for_and_damage_only_when_nobody_writes(node: Node) -> None:
    node.write(1)
    node.log.sync()
    node.write(2)
    reading = Reading(node)
    reading.drain()
    position = reading.tail.position
    path = node.log.segment
    with open(path, "r+b") as file:
        file.seek(position)
        file.write((position + 500).to_bytes(4, "big") + b"\1\2\3\4")
    assert reading.drain() == 0
    assert reading.damage == []
    node.log.abandon()
    other = Node(node.root)
    other.write(3)
    other.log.mark()
    reading.drain()
    assert len(reading.ended) >= 1


def test_synced_reads_up_to_the_index_and_a_dead_nodes_segment_up_to_its_last_marker(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.create()
    node.write(1)
    node.log.sync()
    covered = node.write(2)
    node.log.mark()
    node.write(3)
    reading = Reading(node, TailMode.SYNCED)
    reading.drain()
    synced = reading.tail.position
    assert synced < covered.position
    node.log.abandon()
    node.restart()
    node.write(4)
    node.log.sync()
    reading.drain()
    assert len(reading.ended) == 1
    assert covered.position <= reading.ended[0].position < node_end(tmp_path)


def node_end(root: Path) -> int:
    first = sorted((root / "cdc_raw").glob("*.log"))[0]
    return len(first.read_bytes().rstrip(b"\0"))


def test_empty_spare_of_a_dead_node_ends_without_a_word(tmp_path: Path) -> None:
    node = Node(tmp_path)
    blank = node.cdc_raw / "CommitLog-7-5.log"
    blank.write_bytes(bytes(4096))
    node.create()
    node.write(1)
    node.log.sync()
    reading = Reading(node)
    reading.drain()
    assert [(ended.file.id, ended.refusal, ended.lost) for ended in reading.ended] == [(5, None, False)]


def test_broken_header_is_refused_once_nobody_writes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    broken = node.cdc_raw / "CommitLog-7-5.log"
    broken.write_bytes(b"\0\0\0\7" + b"\1" * 100)
    reading = Reading(node)
    reading.drain()
    assert reading.ended == [], "it may be just being made"
    node.create()
    node.log.mark()
    reading.drain()
    (ended,) = reading.ended
    assert ended.file.id == 5
    assert ended.refusal is not None
    assert "header" in ended.refusal.message
