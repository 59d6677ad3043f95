"""Java's object serialisation, as much of it as a key in a JCEKS store needs. Nothing is instantiated.

An object becomes a dict of its fields, those of its superclasses among them; an array of bytes becomes bytes, an enum
constant its name. The stream has no length of its own: reading it is the only way to find its end. Nesting, counts and
lengths are bounded by the bytes at hand; every misfit is a ValueError.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

_MAGIC = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING, _ARRAY = range(0x70, 0x76)
_BLOCK, _END, _BLOCK_LONG, _LONG_STRING, _ENUM = 0x77, 0x78, 0x7A, 0x7C, 0x7E
_HANDLE_FIRST = 0x7E0000
_HAS_WRITE_METHOD, _SERIALIZABLE, _EXTERNALIZABLE = 0x01, 0x02, 0x04
_DEPTH_MAX = 32
_FIELDS_MAX = 1000
_PRIMITIVES = {b"B": ">b", b"C": ">H", b"D": ">d", b"F": ">f", b"I": ">i", b"J": ">q", b"S": ">h", b"Z": ">?"}


class ClassDescription(NamedTuple):
    """A class as the stream describes it: its own fields, and its superclass."""

    name: str
    flags: int
    fields: list[tuple[bytes, str]]
    parent: ClassDescription | None


class JavaObject(NamedTuple):
    """An object's class and fields."""

    name: str
    fields: dict[str, Any]


def read_object(data: memoryview) -> tuple[Any, int]:
    """The object of the stream that `data` begins with, and where the stream ends."""
    reader = _Reader(data)
    if reader.take(4) != _MAGIC:
        raise ValueError("not a stream of Java objects")
    return reader.content(0), reader.at


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0
        self._handles: list[Any] = []

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self.at:
            raise ValueError("the Java stream ends too early")
        found = bytes(self._data[self.at : self.at + size])
        self.at += size
        return found

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def _text(self, form: str = ">H") -> str:
        # Java's own UTF-8 writes some characters otherwise; names and algorithms have none of them.
        return self.take(self._number(form)).decode("utf-8", "replace")

    def content(self, depth: int) -> Any:
        """One value of the stream, whatever it is."""
        if depth > _DEPTH_MAX:
            raise ValueError("the Java stream nests too deep")
        kind = self._number(">B")
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            return self._referenced()
        if kind in (_STRING, _LONG_STRING):
            return self._keep(self._text(">H" if kind == _STRING else ">Q"))
        if kind == _OBJECT:
            return self._object(depth)
        if kind == _ARRAY:
            return self._array(depth)
        if kind == _ENUM:
            self._class(depth + 1)
            place = self._reserve()
            self._handles[place] = name = self.content(depth + 1)
            return name
        if kind in (_BLOCK, _BLOCK_LONG):
            return self.take(self._number(">B" if kind == _BLOCK else ">i"))
        raise ValueError(f"the Java stream has an element {kind:#x}")

    def _keep(self, value: Any) -> Any:
        self._handles.append(value)
        return value

    def _reserve(self) -> int:
        self._handles.append(None)
        return len(self._handles) - 1

    def _referenced(self) -> Any:
        number = self._number(">I") - _HANDLE_FIRST
        if not 0 <= number < len(self._handles):
            raise ValueError("the Java stream refers to nothing")
        return self._handles[number]

    def _class(self, depth: int) -> ClassDescription | None:
        if depth > _DEPTH_MAX:
            raise ValueError("the Java stream nests too deep")
        kind = self._number(">B")
        if kind == _NULL:
            return None
        if kind == _REFERENCE:
            found = self._referenced()
            if not isinstance(found, ClassDescription):
                raise ValueError("the Java stream refers to no class")
            return found
        if kind != _CLASS:
            raise ValueError(f"the Java stream has an element {kind:#x} in place of a class")
        name = self._text()
        self.take(8)
        place = self._reserve()
        flags, count = self._number(">B"), self._number(">H")
        if count > _FIELDS_MAX:
            raise ValueError("a Java class has too many fields")
        fields = []
        for _ in range(count):
            sort = self.take(1)
            fields.append((sort, self._text()))
            if sort in (b"L", b"["):
                self.content(depth + 1)
            elif sort not in _PRIMITIVES:
                raise ValueError("a Java class has a field of no type")
        self._annotations(depth + 1)
        found = ClassDescription(name, flags, fields, self._class(depth + 1))
        self._handles[place] = found
        return found

    def _annotations(self, depth: int) -> None:
        while self._data[self.at : self.at + 1] != bytes([_END]):
            self.content(depth)
        self.at += 1

    def _object(self, depth: int) -> JavaObject:
        described = self._class(depth + 1)
        if described is None:
            raise ValueError("a Java object without a class")
        made = JavaObject(described.name, {})
        self._keep(made)
        line: list[ClassDescription] = []
        above: ClassDescription | None = described
        while above is not None:
            line.append(above)
            above = above.parent
        # The fields of the topmost class come first.
        for each in reversed(line):
            if each.flags & _EXTERNALIZABLE or not each.flags & _SERIALIZABLE:
                raise ValueError("a Java object that writes itself")
            for sort, name in each.fields:
                form = _PRIMITIVES.get(sort)
                made.fields[name] = self._number(form) if form else self.content(depth + 1)
            if each.flags & _HAS_WRITE_METHOD:
                self._annotations(depth + 1)
        return made

    def _array(self, depth: int) -> Any:
        described = self._class(depth + 1)
        place = self._reserve()
        count = self._number(">i")
        if described is None or described.name[:1] != "[" or not 0 <= count <= len(self._data) - self.at:
            raise ValueError("a Java array that cannot be")
        sort = described.name[1:2].encode()
        if sort == b"B":
            self._handles[place] = found = self.take(count)
            return found
        form = _PRIMITIVES.get(sort)
        items = [self._number(form) if form else self.content(depth + 1) for _ in range(count)]
        self._handles[place] = items
        return items
