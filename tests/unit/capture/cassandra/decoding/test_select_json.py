"""Values as `SELECT JSON` writes them: each pair was given to and read back from a Cassandra 5.0 (4.1 agrees)."""

from __future__ import annotations

import json
import math
import struct
import uuid
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.capture.cassandra.decoding.select_json import as_of_3_11, value_text
from penstock.capture.cassandra.schema.cql_types import UserTypes, parse
from penstock.model.types import Duration

USER_TYPES = UserTypes(
    {
        "inner_t": (("x", "m"), ("int", "map<text, frozen<list<int>>>")),
        "Odd Name": (("F", "g", "t"), ("text", "frozen<inner_t>", "frozen<tuple<int, text>>")),
        "plain": (("a", "bb", "c"), ("int", "text", "frozen<inner_t>")),
    }
)
NAN, INFINITY = float("nan"), float("inf")


def float32(value: float) -> float:
    return float(struct.unpack(">f", struct.pack(">f", value))[0])


def rendered(cql_type: str, value: Any) -> str:
    return value_text(parse(cql_type, USER_TYPES), value)


@pytest.mark.parametrize(
    ("value", "as_float", "as_double"),
    [
        (0.1, "0.1", "0.1"),
        (1.1, "1.1", "1.1"),
        (3.4028235e38, "3.4028235E38", "3.4028235E38"),
        (1.4e-45, "1.4E-45", "1.4E-45"),
        (1e7, "1.0E7", "1.0E7"),
        (12345678.9, "1.2345679E7", "1.23456789E7"),
        (1234567.0, "1234567.0", "1234567.0"),
        (9999999.0, "9999999.0", "9999999.0"),
        (0.001, "0.001", "0.001"),
        (0.0001, "1.0E-4", "1.0E-4"),
        (100.0, "100.0", "100.0"),
        (16777216.0, "1.6777216E7", "1.6777216E7"),
        (1e10, "1.0E10", "1.0E10"),
        (0.0, "0.0", "0.0"),
        (-0.0, "-0.0", "-0.0"),
        (9.8765e-4, "9.8765E-4", "9.8765E-4"),
        (0.002, "0.002", "0.002"),
        (123456.789, "123456.79", "123456.789"),
        (-1.5e300, "null", "-1.5E300"),
        (NAN, "null", "null"),
        (INFINITY, "null", "null"),
        (-INFINITY, "null", "null"),
    ],
)
def test_floats_are_spelled_as_java_does(value: float, as_float: str, as_double: str) -> None:
    if abs(value) < 1e39 or not math.isfinite(value):
        assert rendered("float", float32(value)) == as_float
    assert rendered("double", value) == as_double


def test_the_smallest_double_has_two_digits() -> None:
    assert rendered("double", 5e-324) == "4.9E-324"


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_float_reads_back_as_the_same_float(value: float) -> None:
    assert float32(float(rendered("float", value))) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_reads_back_as_the_same_double(value: float) -> None:
    assert float(rendered("double", value)) == value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", "0"),
        ("1E+3", "1E+3"),
        ("1.10", "1.10"),
        ("0.000000123", "1.23E-7"),
        ("-1.5E-20", "-1.5E-20"),
        ("123456789012345678901234567890.123", "123456789012345678901234567890.123"),
        ("1E-400", "1E-400"),
        ("100E5", "1.00E+7"),
    ],
)
def test_decimals_are_numbers_with_all_their_digits(text: str, wanted: str) -> None:
    assert rendered("decimal", Decimal(text)) == wanted


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        (IPv4Address("1.2.3.4"), "1.2.3.4"),
        (IPv6Address("::1"), "0:0:0:0:0:0:0:1"),
        (IPv6Address("2001:db8::1"), "2001:db8:0:0:0:0:0:1"),
        (IPv6Address("::ffff:1.2.3.4"), "1.2.3.4"),
        (IPv6Address("fe80::1:0:0:2"), "fe80:0:0:0:1:0:0:2"),
    ],
)
def test_addresses_have_all_their_groups(address: IPv4Address | IPv6Address, wanted: str) -> None:
    assert rendered("inet", address) == f'"{wanted}"'


