"""Files of the change log are ordinary Avro: fastavro, Go's hamba/avro and Node's avsc read them unchanged.

Each reader prints every record as a line of JSON in which each value shows its exact content; the lines are compared
with the same rendering of the rows that were written. The programs are in tests/integration/readers.
"""

from __future__ import annotations

import io
import json
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import fastavro
import pytest

from penstock.formats import avro, container
from penstock.formats._kernel import RowReader
from penstock.formats.program import program
from penstock.log.erasure import erase
from penstock.log.forgotten import target
from penstock.log.table_log import TableLog
from penstock.model.change import Op
from penstock.settings import Codec, LogSettings
from tests.every_type import every_type_table

READERS = Path(__file__).parent / "readers"
SYNC = b"a sync marker !!"
NAMESPACE = "penstock."


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[Codec, Path]:
    """The same changes in one file for each codec, in two blocks; the first block's last record is sealed."""
    schema, changes = every_type_table()
    directory = tmp_path_factory.mktemp("files")
    metadata = {"penstock.format": b"1", "penstock.schema": json.dumps(schema.to_json()).encode()}
    paths = {}
    for codec in Codec:
        data = container.header(avro.schema_json(schema), metadata, codec, SYNC)
        for part, seal in ((changes[:5], b"\x02\x0e\xde\xad\xbe\xef"), (changes[5:], b"\0")):
            batch = avro.encode(schema, part)
            rows = bytes(batch.rows)[:-1] + seal
            data += container.frame_block(batch.count, container.compress(codec, rows), SYNC)
        paths[codec] = directory / f"ks.every.{codec}.avro"
        paths[codec].write_bytes(data)
    return paths


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    """What was written, shown from the tuples that the rows are made of."""
    schema, changes = every_type_table()
    tree = json.loads(avro.schema_json(schema))
    batch = avro.encode(schema, changes)
    reader = RowReader(batch.rows)
    rows = [list(program(schema).decode(reader)) for _ in range(batch.count)]
    rows[4][-1] = (7, b"\xde\xad\xbe\xef")
    names = _named(tree)
    return [_show(tree, tuple(row), names) for row in rows]


