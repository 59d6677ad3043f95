# cython: language_level=3, annotation_typing=False, wraparound=False, initializedcheck=False, cdivision=True
"""The mutation kernel: entries of a commit-log section, straight into the rows of their tables' changes.

One source, two lives, as the kernels of the formats. `Mutations` walks a section entry by entry; each entry is one
mutation of one or more tables (docs/formats/commit-log.md). No Python object is made per entry, row or cell.

A mutation is written whole or not at all: whatever is wrong with it, all tables' rows are cut back to where they were.
What is wrong is a number, not an exception.
"""

from __future__ import annotations

from array import array
from typing import Any

import cython

from penstock.capture.cassandra.decoding._cells import TablePlan
from penstock.capture.cassandra.decoding._updates import UpdateReader

if not cython.compiled:
    from penstock.capture.cassandra.decoding._cells import (
        NOTHING,
        SHORT,
        TRAILING,
        UNKNOWN_FIELD,
        UNKNOWN_TABLE,
        WAITING,
    )
    from penstock.capture.cassandra.decoding._values import be32, crc32_of, put_long, same, signed32

    # What a call of `run` ends with: all of the section was read; an entry of a table that teaches was; an entry has
    # to wait for a schema; an entry, or the rest of the section, is damaged; there are more rows than asked for.
    DONE, LEARNED, PARKED, DAMAGED, FULL = range(5)
    # What is done with a table's updates: written; read and not kept; left for later.
    WRITE, READ, WAIT = range(3)
    # A mutation's rows may be larger than its bytes, but not without bound: keys are repeated, and absent columns stand
    # in each row with a byte.
    GROWTH_BYTES = 64 << 20
    GROWTH_FACTOR = 64
    # Cassandra takes no shorter mutation for one.
    MUTATION_BYTES_MIN = 10
    # What an entry's position and the marks behind it take in a change at most.
    FRONT_BYTES_MORE = 16
else:
    crc_prepare()  # noqa: F821

compiled: bool = cython.compiled


