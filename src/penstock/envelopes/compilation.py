"""Compilation: a layout as the tables of a kernel, in one serialisation.

What never changes from record to record goes into literals: names of fields, tags, and the values of constants, joined
with their neighbours where the serialisation allows it.
"""

from __future__ import annotations

import json
import struct
from array import array
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.envelopes import _tree, connect
from penstock.envelopes._avro_binary import AvroBinary
from penstock.envelopes._java_text import JavaText
from penstock.envelopes._json_text import JsonText
from penstock.envelopes._protobuf import Protobuf
from penstock.envelopes.layout import Arrays, Node
from penstock.envelopes.protobuf_schema import FieldNumbers, field_names, message_name, opened, tag
from penstock.formats._rows import Input
from penstock.formats.arrow_plan import Path
from penstock.settings.kafka import Serialisation

_INPUTS: tuple[Path, ...] = (("op",), ("deletion",))


_KERNELS = {
    Serialisation.JSON: JsonText,
    Serialisation.JSON_SCHEMA: JsonText,
    Serialisation.AVRO: AvroBinary,
    Serialisation.PROTOBUF: Protobuf,
    Serialisation.STRING: JavaText,
}


@dataclass(slots=True)
class Rendered:
    """The bytes of many records, one after another, and where each begins; which ones could not be written, and why."""

    data: memoryview
    offsets: array[int]
    refused: list[tuple[int, str]] = field(default_factory=list)

    def to_arrow(self) -> pa.BinaryArray:
        """The records as an array, without a copy."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.BinaryArray.from_buffers(pa.binary(), len(self.offsets) - 1, buffers)


class Rendering:
    """A layout in one serialisation, ready for batches. Not for several threads at the same time."""

    def __init__(
        self, root: Node, serialisation: Serialisation, header: bytes = b"", numbers: FieldNumbers | None = None
    ) -> None:
        self._compiler = _Compiler(serialisation, numbers or FieldNumbers())
        self._tree = self._compiler.tree(root, header)
        # What a record took so far, to know before how much many will take.
        self.record_bytes = 0

    def bind(self, arrays: Arrays) -> list[Input]:
        """What the kernel reads of a batch."""
        return [arrays.input(path) for path in self._compiler.inputs]

    def render(self, inputs: list[Input], first: int, count: int) -> Rendered:
        """Write some of the records of one batch."""
        offsets = array("i", bytes(4 * (count + 1)))
        data = self._tree.render(inputs, first, count, offsets, count * (self.record_bytes or 256))
        if count:
            self.record_bytes = len(data) // count + 16
        return Rendered(data, offsets, list(self._tree.refused))


class _Compiler:
    """Numbers the nodes, parents before their children, and collects the literals."""

    def __init__(self, serialisation: Serialisation, numbers: FieldNumbers) -> None:
        self._kind = serialisation
        self._numbers = numbers
        self.inputs: list[Path] = list(_INPUTS)
        self._literals: list[bytes] = []
        self._nodes: list[Node] = []
        self._tables: dict[str, list[int]] = {
            name: [] for name in ("kinds", "flags", "sources", "prefixes", "suffixes", "words", "factors", "divisors")
        }
        self._below: list[list[int]] = []

    def tree(self, root: Node, header: bytes) -> Any:
        self._add(root, message_name(root.schema))
        tail = b""
        if self._kind is Serialisation.JSON_SCHEMA:
            schema = json.dumps(root.schema.to_json(), separators=(",", ":"))
            header, tail = f'{{"schema":{schema},"payload":'.encode(), b"}"
        self._tables["prefixes"][0] = self._literal(header)
        last = self._tables["suffixes"][0]
        self._tables["suffixes"][0] = self._literal((self._literals[last] if last >= 0 else b"") + tail)
        first, children = array("i"), array("i")
        for below in self._below:
            first.append(len(children))
            children.extend(below)
        counts = array("i", [len(below) for below in self._below])
        # Buffers of length zero cannot be exported to the kernels.
        children.append(0)
        tables: dict[str, Any] = {name: array("i", self._tables[name]) for name in self._tables}
        for name in ("factors", "divisors"):
            tables[name] = array("q", self._tables[name])
        tables |= {"first": first, "counts": counts, "children": children}
        return _KERNELS[self._kind](tables, self._literals, len(self.inputs))

    def _literal(self, text: bytes) -> int:
        if not text:
            return -1
        self._literals.append(text)
        return len(self._literals) - 1

    def _input(self, path: Path | None) -> int:
        if path is None:
            return -1
        if path not in self.inputs:
            self.inputs.append(path)
        return self.inputs.index(path)

    def _add(self, node: Node, place: str) -> int:
        """Take a node and all below it; `place` is where Protocol Buffers keep the message that it is, if it is one."""
        number = len(self._nodes)
        self._nodes.append(node)
        self._below.append([])
        flags = _tree.OPTIONAL if node.schema.optional else 0
        flags |= _tree.SHARED if node.shared else 0
        if node.schema.type == connect.MAP and node.schema.parts[0].type == connect.STRING:
            flags |= _tree.OBJECT
        path = node.path
        if node.kind in (_tree.FLOAT, _tree.DOUBLE) and not self._kind.registered and path is not None:
            # Arrow prints floats far quicker than Python does.
            path = (*path, pa.string())
        values = {"kinds": node.kind, "flags": flags, "sources": self._input(path), "prefixes": -1}
        values |= {"suffixes": -1, "words": -1, "factors": node.factor, "divisors": node.divisor}
        for name, value in values.items():
            self._tables[name].append(value)
        if node.words:
            self._tables["words"][number] = len(self._literals)
            self._literals += [self._word(word) for word in node.words]
        if node.kind in (_tree.STRUCT, _tree.FIELD_DELTA):
            self._fields(node, number, place)
        elif node.kind in (_tree.CELL, _tree.KEY_CELL, _tree.MAP, _tree.LIST):
            self._parts(node, number, place)
        else:
            for child in node.children:
                self._below[number].append(self._add(child, place))
        return number

    def _fields(self, node: Node, number: int, place: str) -> None:
        """The fields of a struct; constants are joined with what comes next."""
        skip = 1 if node.kind == _tree.FIELD_DELTA else 0
        for child in node.children[:skip]:
            self._below[number].append(self._add(child, place))
        joined = self._kind in (Serialisation.JSON, Serialisation.JSON_SCHEMA, Serialisation.AVRO)
        numbers, written = self._numbers.of(place, node.schema), field_names(node.schema)
        pending = b"" if self._kind is Serialisation.AVRO or not joined else b"{"
        for index, child in enumerate(node.children[skip:]):
            before = self._before(child, index, numbers)
            if child.kind == _tree.CONST:
                if joined:
                    pending += before + self._constant(child)
                    continue
                if child.constant is None:
                    continue
                before += self._constant(child)
            made = self._add(child, opened(place, child.schema, written[child.name]))
            self._below[number].append(made)
            if joined:
                before, pending = pending + before, b""
            self._tables["prefixes"][made] = self._literal(before)
        if joined:
            self._tables["suffixes"][number] = self._literal(pending + (b"" if self._is_avro else b"}"))

    def _parts(self, node: Node, number: int, place: str) -> None:
        """What has no names of its own in most serialisations: the value of a cell, items, keys and values."""
        for index, child in enumerate(node.children):
            inside = place
            if node.kind != _tree.LIST or child.kind == _tree.LIST:
                inside = opened(place, child.schema, "item" if node.kind == _tree.LIST else child.name)
            made = self._add(child, inside)
            self._below[number].append(made)
            if self._kind is Serialisation.PROTOBUF:
                field_number = index + 1 if node.kind == _tree.MAP else 1
                self._tables["prefixes"][made] = self._literal(tag(field_number, child.schema))

    @property
    def _is_avro(self) -> bool:
        return self._kind is Serialisation.AVRO

    def _before(self, child: Node, index: int, numbers: dict[str, int]) -> bytes:
        if self._is_avro:
            return b""
        if self._kind is Serialisation.PROTOBUF:
            return tag(numbers[child.name], child.schema)
        if self._kind is Serialisation.STRING:
            return f"{child.name}=".encode()
        return ("," if index else "").encode() + f"{json.dumps(child.name, ensure_ascii=False)}:".encode()

    def _word(self, word: str) -> bytes:
        text = word.encode()
        if self._is_avro:
            return zigzag(len(text)) + text
        if self._kind is Serialisation.PROTOBUF:
            return varint(len(text)) + text
        return text if self._kind is Serialisation.STRING else json.dumps(word, ensure_ascii=False).encode()

    def _constant(self, node: Node) -> bytes:
        value = node.constant
        if isinstance(value, bytes):
            return value
        if value is None:
            return b"\0" if self._is_avro else b"null"
        present = b"\x02" if self._is_avro and node.schema.optional else b""
        return present + self._word(str(value))


def varint(value: int) -> bytes:
    """Seven bits at a time."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def zigzag(value: int) -> bytes:
    """A length or a number that is not negative, as Avro writes it."""
    return varint(value << 1)


def wire_header(number: int, *, message_index: bool = False) -> bytes:
    """What stands before a record whose schema is in a registry; the first message of a file has the index 0."""
    return b"\0" + struct.pack(">I", number) + (b"\0" if message_index else b"")
