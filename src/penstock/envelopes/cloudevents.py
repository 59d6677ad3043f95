"""CloudEvents 1.0: what happened as `data`, and what is said about it in attributes that any consumer can read.

Attributes stand beside the data in the value (structured mode, in the JSON or the Avro event format) or in the headers
(binary mode, as the binding to Kafka says). `source` and `id` together name an event: the same change gives the same
two each time that it is delivered, and no other change gives them. docs/formats/cloudevents.md shows all of it.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.envelopes import _tree, connect
from penstock.envelopes.compilation import Rendered, Rendering, zigzag
from penstock.envelopes.connect import plain
from penstock.envelopes.contract import Asked, Batch, Contract, Tops
from penstock.envelopes.events import CHANGE_OPS, ROW_OPS, EventLayout
from penstock.envelopes.identity import identities_of, placeless
from penstock.envelopes.layout import Arrays, Node
from penstock.formats.arrays import texts
from penstock.model.change import Op
from penstock.model.schema import Order
from penstock.settings.kafka import CloudEventsMode, Serialisation

_CONTENT_TYPES = {Serialisation.JSON: "application/json", Serialisation.AVRO: "application/avro"}
_EVENT_TYPES = {
    Serialisation.JSON: "application/cloudevents+json; charset=UTF-8",
    Serialisation.AVRO: "application/cloudevents+avro",
}
_CONTENT_TYPE = "content-type"
_DATA_CONTENT_TYPE = "datacontenttype"
_SNAPSHOT = list(Op).index(Op.SNAPSHOT)
# Each operation in an id, where the deletion of a partition must not be taken for that of its static row.
_ID_OPS = texts(["i", "u", "d", "p", "r", "t", "s"])
# RFC 3339 has four digits for a year.
_TIME_MIN_US = -62_135_596_800_000_000
_TIME_MAX_US = 253_402_300_799_999_999
_TIME_CHARS = len("1970-01-01 00:00:00.000000")
# What no attribute may have: control characters, and code points that are no characters. JSON has escaped the first 32.
_NO_CHARACTERS = "".join(chr(plane + last) for plane in range(0, 17 << 16, 1 << 16) for last in (0xFFFE, 0xFFFF))
_FORBIDDEN = f"[\x7f-\x9f\ufdd0-\ufdef{_NO_CHARACTERS}]"
_FORBIDDEN_PATTERN = re.compile(_FORBIDDEN)
# The numbers of bytes and string in the unions of the Avro event format.
_DATA_BYTES, _ATTRIBUTE_STRING = zigzag(0), zigzag(3)


@dataclass(frozen=True, slots=True)
class _Attribute:
    """An attribute: a text that never changes, or the array `ce_<name>` of a batch."""

    name: str
    constant: str | None = None

    @property
    def header(self) -> str:
        return f"ce_{self.name}"

    def node(self) -> Node:
        text = plain(connect.STRING, optional=False)
        if self.constant is not None:
            return Node(_tree.CONST, text, name=self.name, constant=self.constant)
        return Node(_tree.STRING, text, (self.header,), self.name)


def cloudevents(asked: Asked) -> Contract:
    """CloudEvents, in the mode that was chosen."""
    layout = EventLayout(asked)
    key = layout.key()
    data = layout.struct("Data", layout.images())
    attributes = _attributes(asked, layout.connector)
    arrays = _Arrays(asked, layout.key()).of
    if asked.choice.mode is CloudEventsMode.BINARY:
        varying = tuple((one.header, one.header) for one in attributes if one.constant is None)
        fixed = [
            (_CONTENT_TYPE if one.name == _DATA_CONTENT_TYPE else one.header, one.constant)
            for one in attributes
            if one.constant is not None
        ]
        return Contract(key, data, arrays, None, varying, tuple(fixed))
    fixed_type = ((_CONTENT_TYPE, _EVENT_TYPES[asked.serialisation]),)
    if asked.serialisation is Serialisation.AVRO:
        return Contract(key, data, arrays, _avro_event(attributes), (), fixed_type)
    event = layout.struct("CloudEvent", [*(one.node() for one in attributes), data.called("data")])
    return Contract(key, event, arrays, None, (), fixed_type)


def _attributes(asked: Asked, connector: str) -> list[_Attribute]:
    table = asked.schema.table
    places = (asked.choice.prefix, table.keyspace, table.table)
    made = [
        _Attribute("specversion", "1.0"),
        _Attribute("id"),
        _Attribute("source", f"/penstock/{'/'.join(quote(part, safe='') for part in (connector, *places))}"),
        _Attribute("type", f"io.penstock.{connector}.DataChangeEvent"),
        _Attribute("subject"),
        _Attribute("time"),
        _Attribute(_DATA_CONTENT_TYPE, _CONTENT_TYPES[asked.serialisation]),
    ]
    if asked.schema_url is not None:
        made.append(_Attribute("dataschema", asked.schema_url))
    made += [_Attribute("op"), _Attribute("table", _allowed(str(table))), _Attribute("position")]
    if asked.schema.ordered_by is Order.LOG:
        made.append(_Attribute("transaction"))
    return made


def _avro_event(attributes: list[_Attribute]) -> Node:
    """The Avro event format: a map of the attributes, then the data as bytes.

    A kernel writes no maps of which it knows the keys, so the bytes between the values are constants.
    """
    nodes: list[Node] = []

    def literal(given: bytes) -> None:
        nodes.append(Node(_tree.CONST, plain(connect.BYTES, optional=False), name=f"_{len(nodes)}", constant=given))

    literal(zigzag(len(attributes)))
    for one in attributes:
        literal(_avro_text(one.name) + _ATTRIBUTE_STRING)
        nodes.append(one.node())
    # The end of the map; what follows is bytes.
    literal(zigzag(0) + _DATA_BYTES)
    nodes.append(Node(_tree.BYTES, plain(connect.BYTES, optional=False), ("data",), "data"))
    fields = [(node.name, node.schema) for node in nodes]
    return Node(_tree.STRUCT, connect.struct("io.cloudevents.CloudEvent", fields, optional=False), children=nodes)


def _avro_text(text: str) -> bytes:
    return zigzag(len(text.encode())) + text.encode()


class _Arrays:
    """Makes the attributes of a batch that differ from event to event. Not for several threads at the same time."""

    def __init__(self, asked: Asked, key: Node) -> None:
        self._schema = asked.schema
        self._subject = Rendering(key, Serialisation.JSON)
        self._words = texts(ROW_OPS if asked.rows else CHANGE_OPS)
        self._table = _allowed(str(asked.schema.table))

    def of(self, batch: Batch, arrays: Arrays) -> Tops:
        nowhere = placeless(self._schema, batch.columns)
        places = self._places(batch, nowhere)
        subjects = self._subjects(batch, arrays)
        ops = _ID_OPS.take(pa.array(batch.ops, pa.int64()))
        tops = {
            "ce_id": pc.binary_join_element_wise(self._exact(batch, places, nowhere), ops, subjects, "/"),
            "ce_subject": subjects,
            "ce_time": _times(batch.when),
            "ce_op": self._words.take(pa.array(batch.row_ops, pa.int64())),
            "ce_position": places,
        }
        if self._schema.ordered_by is Order.LOG:
            tops["ce_transaction"] = _safe(pc.fill_null(batch.columns.array(("origin", "transaction")).field("id"), ""))
        return tops

    def _places(self, batch: Batch, nowhere: Any) -> pa.StringArray:
        count = len(batch.columns)
        offsets = array("i", bytes(4 * (count + 1)))
        written = Rendered(identities_of(self._schema, batch.columns).write(0, count, b"", offsets), offsets)
        made = _safe(written.to_arrow().cast(pa.string()))
        return pc.if_else(pa.array(nowhere), ":::", made) if nowhere.any() else made

    @staticmethod
    def _exact(batch: Batch, places: pa.StringArray, nowhere: Any) -> pa.StringArray:
        """The places, made to differ where they do not: many rows of a snapshot, and what no log has, have the same.

        A snapshot reads a row at one time; of what no log has, each record of a row has another version.
        """
        snapshot = batch.ops == _SNAPSHOT
        if not nowhere.any() and not snapshot.any():
            return places
        read = pc.binary_join_element_wise(places, batch.when.cast(pa.string()), "@")
        versions = pc.binary_join_element_wise("version", batch.records.versions.cast(pa.string()), "@")
        made = pc.if_else(pa.array(snapshot), read, places)
        return pc.if_else(pa.array(nowhere & ~snapshot), versions, made)

    def _subjects(self, batch: Batch, arrays: Arrays) -> pa.StringArray:
        """The keys as JSON; a change of all rows, or of a table without a key, is about the table.

        A key that cannot be written has no bytes, and its record is refused when the record's own key is written.
        """
        count = len(batch.columns)
        keys = self._subject.render(self._subject.bind(arrays), 0, count).to_arrow().cast(pa.string())
        if batch.keyless.any():
            keys = pc.if_else(pa.array(batch.keyless), self._table, keys)
        return _safe(keys)


def _safe(given: pa.StringArray) -> pa.StringArray:
    """Texts without what no attribute may have; nearly always they are as they were."""
    found = pc.match_substring_regex(given, _FORBIDDEN)
    if not pc.any(found).as_py():
        return given
    places = np.flatnonzero(found.to_numpy(zero_copy_only=False))
    cleaned = texts([_allowed(given[int(place)].as_py()) for place in places])
    return pc.replace_with_mask(given, found, cleaned)


def _allowed(text: str) -> str:
    """A text whose forbidden characters are escaped, as JSON would have them."""
    return _FORBIDDEN_PATTERN.sub(lambda found: _escaped(found.group()), text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _times(when: pa.Int64Array) -> pa.StringArray:
    """Times as RFC 3339 has them. Writers may give any time; one that has no place there is the nearest that has."""
    count = len(when)
    if not count:
        return texts([])
    clipped = np.clip(when.to_numpy(), _TIME_MIN_US, _TIME_MAX_US)
    printed = pa.array(clipped, pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
    # All of them have the same length, so they are a table of characters.
    chars: Any = np.frombuffer(printed.buffers()[2], np.uint8, count * _TIME_CHARS).reshape(count, _TIME_CHARS)
    made = np.empty((count, _TIME_CHARS + 1), np.uint8)
    made[:, :-1] = chars
    made[:, 10], made[:, -1] = ord("T"), ord("Z")
    offsets = np.arange(count + 1, dtype=np.int32) * (_TIME_CHARS + 1)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(made))
