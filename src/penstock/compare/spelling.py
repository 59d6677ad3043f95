"""Spellings: clustering values that are written in different ways and are one row all the same.

Cassandra orders rows of a partition by their types' comparators, to which 1.0 is 1.00, and shows the spelling that it
met first; after flushes and on other replicas that may be another one than a target was given. Partition keys go by
their bytes. So the clustering columns of such types are compared by value: here each value gets one spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from functools import partial
from typing import Any

from penstock.merge.cql_value import one_spelling
from penstock.model.schema import TableSchema
from penstock.model.types import Kind, Type

# Beyond this many digits after or before the point a number is shown with an exponent.
_PLACES_MAX = 40


# Gives the one spelling of a value.
Spelling = Callable[[Any], Any]


def spelled_columns(schema: TableSchema) -> Mapping[str, Spelling]:
    """The clustering columns in which equal values can be written in several ways."""
    spelled = [column for column in schema.clustering if not one_spelling(column.type)]
    return {column.name: partial(spelling, column.type) for column in spelled}


def spelling(kind: Type, value: Any) -> Any:
    """One spelling of a value as targets show it: decimals are text, and fields of tuples and user types have names."""
    if value is None:
        return None
    of = kind.kind
    if of is Kind.DECIMAL:
        return _decimal(value)
    if of is Kind.MAP:
        pairs = value.items() if isinstance(value, dict) else value
        return [[spelling(type_, one) for type_, one in zip(kind.elements, pair, strict=True)] for pair in pairs]
    if isinstance(value, dict):
        fields = zip(kind.elements, value.items(), strict=False)
        return {name: spelling(element, one) for element, (name, one) in fields}
    if isinstance(value, list) and kind.elements:
        several = of in (Kind.TUPLE, Kind.USER)
        kinds = kind.elements if several else kind.elements * len(value)
        return [spelling(element, one) for element, one in zip(kinds, value, strict=False)]
    return value


def _decimal(value: Any) -> Any:
    try:
        exact = Decimal(str(value))
        digits = exact.as_tuple().digits
        least = exact.normalize(Context(prec=len(digits) + 1, Emax=MAX_EMAX, Emin=MIN_EMIN))
    except InvalidOperation:
        # A target may hold what is no number; it is equal to itself only.
        return value
    if not least:
        return "0"
    return format(least, "f") if abs(least.adjusted()) < _PLACES_MAX and len(digits) < _PLACES_MAX else str(least)
