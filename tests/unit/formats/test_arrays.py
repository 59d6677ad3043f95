"""Arrays from Python values, against those that pyarrow makes of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.formats.arrays import binaries, integers, repeated, texts


@pytest.mark.parametrize("values", [[], [""], ["a", "", "bc", "é"]])
def test_texts_and_bytes_are_those_given(values: list[str]) -> None:
    made = texts(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))
    data = [value.encode() for value in values]
    assert binaries([memoryview(one) for one in data], pa.binary()).equals(pa.array(data, pa.binary()))


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64()])
def test_integers_are_those_given(type_: pa.DataType) -> None:
    values = [0, -1, 127, -128, *([] if type_.bit_width == 8 else [1 << 30])]
    assert integers(values, type_).equals(pa.array(values, type_))
    assert repeated(-5, 3, type_).equals(pa.array([-5] * 3, type_))
    assert repeated(7, 0, type_).equals(pa.array([], type_))
    with pytest.raises(OverflowError):
        integers([1 << 64], type_)
