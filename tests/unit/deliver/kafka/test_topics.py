"""Names of topics."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.deliver.kafka.topics import TopicNames
from penstock.errors import InvalidSetting
from penstock.model.schema import TableId
from penstock.settings.kafka import KafkaSettings


def names(**given: Any) -> TopicNames:
    return TopicNames(KafkaSettings.model_validate({"topic_prefix": "lab", **given}))


def test_a_topic_is_prefix_keyspace_and_table() -> None:
    assert names().of(TableId("shop", "carts")) == "lab.shop.carts"
    assert names(topic_delimiter="_").of(TableId("shop", "carts")) == "lab_shop_carts"


def test_characters_that_kafka_does_not_allow_become_underscores() -> None:
    assert names().of(TableId("shop", "My Carts€")) == "lab.shop.My_Carts_"


def test_two_tables_never_share_a_topic_by_accident() -> None:
    some = names()
    assert some.of(TableId("shop", "a b")) == some.of(TableId("shop", "a b")) == "lab.shop.a_b"
    with pytest.raises(InvalidSetting, match="two tables have the same topic"):
        some.of(TableId("shop", "a-b".replace("-", "_")))


def test_a_function_may_name_topics_and_join_tables() -> None:
    some = names(topic_function="tests.unit.deliver.kafka.test_topics:one_for_all")
    assert some.of(TableId("shop", "a")) == some.of(TableId("shop", "b")) == "lab-all"


def one_for_all(prefix: str, keyspace: str, table: str) -> str:
    return f"{prefix}-all" if keyspace == "shop" else "not a topic!"


def test_a_name_that_is_none_is_refused() -> None:
    some = names(topic_function="tests.unit.deliver.kafka.test_topics:one_for_all")
    with pytest.raises(InvalidSetting, match="makes no name of a topic"):
        some.of(TableId("other", "a"))
    with pytest.raises(InvalidSetting, match="makes no name of a topic"):
        names().of(TableId("shop", "x" * 300))
