"""Which tables are captured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.capture.cassandra.agent.capture_choice import CaptureChoice
from penstock.errors import InvalidSetting
from penstock.model.schema import TableId
from penstock.settings import CassandraSettings, TableChoice
from tests.scripted_agent import cassandra_table


def choice(data_centre: str = "dc1", **settings: object) -> CaptureChoice:
    return CaptureChoice(CassandraSettings.model_validate(settings), data_centre)


def test_by_default_every_table_with_cdc_is_captured_and_no_other() -> None:
    assert choice().captures(cassandra_table())
    assert not choice().captures(cassandra_table(cdc=False))
    assert not choice().captures(replace(cassandra_table(), view=True))
    assert not choice().captures(cassandra_table("peers", keyspace="system"))
    assert not choice().captures(cassandra_table("tables", keyspace="system_schema"))


def test_exclude_wins_over_include() -> None:
    chosen = choice(include=["shop.*", "bank.accounts"], exclude=["shop.tmp_*"])
    wanted = {name for name in ("shop.orders", "shop.tmp_1", "bank.accounts", "bank.audit") if chosen.names(_id(name))}
    assert wanted == {"shop.orders", "bank.accounts"}


def test_first_pattern_that_fits_says_which_data_centres() -> None:
    tables = {"shop.orders": TableChoice(data_centres=("dc2",)), "shop.*": TableChoice(data_centres=("dc1", "dc3"))}
    for centre, wanted in (("dc1", {"shop.items"}), ("dc2", {"shop.orders"}), ("dc4", set())):
        chosen = choice(centre, tables=tables)
        names = {name for name in ("shop.orders", "shop.items") if chosen.names(_id(name))}
        assert names == wanted
        assert chosen.names(_id("bank.accounts"))


def test_pattern_without_a_keyspace_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="not a pattern of tables: 'orders'"):
        choice(include=["orders"])


def test_named_table_without_cdc_gets_the_statement_that_turns_it_on() -> None:
    off = cassandra_table("Orders", cdc=False)
    assert choice(include=["shop.Orders"]).missing_cdc(off) == 'ALTER TABLE shop."Orders" WITH cdc = true;'
    assert choice(include=["shop.*"]).missing_cdc(off) is None
    assert choice(include=["shop.Orders"]).missing_cdc(cassandra_table("Orders")) is None


def _id(name: str) -> TableId:
    keyspace, _, table = name.partition(".")
    return TableId(keyspace, table)
