"""Tokens of CQL text, with the line that each stands on, and the statements that they make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from penstock.errors import InvalidSchema

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|//[^\n]*|/\*.*?\*/)
    |(?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})
    |(?P<string>'(?:[^']|'')*'|\$\$.*?\$\$)
    |(?P<name>"(?:[^"]|"")*")
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>-?[0-9][\w.+-]*)
    |(?P<open>/\*|\$\$)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    """One token; `text` is as written."""

    kind: str
    text: str
    line: int

    @property
    def keyword(self) -> str:
        """The word in capitals; nothing for a token that is no bare word."""
        return self.text.upper() if self.kind == "word" else ""


END = Token("end", "", 0)


def statements(text: str) -> Iterator[list[Token]]:
    """The statements of a script, without their semicolons. Empty ones are left out."""
    line = 1
    found: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        token = Token(kind, match.group(), line)
        line += token.text.count("\n")
        if kind == "open" or (kind == "sign" and token.text in "'\""):
            raise InvalidSchema(f"the {token.text} on line {token.line} has no partner", line=token.line)
        if kind == "sign" and token.text == ";":
            if found:
                yield found
            found = []
        elif kind != "blank":
            found.append(token)
    if found:
        yield found


class Tokens:
    """A statement being read from left to right."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def line(self) -> int:
        return self._tokens[min(self._at, len(self._tokens) - 1)].line

    def peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else END

    def take(self) -> Token:
        token = self.peek()
        self._at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Read these keywords or signs if they come next."""
        for ahead, word in enumerate(words):
            token = self.peek(ahead)
            if (token.keyword or token.text) != word or token.kind in ("string", "name"):
                return False
        self._at += len(words)
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.wrong(f"expected {word}, found {self.peek().text[:40] or 'the end'}")

    def name(self) -> str:
        """A name: lower case unless it is quoted."""
        token = self.take()
        if token.kind == "word":
            return token.text.lower()
        if token.kind == "name" and len(token.text) > 2:
            return token.text[1:-1].replace('""', '"')
        self._at -= 1
        raise self.wrong(f"expected a name, found {token.text[:40] or 'the end'}")

    def wrong(self, message: str) -> InvalidSchema:
        return InvalidSchema(message, line=self.line)

    def names(self) -> list[str]:
        """Names in parentheses, with commas between them."""
        self.expect("(")
        out = [self.name()]
        while self.accept(","):
            out.append(self.name())
        self.expect(")")
        return out

    def until(self, *ends: str) -> list[Token]:
        """All tokens up to one of these signs or keywords that stands in no bracket."""
        out: list[Token] = []
        depth = 0
        while self.peek() is not END:
            token = self.peek()
            if depth == 0 and token.kind in ("word", "sign") and (token.keyword or token.text) in ends:
                break
            if token.kind == "sign":
                depth += (token.text in "([{<") - (token.text in ")]}>")
            out.append(self.take())
        return out