def _named(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if "name" in node and node["type"] in ("record", "fixed", "enum"):
                found[node["name"]] = node
            waiting += [node.get("items")] + [f["type"] for f in node.get("fields", ())]
    return found


def _show(schema: Any, datum: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        if datum is None:
            return None
        branch, value = (1, datum) if len(schema) == 2 else datum
        return [_branch_name(schema[branch]), _show(schema[branch], value, named)]
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        fields = zip(schema["fields"], datum, strict=True)
        return {field["name"]: _show(field["type"], value, named) for field, value in fields}
    if kind == "array":
        return [_show(schema["items"], item, named) for item in datum]
    if kind == "enum":
        return "s:" + list(Op)[datum].value
    return _show_scalar(kind, datum)


def _show_scalar(kind: str, datum: Any) -> Any:
    if kind in ("int", "long"):
        return f"i:{datum}"
    if kind in ("float", "double"):
        return "f:" + struct.pack(">f" if kind == "float" else ">d", datum).hex()
    if kind in ("bytes", "fixed"):
        return "b:" + datum.hex()
    return "s:" + datum if kind == "string" else datum


def _branch_name(schema: Any) -> str:
    name = schema if isinstance(schema, str) else schema.get("name", schema["type"])
    plain = {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "array"}
    return str(name) if name in plain else NAMESPACE + name


def _same_names(shown: Any) -> Any:
    """hamba adds the logical type to a branch's name."""
    if isinstance(shown, dict):
        return {name: _same_names(value) for name, value in shown.items()}
    if isinstance(shown, list):
        return [_same_names(item) for item in shown]
    return "bytes" if shown == "bytes.decimal" else shown


def _lines(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def _run(command: list[str], cwd: Path, seconds: int = 240) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{command[0]}: {done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def go_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("go") / "reader"
    _run(["go", "build", "-o", str(binary), "."], READERS / "go")
    return binary


@pytest.fixture(scope="module")
def node_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "read.js"):
        shutil.copy(READERS / "node" / name, directory)
    _run(["npm", "ci", "--no-audit", "--no-fund"], directory)
    return directory / "read.js"


@pytest.mark.parametrize("codec", Codec)
def test_go_reads_what_was_written(
    codec: Codec, files: dict[Codec, Path], expected: list[Any], go_reader: Path, tmp_path: Path
) -> None:
    shown = _same_names(_lines(_run([str(go_reader), str(files[codec])], tmp_path)))
    assert shown == expected


@pytest.mark.parametrize("codec", Codec)
def test_node_reads_what_was_written(
    codec: Codec, files: dict[Codec, Path], expected: list[Any], node_reader: Path, tmp_path: Path
) -> None:
    assert _lines(_run(["node", str(node_reader), str(files[codec])], tmp_path)) == expected


@pytest.mark.parametrize("codec", Codec)
def test_fastavro_reads_what_was_written(codec: Codec, files: dict[Codec, Path], expected: list[Any]) -> None:
    with files[codec].open("rb") as file:
        reader = fastavro.reader(file, return_record_name=True, return_record_name_override=False)
        named = _named(json.loads(reader.metadata["avro.schema"]))
        shown = [_show_fastavro(json.loads(reader.metadata["avro.schema"]), record, named) for record in reader]
    assert shown == expected


@pytest.mark.parametrize("codec", Codec)
def test_all_read_a_file_of_which_changes_were_erased(
    codec: Codec, go_reader: Path, node_reader: Path, tmp_path: Path
) -> None:
    schema, changes = every_type_table()
    directory = tmp_path / "log"
    with TableLog.open(str(directory), schema, settings=LogSettings(codec=codec)) as log:
        log.append(avro.encode(schema, changes))
        log.append(avro.encode(schema, changes[:5]))
    gone = changes[0].key
    assert erase(str(directory), lambda version: [target(version, gone)]).complete
    path = directory / "ks.every.000001.avro"
    with path.open("rb") as file:
        reader = fastavro.reader(file, return_record_name=True, return_record_name_override=False)
        tree = json.loads(reader.metadata["avro.schema"])
        shown = [_show_fastavro(tree, record, _named(tree)) for record in reader]
    assert len(shown) == len(changes) + 5
    blank = [one for one in shown if not any(one["key"].values())]
    assert len(blank) >= 2
    assert all(not any(one["cells"].values()) and one["before"] is None for one in blank)
    assert _same_names(_lines(_run([str(go_reader), str(path)], tmp_path))) == shown
    assert _lines(_run(["node", str(node_reader), str(path)], tmp_path)) == shown


def _show_fastavro(schema: Any, value: Any, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        if value is None:
            return None
        branch = schema[1]
        if isinstance(value, tuple):
            # Where several records could stand, fastavro names the one that does.
            name, value = value
            branch = next(one for one in schema if _branch_name(one) == name)
        return [_branch_name(branch), _show_fastavro(branch, value, named)]
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {f["name"]: _show_fastavro(f["type"], value[f["name"]], named) for f in schema["fields"]}
    if kind == "array":
        return [_show_fastavro(schema["items"], item, named) for item in value]
    if kind == "enum":
        return "s:" + value
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        value = _decimal_bytes(schema, value)
    return _show_scalar(kind, value)


def _decimal_bytes(schema: dict[str, Any], value: Any) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert exponent == -schema["scale"]
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def test_the_lock_files_name_no_registry() -> None:
    assert "resolved" not in (READERS / "node" / "package-lock.json").read_text()


def test_what_fastavro_writes_is_the_same(expected: list[Any]) -> None:
    schema, changes = every_type_table()
    batch = avro.encode(schema, changes)
    parsed = fastavro.parse_schema(json.loads(avro.schema_json(schema)))
    stream = io.BytesIO(bytes(batch.rows))
    records = [fastavro.schemaless_reader(stream, parsed, None, return_record_name=True) for _ in changes]
    out = io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(out, parsed, record)
    assert out.getvalue() == batch.rows
