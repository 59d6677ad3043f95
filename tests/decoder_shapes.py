"""Inputs of any size for every decoder, in the shapes that cost most: much of one thing, deeply nested, or never ended.

A shape makes an input of about so many bytes and says who reads it. What reads it may refuse it; the work that this
takes is what is measured, by tests/work.py.
"""

from __future__ import annotations

import json
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from penstock.capture.cassandra.debezium import hocon, java_properties
from penstock.capture.cassandra.node import cassandra_yaml
from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema import file as schema_file
from penstock.capture.cassandra.schema.schemas import Schemas
from penstock.capture.cassandra.schema.table import CassandraTable
from penstock.capture.cassandra.segments import compression
from penstock.capture.cassandra.segments.keys import java_objects, jceks, pkcs12
from penstock.capture.cassandra.segments.sections import Section
from penstock.capture.cassandra.segments.segment import FORMATS, header_checksum, parse_index, read_header
from penstock.capture.cassandra.snapshot.state import TableState
from penstock.control import statements
from penstock.deliver.kafka.progress import Mark
from penstock.deliver.lakehouse.source_note import SourceNote
from penstock.deliver.sink import DeadLetter
from penstock.errors import PenstockError
from penstock.fold import manifest, state_file
from penstock.fold.eras import TableEra
from penstock.formats import arrow, avro, container
from penstock.formats.json_change import from_json
from penstock.log import block, sealed, segment
from penstock.log.block import TornBlock
from penstock.log.checkpoint import Checkpoint
from penstock.log.watermark import unpack
from penstock.model import types as t
from penstock.model.batch import ChangeBatch
from penstock.model.change import Change, Op, Set
from penstock.model.instant import parse_instant
from penstock.model.position import Position
from penstock.model.schema import Column, Role, TableId, TableSchema
from penstock.pipeline import dead_letters
from penstock.pipeline.source import options, reach
from penstock.pipeline.troubles import Trouble
from penstock.serve.protocol import REQUESTS, Frame, Kind, Parser, parse
from penstock.settings import Codec, loading
from penstock.system import json_text
from penstock.system.checksum import crc32
from tests import mutation_bytes
from tests.mutated_mutations import sources

REFUSALS = (PenstockError, TornBlock, ValueError, KeyError, TypeError, AttributeError)
SYNC = bytes(16)
WIDE = TableSchema(
    TableId("ks", "t"),
    (Column("id", t.INT64, Role.PARTITION), Column("m", t.map_of(t.TEXT, t.list_of(t.INT32))), Column("b", t.BYTES)),
)


class Shape(NamedTuple):
    """Who reads inputs of which form; `make` is given about how many bytes they have."""

    name: str
    make: Callable[[int], bytes]
    read: Callable[[bytes], object]
    # How many times longer than the others' its inputs are: where one thing is long itself.
    scale: int = 1


def run(shape: Shape, data: bytes) -> None:
    """Have an input read or refused."""
    try:
        shape.read(data)
    except REFUSALS:
        pass


