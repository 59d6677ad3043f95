"""Changes that cannot be folded take nothing with them: what is left gives the rows that it gives without them."""

from __future__ import annotations

import random
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.fold.poison import sift
from penstock.formats import avro
from penstock.merge.table_state import fold, visible
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Marker, Op, Set
from penstock.records import keys
from penstock.records.runs import Run
from penstock.settings import RecordType
from tests.folding import Pipeline, Target, comparable, expected
from tests.property.test_fold import PLAIN, plain_changes

_SPOILT = "spoilt"


def poison(number: int) -> Change:
    key = {"p": 1, "a": f"bad {number}"}
    return (
        Change(Op.INSERT, key, {"v": Set(1)}, marker=Marker()),
        Change(Op.UPDATE, {"p": 1}, {"v": Set(number)}, time=1),
        Change(Op.UPDATE, {"a": str(number)}, {"v": Set(1)}, time=1),
        Change(Op.INSERT, key, {"t": Set(_SPOILT)}, time=1),
    )[number % 4]


@settings(max_examples=30, deadline=None)
@given(st.lists(plain_changes(), max_size=12), st.integers(0, 6), st.randoms(use_true_random=False))
def test_all_but_the_poison_is_folded(history: list[Change], count: int, chance: random.Random) -> None:
    bad = [poison(number) for number in range(count)]
    given = []
    for node in range(3):
        mixed = [*history, *bad, *(chance.choices(bad, k=2) if bad else ())]
        chance.shuffle(mixed)
        data = bytes(avro.encode(PLAIN, mixed).rows).replace(_SPOILT.encode(), b"\xff\xfeoilt")
        batch = ChangeBatch(PLAIN, len(mixed), data)
        given += [Run(PLAIN, f"n{node}", part.bucket, part.count, part.rows) for part in keys.split(batch, 2)]
    good, found = sift(given, RecordType.AFTER)
    assert len(found) == count
    target = Target()
    with tempfile.TemporaryDirectory() as directory:
        for records in Pipeline(directory, 2, RecordType.AFTER).fold(good, 1):
            target.write(records)
    assert comparable(list(target.rows.values())) == expected(PLAIN, visible(fold(PLAIN, history), 1))
