"""Complaint: what is wrong with a statement, with the line, a caret under the place and what was expected there.

For example:

    expected TABLE or CDC_LOG, found CDCLOG; did you mean CDC_LOG?
      CREATE CDCLOG mylog ON ks.t
             ^ (line 1, column 8)
"""

from __future__ import annotations

import unicodedata
from itertools import takewhile
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from penstock.errors import InvalidStatement
from penstock.model.predicate import RESERVED
from penstock.model.spelling import did_you_mean

# How much of a long line is shown before and after the place.
_SHOWN_CHARS = 60
_FOUND_CHARS_MAX = 40

# Terminals in people's words. Keywords speak for themselves.
_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "STRING": "a 'string'",
    "BLOB": "a blob (0x…)",
    "UUID": "a uuid",
    "EQUAL": "`=`",
    "NOT_EQUAL": "`!=`",
    "LESS": "`<`",
    "LESS_OR_EQUAL": "`<=`",
    "MORE": "`>`",
    "MORE_OR_EQUAL": "`>=`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "COMMA": "`,`",
    "DOT": "`.`",
    "COLON": "`:`",
    "SEMICOLON": "`;`",
    "DCS": "DCs",
    "$END": "the end of the statement",
}
_COMPARISONS = {"EQUAL", "NOT_EQUAL", "LESS", "LESS_OR_EQUAL", "MORE", "MORE_OR_EQUAL"}
_CONSTANTS = {"NUMBER", "STRING", "BLOB", "UUID", "TRUE", "FALSE", "NULL", "MINUS"}
# What is named first in a list of expectations; the rest follows in alphabetical order.
_FIRST = ["a column", "a function", "a name", "a literal", "a comparison (= != < <= > >=)"]
_LAST = ["`,`", "`)`", "`;`", "the end of the statement"]


def complaint(text: str, at: int | None, message: str) -> InvalidStatement:
    """The error for a place in a statement, or without one when the place is not known."""
    if at is None:
        return InvalidStatement(message)
    at = min(at, len(text))
    start = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line = text[start : len(text) if end < 0 else end].rstrip()
    column = at - start
    first = max(0, column - _SHOWN_CHARS)
    before, after = line[first:column], line[column : column + _SHOWN_CHARS]
    lead = "…" if first else ""
    tail = "…" if len(line) > column + _SHOWN_CHARS else ""
    shown = lead + _printable(before) + _printable(after) + tail
    caret = " " * (len(lead) + _width(before) + max(0, column - max(first, len(line)))) + "^"
    number = text.count("\n", 0, at) + 1
    return InvalidStatement(f"{message}\n  {shown}\n  {caret}", line=number, column=column + 1)


def syntax_complaint(parser: Lark, text: str, start: str, error: UnexpectedInput) -> InvalidStatement:
    """The error for a text that the grammar refuses."""
    if isinstance(error, UnexpectedCharacters):
        # Lark's own annotation says that it is always None.
        at: Any = error.pos_in_stream
        return complaint(text, at, _stray(text, at))
    if not isinstance(error, UnexpectedToken):
        return complaint(text, len(text), "the statement ends too early")
    token = error.token
    at_end = token.type == "$END"
    place = len(text.rstrip()) if at_end else token.start_pos
    is_word = token[:1].isalnum() or token[:1] in ("'", '"')
    found = "the end of the statement" if at_end else _clip(str(token)) if is_word else f"`{token}`"
    accepts = {str(terminal) for terminal in error.accepts or ()}
    if "NAME" in accepts and token.lower() in RESERVED:
        hint = "; a keyword can be a name only in double quotes"
    else:
        hint = _keyword_hint(str(token), accepts) if token[:1].isalpha() else ""
        hint = hint or _previous_hint(parser, text, start, token)
    return complaint(text, place, f"expected {_expectation(accepts)}, found {found}{hint}")


def _previous_hint(parser: Lark, text: str, start: str, failed: Token) -> str:
    """A mistyped keyword may have passed for a name; then it is the token before the refused one."""
    end = len(text) if failed.type == "$END" else failed.start_pos or 0
    # What stands behind the refused token may not even be tokens.
    tokens = list(takewhile(lambda token: (token.start_pos or 0) < end, parser.lex(text)))
    if not tokens or tokens[-1].type not in ("NAME", "CDC_LOG"):
        return ""
    interactive = parser.parse_interactive("", start=start)
    for token in tokens[:-1]:
        interactive.feed_token(token)
    accepts = {str(terminal) for terminal in interactive.accepts()}  # type: ignore[no-untyped-call]
    if len(tokens) > 1 and tokens[-2].type == "WITH" and "CLUSTERING" in accepts:
        # Where an option is wanted, CDC_LOG could only be an option's name; the likely wish is CDC LOG.
        accepts = (accepts - {"CDC_LOG"}) | {"CDC LOG"}
    if str(tokens[-1]).upper() in accepts and tokens[-1].type == "NAME":
        return ""
    return _keyword_hint(str(tokens[-1]), accepts, cutoff=0.75)


def _keyword_hint(word: str, accepts: set[str], cutoff: float = 0.6) -> str:
    known = [_WORDS.get(name, name) for name in accepts if name == "DCS" or name not in _WORDS]
    return did_you_mean(word, [name for name in known if name.casefold() != word.casefold()], cutoff)


def _expectation(accepts: set[str]) -> str:
    words = set(accepts)
    if "NAME" in words:
        # Words that could stand here only because they are allowed as names need no mention.
        words -= {"QUOTED_NAME", "CDC_LOG", "LOG", "DCS", "EXISTS", "KEY", "STATIC", "ORDER", "BY", "ASC", "DESC"}
        words -= {"STORAGE", "CDC", "CLUSTERING", "COMPACT"}
    shown: set[str] = set()
    if words >= _CONSTANTS:
        words -= _CONSTANTS
        shown.add("a literal")
        if "NAME" in words:
            words -= {"NAME"}
            words.discard("LPAR")
            shown |= {"a column", "a function"}
    if words >= _COMPARISONS:
        words -= _COMPARISONS
        shown.add("a comparison (= != < <= > >=)")
    shown |= {_WORDS.get(word, word) for word in words}
    return _listed(sorted(shown, key=_rank))


def _rank(word: str) -> tuple[int, int, str]:
    if word in _FIRST:
        return 0, _FIRST.index(word), word
    if word in _LAST:
        return 2, _LAST.index(word), word
    return 1, 0, word


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _stray(text: str, at: int) -> str:
    match text[at : at + 2]:
        case quote if quote.startswith("'"):
            return "the string that begins here has no closing '"
        case quote if quote.startswith('"'):
            return 'the name that begins here has no closing "'
        case "/*":
            return "the comment that begins here has no closing */"
        case two:
            return f"the character {_clip(two[:1])!r} has no meaning here"


def _clip(text: str) -> str:
    text = _printable(text)
    return text if len(text) <= _FOUND_CHARS_MAX else text[: _FOUND_CHARS_MAX - 1] + "…"


def _printable(text: str) -> str:
    """Tabs and control characters as blanks, so that the caret stands under its place."""
    return "".join(char if char.isprintable() else " " for char in text)


def _width(text: str) -> int:
    """Columns that the text takes in a terminal."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
