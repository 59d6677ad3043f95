"""Statements: the texts that people write to make and remove change logs, parsed.

The grammar is in grammar.lark; docs/reference/statements.md explains it. Parsing is pure: nothing here knows which
tables or functions exist. Every refusal is an InvalidStatement that shows the place.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, VisitError

from penstock.control.build import Builder
from penstock.control.complaint import complaint, syntax_complaint
from penstock.errors import InvalidStatement
from penstock.model.predicate import RESERVED, Predicate
from penstock.model.statement import CreateLog, CreateTable, DropLog, Statement

# Longer texts are mistakes or attacks; the longest useful statement is a wide table.
STATEMENT_CHARS_MAX = 256 * 1024
# How deep conditions and types may nest.
DEPTH_MAX = 100

_UNRESERVED = {
    *("ASC", "BY", "CDC", "CDC_LOG", "CLUSTERING", "COMPACT", "DCS", "DESC", "EXISTS", "KEY", "LOG", "ORDER"),
    *("STATIC", "STORAGE"),
}
KEYWORDS = frozenset(_UNRESERVED | {word.upper() for word in RESERVED})


def parse(text: str) -> Statement:
    """One statement, with or without a semicolon at its end."""
    result = _parse(text, "statement")
    assert isinstance(result, CreateLog | DropLog | CreateTable)
    return result


def parse_predicate(text: str) -> Predicate:
    """What stands after WHERE; the inverse of a predicate's `str`."""
    result = _parse(text, "predicate")
    assert not isinstance(result, CreateLog | DropLog | CreateTable)
    return result


def _parse(text: str, start: str) -> Statement | Predicate:
    if len(text) > STATEMENT_CHARS_MAX:
        raise InvalidStatement(f"the statement has {len(text)} characters; at most {STATEMENT_CHARS_MAX} are read")
    if "\0" in text:
        raise complaint(text, text.index("\0"), "a statement cannot hold the character NUL")
    if not text.strip():
        raise InvalidStatement("the statement is empty")
    parser = _parser()
    try:
        tree = parser.parse(text, start=start)
    except UnexpectedInput as error:
        raise syntax_complaint(parser, text, start, error) from None
    _check_depth(text, tree)
    try:
        result: Statement | Predicate = Builder(text).transform(tree)
    except VisitError as error:
        if isinstance(error.orig_exc, InvalidStatement):
            raise error.orig_exc from None
        raise
    return result


@cache
def _parser() -> Lark:
    grammar = resources.files("penstock.control").joinpath("grammar.lark").read_text(encoding="utf-8")
    # The basic lexer reads the same tokens everywhere, so an error always comes from the parser, which knows what
    # could have stood there.
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        start=["statement", "predicate"],
        propagate_positions=True,
        maybe_placeholders=True,
        lexer_callbacks={"NAME": _keyword},
    )


def _keyword(token: Token) -> Token:
    word = token.upper()
    if word in KEYWORDS:
        token.type = word
    return token


def _check_depth(text: str, tree: Tree[Token]) -> None:
    """Later passes recurse over what was parsed; without a bound a text of brackets could exhaust the stack."""
    level: list[Tree[Token]] = [tree]
    depth = 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise complaint(text, level[0].meta.start_pos, f"conditions or types nest deeper than {DEPTH_MAX}")
        level = [child for node in level for child in node.children if isinstance(child, Tree)]
