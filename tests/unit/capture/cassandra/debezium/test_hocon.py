"""HOCON, as far as the Java driver's application.conf uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capture.cassandra.debezium import hocon
from penstock.errors import InvalidSetting


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "application.conf"


def read(file: Path, text: str, **environ: str) -> hocon.Document:
    file.write_text(text, encoding="utf-8")
    return hocon.read(file, environ)


@pytest.mark.parametrize(
    "text",
    [
        "a.b.c = 1",
        "a { b { c = 1 } }",
        "{ a : { b.c : 1, }, }",
        "a.b { c = 2 }\na { b.c = 1 }",
        "a.b = text\na.b { c = 1 }",
        'a."b".c="1"',
        "// one\n# two\na { # three\n  b.c = 1 // four\n}",
        'a { b { c = """1""" } }\r\n',
        "a.b.c = null\na.b.c = 1",
        "a.b.c = ${x.y}, x.y = 1",
        "a.b.c = 1\na.b.c = ${?MISSING}",
        "a.b.c = ${ONE}",
        "a.b.c = 2\na.b.c = ${?ONE}",
        "\ufeffa.b.c = 1",
    ],
)
def test_every_way_to_write_a_value_gives_the_same(file: Path, text: str) -> None:
    document = read(file, text, ONE="1")
    assert document.text("a.b.c") == "1"
    assert document.text("a.b.d") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 20 seconds", "20 seconds"),
        ("a =   x  y   # comment", "x  y"),
        ('a = "x # y" z', "x # y z"),
        ('a = "tab\\t quote\\" slash\\\\ \\u00fc"', 'tab\t quote" slash\\ ü'),
        ('a = """raw \\t "quoted""""', 'raw \\t "quoted"'),
        ("a = pre${X}post", "prevaluepost"),
        ('a = "null"', "null"),
        ("a = null", None),
        ("a = ${?NONE}", None),
        ('a = ""', ""),
    ],
)
def test_pieces_of_a_value_are_joined(file: Path, text: str, expected: str | None) -> None:
    assert read(file, text, X="value").text("a") == expected


def test_lists_hold_values(file: Path) -> None:
    document = read(file, 'a = [ "h1:9042", h2\n  ${H3} # third\n ${?H4}, ]\nb = []\nc = x', H3="h3")
    assert document.texts("a") == ["h1:9042", "h2", "h3"]
    assert document.texts("b") == []
    assert document.texts("d") is None
    assert document.paths() == ["a", "b", "c"]
    with pytest.raises(InvalidSetting, match="c is not a list"):
        document.texts("c")
    with pytest.raises(InvalidSetting, match="a is a list"):
        document.text("a")


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ('include "other.conf"', "include is not supported", 1),
        ("a = 1\na += 2", r"\+= is not supported", 2),
        ("a {\n b = 1", "} is missing", 2),
        ("a = [1", "] is missing", 1),
        ("a = [{b = 1}]", "{ has to stand in quotes", 1),
        ("a = ${b} { c = 1 }", "{ has to stand in quotes", 1),
        ("a = h:1", ": has to stand in quotes", 1),
        ('a = "x', "a quotation has no end", 1),
        ('a = """x', "a quotation has no end", 1),
        ('a = "\\q"', "an unknown escape", 1),
        ("a\n= 1", "= or { is missing", 1),
        ("a =", "a value is missing", 1),
        ("= 1", "a key is missing", 1),
        ("a..b = 1", "a key has an empty part", 1),
        ("{ a = 1 } b", "something follows the end", 1),
        ("a { b = 1 } c = 2", "a comma or a new line is missing", 1),
        ("a {" * 40, "nested too deeply", 1),
    ],
)
def test_what_it_does_not_know_is_refused_with_the_line(file: Path, text: str, said: str, line: int) -> None:
    with pytest.raises(InvalidSetting, match=said) as refusal:
        read(file, text)
    assert refusal.value.place == {"file": file, "line": line}


def test_substitutions_that_lead_nowhere_are_refused_when_they_are_needed(file: Path) -> None:
    document = read(file, "a = ${b}\nb = ${a}\nc = ${none}\nd = 1")
    assert document.text("d") == "1"
    with pytest.raises(InvalidSetting, match="go in a circle"):
        document.text("a")
    with pytest.raises(InvalidSetting, match=r"nothing sets \$\{none\} .*line 3"):
        document.text("c")


def test_substitutions_that_double_again_and_again_are_refused(file: Path) -> None:
    lines = "".join(f"a{n} = ${{a{n - 1}}}${{a{n - 1}}}\n" for n in range(1, 33))
    with pytest.raises(InvalidSetting, match="come to more than"):
        read(file, f"a0 = x\n{lines}").text("a32")


def test_a_value_takes_the_place_of_an_object_and_of_all_that_is_below_it(file: Path) -> None:
    document = read(file, "a.b.c = 1\na.d = 2\nab = 3\na = 4\na.e = 5\na { f = 6 }\na.b = 7")
    assert document.paths() == ["ab", "a.e", "a.f", "a.b"]
    assert document.line("a.b") == 7


def test_a_key_that_is_too_long_is_refused(file: Path) -> None:
    with pytest.raises(InvalidSetting, match="a key has more than 1024 characters"):
        read(file, f"{'a.' * 600}a = 1")


def test_files_that_cannot_be_read_are_refused_with_their_name(file: Path) -> None:
    with pytest.raises(InvalidSetting, match="No such file or directory"):
        hocon.read(file, {})
    file.write_bytes(b"a = \xff")
    with pytest.raises(InvalidSetting, match="not UTF-8"):
        hocon.read(file, {})
    file.write_bytes(b"#" * (hocon.BYTES_MAX + 1))
    with pytest.raises(InvalidSetting, match="at most"):
        hocon.read(file, {})
