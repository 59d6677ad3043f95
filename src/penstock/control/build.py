"""Builder: from the grammar's tree to statements and predicates.

Here stand the rules that a grammar cannot say: which columns a primary key may name, what fits into a type, what may
be compared. Each method has the name of a grammar rule.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from lark import Token
from lark.visitors import Transformer_NonRecursive

from penstock.control.complaint import complaint
from penstock.control.cql_types import ELSEWHERE, Misfit, TypeTerm, Word, resolve
from penstock.errors import InvalidStatement
from penstock.model import predicate as p
from penstock.model.cql_types import COMPOSITE, NATIVE
from penstock.model.schema import Column, Role
from penstock.model.spelling import did_you_mean
from penstock.model.statement import CreateLog, CreateTable, DropLog, Statement, TableName

# Exact numbers of this size cover every column type; larger ones would only burn time.
_DIGITS_MAX = 1000
_EXPONENT_MAX = 10_000

Children = list[Any]


class _Flag(NamedTuple):
    """A part of a statement that is there or not: `if_not_exists`, `static` and so on."""

    name: str


@dataclass(frozen=True, slots=True)
class _Definition:
    name: Word
    term: TypeTerm
    static: bool
    key: bool


@dataclass(frozen=True, slots=True)
class _PrimaryKey:
    at: int
    partition: tuple[Word, ...]
    clustering: tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class _Options:
    cdc: bool = False
    order: tuple[tuple[Word, bool], ...] = ()
    notes: tuple[str, ...] = ()


class Builder(Transformer_NonRecursive[Token, Any]):
    """Builds one statement's parts from the leaves up."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def _error(self, at: int | None, message: str) -> InvalidStatement:
        return complaint(self._text, at, message)

    # Names and constants.

    def name(self, children: Children) -> Word:
        token: Token = children[0]
        at = token.start_pos or 0
        if token.type != "QUOTED_NAME":
            return Word(token.lower(), at)
        text = token[1:-1].replace('""', '"')
        if not text:
            raise self._error(at, "a name cannot be empty")
        return Word(text, at)

    def table_name(self, children: Children) -> TableName:
        first, second = children
        return TableName(None, first.text) if second is None else TableName(first.text, second.text)

    def number(self, children: Children) -> p.Literal:
        minus, token = children
        at = (minus or token).start_pos
        mantissa, _, exponent = token.lower().partition("e")
        if len(mantissa) > _DIGITS_MAX or len(exponent) > 8 or abs(int(exponent or 0)) > _EXPONENT_MAX:
            raise self._error(at, f"numbers have at most {_DIGITS_MAX} digits and exponents up to {_EXPONENT_MAX}")
        if token.isdigit():
            return p.Literal(-int(token) if minus else int(token), at)
        value = Decimal(token)
        # Python's own minus would round to the context's precision and lose the sign of zero.
        return p.Literal(value.copy_negate() if minus else value, at)

    def string(self, children: Children) -> p.Literal:
        token: Token = children[0]
        return p.Literal(token[1:-1].replace("''", "'"), token.start_pos)

    def blob(self, children: Children) -> p.Literal:
        token: Token = children[0]
        if not re.fullmatch(r"0[xX]([0-9a-fA-F]{2})*", token):
            raise self._error(token.start_pos, "a blob is 0x and an even number of hexadecimal digits")
        return p.Literal(bytes.fromhex(token[2:]), token.start_pos)

    def uuid(self, children: Children) -> p.Literal:
        return p.Literal(UUID(children[0]), children[0].start_pos)

    def true(self, children: Children) -> p.Literal:
        return p.Literal(True, children[0].start_pos)

    def false(self, children: Children) -> p.Literal:
        return p.Literal(False, children[0].start_pos)

    def null(self, children: Children) -> p.Literal:
        return p.Literal(None, children[0].start_pos)

    # Conditions.

    def column(self, children: Children) -> p.ColumnRef:
        return p.ColumnRef(children[0].text, children[0].at)

    def call(self, children: Children) -> p.Call:
        word, *operands = children
        arguments = tuple(self._value(operand, word.at, "an argument") for operand in operands if operand is not None)
        return p.Call(word.text, arguments, word.at)

    def operator(self, children: Children) -> tuple[p.Operator, int]:
        sign: Token = children[0]
        return p.Operator("!=" if sign == "<>" else str(sign)), sign.start_pos or 0

    def compare(self, children: Children) -> p.Compare:
        left, (operator, at), right = children
        return p.Compare(self._value(left, at, "each side"), operator, self._value(right, at, "each side"))

    def in_(self, children: Children) -> p.In:
        at = next(child.start_pos or 0 for child in children if isinstance(child, Token))
        value, *choices = (self._value(child, at, "each operand") for child in children if not isinstance(child, Token))
        return p.In(value, tuple(choices))

    def not_in(self, children: Children) -> p.Not:
        return p.Not(self.in_(children))

    def is_null(self, children: Children) -> p.IsNull:
        return p.IsNull(self._value(children[0], children[1].start_pos, "what is tested"))

    def is_not_null(self, children: Children) -> p.Not:
        return p.Not(self.is_null(children))

    def not_(self, children: Children) -> p.Not:
        return p.Not(self._condition(children[1]))

    def and_(self, children: Children) -> p.And:
        return p.And(tuple(self._condition(child) for child in children if not isinstance(child, Token)))

    def or_(self, children: Children) -> p.Or:
        return p.Or(tuple(self._condition(child) for child in children if not isinstance(child, Token)))

    def predicate(self, children: Children) -> p.Predicate:
        return self._condition(children[0])

    def where(self, children: Children) -> p.Predicate:
        return self._condition(children[1])

    def _value(self, node: p.Value | p.Predicate, at: int, what: str) -> p.Value:
        if isinstance(node, p.ColumnRef | p.Literal | p.Call):
            return node
        raise self._error(at, f"{what} must be a column, a function or a literal, not a condition in parentheses")

    def _condition(self, node: p.Value | p.Predicate) -> p.Predicate:
        if not isinstance(node, p.ColumnRef | p.Literal | p.Call):
            return node
        if isinstance(node, p.Literal) and not isinstance(node.value, bool):
            raise self._error(node.at, "a literal alone is no condition: compare it with something")
        return p.Truth(node)

    # CREATE CDC_LOG and DROP CDC_LOG.

    def if_not_exists(self, _children: Children) -> _Flag:
        return _Flag("if_not_exists")

    def if_exists(self, _children: Children) -> _Flag:
        return _Flag("if_exists")

    def data_centres(self, children: Children) -> frozenset[str]:
        literals = children[1:]
        for literal in literals:
            if not literal.value:
                raise self._error(literal.at, "a data centre's name cannot be empty")
        return frozenset(literal.value for literal in literals)

    def create_log(self, children: Children) -> CreateLog:
        _, _, first, word, _, table, where, _, data_centres, second = children
        return CreateLog(word.text, table, where, data_centres or frozenset(), first is not None or second is not None)

    def drop_log(self, children: Children) -> DropLog:
        _, _, if_exists, word, _, table = children
        return DropLog(word.text, table, if_exists is not None)

    # CREATE TABLE.

    def static(self, _children: Children) -> _Flag:
        return _Flag("static")

    def inline_key(self, _children: Children) -> _Flag:
        return _Flag("inline_key")

    def type(self, children: Children) -> TypeTerm:
        word, *arguments = children
        types = tuple(argument for argument in arguments if isinstance(argument, TypeTerm))
        numbers = [argument for argument in arguments if isinstance(argument, p.Literal)]
        if not numbers:
            return TypeTerm(word, types)
        number = numbers[0]
        if len(numbers) > 1 or arguments[-1] is not number or type(number.value) is not int or number.value < 1:
            raise self._error(number.at, "the one number of a type is a vector's length, a whole number above 0")
        return TypeTerm(word, types, number.value)

    def user_type(self, children: Children) -> TypeTerm:
        return TypeTerm(Word(f"{children[0].text}.{children[1].text}", children[0].at))

    def class_type(self, children: Children) -> TypeTerm:
        raise self._error(children[0].at, "types given as a Java class are not known here")

    def column_definition(self, children: Children) -> _Definition:
        name, term, static, key = children
        return _Definition(name, term, static is not None, key is not None)

    def partition_key(self, children: Children) -> tuple[Word, ...]:
        return tuple(children)

    def primary_key(self, children: Children) -> _PrimaryKey:
        primary, _, partition, *clustering = children
        return _PrimaryKey(primary.start_pos, partition, tuple(clustering))

    def cdc_log(self, _children: Children) -> _Options:
        return _Options(cdc=True)

    def compact_storage(self, _children: Children) -> _Options:
        return _Options(notes=("COMPACT STORAGE has no effect here",))

    def ordering(self, children: Children) -> tuple[Word, bool]:
        word, direction = children
        return word, direction is not None and direction.type == "DESC"

    def clustering_order(self, children: Children) -> _Options:
        return _Options(order=tuple(child for child in children if not isinstance(child, Token)))

    def option_value(self, children: Children) -> Any:
        return children[0]

    def option_name(self, children: Children) -> Word:
        word: Word = children[0]
        return word

    def option_map(self, children: Children) -> dict[Any, Any]:
        return dict(child for child in children if child is not None)

    def option_entry(self, children: Children) -> tuple[Any, Any]:
        key, *value = children
        return key.value, value[0] if value else None

    def other_option(self, children: Children) -> _Options:
        word, value = children
        if word.text != "cdc":
            return _Options(notes=(f"option {word.text} has no effect here",))
        if isinstance(value, dict):
            value = value.get("enabled", p.Literal(True))
        enabled = value.value if isinstance(value, p.Literal) else None
        if isinstance(enabled, str) and enabled.lower() in ("true", "false"):
            enabled = enabled.lower() == "true"
        if not isinstance(enabled, bool):
            hint = did_you_mean(value.text, ["true", "false"]) if isinstance(value, Word) else ""
            raise self._error(getattr(value, "at", word.at), f"cdc takes true or false{hint}")
        return _Options(cdc=enabled)

    def table_options(self, children: Children) -> _Options:
        options = [child for child in children if isinstance(child, _Options)]
        orders = [option.order for option in options if option.order]
        if len(orders) > 1:
            raise self._error(orders[1][0][0].at, "CLUSTERING ORDER is given twice")
        return _Options(
            cdc=any(option.cdc for option in options),
            order=orders[0] if orders else (),
            notes=tuple(note for option in options for note in option.notes),
        )

    def create_table(self, children: Children) -> CreateTable:
        _, _, if_not_exists, table, *definitions, options = children
        options = options or _Options()
        columns = self._columns(definitions, options)
        return CreateTable(table, columns, options.cdc, if_not_exists is not None, options.notes)

    def statement(self, children: Children) -> Statement:
        result: Statement = children[0]
        return result

    def _columns(self, parts: list[_Definition | _PrimaryKey], options: _Options) -> tuple[Column, ...]:
        definitions: dict[str, _Definition] = {}
        keys = [part for part in parts if isinstance(part, _PrimaryKey)]
        for part in parts:
            if isinstance(part, _PrimaryKey):
                continue
            if part.name.text in definitions:
                raise self._error(part.name.at, f"column {part.name.text} is defined twice")
            definitions[part.name.text] = part
            if part.key:
                keys.append(_PrimaryKey(part.name.at, (part.name,), ()))
        if not keys:
            raise self._error(len(self._text.rstrip()), "the table has no PRIMARY KEY")
        if len(keys) > 1:
            raise self._error(max(key.at for key in keys), "the table has two primary keys")
        key = keys[0]
        roles = self._roles(key, definitions)
        descending = self._descending(key, options)
        order = [word.text for word in key.partition + key.clustering]
        order += [name for name in definitions if name not in roles]
        return tuple(self._column(definitions[name], roles.get(name), name in descending) for name in order)

    def _roles(self, key: _PrimaryKey, definitions: dict[str, _Definition]) -> dict[str, Role]:
        roles: dict[str, Role] = {}
        for words, role in ((key.partition, Role.PARTITION), (key.clustering, Role.CLUSTERING)):
            for word in words:
                if word.text not in definitions:
                    hint = did_you_mean(word.text, definitions)
                    raise self._error(word.at, f"the primary key names column {word.text}, which is not defined{hint}")
                if word.text in roles:
                    raise self._error(word.at, f"the primary key names column {word.text} twice")
                if definitions[word.text].static:
                    raise self._error(word.at, f"static column {word.text} cannot be part of the primary key")
                roles[word.text] = role
        if not key.clustering:
            for definition in definitions.values():
                if definition.static:
                    raise self._error(definition.name.at, "a static column needs a table with clustering columns")
        return roles

    def _descending(self, key: _PrimaryKey, options: _Options) -> set[str]:
        clustering = [word.text for word in key.clustering]
        for index, (word, _) in enumerate(options.order):
            if index >= len(clustering) or clustering[index] != word.text:
                wanted = ", ".join(clustering) or "none"
                raise self._error(word.at, f"CLUSTERING ORDER names the clustering columns in key order: {wanted}")
        return {word.text for word, down in options.order if down}

    def _column(self, definition: _Definition, role: Role | None, descending: bool) -> Column:
        try:
            kind = resolve(definition.term)
        except Misfit as misfit:
            raise self._error(misfit.word.at, misfit.message + _nearest_type(misfit.word.text)) from None
        name = definition.name.text
        if role is not None and kind.multi_cell:
            raise self._error(definition.term.word.at, f"key column {name} must be frozen: frozen<{definition.term}>")
        if role is not None and definition.term.word.text in ("counter", "duration"):
            raise self._error(definition.term.word.at, f"key column {name} cannot be a {definition.term}")
        chosen = role or (Role.STATIC if definition.static else Role.REGULAR)
        return Column(name, kind, chosen, descending, str(definition.term))


def _nearest_type(name: str) -> str:
    if name in NATIVE or name in COMPOSITE:
        return ""
    if name in ELSEWHERE:
        return f"; did you mean {ELSEWHERE[name]}?"
    return did_you_mean(name, [*NATIVE, *COMPOSITE], 0.66)