@pytest.mark.parametrize(
    ("ms", "wanted"),
    [
        (1700000000000, "2023-11-14 22:13:20.000Z"),
        (0, "1970-01-01 00:00:00.000Z"),
        (-1, "1969-12-31 23:59:59.999Z"),
        (-62135596800000, "0001-01-01 00:00:00.000Z"),
        (-62135596800001, "0001-12-31 23:59:59.999Z"),
        (-62167219200000, "0001-01-01 00:00:00.000Z"),
        (-99999999999999, "1200-02-15 14:13:20.001Z"),
        (253402300799999, "9999-12-31 23:59:59.999Z"),
        (253402300800000, "+10000-01-01 00:00:00.000Z"),
        (8640000000000000, "+275760-09-13 00:00:00.000Z"),
        (-12219292800001, "1582-10-14 23:59:59.999Z"),
        (9223372036854775807, "+292278994-08-17 07:12:55.807Z"),
        (-9223372036854775808, "+292275056-05-16 16:47:04.192Z"),
    ],
)
def test_timestamps_reach_the_ends_of_time(ms: int, wanted: str) -> None:
    assert rendered("timestamp", ms) == f'"{wanted}"'


@pytest.mark.parametrize(
    ("days", "wanted"),
    [
        (19675, "2023-11-14"),
        (0, "1970-01-01"),
        (-1, "1969-12-31"),
        (-(2**31), "-5877641-06-23"),
        (2**31 - 1, "+5881580-07-11"),
        (1428000000 - 2**31, "-1967910-09-05"),
        (2150402547 - 2**31, "9961-09-04"),
    ],
)
def test_dates_reach_the_ends_of_time(days: int, wanted: str) -> None:
    assert rendered("date", days) == f'"{wanted}"'


@pytest.mark.parametrize(
    ("ns", "wanted"),
    [
        (0, "00:00:00.000000000"),
        (1, "00:00:00.000000001"),
        (86399999999999, "23:59:59.999999999"),
        (45296500000000, "12:34:56.500000000"),
    ],
)
def test_times_have_nine_digits(ns: int, wanted: str) -> None:
    assert rendered("time", ns) == f'"{wanted}"'


HOUR = 3_600_000_000_000


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Duration(14, 3, 4 * HOUR + 5 * 60_000_000_000 + 6_007_008_009), "1y2mo3d4h5m6s7ms8us9ns"),
        (Duration(-14, 0, 0), "-1y2mo"),
        (Duration(0, 1, 0), "1d"),
        (Duration(0, 0, 0), ""),
        (Duration(0, 0, 1000 * HOUR), "1000h"),
        (Duration(0, 0, -1), "-1ns"),
        (Duration(13, 40, 0), "1y1mo40d"),
        (Duration(0, 0, 5_400_000_000_000), "1h30m"),
        (Duration(2147483647, 0, 0), "178956970y7mo"),
    ],
)
def test_durations_have_their_three_parts(value: Duration, wanted: str) -> None:
    assert rendered("duration", value) == f'"{wanted}"'


