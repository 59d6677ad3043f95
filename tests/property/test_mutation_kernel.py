"""The compiled mutation kernel and the plain one are the same: same rows, same refusals, whatever the bytes are."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments.sections import Section
from penstock.capture.cassandra.segments.segment import FORMATS
from penstock.sandbox.commit_log.mutation import encode_mutation
from tests.commit_logs import tables, updates
from tests.mutated_mutations import damaged, sources
from tests.mutation_bytes import START, section
from tests.plain_decoder import compiled, decoder_of, plain

_SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def outcome(modules: Any, known: list[CassandraTable], format_: int, *sections: Section) -> Any:
    made, parking = decoder_of(modules, known, format_)
    reached = [made.decode(one) for one in sections]
    batches = [(batch.schema.to_json(), batch.count, bytes(batch.rows), batch.when_max) for batch in made.take()]
    counts = made.counts
    numbers = counts.mutations, counts.changes, counts.skipped, counts.parked, counts.damaged
    return reached, batches, numbers, list(map(tuple, made.damage)), list(map(tuple, parking.entries()))


@pytest.mark.parametrize("format_", FORMATS)
@_SETTINGS
@given(st.data())
def test_both_decode_the_same(format_: int, data: st.DataObject) -> None:
    table = data.draw(tables())
    payloads = [encode_mutation([(table, data.draw(updates(table, format_)))], format_) for _ in range(2)]
    whole = section(*payloads)
    ours = outcome(compiled(), [table], format_, whole)
    assert ours == outcome(plain(), [table], format_, whole)
    assert ours[2][0] == 2
    assert ours[3] == []


@pytest.mark.parametrize("format_", FORMATS)
def test_both_refuse_the_same(format_: int) -> None:
    known, payloads = sources(format_)
    chance = random.Random(format_)
    refused = 0
    for _ in range(60):
        inputs = [damaged(payloads, chance) for _ in range(10)]
        whole = section(*inputs, padding=chance.randrange(8))
        ours = outcome(compiled(), known, format_, whole)
        assert ours == outcome(plain(), known, format_, whole)
        refused += ours[2][4]
    assert refused > 100


@pytest.mark.parametrize("sealed", [True, False])
def test_both_find_the_same_damage_in_frames(sealed: bool) -> None:
    known, payloads = sources(7)
    chance = random.Random(1)
    for _ in range(100):
        data = bytearray(section(*chance.sample(payloads, 4), padding=chance.randrange(20)).data)
        for _ in range(chance.randrange(1, 3)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 1, 1, 8))] = bytes(chance.choice((0, 1, 1, 8)))
        whole = Section(bytes(data), START, sealed)
        assert outcome(compiled(), known, 7, whole) == outcome(plain(), known, 7, whole)


def test_the_kernels_checksum_is_zlibs_at_every_length() -> None:
    """Only an entry whose checksums are right is decoded, so entries of every length tell."""
    known, _ = sources(7)
    made, _ = decoder_of(compiled(), known, 7)
    noise = random.Random(2).randbytes(700)
    for size in [*range(10, 300), 512, 699]:
        data = noise[:size]
        made.decode(section(data))
        # The first byte is the number of updates, the next sixteen are a table that is not known.
        assert not [one for one in made.damage if one.what == "entry"], zlib.crc32(data)
        made.damage.clear()
