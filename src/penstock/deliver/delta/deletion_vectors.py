"""Deletion vectors of Delta tables: which rows of a data file no longer count, as its protocol wants them stored.

A vector is a set of row numbers in Roaring's portable form. The vectors of one commit share one file:

    1 byte   version, 1
    per vector:  4 bytes size (big-endian) | the vector | 4 bytes CRC-32 of the vector (big-endian)
    the vector:  4 bytes magic 1681511377 | 8 bytes count of bitmaps | per bitmap 4 bytes high word, the bitmap

The table's log names the file by its UUID in Z85 and a directory before it. Ours is `_penstock`: both Delta's and
delta-rs's VACUUM leave directories with an underscore alone, and delta-rs's full one would else delete live vectors.
"""

from __future__ import annotations

import base64
import struct
import uuid
from dataclasses import dataclass
from typing import Any

from pyroaring import BitMap

from penstock.deliver.lakehouse.storage import Storage
from penstock.errors import CorruptData, UnsupportedFormat
from penstock.system.checksum import crc32

DIRECTORY = "_penstock"
_MAGIC = 1681511377
_VERSION = b"\x01"
_HEAD = struct.Struct("<iqI")
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85 = bytes.maketrans(_RFC1924, _Z85)
_FROM_Z85 = bytes.maketrans(_Z85, _RFC1924)
_UUID_CHARACTERS = 20


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of one commit: the file's name and content, and the descriptor of each for the log."""

    file: str
    content: bytes
    descriptors: list[dict[str, Any]]


def pack(bitmaps: list[BitMap], name: uuid.UUID) -> Vectors:
    """Put bitmaps of deleted row numbers into one file."""
    parts, descriptors, offset = [_VERSION], [], 1
    for bitmap in bitmaps:
        vector = _HEAD.pack(_MAGIC, 1, 0) + bitmap.serialize()
        parts += [struct.pack(">i", len(vector)), vector, struct.pack(">I", crc32(vector))]
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": DIRECTORY + base64.b85encode(name.bytes).translate(_TO_Z85).decode(),
                "offset": offset,
                "sizeInBytes": len(vector),
                "cardinality": len(bitmap),
            }
        )
        offset += len(vector) + 8
    return Vectors(_path(DIRECTORY, name), b"".join(parts), descriptors)


def _path(directory: str, name: uuid.UUID) -> str:
    file = f"deletion_vector_{name}.bin"
    return f"{directory}/{file}" if directory else file


def file_of(descriptor: dict[str, Any]) -> str | None:
    """The file that holds a vector, below the table's directory; None when the log itself does."""
    if descriptor["storageType"] == "i":
        return None
    if descriptor["storageType"] != "u":
        raise UnsupportedFormat("a deletion vector lies outside its table", storage=descriptor["storageType"])
    text = descriptor["pathOrInlineDv"]
    name = uuid.UUID(bytes=base64.b85decode(text[-_UUID_CHARACTERS:].encode().translate(_FROM_Z85)))
    return _path(text[:-_UUID_CHARACTERS], name)


def load(storage: Storage, descriptor: dict[str, Any]) -> BitMap:
    """The row numbers of a vector that the log describes, whoever wrote it."""
    file = file_of(descriptor)
    size = descriptor["sizeInBytes"]
    if file is None:
        vector = base64.b85decode(descriptor["pathOrInlineDv"].encode().translate(_FROM_Z85))[:size]
    else:
        # Vectors that stand alone in their file need no offset; the first follows the version's byte.
        framed = storage.read(file, descriptor.get("offset") or 1, size + 8)
        vector = framed[4:-4]
        if len(framed) != size + 8 or struct.unpack(">iI", framed[:4] + framed[-4:]) != (size, crc32(vector)):
            raise CorruptData("a deletion vector is damaged", file=file, offset=descriptor.get("offset"))
    magic, count = struct.unpack_from("<iq", vector)
    if magic != _MAGIC:
        raise UnsupportedFormat("a deletion vector of an unknown form", file=file)
    if count == 0:
        return BitMap()
    # One bitmap for each 2³² rows; no Parquet file of ours or of Spark's has more than that.
    if count != 1 or struct.unpack_from("<I", vector, 12)[0] != 0:
        raise UnsupportedFormat("a deletion vector of a file with more than 4 G rows", file=file)
    return BitMap.deserialize(vector[16:])
