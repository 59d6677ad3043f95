"""Properties of Java's producer become librdkafka's, or are refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.deliver.kafka.connection import Connection
from penstock.deliver.kafka.producer_properties import client_properties, producer_properties, without_effect
from penstock.errors import InvalidSetting
from penstock.settings import load
from penstock.settings.kafka import KafkaSettings


def settings(**producer: str) -> KafkaSettings:
    given = {name.replace("_", "."): value for name, value in producer.items()}
    return KafkaSettings.model_validate({"bootstrap_servers": "b1:9092,b2:9092", "producer": given})


def test_brokers_must_be_named_somewhere() -> None:
    assert client_properties(settings()) == {"bootstrap.servers": "b1:9092,b2:9092"}
    named = KafkaSettings.model_validate({"producer": {"bootstrap.servers": "b3:9092"}})
    assert client_properties(named)["bootstrap.servers"] == "b3:9092"
    with pytest.raises(InvalidSetting, match="no broker is named"):
        client_properties(KafkaSettings())


def test_records_are_sent_until_the_broker_has_them_and_in_order() -> None:
    made = producer_properties(settings())
    assert (made["enable.idempotence"], made["acks"], made["message.timeout.ms"]) == ("true", "all", "0")
    assert int(made["retry.backoff.max.ms"]) <= 1000
    assert int(made["reconnect.backoff.max.ms"]) <= 1000


def test_names_that_differ_are_turned_over() -> None:
    made = producer_properties(settings(max_request_size="2000000", sasl_mechanism="PLAIN", linger_ms="20"))
    assert (made["message.max.bytes"], made["sasl.mechanisms"], made["linger.ms"]) == ("2000000", "PLAIN", "20")


def test_a_login_of_jaas_is_understood() -> None:
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="anne" password="a\\"b;c";'
    made = client_properties(settings(sasl_jaas_config=line))
    assert (made["sasl.username"], made["sasl.password"]) == ("anne", 'a"b;c')


def test_stores_that_librdkafka_reads_are_passed_on() -> None:
    given: dict[str, Any] = {"ssl_truststore_location": "/x/ca.pem", "ssl_keystore_location": "/x/k.p12"}
    made = client_properties(settings(**given, ssl_endpoint_identification_algorithm=""))
    assert (made["ssl.ca.location"], made["ssl.keystore.location"]) == ("/x/ca.pem", "/x/k.p12")
    assert made["ssl.endpoint.identification.algorithm"] == "none"


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"ssl_truststore_location": "/x/t.jks"}, "PEM"),
        ({"ssl_keystore_location": "/x/k.jks"}, "PEM"),
        ({"sasl_jaas_config": "com.sun.security.auth.module.JndiLoginModule required user.provider.url=x;"}, "sasl"),
        ({"interceptor_classes": "com.example.X"}, "transform.functions"),
        ({"partitioner_class": "com.example.X"}, "partitioner"),
        ({"transactional_id": "mine"}, "exactly-once"),
    ],
)
def test_what_librdkafka_cannot_do_is_refused_without_showing_a_value(given: dict[str, str], advice: str) -> None:
    with pytest.raises(InvalidSetting, match=advice) as refusal:
        client_properties(settings(**given))
    assert next(iter(given.values())) not in str(refusal.value)


def test_what_only_tunes_java_has_no_effect_and_is_named() -> None:
    given = settings(retries="3", key_serializer="x", linger_ms="1")
    assert without_effect(given) == ["retries", "key.serializer"]
    assert not {"retries", "key.serializer"} & set(producer_properties(given))


@pytest.mark.parametrize("given", [{"no_such_property": "secret"}, {"socket_timeout_ms": "secret"}])
def test_a_property_that_librdkafka_does_not_know_is_refused_by_name(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSetting, match=next(iter(given)).replace("_", ".")) as refusal:
        Connection(producer_properties(settings(**given)))
    assert "secret" not in str(refusal.value)


def test_names_with_points_need_no_quotes_in_toml(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        '[kafka]\nbootstrap_servers = "b:9092"\ntopic_settings.retention.ms = 60000\n'
        '[kafka.producer]\nlinger.ms = 20\nsocket.keepalive.enable = false\n"retry.backoff.ms" = "5"\n'
    )
    kafka = load(str(file), {}).kafka
    made = producer_properties(kafka)
    assert (made["linger.ms"], made["socket.keepalive.enable"], made["retry.backoff.ms"]) == ("20", "false", "5")
    assert kafka.topic_settings == {"retention.ms": "60000"}
    assert "'20'" not in repr(kafka)
