"""DER, as much of it as PKCS #12 needs: elements with one-byte tags and definite lengths.

An element's value is a slice of the file, so nothing here can ask for more memory than the file has. Every misfit is a
ValueError; the key store's reader says of which file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INTEGER = 0x02
OCTET_STRING = 0x04
OBJECT_ID = 0x06
BMP_STRING = 0x1E
SEQUENCE = 0x30
SET = 0x31
CONTEXT_0 = 0xA0
# Tag [0] with a plain value in place of its own tag: OCTET STRING, IMPLICIT.
CONTEXT_0_PLAIN = 0x80
# BER's constructed octet string: some writers cut long ones into pieces.
OCTET_PIECES = 0x24

_ELEMENTS_MAX = 10_000


class Element(NamedTuple):
    """One element: its tag, and its value."""

    tag: int
    value: memoryview


def elements(data: memoryview) -> Iterator[Element]:
    """The elements that follow each other in `data`."""
    at = count = 0
    while at < len(data):
        count += 1
        if count > _ELEMENTS_MAX:
            raise ValueError("too many DER elements")
        element, at = _element(data, at)
        yield element


def only(data: memoryview, tag: int) -> memoryview:
    """The value of the one element that `data` begins with, which must have this tag."""
    element, _ = _element(data, 0)
    return expect(element, tag)


def expect(element: Element, tag: int) -> memoryview:
    if element.tag != tag:
        raise ValueError(f"a DER element has tag {element.tag:#x}, not {tag:#x}")
    return element.value


def sequence(data: memoryview, tag: int = SEQUENCE) -> list[Element]:
    """The parts of the sequence that `data` begins with."""
    return list(elements(only(data, tag)))


def parts(element: Element, least: int, tag: int = SEQUENCE) -> list[Element]:
    """The parts of a sequence that is an element itself, `least` of them or more."""
    found = list(elements(expect(element, tag)))
    if len(found) < least:
        raise ValueError(f"a DER sequence has {len(found)} parts, not {least}")
    return found


def integer(element: Element, most: int) -> int:
    """A whole number from nought to `most`."""
    value = expect(element, INTEGER)
    if len(value) > 8 or not 0 <= (number := int.from_bytes(value, "big", signed=True)) <= most:
        raise ValueError("a DER integer is out of range")
    return number


def object_id(element: Element) -> str:
    """The dotted form of an object identifier."""
    value = expect(element, OBJECT_ID)
    numbers: list[int] = []
    current = 0
    if not 0 < len(value) <= 64 or value[-1] & 0x80:
        raise ValueError("not an object identifier")
    for byte in value:
        current = current << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(current)
            current = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def octets(element: Element) -> memoryview:
    """An octet string, in one piece or in several."""
    if element.tag == OCTET_PIECES:
        return memoryview(b"".join(expect(piece, OCTET_STRING) for piece in elements(element.value)))
    return expect(element, OCTET_STRING)


def _element(data: memoryview, at: int) -> tuple[Element, int]:
    if len(data) - at < 2:
        raise ValueError("the DER data ends inside an element")
    tag, length = data[at], data[at + 1]
    at += 2
    if length & 0x80:
        count = length & 0x7F
        if not 1 <= count <= 4 or len(data) - at < count:
            raise ValueError("a DER length that cannot be")
        length = int.from_bytes(data[at : at + count], "big")
        at += count
    if tag & 0x1F == 0x1F or length > len(data) - at:
        raise ValueError("a DER element that cannot be")
    return Element(tag, data[at : at + length]), at + length
