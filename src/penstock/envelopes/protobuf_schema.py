"""The Protocol Buffers schema of a Connect schema.

Every struct is a message inside the record's message, fields that may be null are `optional`, lists are `repeated`, and
maps are lists of entries. Numbers of fields must never change their meaning: a column keeps its number, a new one takes
a number that was never used, and one that is gone stays in the schema as it was, for old records and for its return.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from penstock.envelopes import connect
from penstock.envelopes.connect import Schema
from penstock.envelopes.events import distinct

_TYPES = {
    connect.BOOLEAN: "bool",
    connect.INT8: "int32",
    connect.INT16: "int32",
    connect.INT32: "int32",
    connect.INT64: "int64",
    connect.FLOAT32: "float",
    connect.FLOAT64: "double",
    connect.STRING: "string",
    connect.BYTES: "bytes",
}
_VARINT, _WIDE, _SIZED, _NARROW = 0, 1, 2, 5
_WIRE = {connect.FLOAT64: _WIDE, connect.FLOAT32: _NARROW, connect.STRING: _SIZED, connect.BYTES: _SIZED}
# The numbers from here to 19999 belong to Protocol Buffers itself.
_RESERVED = range(19_000, 20_000)
_MESSAGE = re.compile(r"^\s*message (\w+) \{$")
_FIELD = re.compile(r"^\s*(?:optional |repeated )?([\w.]+) (\w+) = (\d+);$")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


def field_name(name: str) -> str:
    """A name that Protocol Buffers accept."""
    clean = _ILLEGAL.sub("_", name)
    return f"f{clean}" if not clean or not (clean[0].isalpha() or clean[0] == "_") else clean


def message_name(schema: Schema) -> str:
    """The name of a struct's message: the last part of its own."""
    return field_name((schema.name or "Struct").rpartition(".")[2])


def tag(number: int, schema: Schema) -> bytes:
    """What stands before a field."""
    wire = _SIZED if schema.type in (connect.STRUCT, connect.MAP) else _WIRE.get(schema.type, _VARINT)
    if schema.type == connect.ARRAY:
        item = schema.parts[0]
        nested = item.type in (connect.STRUCT, connect.MAP, connect.ARRAY)
        wire = _SIZED if nested else _WIRE.get(item.type, _VARINT)
    value = number << 3 | wire
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


@dataclass(slots=True)
class _Message:
    """A message that is being read."""

    name: str
    place: str
    lines: list[str]
    fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    inner: dict[str, list[str]] = field(default_factory=dict)

    def declarations(self) -> dict[str, list[str]]:
        """Each field's line, after those of the message that it is made of."""
        return {name: [*self.inner.get(type_, ()), line] for name, (type_, line) in self.fields.items()}


@dataclass(slots=True)
class FieldNumbers:
    """The numbers that fields have had so far, by the place of their message and their name."""

    known: dict[str, dict[str, int]] = field(default_factory=dict)
    # The same, with the lines that declared each field.
    declared: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> FieldNumbers:
        """The numbers of a schema that this module has written, even if a registry has set it anew."""
        made = cls()
        open_messages: list[_Message] = []
        for line in (line.strip() for line in text.splitlines()):
            for outer in open_messages[1:]:
                outer.lines.append(line)
            message, found = _MESSAGE.match(line), _FIELD.match(line)
            if message:
                place = ".".join([*(outer.name for outer in open_messages), message[1]])
                open_messages.append(_Message(message[1], place, [line]))
                made.known.setdefault(place, {})
            elif found and open_messages:
                made.known[open_messages[-1].place][found[2]] = int(found[3])
                open_messages[-1].fields[found[2]] = (found[1], line)
            elif line == "}" and open_messages:
                done = open_messages.pop()
                made.declared[done.place] = done.declarations()
                if open_messages:
                    open_messages[-1].inner[done.name] = done.lines
        return made

    def of(self, place: str, schema: Schema) -> dict[str, int]:
        """The number of each field of the struct at this place; new ones get the numbers that follow."""
        numbers = self.known.setdefault(place, {})
        next_number = max(numbers.values(), default=0) + 1
        out = {}
        for name, written in field_names(schema).items():
            known = numbers.get(written)
            if known is None:
                if next_number in _RESERVED:
                    next_number = _RESERVED.stop
                known = numbers[written] = next_number
                next_number += 1
            out[name] = known
        return out


def field_names(schema: Schema) -> dict[str, str]:
    """The names of a struct's fields as they are written."""
    return distinct((name for name, _ in schema.fields), field_name)


def opened(place: str, schema: Schema, name: str) -> str:
    """The place of the message that a field's type opens, or that its items do; any other type opens none."""
    title = f"{field_name(name)[:1].upper()}{field_name(name)[1:]}"
    inner = schema.parts[0] if schema.type == connect.ARRAY else schema
    kind = {connect.STRUCT: "Message", connect.MAP: "Entry", connect.ARRAY: "List"}.get(inner.type)
    return place if kind is None else f"{place}.{title}{kind}"


def protobuf_schema(root: Schema, numbers: FieldNumbers) -> str:
    """The text for the registry. Its first message is the record; `numbers` learns the numbers of new fields."""
    package = ".".join(field_name(part) for part in (root.name or "").split(".")[:-1])
    lines = ['syntax = "proto3";']
    if package:
        lines.append(f"package {package};")
    lines.append("")
    _Messages(numbers, lines).message(root, message_name(root), 0)
    return "\n".join(lines) + "\n"


class _Messages:
    """Writes messages, each inside the one that uses it."""

    def __init__(self, numbers: FieldNumbers, lines: list[str]) -> None:
        self._numbers = numbers
        self._lines = lines

    def message(self, schema: Schema, place: str, depth: int) -> None:
        numbers, names = self._numbers.of(place, schema), field_names(schema)
        self._open(place, depth)
        for name, below in schema.fields:
            self._field(below, names[name], numbers[name], place, depth + 1)
        for name, lines in self._numbers.declared.get(place, {}).items():
            if name not in names.values():
                self._lines += [f"{'  ' * (depth + 1)}{line}" for line in lines]
        self._close(depth)

    def _open(self, place: str, depth: int) -> None:
        self._lines.append(f"{'  ' * depth}message {place.rpartition('.')[2]} {{")

    def _close(self, depth: int) -> None:
        self._lines.append(f"{'  ' * depth}}}")

    def _field(self, schema: Schema, name: str, number: int, place: str, depth: int) -> None:
        """A field; the message that it needs is written before it."""
        inside = opened(place, schema, name)
        inner = schema.parts[0] if schema.type == connect.ARRAY else schema
        if inner.type == connect.STRUCT:
            self.message(inner, inside, depth)
        elif inner.type == connect.MAP:
            self._open(inside, depth)
            for index, part in enumerate(("key", "value")):
                self._field(inner.parts[index], part, index + 1, inside, depth + 1)
            self._close(depth)
        elif inner.type == connect.ARRAY:
            self._open(inside, depth)
            self._field(inner, "item", 1, inside, depth + 1)
            self._close(depth)
        label = "optional " if schema.optional else ""
        if schema.type in (connect.ARRAY, connect.MAP):
            label = "repeated "
        type_ = _TYPES.get(inner.type) or inside.rpartition(".")[2]
        self._lines.append(f"{'  ' * depth}{label}{type_} {name} = {number};")