def many(unit: bytes, before: bytes = b"", after: bytes = b"") -> Callable[[int], bytes]:
    """One thing over and over. `%d` in it counts, so that no two are the same."""
    if b"%d" in unit:
        return lambda size: before + b"".join(unit % number for number in range(size // (len(unit) + 3))) + after
    return lambda size: before + unit * (size // len(unit)) + after


def nested(opening: bytes, inside: bytes, closing: bytes) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        depth = size // (len(opening) + len(closing) + 1)
        return opening * depth + inside + closing * depth

    return make


def text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode())


def of_file(read: Callable[[str], object], name: str) -> Callable[[bytes], object]:
    """For a reader that opens its input itself."""

    def read_file(data: bytes) -> object:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, name)
            path.write_bytes(data)
            return read(str(path))

    return read_file


def every_substitution(path: str) -> None:
    document = hocon.read(Path(path), {})
    for name in document.paths():
        document.text(name)


def statement(before: str, unit: str, after: str) -> Callable[[int], bytes]:
    return many(unit.encode(), before.encode(), after.encode())


def schema_of(columns: int) -> bytes:
    listed = [{"name": f"c{n}", "role": "regular", "type": {"kind": "text"}} for n in range(columns)]
    return json.dumps({"keyspace": "k", "table": "t", "version": 1, "source": "", "columns": listed}).encode()


def rows(size: int, filling: Callable[[int], dict[str, Any]], count: int) -> bytes:
    changes = [
        Change(Op.INSERT, {"id": n}, {k: Set(v) for k, v in filling(size // count).items()}) for n in range(count)
    ]
    return bytes(avro.encode(WIDE, changes).rows)


def count_of(data: bytes) -> int:
    """How many rows an input of `many_rows` has: each has the same size."""
    return max(1, len(data) // len(rows(0, lambda _: {}, 1)))


def many_rows(size: int) -> bytes:
    one = rows(0, lambda _: {}, 1)
    return one * max(1, size // len(one))


def deep_map(size: int) -> bytes:
    return rows(size, lambda bytes_: {"m": tuple((f"k{n}", (n,) * 3) for n in range(bytes_ // 12))}, 1)


def letters(size: int) -> bytes:
    row = many_rows(1)
    letter = DeadLetter(sink="files", table="ks.t", key="{}", reason="refused", schema=WIDE, row=row, whole=False)
    return dead_letters.encode([letter] * (size // 200))


def state_manifest(size: int) -> bytes:
    state: dict[str, dict[str, object]] = {str(n): {} for n in range(size // 12)}
    body = json.dumps({"format": 1, "batch": 1, "buckets": 4, "state": state}).encode()
    return body + b"\n%08x\n" % crc32(body)


def read_manifest(data: bytes) -> object:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(manifest.path(directory, 1))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        return manifest.read(directory, 1)


def sealed_file(size: int) -> bytes:
    body = b'{"a":[' + b"1," * (size // 2) + b"1]"
    return body + b',"crc32":"%08x"}\n' % crc32(body)


def log_heading(size: int) -> bytes:
    entries = {f"penstock.{n}": b"1" for n in range(size // 16)} | {"penstock.format": b"1"}
    return container.header("{}", entries, Codec.NULL, SYNC)


def segment_header(size: int) -> bytes:
    parameters = b'{"a":[' + b"1," * (min(size, 60_000) // 2) + b"1]}"
    return (
        struct.pack(">iqH", 7, 1, len(parameters)) + parameters + struct.pack(">I", header_checksum(7, 1, parameters))
    )


def log_block(codec: Codec) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        # What does not compress, so that the input is as long as it says.
        data = b"".join(
            zlib.crc32(bytes([n & 255, n >> 8 & 255, n >> 16])).to_bytes(4, "big") for n in range(size // 4)
        )
        return container.frame_block(1, container.compress(codec, data), SYNC)

    return make


def parse_block(codec: Codec) -> Callable[[bytes], object]:
    return lambda data: block.parse(data, 0, 0, codec, SYNC, segment.BLOCK_BYTES_MAX)


def in_pieces(data: bytes) -> object:
    """A stream that comes byte by byte."""
    parser = Parser(REQUESTS, 1 << 24)
    return [frame for at in range(len(data)) for frame in parser.feed(data[at : at + 1])]


def parse_frame(kind: Kind) -> Callable[[bytes], object]:
    return lambda data: parse(Frame(kind, data))


def decompress(compressor: str) -> Callable[[bytes], object]:
    return lambda data: compression.decompress(compressor, memoryview(data), 1 << 20)


def frames(unit: bytes) -> Callable[[int], bytes]:
    return many(struct.pack(">IB", 1 + len(unit), Kind.ACK) + unit)


def one_frame(size: int) -> bytes:
    return struct.pack(">IB", 2 + size, Kind.HELLO) + bytes(size)


def mutations(format_: int) -> Callable[[int], bytes]:
    def make(size: int) -> bytes:
        _, payloads = sources(format_)
        framed = b"".join(mutation_bytes.entry(payload) for payload in payloads)
        return framed * max(1, size // len(framed))

    return make


def decode_mutations(format_: int) -> Callable[[bytes], object]:
    def read(data: bytes) -> object:
        tables, _ = sources(format_)
        made = mutation_bytes.decoder(*tables, format_=format_)
        made.decode(Section(data, mutation_bytes.START, True))
        return made.take()

    return read


def zero_entries(size: int) -> bytes:
    """What Cassandra leaves after the last entry of a segment."""
    return bytes(size)


CQL_TABLE = "CREATE TABLE ks.t (k int PRIMARY KEY, v int) WITH ID = 8f0d1860-0d3c-11f0-8000-000000000001;"
PROPERTIES = text(lambda found: java_properties.parse(found.encode(), Path("f")))
HOCON = of_file(every_substitution, "application.conf")
YAML = of_file(cassandra_yaml.load, "cassandra.yaml")
SCRIPT = of_file(schema_file.load, "schema.cql")
PREDICATE = text(statements.parse_predicate)
STATEMENT = text(statements.parse)


def clustered(size: int) -> bytes:
    names = [f"c{n}" for n in range(size // 24)]
    columns, order = ", ".join(f"{name} int" for name in names), ", ".join(f"{name} DESC" for name in names)
    key = f"PRIMARY KEY (k, {', '.join(names)})"
    return f"CREATE TABLE ks.t (k int, {columns}, {key}) WITH CLUSTERING ORDER BY ({order});".encode()


def dropped(size: int) -> bytes:
    names = [f"c{n}" for n in range(size // 40)]
    columns = ", ".join(f"{name} int" for name in names)
    drops = "".join(f"ALTER TABLE ks.t DROP {name};" for name in names)
    return f"CREATE TABLE ks.t (k int PRIMARY KEY, {columns});{drops}".encode()


def renamed(size: int) -> bytes:
    names = [f"c{n}" for n in range(size // 44)]
    columns = ", ".join(f"{name} int" for name in names)
    renames = "".join(f"ALTER TABLE ks.t RENAME {name} TO d{name};" for name in names)
    return f"CREATE TABLE ks.t (k int, {columns}, PRIMARY KEY (k, {', '.join(names)}));{renames}".encode()


def long_key(size: int) -> bytes:
    return b"k" * (size // 2) + b"{" + b"a=1\n" * (size // 8) + b"}"


def of_json(read: Callable[[Any], object]) -> Callable[[bytes], object]:
    return lambda data: read(json_text.parse(data))


OBJECT = many(b'"c%d":1,', b"{", b'"z":1}')
STATES: tuple[Any, ...] = (TableEra, Trouble, SourceNote, TableState, state_file.RunId, Schemas, CassandraTable)

SHAPES = (
    # The change log.
    *(Shape(f"block of {codec}", log_block(codec), parse_block(codec)) for codec in Codec),
    Shape("block without a sync marker", many(b"\2\2a"), parse_block(Codec.NULL)),
    Shape("rows with a seal", many_rows, lambda data: block.unseal(data, count_of(data))),
    Shape("head of a block", many(b"\xff"), container.parse_block_head),
    Shape("header of many entries", log_heading, container.parse_header),
    Shape("heading of many entries", log_heading, lambda data: segment.parse_heading(data, "f")),
    Shape("sealed file", sealed_file, sealed.unseal),
    Shape("watermark", many(b"\1"), unpack),
    Shape("checkpoint", many(b"9", b'{"position":"', b'"}'), lambda data: Checkpoint.from_json(json_text.parse(data))),
    Shape("position", many(b"9", b"", b":0:0"), text(Position.parse)),
    Shape("instant", many(b"9", b"", b" days"), text(lambda found: parse_instant(found, 0))),
    # Rows and schemas.
    Shape("rows", many_rows, lambda data: avro.decode(ChangeBatch(WIDE, count_of(data), data))),
    Shape("row of a large map", deep_map, lambda data: avro.decode(ChangeBatch(WIDE, 1, data))),
    Shape("rows as columns", many_rows, lambda data: arrow.to_arrow(ChangeBatch(WIDE, count_of(data), data))),
    Shape("row of a large map as columns", deep_map, lambda data: arrow.to_arrow(ChangeBatch(WIDE, 1, data))),
    Shape("rows that are scanned", many_rows, lambda data: avro.scan(WIDE, data, count_of(data))),
    Shape("rows of empty blocks", many(b"\1\0"), lambda data: avro.decode(ChangeBatch(WIDE, 1, data))),
    Shape("schema of many columns", lambda size: schema_of(size // 60), lambda d: TableSchema.from_json(json.loads(d))),
    Shape(
        "schema that nests",
        nested(b'{"kind":"list","elements":[', b'{"kind":"text"}', b"]}"),
        lambda data: t.Type.from_json(json_text.parse(data)),
    ),
    Shape(
        "change in JSON",
        many(b'"c%d":1,', b'{"op":"insert","key":{', b'"id":1}}'),
        lambda d: from_json(json.loads(d), WIDE),
    ),
    Shape("JSON that nests", nested(b'{"a":', b"1", b"}"), json_text.parse),
    # The listener.
    *(Shape(f"frame {kind.name.lower()}", many(b'"c%d":1,', b"{", b'"z":1}'), parse_frame(kind)) for kind in Kind),
    Shape("many frames", frames(b"{}"), Parser(REQUESTS, 1 << 24).feed),
    Shape("a frame byte by byte", one_frame, in_pieces),
    Shape("frames byte by byte", frames(b"{}"), in_pieces),
    # Statements.
    Shape("condition of many parts", statement("a = 1", " AND a = 1", ""), PREDICATE),
    Shape("condition of many brackets", nested(b"(", b"a = 1", b")"), PREDICATE),
    Shape("condition of brackets without end", many(b"("), PREDICATE),
    Shape("condition of many nots", statement("", "NOT ", "a = 1"), PREDICATE),
    Shape("condition that is wrong at its end", statement("a = 1", " AND a = 1", " AND"), PREDICATE),
    Shape("list of many literals", statement("a IN (1", ", 1", ")"), PREDICATE),
    Shape("function of many arguments", statement("f(1", ", 1", ")"), PREDICATE),
    Shape("string of quotes", many(b"''", b"a = '", b"'"), PREDICATE),
    Shape("string without end", many(b"''", b"a = '"), PREDICATE),
    Shape("comments without end", many(b"/* "), PREDICATE),
    Shape("many comments", many(b"/**/", b"", b"a = 1"), PREDICATE),
    Shape("number of many digits", many(b"9", b"a = "), PREDICATE),
    Shape("blob of many digits", many(b"00", b"a = 0x"), PREDICATE),
    Shape("name of many letters", many(b"a"), PREDICATE),
    Shape("table of many columns", many(b"c%d int, ", b"CREATE TABLE ks.t (k int PRIMARY KEY, ", b"v int)"), STATEMENT),
    Shape("table of many unknown types", many(b"c%d inx, ", b"CREATE TABLE ks.t (", b"v int)"), STATEMENT),
    Shape(
        "table whose types nest",
        nested(b"list<", b"int", b">"),
        text(lambda x: statements.parse(f"CREATE TABLE k.t (a {x})")),
    ),
    Shape("table in order", clustered, STATEMENT),
    Shape("log for many data centres", many(b"'d%d', ", b"CREATE CDC_LOG l ON ks.t WITH DCs = {", b"'d'}"), STATEMENT),
    # Cassandra's commit log, its schema and its node.
    *(Shape(f"mutations of format {n}", mutations(n), decode_mutations(n), 32) for n in FORMATS),
    Shape("section of zeros", zero_entries, decode_mutations(7)),
    Shape("section of ones", many(b"\xff"), decode_mutations(7)),
    Shape("segment header", segment_header, lambda data: read_header(data, "f")),
    Shape("segment index", many(b"9"), parse_index),
    *(
        Shape(f"section of {name}", many(b"\1\2\3"), decompress(name))
        for name in ("LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor")
    ),
    Shape("Java object", nested(b"\x75", b"", b""), lambda data: java_objects.read_object(memoryview(data))),
    Shape("key store", many(b"\0\1", b"\xce\xce\xce\xce\0\0\0\2\x7f\xff\xff\xff"), jceks.read_entries),
    Shape("key store of elements", many(b"\x30\0"), lambda data: pkcs12.read_entries(data, "secret")),
    Shape("key store that nests", nested(b"\x30\x80", b"", b""), lambda data: pkcs12.read_entries(data, "secret")),
    Shape("type that nests", nested(b"list<", b"int", b">"), text(cql_types.parse)),
    Shape("type of many parts", statement("tuple<int", ", int", ">"), text(cql_types.parse)),
    Shape("dropped type of many parts", statement("tuple<int", ", int", ">"), text(cql_types.parse_dropped)),
    Shape("type in quotes", many(b"''", b"'", b"'"), text(cql_types.parse)),
    Shape("script of many tables", many(CQL_TABLE.replace("ks.t", "ks.t%d").encode()), SCRIPT),
    Shape(
        "script of one wide table", many(b"c%d int, ", b"CREATE TABLE ks.t (k int PRIMARY KEY, ", b"v int);"), SCRIPT
    ),
    Shape("script of many types", many(b"CREATE TYPE ks.u%d (a int, b text);"), SCRIPT),
    Shape("script of a table in order", clustered, SCRIPT),
    Shape("script that drops columns", dropped, SCRIPT),
    Shape("script that renames columns", renamed, SCRIPT),
    Shape("script that drops keyspaces", many(b"CREATE TABLE a%d.t (k int PRIMARY KEY);DROP KEYSPACE b;"), SCRIPT),
    Shape("script of comments without end", many(b"/* "), SCRIPT),
    Shape("script of hidden tables", many(b"/* Warning: Table k.t omitted because CREATE TABLE x "), SCRIPT),
    Shape("script of hidden tables and one end", many(b"/* Warning: Table k.t omitted because ", b"", b"*/"), SCRIPT),
    Shape("script of dollars", many(b"$ "), SCRIPT),
    Shape("script of brackets", many(b"(", b"CREATE TABLE ks.t (a "), SCRIPT),
    Shape("cassandra.yaml of many keys", many(b"key_%d: 1\n"), YAML),
    Shape("cassandra.yaml that nests", nested(b"[", b"1", b"]"), YAML),
    Shape("cassandra.yaml of lists", many(b"- ", b"a: "), YAML),
    Shape("cassandra.yaml of a number to the base of 60", many(b":59", b"cdc_total_space: 1"), YAML),
    Shape("cassandra.yaml of merges", many(b"a%d: &a {<<: *a, b: 1}\n", b"a: &a {b: 1}\n"), YAML),
    # Configuration.
    Shape("settings of many keys", many(b"k%d = 1\n", b"[pipeline]\n"), of_file(loading.load, "settings.toml")),
    Shape("settings of dotted keys", many(b"a.", b"", b"a = 1"), of_file(loading.load, "settings.toml")),
    Shape("properties of many keys", many(b"k%d=1\n"), PROPERTIES),
    Shape("properties of one long line", many(b"a\\\n", b"k="), PROPERTIES),
    Shape("properties of escapes", many(b"\\u0041", b"k="), PROPERTIES),
    Shape("driver's configuration of many keys", many(b"k%d=1\n"), HOCON),
    Shape("driver's configuration of values over objects", many(b"c.a%d=1\nc=2\n"), HOCON),
    Shape("driver's configuration of dots", many(b"a.", b"", b"a=1"), HOCON),
    Shape("driver's configuration that nests", nested(b"a{", b"", b"}"), HOCON),
    Shape(
        "driver's configuration of members of one long key",
        lambda n: b"k" * (n // 2) + b"{" + b"a=1\n" * (n // 8) + b"}",
        HOCON,
    ),
    Shape("driver's configuration of a list", many(b"x,", b"a=[", b"]"), HOCON),
    Shape("driver's configuration of substitutions", many(b"a=${?a}x\n", b"a=x\n"), HOCON),
    Shape("driver's configuration of many substitutions", many(b"${?b}", b"b=1\na="), HOCON),
    # State of agents and pipelines in JSON, of which every reader takes the members that it knows.
    *(Shape(f"state of {one.__qualname__}", OBJECT, of_json(one.from_json)) for one in STATES),
    Shape("schema of the state", lambda size: schema_of(size // 60), text(state_file.parse_schema)),
    # The pipeline.
    Shape("dead letters", letters, dead_letters.decode),
    Shape("manifest of the state", state_manifest, read_manifest),
    Shape("mark in Kafka", many(b"9", b'{"version":1,"checkpoint":"', b'","batch":1,"time_us":1}'), Mark.decode),
    Shape("offset of Spark's checkpoint", many(b"9", b"", b":0:0:0:0"), text(reach.parse)),
    Shape("options of the source", many(b"9,"), text(lambda found: options.parse({"path": "p", "tables": found}))),
)