@pytest.mark.parametrize(
    ("cql_type", "value", "wanted"),
    [
        ("text", 'a"b\\c/é€😀\n\t\x01\x1f\x7f', '"a\\"b\\\\c/é€😀\\n\\t\\u0001\\u001F\x7f"'),
        ("text", "\\u00ab", '"\\\\u00ab"'),
        ("ascii", "x", '"x"'),
        ("blob", b"\x00\xff", '"0x00ff"'),
        ("blob", b"", '"0x"'),
        ("boolean", True, "true"),
        ("boolean", False, "false"),
        ("bigint", -(2**63), "-9223372036854775808"),
        ("varint", 123456789012345678901234567890, "123456789012345678901234567890"),
        ("int", None, "null"),
        ("map<int, text>", ((-2, "y"), (1, "x")), '{"-2": "y", "1": "x"}'),
        ("map<blob, int>", ((b"", 1), (b"\xff", 2)), '{"0x": 1, "0xff": 2}'),
        ("map<frozen<list<int>>, int>", (((), 4), ((1, 2), 3)), '{"[]": 4, "[1, 2]": 3}'),
        (
            "map<frozen<map<text, int>>, int>",
            (((('a"b', 1), ("é", 2)), 3),),
            '{"{\\"a\\\\\\"b\\": 1, \\"é\\": 2}": 3}',
        ),
        ("map<boolean, int>", ((True, 1),), '{"true": 1}'),
        ("map<float, int>", ((float32(0.1), 3), (1.5, 1), (NAN, 2)), '{"0.1": 3, "1.5": 1, "null": 2}'),
        ("map<decimal, int>", ((Decimal("1.50"), 1), (Decimal("1E+3"), 2)), '{"1.50": 1, "1E+3": 2}'),
        ("map<timestamp, text>", ((0, "x"),), '{"1970-01-01 00:00:00.000Z": "x"}'),
        (
            'frozen<"Odd Name">',
            ("x", (1, (("a", (1, 2)),)), (1, "z")),
            '{"\\"F\\"": "x", "g": {"x": 1, "m": {"a": [1, 2]}}, "t": [1, "z"]}',
        ),
        ('frozen<"Odd Name">', (None, None, None), '{"\\"F\\"": null, "g": null, "t": null}'),
        ("frozen<plain>", (1,), '{"a": 1, "bb": null, "c": null}'),
        ("tuple<int, text, frozen<list<double>>>", (1, None, (1.5, NAN)), "[1, null, [1.5, null]]"),
        ("map<frozen<tuple<int, text>>, int>", (((1, "a"), 2),), '{"[1, \\"a\\"]": 2}'),
        (
            'map<frozen<"Odd Name">, int>',
            ((("q", None, None), 1),),
            '{"{\\"\\\\\\"F\\\\\\"\\": \\"q\\", \\"g\\": null, \\"t\\": null}": 1}',
        ),
        ("set<inet>", (IPv4Address("1.2.3.4"),), '["1.2.3.4"]'),
        ("vector<float, 3>", (1.0, float32(0.1), NAN), "[1.0, 0.1, null]"),
        ("vector<text, 2>", ("a", "b"), '["a", "b"]'),
        (
            "uuid",
            uuid.UUID("123e4567-e89b-12d3-a456-426614174000"),
            '"123e4567-e89b-12d3-a456-426614174000"',
        ),
        ("counter", 5, "5"),
        ("'org.example.Unknown'", b"\x01", '"0x01"'),
    ],
)
def test_values_of_other_types(cql_type: str, value: Any, wanted: str) -> None:
    assert rendered(cql_type, value) == wanted
    json.loads(wanted, parse_int=str)


def test_a_varint_longer_than_python_prints_is_a_number_all_the_same() -> None:
    assert rendered("varint", -(10**5000)) == "-1" + "0" * 5000


@pytest.mark.parametrize(
    ("ms", "wanted"),
    [
        (1700000000000, "2023-11-14 22:13:20.000Z"),
        (-12219292800000, "1582-10-15 00:00:00.000Z"),
        (-12219292800001, "1582-10-04 23:59:59.999Z"),
        # As a Cassandra 3.11 has it.
        (-62135596800000, "0001-01-03 00:00:00.000Z"),
        (-62135596800000 - 3 * 86_400_000, "0001-12-31 00:00:00.000Z"),
        (253402300800000, "10000-01-01 00:00:00.000Z"),
        # The leap day of a year that has none in the Gregorian calendar.
        (-27448934400000, "1100-02-29 00:00:00.000Z"),
    ],
)
def test_timestamps_of_3_11_are_of_the_calendar_of_their_time(ms: int, wanted: str) -> None:
    assert value_text(as_of_3_11(parse("timestamp")), ms) == f'"{wanted}"'
    assert value_text(as_of_3_11(parse("map<timestamp, int>")), ((ms, 1),)) == f'{{"{wanted}": 1}}'
