"""Options of the source: what they become, and what is refused before anything is read."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidSetting
from penstock.model.schema import TableId
from penstock.pipeline.source.options import parse
from penstock.settings.choices import OnLoss

LEAST = {"path": "/logs", "table": "shop.orders"}


def test_names_are_taken_in_any_case_and_in_both_styles() -> None:
    options = parse({**LEAST, "MAXROWSPERTRIGGER": "5", "max_bytes_per_trigger": "64m", "onLoss": "Skip"})
    assert (options.max_rows_per_trigger, options.max_bytes_per_trigger) == (5, 64 << 20)
    assert options.on_loss is OnLoss.SKIP
    assert options.table == TableId("shop", "orders")


def test_several_directories_have_commas_between_them_or_are_a_json_list() -> None:
    assert parse({**LEAST, "path": "/a, /b"}).path == ("/a", "/b")
    assert parse({**LEAST, "path": '["/a,b", "/c"]'}).path == ("/a,b", "/c")


def test_a_limit_of_zero_is_no_limit() -> None:
    assert parse({**LEAST, "maxBytesPerTrigger": "0"}).max_bytes_per_trigger is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("earliest", "earliest"),
        ("LATEST", "latest"),
        ("1700000000000000", 1_700_000_000_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00.000001+01:00", 1),
        ("1969-12-31", -86_400_000_000),
    ],
)
def test_the_start_is_a_word_or_a_time(text: str, wanted: str | int) -> None:
    assert parse({**LEAST, "starting": text}).starting == wanted


def test_tables_are_chosen_by_patterns() -> None:
    options = parse({"path": "/logs", "shape": "runs", "include": "shop.*,bank.a?", "exclude": "shop.tmp_*"})
    names = ["shop.orders", "shop.tmp_1", "bank.ab", "bank.abc", "shop2.x"]
    assert [name for name in names if options.wants(TableId(*name.split(".")))] == ["shop.orders", "bank.ab"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs option path"),
        ({"path": "/logs"}, "needs option table"),
        ({**LEAST, "table": "orders"}, "keyspace.table"),
        ({**LEAST, "maxRowsPerTriger": "5"}, "no option 'maxRowsPerTriger'"),
        ({**LEAST, "maxRowsPerTrigger": "-1"}, "a whole number"),
        ({**LEAST, "maxBytesPerTrigger": "much"}, "a number of bytes"),
        ({**LEAST, "partitionBytes": "1"}, "at least 64k"),
        ({**LEAST, "shape": "wide"}, "one of runs, flat"),
        ({**LEAST, "starting": "soon"}, "a time as"),
        ({**LEAST, "starting": "committed"}, "needs option subscription"),
        ({**LEAST, "retention": '{"bytes": 1}'}, "a JSON object with bytes_max"),
        ({**LEAST, "retention": "[1]"}, "a JSON object with bytes_max"),
        ({**LEAST, "retention": '{"bytes_max": "5"}'}, "a JSON object with bytes_max"),
        ({**LEAST, "retention": '{"age_s_max": -1}'}, "a JSON object with bytes_max"),
        ({**LEAST, "retention": '{"subscriber_expiry_s": 0}'}, "a JSON object with bytes_max"),
        ({**LEAST, "onLoss": "ignore"}, "one of fail, skip"),
        ({**LEAST, "path": "[1]"}, "a JSON list"),
        ({**LEAST, "path": "[broken"}, "option path"),
        ({"agents": "node1:8000", "table": "a.b"}, "begins with https"),
        ({"path": "/logs", "shape": "runs", "columns": "a"}, "flat shape"),
        ({**LEAST, "operations": "insert,upsert"}, "some of insert, update"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        parse(given)
