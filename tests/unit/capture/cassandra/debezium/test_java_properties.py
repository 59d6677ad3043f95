"""Java's .properties files: escapes, continuation lines, separators, comments and encodings."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capture.cassandra.debezium import java_properties
from penstock.errors import InvalidSetting

FILE = Path("config.properties")


def parsed(text: str | bytes) -> dict[str, str]:
    data = text.encode("utf-8") if isinstance(text, str) else text
    return {key: found.value for key, found in java_properties.parse(data, FILE).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\f 1", {"a": "1"}),
        ("a = : 1", {"a": ": 1"}),
        ("a", {"a": ""}),
        ("=1", {"": "1"}),
        ("  a=1  ", {"a": "1  "}),
        ("# x\n! y\n\n  # z\na=1", {"a": "1"}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=1\rb=2\r\nc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=1,\\\n   2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\n# 2", {"a": "1# 2"}),
        ("# comments do not continue\\\na=1", {"a": "1"}),
        ("\\\n# still a new line\na=1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
        ("\\u0061=\\u00FC\\u20ac", {"a": "ü€"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=1\nb=2\na=3", {"a": "3", "b": "2"}),
        ("path=C:\\\\data\\:x", {"path": "C:\\data:x"}),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parsed(text) == expected


def test_bytes_are_utf_8_when_they_can_be_and_iso_8859_1_otherwise() -> None:
    assert parsed("a=ü€".encode()) == {"a": "ü€"}
    assert parsed("a=ü".encode("iso-8859-1")) == {"a": "ü"}
    assert parsed(b"\xef\xbb\xbfa=1") == {"a": "1"}


def test_a_property_knows_its_line() -> None:
    found = java_properties.parse(b"# 1\na=\\\n  x\n\nb=y\na=z", FILE)
    assert [(p.key, p.value, p.line) for p in found.values()] == [("a", "z", 6), ("b", "y", 5)]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u00=1", "\n\na=\\uD83D"])
def test_a_broken_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"\\u") as refusal:
        parsed(text)
    assert refusal.value.place == {"file": FILE, "line": text.count("\n") + 1}


def test_files_that_cannot_be_read_are_refused_with_their_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="No such file or directory"):
        java_properties.read(tmp_path / "none")
    with pytest.raises(InvalidSetting, match="Is a directory"):
        java_properties.read(tmp_path)
    with pytest.raises(InvalidSetting, match="no file name"):
        java_properties.read(Path("a\0b"))
    large = tmp_path / "large"
    large.write_bytes(b"#" * (java_properties.BYTES_MAX + 1))
    with pytest.raises(InvalidSetting, match="at most 1048576 bytes"):
        java_properties.read(large)
