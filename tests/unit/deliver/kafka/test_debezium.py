"""A Debezium configuration's properties become settings of the Kafka sink."""

from __future__ import annotations

import pytest

from penstock.deliver.kafka.debezium import pipeline_tree
from penstock.errors import InvalidSetting
from penstock.settings import build
from penstock.settings.kafka import Handling, Serialisation

# The example of Debezium's own documentation, as far as it concerns the pipeline.
_EXAMPLE = {
    "connector.name": "test_connector",
    "kafka.producer.bootstrap.servers": "127.0.0.1:9092, 127.0.0.2:9092",
    "kafka.producer.retries": "3",
    "kafka.producer.retry.backoff.ms": "1000",
    "topic.prefix": "test_prefix",
    "key.converter": "io.confluent.connect.avro.AvroConverter",
    "key.converter.schema.registry.url": "http://localhost:8081",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://localhost:8081",
    "decimal.handling.mode": "PRECISE",
    "tombstones.on.delete": "true",
    "field.exclude.list": "ks.t.secret,ks.t.other",
    "skipped.operations": "t",
}


def test_the_documented_example_is_understood_whole() -> None:
    tree = pipeline_tree(_EXAMPLE)
    settings = build(tree.sections, {})
    kafka = settings.kafka
    assert kafka.bootstrap_servers == ("127.0.0.1:9092", "127.0.0.2:9092")
    assert (kafka.topic_prefix, kafka.record, kafka.tombstones) == ("test_prefix", "change", True)
    assert kafka.key_format is kafka.value_format is Serialisation.AVRO
    assert (kafka.registry_url, kafka.decimals) == ("http://localhost:8081", Handling.PRECISE)
    assert set(kafka.producer) == {"retries", "retry.backoff.ms"}
    assert settings.transform.exclude_columns == ("ks.t.secret", "ks.t.other")
    assert settings.transform.skipped_operations == ("t",)
    assert settings.pipeline.sinks == ("kafka",)
    assert tree.without_effect == ["connector.name"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, "json_schema"),
        (
            {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
            },
            "json",
        ),
        ({"value.converter": "org.apache.kafka.connect.storage.StringConverter"}, "string"),
        ({"debezium.format.value": "simplestring"}, "string"),
        ({"debezium.format.value": "json", "debezium.format.value.schemas.enable": "false"}, "json"),
    ],
)
def test_converters_are_formats(given: dict[str, str], wanted: str) -> None:
    assert pipeline_tree(given).sections["kafka"]["value_format"] == wanted


def test_a_registry_of_apicurio_is_asked_in_confluents_way() -> None:
    given = {
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "value.converter.apicurio.registry.url": "https://registry:8080/apis/registry/v2",
        "value.converter.basic.auth.user.info": "anne:se:cret",
    }
    kafka = build(pipeline_tree(given).sections, {}).kafka
    assert kafka.registry_url == "https://registry:8080/apis/ccompat/v7"
    assert kafka.registry_password is not None
    assert (kafka.registry_username, kafka.registry_password.get_secret_value()) == ("anne", "se:cret")


@pytest.mark.parametrize(
    "name",
    ["transforms", "converters", "value.converter", "topic.naming.strategy", "binary.handling.mode", "debezium.sink.x"],
)
def test_what_cannot_be_done_is_refused_by_name_and_without_its_value(name: str) -> None:
    with pytest.raises(InvalidSetting, match="not supported by the pipeline") as refusal:
        pipeline_tree({name: "com.example.Secret"})
    assert refusal.value.place == {"property": name}
    assert "Secret" not in str(refusal.value)
