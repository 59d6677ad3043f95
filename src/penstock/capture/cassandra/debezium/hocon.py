"""HOCON, the format of the Java driver's application.conf, as far as such files use it.

Read are objects with dotted keys, lists, quoted and plain values, comments and `${…}` substitutions from the file
itself or the environment. A file is taken apart into one value per path, `basic.contact-points` for one. What this
reader does not know (includes, `+=`, objects inside lists, an object joined with something) is refused with its line:
a driver that quietly connects elsewhere would be worse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.errors import InvalidSetting

BYTES_MAX = 1 << 20
_DEPTH_MAX = 32
_REFERENCES_MAX = 32
# Keys of the driver have some fifty characters; each of their parts is looked at.
_KEY_CHARS_MAX = 1024
# How many characters and pieces substitutions may come to: a few lines that each name the one before twice would come
# to billions.
_RESOLVED_MAX = 1 << 20
# What HOCON forbids outside of quotes; a dollar is only allowed as the begin of a substitution.
_SPECIAL = '$"{}[]:=,+#`^?!@*&\\'
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_REFERENCE = re.compile(r"\$\{(\??)\s*([\w.\-]+)\s*\}")
_UNQUOTED = re.compile(r"""(?:(?!//)[^$"{}\[\]:=,+#`^?!@*&\\\s])+""")
_SPACE = re.compile(r"[^\S\n]+")


class _Reference(NamedTuple):
    path: str
    optional: bool


_Pieces = tuple[str | _Reference, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    """A scalar of several pieces, or a list of such scalars. `null` has no pieces at all."""

    pieces: tuple[_Pieces, ...]
    is_list: bool
    line: int


@dataclass(slots=True)
class Document:
    """The values of a file by their path. Errors name the file and the line."""

    file: Path
    environ: Mapping[str, str]
    values: dict[str, _Value] = field(default_factory=dict)
    _resolved: int = 0

    def paths(self) -> list[str]:
        """Every path that has a value, in the file's order."""
        return list(self.values)

    def line(self, path: str) -> int | None:
        """The line of a path's value."""
        value = self.values.get(path)
        return None if value is None else value.line

    def text(self, path: str) -> str | None:
        """A scalar, or None when the file does not set it."""
        value = self.values.get(path)
        if value is None or not value.pieces:
            return None
        if value.is_list:
            raise InvalidSetting(f"{path} is a list where one value is needed", file=self.file, line=value.line)
        return self._resolve(value.pieces[0], value.line, 0)

    def texts(self, path: str) -> list[str] | None:
        """A list, or None when the file does not set it."""
        value = self.values.get(path)
        if value is None or (not value.pieces and not value.is_list):
            return None
        if not value.is_list:
            raise InvalidSetting(f"{path} is not a list", file=self.file, line=value.line)
        found = [self._resolve(pieces, value.line, 0) for pieces in value.pieces]
        return [text for text in found if text is not None]

    def _resolve(self, pieces: _Pieces, line: int, depth: int) -> str | None:
        if depth > _REFERENCES_MAX:
            raise InvalidSetting("substitutions go in a circle", file=self.file, line=line)
        parts: list[str] = []
        for piece in pieces:
            self._resolved += 1
            if self._resolved > _RESOLVED_MAX:
                raise InvalidSetting(
                    f"substitutions come to more than {_RESOLVED_MAX} characters", file=self.file, line=line
                )
            if isinstance(piece, str):
                parts.append(piece)
                continue
            target = self.values.get(piece.path)
            found = None
            if target is not None and len(target.pieces) == 1 and not target.is_list:
                found = self._resolve(target.pieces[0], target.line, depth + 1)
            if found is None:
                found = self.environ.get(piece.path)
            if found is not None:
                parts.append(found)
                self._resolved += len(found)
            elif not piece.optional:
                raise InvalidSetting(f"nothing sets ${{{piece.path}}}", file=self.file, line=line)
        return "".join(parts) if parts or not pieces else None


def read(file: Path, environ: Mapping[str, str]) -> Document:
    """The values of a file."""
    try:
        with file.open("rb") as opened:
            data = opened.read(BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidSetting(f"cannot read the driver's configuration: {error.strerror}", file=file) from error
    except UnicodeDecodeError as error:
        raise InvalidSetting("the driver's configuration is not UTF-8 text", file=file, offset=error.start) from error
    if len(data) > BYTES_MAX:
        raise InvalidSetting(f"a driver's configuration has at most {BYTES_MAX} bytes", file=file)
    return _Parser(text.replace("\r\n", "\n"), Document(file, environ)).parse()


class _Parser:
    def __init__(self, text: str, document: Document) -> None:
        self._text = text
        self._at = 0
        self._document = document
        # By the path of an object, what is set directly below it: objects and values.
        self._below: dict[str, set[str]] = {}
        # The line of a place that was asked for before.
        self._counted = (0, 1)

    def parse(self) -> Document:
        self._skip()
        braces = self._take("{")
        self._members((), "}" if braces else "", 0)
        self._skip()
        if self._at < len(self._text):
            raise self._wrong("something follows the end")
        return self._document

    def _members(self, path: tuple[str, ...], closing: str, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise self._wrong("objects are nested too deeply")
        while True:
            self._skip()
            while self._take(","):
                self._skip()
            if closing and self._take(closing):
                return
            if self._at >= len(self._text):
                if closing:
                    raise self._wrong(f"{closing} is missing")
                return
            self._member(path, depth)

    def _member(self, path: tuple[str, ...], depth: int) -> None:
        key = (*path, *self._key())
        self._skip_space()
        if self._text.startswith("+=", self._at):
            raise self._wrong("+= is not supported; write the whole list")
        if self._take("=") or self._take(":"):
            self._skip()
        elif not self._text.startswith("{", self._at):
            raise self._wrong("= or { is missing after a key")
        name = ".".join(key)
        if len(name) > _KEY_CHARS_MAX:
            raise self._wrong(f"a key has more than {_KEY_CHARS_MAX} characters")
        if self._take("{"):
            self._document.values.pop(name, None)
            self._members(key, "}", depth + 1)
        else:
            value = self._value()
            old = self._document.values.get(name)
            # Only an optional substitution that finds nothing leaves what was set before.
            if old is None or not _is_optional(value) or self._finds(value):
                self._set(name, value)
        self._skip_space()
        if self._at < len(self._text) and self._text[self._at] not in ",\n}" and not self._comment_here():
            raise self._wrong("a comma or a new line is missing after a value")

    def _finds(self, value: _Value) -> bool:
        return self._document._resolve(value.pieces[0], value.line, 0) is not None

    def _set(self, name: str, value: _Value) -> None:
        values = self._document.values
        # A value takes the place of the object that its path was.
        below = [name]
        while below:
            path = below.pop()
            values.pop(path, None)
            below += self._below.pop(path, ())
        values[name] = value
        while name and name not in self._below.setdefault(parent := name.rpartition(".")[0], set()):
            self._below[parent].add(name)
            name = parent

    def _key(self) -> list[str]:
        parts: list[str] = []
        word = ""
        begun = self._at
        while self._at < len(self._text):
            if self._text[self._at] == '"':
                word += self._quoted()
            elif match := _UNQUOTED.match(self._text, self._at):
                self._at = match.end()
                first, *rest = match.group().split(".")
                word += first
                for following in rest:
                    parts.append(word)
                    word = following
            else:
                break
        if begun == self._at:
            raise self._wrong("a key is missing")
        parts.append(word)
        if parts == ["include"]:
            raise self._wrong("include is not supported; put its keys into this file")
        if not all(parts):
            raise self._wrong("a key has an empty part")
        return parts

    def _value(self) -> _Value:
        line = self._line()
        if not self._take("["):
            pieces = self._pieces()
            return _Value((pieces,) if pieces else (), False, line)
        items: list[_Pieces] = []
        while True:
            self._skip()
            while self._take(","):
                self._skip()
            if self._take("]"):
                return _Value(tuple(items), True, line)
            if self._at >= len(self._text):
                raise self._wrong("] is missing")
            items.append(self._pieces())

    def _pieces(self) -> _Pieces:
        """A scalar: the pieces up to the end of the line, a comma or a bracket, which are joined; none for null."""
        pieces: list[str | _Reference] = []
        quoted = False
        while self._at < len(self._text):
            here = self._text[self._at]
            if here in ",\n}]" or self._comment_here():
                break
            if space := _SPACE.match(self._text, self._at):
                self._at = space.end()
                pieces.append(space.group())
            elif here == '"':
                pieces.append(self._quoted())
                quoted = True
            elif reference := _REFERENCE.match(self._text, self._at):
                pieces.append(_Reference(reference.group(2), bool(reference.group(1))))
                self._at = reference.end()
            elif match := _UNQUOTED.match(self._text, self._at):
                pieces.append(match.group())
                self._at = match.end()
            else:
                raise self._wrong(f"{here} has to stand in quotes" if here in _SPECIAL else "a value is missing")
        while pieces and isinstance(pieces[-1], str) and pieces[-1].isspace() and not (quoted and len(pieces) == 1):
            pieces.pop()
        if not pieces:
            raise self._wrong("a value is missing")
        return () if pieces == ["null"] and not quoted else tuple(pieces)

    def _quoted(self) -> str:
        if self._text.startswith('"""', self._at):
            end = self._text.find('"""', self._at + 3)
            if end < 0:
                raise self._wrong("a quotation has no end")
            # Quotes before the closing three belong to the text.
            while self._text.startswith('"', end + 3):
                end += 1
            found = self._text[self._at + 3 : end]
            self._at = end + 3
            return found
        self._at += 1
        out: list[str] = []
        while self._at < len(self._text) and self._text[self._at] not in '"\n':
            character = self._text[self._at]
            self._at += 1
            out.append(self._escape() if character == "\\" else character)
        if not self._take('"'):
            raise self._wrong("a quotation has no end")
        return "".join(out)

    def _escape(self) -> str:
        letter = self._text[self._at : self._at + 1]
        self._at += 1
        if letter == "u" and (digits := _HEX.match(self._text, self._at)):
            self._at = digits.end()
            return chr(int(digits.group(), 16))
        if letter not in _ESCAPES:
            raise self._wrong("an unknown escape")
        return _ESCAPES[letter]

    def _skip(self) -> None:
        """Pass over white space, ends of lines and comments."""
        while self._at < len(self._text):
            if self._text[self._at].isspace():
                self._at += 1
            elif self._comment_here():
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return

    def _skip_space(self) -> None:
        if space := _SPACE.match(self._text, self._at):
            self._at = space.end()

    def _comment_here(self) -> bool:
        return self._text.startswith(("#", "//"), self._at)

    def _take(self, text: str) -> bool:
        if not text or not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _line(self) -> int:
        at, line = self._counted
        if self._at < at:
            at, line = 0, 1
        self._counted = (self._at, line + self._text.count("\n", at, self._at))
        return self._counted[1]

    def _wrong(self, what: str) -> InvalidSetting:
        return InvalidSetting(what, file=self._document.file, line=self._line())


def _is_optional(value: _Value) -> bool:
    if value.is_list or not value.pieces:
        return False
    return any(isinstance(piece, _Reference) and piece.optional for piece in value.pieces[0])
