"""Blocks tell whole from torn at every cut and every flipped bit."""

import pytest

from penstock.log import block
from penstock.log.block import Block, TornBlock
from penstock.settings import Codec
from tests import sample

SYNC = bytes(range(16))


def built(codec: Codec = Codec.NULL) -> bytes:
    rows = [sample.batch(1, 2).rows, sample.batch(3).rows]
    return b"".join(block.build(rows, 3, 7, codec, SYNC).parts)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_block_reads_back_as_it_was_built(codec: Codec) -> None:
    found = block.parse(built(codec), 0, 1000, codec, SYNC, 1 << 20)
    assert isinstance(found, Block)
    assert (found.offset, found.end, found.count, found.epoch) == (1000, 1000 + len(built(codec)), 3, 7)
    assert block.unseal(found.rows, 3) == b"".join(map(bytes, (sample.batch(1, 2).rows, sample.batch(3).rows)))


def test_a_block_that_is_cut_asks_for_more_bytes() -> None:
    data = built()
    for length in range(len(data)):
        needed = block.parse(data[:length], 0, 0, Codec.NULL, SYNC, 1 << 20)
        assert isinstance(needed, int)
        assert needed > length


@pytest.mark.parametrize("codec", list(Codec))
def test_every_flipped_bit_is_noticed(codec: Codec) -> None:
    data = bytearray(built(codec))
    whole = block.parse(bytes(data), 0, 0, codec, SYNC, 1 << 20)
    for place in range(len(data) * 8):
        data[place // 8] ^= 1 << place % 8
        try:
            found = block.parse(bytes(data), 0, 0, codec, SYNC, 1 << 20)
        except TornBlock:
            found = 0
        # A larger length asks for bytes that are not there; a reader takes that for the end of the file.
        # A codec may have bits that mean nothing.
        assert isinstance(found, int) or (codec is not Codec.NULL and found == whole)
        data[place // 8] ^= 1 << place % 8


def test_rows_that_carry_a_seal_already_are_refused() -> None:
    sealed = block.parse(built(), 0, 0, Codec.NULL, SYNC, 1 << 20)
    assert isinstance(sealed, Block)
    with pytest.raises(ValueError, match="seal"):
        block.build([sealed.rows + b"\x01"], 3, 1, Codec.NULL, SYNC)
