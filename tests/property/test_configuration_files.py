"""Files of other programs' making: any bytes give values or a refusal that names the file, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.capture.cassandra.debezium import hocon, java_properties
from penstock.capture.cassandra.debezium.properties import read
from penstock.capture.cassandra.debezium.table import EXACT
from penstock.capture.cassandra.node import tls_stores
from penstock.errors import KeyStoreError, PenstockError

FILE = Path("file")
T = TypeVar("T")
HOCON = st.lists(
    st.sampled_from([*'{}[]=:,+"#\n \\$?/.', '"""', "${", "${?X}", "a", "b.c", "include", "null", "//", "\\u00"])
    | st.characters(codec="utf-8"),
    max_size=40,
).map("".join)
# Names that exist with values that may not fit, so that the reader is not stopped by the first name.
PROPERTIES = st.lists(
    st.tuples(st.sampled_from(sorted(EXACT)), st.sampled_from(["true", "0", "1", "x", "", "127.0.0.1:1", "a:B", "é"])),
    max_size=6,
)


def outcome(call: Callable[[], T]) -> T | PenstockError:
    """What a call gives, or the refusal that it raises; any other exception is a fault."""
    try:
        return call()
    except PenstockError as refusal:
        return refusal


@given(st.binary(max_size=200) | HOCON.map(lambda text: text.encode("utf-8")))
def test_properties_are_read_or_refused(data: bytes) -> None:
    found = outcome(lambda: java_properties.parse(data, FILE))
    if isinstance(found, PenstockError):
        assert found.place["file"] == FILE
        return
    for name, entry in found.items():
        assert entry.key == name
        (name + entry.value).encode("utf-8")
        assert 1 <= entry.line <= len(data) + 1


@given(HOCON)
@settings(max_examples=500)
def test_hocon_is_read_or_refused(text: str) -> None:
    document = hocon.Document(FILE, {"X": "x"})

    def values() -> None:
        hocon._Parser(text, document).parse()
        for path in document.paths():
            _ = document.texts(path) if document.values[path].is_list else document.text(path)

    refusal = outcome(values)
    assert refusal is None or refusal.place["file"] == FILE


@given(PROPERTIES)
@settings(max_examples=300, deadline=None)
def test_a_configuration_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[tuple[str, str]]
) -> None:
    file = _directory(tmp_path_factory) / "config.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in chosen), encoding="utf-8")
    config = outcome(lambda: read(file, {"PENSTOCK_AGENT__DIRECTORY": "/d"}))
    if isinstance(config, PenstockError):
        assert "file" in config.place
    else:
        assert len(config.pipeline) <= len(chosen)


@given(
    st.sampled_from([b"", b"\xfe\xed\xfe\xed\x00\x00\x00\x02", b"\x30\x82\x01\x00\x02\x01\x03"]),
    st.binary(max_size=300),
)
@settings(deadline=None)
def test_what_is_no_store_is_refused(tmp_path_factory: pytest.TempPathFactory, head: bytes, rest: bytes) -> None:
    file = _directory(tmp_path_factory) / "store"
    file.write_bytes(head + rest)
    found = outcome(lambda: tls_stores.read(file, "password"))
    assert isinstance(found, KeyStoreError)
    assert found.place["file"] == file


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_a_jks_store_with_a_sound_digest_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes
) -> None:
    file = _directory(tmp_path_factory) / "store"
    body = b"\xfe\xed\xfe\xed\x00\x00\x00\x02" + rest
    file.write_bytes(body + hashlib.sha1("password".encode("utf-16-be") + b"Mighty Aphrodite" + body).digest())
    found = outcome(lambda: tls_stores.read(file, "password"))
    if isinstance(found, PenstockError):
        assert found.place == {"file": file}
    else:
        assert found.key is None


def _directory(factory: pytest.TempPathFactory) -> Path:
    found = factory.getbasetemp() / "configuration"
    found.mkdir(exist_ok=True)
    return found