class Mutations(UpdateReader):
    """Reads sections. `add` tells the tables, `begin` the segment, `open` the section; `run` goes on until something
    has to be decided outside, which its outcome says."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: list[TablePlan] = []
        self.numbers: dict[bytes, int] = {}
        self.slots = memoryview(array("i", [-1]))
        self.mask = 0
        self.latest: TablePlan | None = None
        self.front_size = 0
        # The tables of the mutation that is read: the last, from which `touched_before` leads to the others.
        self.touched: TablePlan | None = None
        self.serial = 0
        # Of the entry that `run` has stopped at.
        self.entry = 0
        self.position = 0
        self.unknown_at = 0
        self.what = 0
        # Numbers since the beginning.
        self.mutations = 0
        self.changes = 0
        self.skipped = 0
        self.pending = 0
        self.begin(7, b"", 0)
        self.open(b"\0", 0, True, 0, 0)

    def add(self, plan: TablePlan) -> None:
        """Tell a table, or tell it anew."""
        self.latest = None
        number = self.numbers.setdefault(plan.table_id, len(self.plans))
        if number < len(self.plans):
            self.plans[number] = plan
        else:
            self.plans.append(plan)
            self.index_plans()
        self.make_room(plan)

    def index_plans(self) -> None:
        """A hash table of the tables' ids, a quarter full at most."""
        size = 1 << (4 * len(self.plans)).bit_length()
        slots = array("i", [-1] * size)
        self.mask = size - 1
        for number, plan in enumerate(self.plans):
            slot = int.from_bytes(plan.table_id[:4], "big") & self.mask
            while slots[slot] >= 0:
                slot = (slot + 1) & self.mask
            slots[slot] = number
        self.slots = memoryview(slots)

    def begin(self, format_number: int, file: bytes, capture_time: int) -> None:
        """The segment that is read now; `capture_time` goes into all changes."""
        self.unsigned_local = format_number >= 8
        self.flagged = format_number >= 9
        front = self.front
        front.cut(0)
        # No commit time; the capture time; the origin's node and data centre stand in the log's own header.
        front.put_raw(b"\0\2")
        front.put_long(capture_time)
        front.put_raw(b"\2\0\0\2")
        front.put_bytes(file)
        front.put_byte(2)
        self.front_size = front.size
        # Each entry's position follows.
        front.reserve(FRONT_BYTES_MORE)

    def open(self, data: Any, start: int, sealed: bool, after: int, cursor: int) -> None:
        """The section that is read now, from offset `cursor` on. Entries that end at `after` or before do not count."""
        if len(data) == 0:
            data = b"\0"
        self.use(data)
        self.start = start
        self.sealed = sealed
        self.after = after
        self.cursor = min(cursor, self.size)
        self.position = start + self.cursor

    def again(self) -> None:
        """Read the entry that `run` stopped at once more."""
        self.cursor = self.entry - 8

    def single(self, data: bytes, position: int) -> int:
        """One mutation by itself, without frame. PARKED, DAMAGED, LEARNED or DONE."""
        self.use(data)
        self.cursor = self.size
        self.entry = 0
        self.entry_size = self.size
        self.position = position
        return self.decode_entry()

    @cython.boundscheck(False)
    def run(self, bytes_max: int) -> int:
        """Read on until the section's end or something to decide; `position` is how far everything was handled."""
        while True:
            outcome = self.next_entry()
            if outcome != LEARNED:
                return outcome
            outcome = self.decode_entry()
            if outcome != DONE:
                return outcome
            if self.pending >= bytes_max:
                return FULL

    @cython.boundscheck(False)
    def next_entry(self) -> int:
        """Find the next entry that counts and check its frame. LEARNED: there is one."""
        while True:
            at = self.cursor
            rest = self.size - at
            size = 0
            if rest >= 4:
                size = signed32(be32(self.src, at))
            if size == 0:
                return self.end_of_entries()
            if size < MUTATION_BYTES_MIN or rest < 12 or crc32_of(self.src, at, 4, 0) != be32(self.src, at + 4):
                return self.bad_frame(at, self.size, 0)
            if size > rest - 12:
                return self.bad_frame(at, self.size, 1)
            self.entry = at + 8
            self.entry_size = size
            if self.start + at + size + 12 <= self.after:
                self.cursor = at + size + 12
                self.position = self.start + self.cursor
                continue
            if crc32_of(self.src, at + 8, size, be32(self.src, at + 4)) != be32(self.src, at + 8 + size):
                return self.bad_frame(at, at + size + 12, 2)
            self.cursor = at + size + 12
            self.position = self.start + self.cursor
            return LEARNED

    def bad_frame(self, at: int, beyond: int, what: int) -> int:
        """In a sealed section a bad entry is damage; in another one it is not written yet."""
        if not self.sealed:
            self.position = self.start + at
            return DONE
        self.entry = at
        self.problem = NOTHING
        self.what = what
        self.cursor = beyond
        self.position = self.start + beyond
        return DAMAGED

    @cython.boundscheck(False)
    def end_of_entries(self) -> int:
        """A size of zero: the section's padding, or a gap that a failed write has left, with entries behind it."""
        at = self.cursor
        if not self.sealed:
            self.position = self.start + at
            return DONE
        found = at
        while found < self.size and self.src[found] == 0:
            found += 1
        if found < self.size:
            # A size begins with zeros, so the entry begins up to three bytes before the first other byte.
            for begin in range(max(at + 1, found - 3), found + 1):
                if self.size - begin >= 12:
                    size = signed32(be32(self.src, begin))
                    if (
                        size >= MUTATION_BYTES_MIN
                        and size <= self.size - begin - 12
                        and crc32_of(self.src, begin, 4, 0) == be32(self.src, begin + 4)
                    ):
                        return self.bad_frame(at, begin, 3)
            return self.bad_frame(at, self.size, 3)
        self.cursor = self.size
        self.position = self.start + self.size
        return DONE

    @cython.boundscheck(False)
    def decode_entry(self) -> int:
        """The mutation between `entry` and its end; nothing of it is left when something is wrong."""
        self.at = self.entry
        self.end = self.entry + self.entry_size
        self.problem = NOTHING
        self.serial += 1
        self.ordinal = 0
        self.learned = False
        self.passed = True
        if self.touched is not None:
            # An exception has ended the last mutation.
            self.settle(False)
        front = self.front
        out = cython.address(front.data[0]) if cython.compiled else front.store
        pos = put_long(out, self.front_size, self.position)
        # No transaction; the ordinal follows in each row.
        out[pos] = 0
        out[pos + 1] = 2
        front.size = pos + 2
        problem = self.read_mutation()
        if self.problem == NOTHING and problem == NOTHING and self.at != self.end:
            problem = TRAILING
        if problem != NOTHING or self.problem != NOTHING:
            if self.problem == NOTHING:
                self.problem = problem
            self.settle(False)
            return PARKED if self.problem <= UNKNOWN_FIELD else DAMAGED
        self.settle(True)
        self.mutations += 1
        if self.passed:
            self.skipped += 1
        return LEARNED if self.learned else DONE

    def settle(self, keep: bool) -> int:
        """Keep or take back what this mutation has written."""
        plan = self.touched
        while plan is not None:
            if keep and plan.mode == WRITE:
                self.pending += plan.rows.size - plan.mark_size
                self.changes += plan.count - plan.mark_count
            else:
                plan.rows.size = plan.mark_size
                plan.count = plan.mark_count
                plan.when_max = plan.mark_when
            before = plan.touched_before
            plan.touched_before = None
            plan = before
        self.touched = None
        return 0

    def read_mutation(self) -> int:
        if self.flagged:
            self.byte()
        count = self.uv()
        if count == 0:
            return self.fail(SHORT)
        while count:
            count -= 1
            if self.read_update(count == 0):
                return self.problem
            if self.problem:
                return self.problem
        return NOTHING

    @cython.boundscheck(False)
    def find(self) -> Any:
        """The table whose id stands here; None when it is not known."""
        at = self.at
        plan = self.latest
        if plan is not None and same(self.src, at, plan.id, 16):
            return plan
        slot = be32(self.src, at) & self.mask
        while True:
            number = self.slots[slot]
            if number < 0:
                return None
            plan = self.plans[number]
            if same(self.src, at, plan.id, 16):
                self.latest = plan
                return plan
            slot = (slot + 1) & self.mask

    def read_update(self, last: bool) -> int:
        """One table's part of the mutation."""
        if self.end - self.at < 16:
            return self.fail(SHORT)
        self.unknown_at = self.at
        plan = self.find()
        if plan is None:
            return self.fail(UNKNOWN_TABLE)
        self.at += 16
        if plan.mode == WAIT:
            return self.fail(WAITING)
        if plan.mode == READ and last:
            self.at = self.end
            return NOTHING
        if self.flagged:
            plan.epoch = self.uv()
        if plan.mode == WRITE:
            self.passed = False
        if plan.learns:
            self.learned = True
        if plan.serial != self.serial:
            plan.serial = self.serial
            plan.mark_size = plan.rows.size
            plan.mark_count = plan.count
            plan.mark_when = plan.when_max
            plan.touched_before = self.touched
            self.touched = plan
        self.ceiling = plan.mark_size + GROWTH_BYTES + GROWTH_FACTOR * self.entry_size
        plan.values.ceiling = self.ceiling
        return self.read_partition(plan)
