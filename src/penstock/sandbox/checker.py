"""The checker: whether every acknowledged write is in the logs of as many replicas as its level promised.

Three things must hold for each: the replicas that had acknowledged when the client was answered were enough for its
level, each of them has the change in its log, and the logs of enough replicas have it.

It knows the history and reads the logs, through the same reader and decoder as anybody else; it sees nothing of the
cluster's memory. A node without a log for a table cannot be checked: its acknowledgement is taken as given, counted,
and reported as `unlogged`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from penstock.formats import avro
from penstock.log.reader import LogReader
from penstock.model.change import Change
from penstock.model.schema import TableId
from penstock.sandbox.consistency import met
from penstock.sandbox.history import History, digest
from penstock.system.files import Files


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where one node's log of one table is."""

    node: str
    table: TableId
    directory: str
    files: Files


@dataclass(frozen=True, slots=True)
class Lack:
    """An acknowledged change that is not where it must be."""

    write: int
    table: TableId
    # Replicas that acknowledged it and do not have it.
    acknowledged_without: tuple[str, ...]
    found_on: tuple[str, ...]


@dataclass(slots=True)
class Verdict:
    """What was found. `sound` is the answer; the counts tell how much it rests on."""

    changes_acknowledged: int = 0
    changes_in_logs: int = 0
    copies_checked: int = 0
    # Acknowledgements by nodes that keep no log of the table.
    unlogged: int = 0
    # Writes that the history did not keep.
    unchecked: int = 0
    lacks: list[Lack] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not self.lacks


def read_changes(place: LogPlace) -> Iterator[Change]:
    """Every change of one log, in written order. Damage raises CorruptLog."""
    with LogReader(place.directory, files=place.files) as reader:
        for batch in reader.read():
            yield from avro.decode(batch)


def check(history: History, places: Iterable[LogPlace], data_centres: Mapping[str, str]) -> Verdict:
    """Compare the history with the logs."""
    verdict = Verdict(unchecked=history.dropped)
    wanted: dict[tuple[TableId, bytes], list[str]] = {
        (outcome.table, name): [] for outcome in history.outcomes if outcome.acknowledged for name in outcome.digests
    }
    logged: set[tuple[str, TableId]] = set()
    for place in places:
        logged.add((place.node, place.table))
        for change in read_changes(place):
            verdict.changes_in_logs += 1
            found = wanted.get((place.table, digest(change)))
            if found is not None and place.node not in found:
                found.append(place.node)
    for outcome in history.outcomes:
        if not outcome.acknowledged:
            continue
        unlogged = [node for node in outcome.acknowledged_by if (node, outcome.table) not in logged]
        for name in outcome.digests:
            found = wanted[outcome.table, name]
            verdict.changes_acknowledged += 1
            verdict.copies_checked += len(found)
            verdict.unlogged += len(unlogged)
            without = tuple(node for node in outcome.acknowledged_by if node not in found and node not in unlogged)
            promised = met(outcome.needs, outcome.acknowledged_by, data_centres)
            if without or not promised or not met(outcome.needs, {*found, *unlogged}, data_centres):
                verdict.lacks.append(Lack(outcome.number, outcome.table, without, tuple(found)))
    return verdict
