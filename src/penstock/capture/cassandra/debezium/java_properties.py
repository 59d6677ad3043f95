"""The .properties files of Java, read as `java.util.Properties` reads them.

A file is a list of logical lines: `#` and `!` begin comments, a backslash before the line's end joins the next line
without its leading white space, `=`, `:` or white space ends a key, and `\\uXXXX` stands for any character. A key that
occurs again has its last value. The one difference is the encoding: Java reads ISO-8859-1, and so does this, unless
the bytes are proper UTF-8, which by accident they never are once there is a letter beyond ASCII.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from penstock.errors import InvalidSetting

# A settings file has a few kilobytes; what is much larger is not one.
BYTES_MAX = 1 << 20

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}
_HEX = re.compile(r"[0-9A-Fa-f]{4}")


class Property(NamedTuple):
    """One property and the line at which it begins, counted from 1."""

    key: str
    value: str
    line: int


class _LogicalLine(NamedTuple):
    text: str
    number: int


def read(file: Path) -> dict[str, Property]:
    """The properties of a file, in the order of their first occurrence."""
    try:
        with file.open("rb") as opened:
            data = opened.read(BYTES_MAX + 1)
    except OSError as error:
        raise InvalidSetting(f"cannot read the properties file: {error.strerror}", file=file) from error
    except ValueError as error:
        # A zero byte in the name, for one.
        raise InvalidSetting("this is no file name", file=repr(str(file))) from error
    if len(data) > BYTES_MAX:
        raise InvalidSetting(f"a properties file has at most {BYTES_MAX} bytes", file=file)
    return parse(data, file)


def parse(data: bytes, file: Path) -> dict[str, Property]:
    """The properties that the bytes hold; `file` is their name in errors."""
    properties: dict[str, Property] = {}
    for line in _logical_lines(_decode(data)):
        key, value = _divide(line.text)
        found = Property(_unescape(key, file, line.number), _unescape(value, file, line.number), line.number)
        properties[found.key] = found
    return properties


def _decode(data: bytes) -> str:
    try:
        # Editors of Windows put a byte order mark before UTF-8; it belongs to no key.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _logical_lines(text: str) -> list[_LogicalLine]:
    """Lines without comments, blank lines and continuations.

    A line continues when its last character is a backslash that no backslash escapes. As in Java, a line of which
    nothing but that backslash has been seen is still a new one, so that a comment may follow it.
    """
    lines: list[_LogicalLine] = []
    begun, number = "", 0
    for count, natural in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        part = natural.lstrip(_BLANK)
        if not begun:
            if not part or part[0] in "#!":
                continue
            number = count
        continues = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        begun += part[:-1] if continues else part
        if not continues:
            lines.append(_LogicalLine(begun, number))
            begun = ""
    if begun:
        lines.append(_LogicalLine(begun, number))
    return lines


def _divide(line: str) -> tuple[str, str]:
    """The raw key and value of a logical line."""
    end = 0
    while end < len(line) and line[end] not in _BLANK + "=:":
        # An escaped separator belongs to the key.
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    start = _skip_blank(line, end)
    if start < len(line) and line[start] in "=:":
        start = _skip_blank(line, start + 1)
    return line[:end], line[start:]


def _skip_blank(line: str, index: int) -> int:
    while index < len(line) and line[index] in _BLANK:
        index += 1
    return index


def _unescape(raw: str, file: Path, line: int) -> str:
    if "\\" not in raw:
        return raw
    out: list[str] = []
    index = 0
    while index < len(raw):
        character = raw[index]
        index += 1
        if character == "\\" and index < len(raw):
            character = raw[index]
            index += 1
            if character == "u":
                digits = _HEX.match(raw, index)
                if digits is None:
                    raise InvalidSetting("\\u needs four hexadecimal digits", file=file, line=line)
                character = chr(int(digits.group(), 16))
                index = digits.end()
            else:
                character = _ESCAPES.get(character, character)
        out.append(character)
    try:
        # Characters beyond the first plane are written as two escapes, the halves of one pair.
        return "".join(out).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise InvalidSetting("half a pair of \\u escapes", file=file, line=line) from error
