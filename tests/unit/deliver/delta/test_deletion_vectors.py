"""Deletion vectors: bytes as Delta's protocol has them, read back, and damage noticed."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyroaring import BitMap

from penstock.deliver.delta.deletion_vectors import file_of, load, pack
from penstock.deliver.lakehouse.storage import Storage
from penstock.errors import CorruptData, UnsupportedFormat


def test_vectors_of_one_file_are_read_back(tmp_path: Path) -> None:
    bitmaps = [BitMap([1, 3, 5]), BitMap(range(100_000)), BitMap([0, 70_000, (1 << 32) - 1])]
    vectors = pack(bitmaps, uuid.uuid4())
    storage = Storage(tmp_path)
    storage.make_directory("_penstock")
    storage.write(vectors.file, vectors.content)
    assert [load(storage, descriptor) for descriptor in vectors.descriptors] == bitmaps
    assert [descriptor["cardinality"] for descriptor in vectors.descriptors] == [3, 100_000, 3]
    assert {file_of(descriptor) for descriptor in vectors.descriptors} == {vectors.file}


def test_the_example_of_the_protocol_is_read() -> None:
    """From the text of Delta's protocol: an inline vector, and the name of a file."""
    text = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    inline = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": 44}
    assert sorted(load(Storage(Path("/nowhere")), inline)) == [3, 4, 7, 11, 18, 29]
    named = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    assert file_of(named) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_damage_and_foreign_places_are_refused(tmp_path: Path) -> None:
    vectors = pack([BitMap([1, 2])], uuid.uuid4())
    storage = Storage(tmp_path)
    storage.make_directory("_penstock")
    storage.write(vectors.file, vectors.content[:-6] + b"\0\0" + vectors.content[-4:])
    with pytest.raises(CorruptData, match="damaged"):
        load(storage, vectors.descriptors[0])
    outside = {"storageType": "p", "pathOrInlineDv": "s3://elsewhere/x.bin", "offset": 1, "sizeInBytes": 40}
    with pytest.raises(UnsupportedFormat, match="outside"):
        load(storage, outside)
