"""What a Debezium configuration says of the pipeline, as settings of the Kafka sink and of transforms.

The capture side keeps these properties and hands them over by name and value (`DebeziumConfig.pipeline`). Those that
mean something here become settings; those that tune Debezium only are named as without effect; any other is refused
with what to do instead. Values are never shown: some are passwords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import InvalidSetting

_CONVERTERS = {
    "org.apache.kafka.connect.json.JsonConverter": "json",
    "org.apache.kafka.connect.storage.StringConverter": "string",
    "io.confluent.connect.avro.AvroConverter": "avro",
    "io.apicurio.registry.utils.converter.AvroConverter": "avro",
    "io.confluent.connect.protobuf.ProtobufConverter": "protobuf",
    "com.blueapron.connect.protobuf.ProtobufConverter": "protobuf",
}
_NAMING = (
    "io.debezium.schema.SchemaTopicNamingStrategy",
    "io.debezium.schema.DefaultTopicNamingStrategy",
)
_NO_EFFECT = (
    "connector.name",
    "schema.name.adjustment.mode",
    "source.struct.version",
    "sourceinfo.struct.maker",
    "topic.cache.size",
    "topic.heartbeat.prefix",
    "topic.transaction",
)
_PRODUCER = ("kafka.producer.", "debezium.sink.kafka.producer.")
_CONFLUENT_PATH = "/apis/ccompat/v7"


@dataclass(slots=True)
class PipelineTree:
    """Sections of settings as they would stand in a file, and the properties that change nothing."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    without_effect: list[str] = field(default_factory=list)

    def put(self, section: str, name: str, value: Any) -> None:
        self.sections.setdefault(section, {})[name] = value


def pipeline_tree(properties: Mapping[str, str]) -> PipelineTree:
    """The settings that the properties mean. Raises InvalidSetting, naming the property, for what cannot be done."""
    tree = PipelineTree()
    tree.put("pipeline", "sinks", ["kafka"])
    tree.put("kafka", "record", "change")
    producer: dict[str, str] = {}
    for name, text in properties.items():
        value = text.strip()
        prefix = next((prefix for prefix in _PRODUCER if name.startswith(prefix)), None)
        if prefix is not None:
            producer[name.removeprefix(prefix)] = value
        elif name in _NO_EFFECT:
            tree.without_effect.append(name)
        elif name in _MAPPED:
            _MAPPED[name](tree, name, value)
        elif not name.startswith(("key.converter", "value.converter", "debezium.format.")):
            raise _refusal(name, _ADVICE.get(name.split(".")[0], "Penstock has nothing that does the same"))
    servers = producer.pop("bootstrap.servers", None)
    if servers:
        tree.put("kafka", "bootstrap_servers", [server.strip() for server in servers.split(",")])
    tree.put("kafka", "producer", producer)
    for side in ("key", "value"):
        _format(tree, side, properties)
    return tree


_ADVICE = {
    "transforms": "write what they do in the section [transform]",
    "predicates": "write what they do in the section [transform]",
    "converters": "Java classes do not run here; use transform.functions",
    "debezium": "only the sink of type kafka is known",
}


def _format(tree: PipelineTree, side: str, properties: Mapping[str, str]) -> None:
    """The serialisation of keys or values, from a converter's class or Debezium Server's short name."""
    prefix = f"{side}.converter"
    named = properties.get(prefix)
    if named is None:
        prefix = f"debezium.format.{side}"
        named = properties.get(prefix)
        kind = None if named is None else named.strip().lower()
        if kind not in (None, "json", "avro", "protobuf", "string", "simplestring"):
            raise _refusal(prefix, "known are json, avro, protobuf and simplestring")
    else:
        kind = _CONVERTERS.get(named.strip())
        if kind is None:
            raise _refusal(prefix, f"known are {', '.join(_CONVERTERS)}")
    if kind is None:
        return
    options = {name.removeprefix(f"{prefix}."): v.strip() for name, v in properties.items() if name.startswith(prefix)}
    if kind == "json":
        enabled = options.get("schemas.enable", "true").lower()
        kind = "json" if enabled == "false" else "json_schema"
    tree.put("kafka", f"{side}_format", "string" if kind == "simplestring" else kind)
    if kind in ("avro", "protobuf"):
        _registry(tree, options)


def _registry(tree: PipelineTree, options: Mapping[str, str]) -> None:
    url = options.get("schema.registry.url", "").split(",")[0].strip()
    apicurio = options.get("apicurio.registry.url", "")
    if not url and apicurio:
        url = apicurio.split("/apis/")[0].rstrip("/") + _CONFLUENT_PATH
    if url:
        tree.put("kafka", "registry_url", url)
    user, _, password = options.get("basic.auth.user.info", "").partition(":")
    if user:
        tree.put("kafka", "registry_username", user)
        tree.put("kafka", "registry_password", password)


def _kafka(setting: str, change: Callable[[str], Any] = str) -> Callable[[PipelineTree, str, str], None]:
    def put(tree: PipelineTree, _: str, value: str) -> None:
        tree.put("kafka", setting, change(value))

    return put


def _names(section: str, setting: str) -> Callable[[PipelineTree, str, str], None]:
    def put(tree: PipelineTree, _: str, value: str) -> None:
        tree.put(section, setting, [part.strip() for part in value.split(",") if part.strip() not in ("", "none")])

    return put


def _only(*known: str, advice: str) -> Callable[[PipelineTree, str, str], None]:
    def check(_: PipelineTree, name: str, value: str) -> None:
        if value not in known:
            raise _refusal(name, advice)

    return check


def _is_true(value: str) -> bool:
    return value.lower() == "true"


_MAPPED: dict[str, Callable[[PipelineTree, str, str], None]] = {
    "topic.prefix": _kafka("topic_prefix"),
    "topic.delimiter": _kafka("topic_delimiter"),
    "topic.naming.strategy": _only(*_NAMING, advice="Java classes do not run here; set kafka.topic_function"),
    "cassandra.cluster.name": _kafka("cluster_name"),
    "decimal.handling.mode": _kafka("decimals", str.lower),
    "varint.handling.mode": _kafka("varints", str.lower),
    "tombstones.on.delete": _kafka("tombstones", _is_true),
    "sanitize.field.names": _kafka("sanitise_names", _is_true),
    "field.name.adjustment.mode": _kafka("sanitise_names", lambda value: value.lower() != "none"),
    "binary.handling.mode": _only("bytes", advice="bytes are written as bytes only"),
    "field.exclude.list": _names("transform", "exclude_columns"),
    "skipped.operations": _names("transform", "skipped_operations"),
    "debezium.sink.type": _only("kafka", advice="only the sink of type kafka is known"),
}


def _refusal(name: str, advice: str) -> InvalidSetting:
    return InvalidSetting(f"this property is not supported by the pipeline: {advice}", property=name)
