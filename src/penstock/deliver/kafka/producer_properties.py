"""Producer properties: Kafka's own (Java) names as librdkafka's, with what differs turned over or refused.

A file that was written for a Java producer works unchanged where librdkafka can do the same. What it cannot do is
refused with what to do instead, and what only tunes Java is accepted without effect. Values never stand in a message:
some of them are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from penstock.errors import InvalidSetting
from penstock.settings.kafka import Delivery, KafkaSettings

# Ours: how often a broker that is away is asked again, and how records are spread over partitions.
_ALWAYS = {
    "reconnect.backoff.ms": "100",
    "reconnect.backoff.max.ms": "1000",
    "retry.backoff.ms": "100",
    "retry.backoff.max.ms": "1000",
    # Where Java's producers put a key, so that both can write to one topic.
    "partitioner": "murmur2_random",
    "enable.idempotence": "true",
    "acks": "all",
    "queue.buffering.max.messages": "1000000",
    "socket.keepalive.enable": "true",
    "log.connection.close": "false",
}
_RENAMED = {
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
}
_NO_EFFECT = {
    "buffer.memory": "kafka.queue_bytes_max bounds the memory",
    "retries": "records are sent again until the broker has them",
    "delivery.timeout.ms": "records are sent again until the broker has them",
    "message.timeout.ms": "records are sent again until the broker has them",
    "message.send.max.retries": "records are sent again until the broker has them",
    "max.block.ms": "the task waits for as long as it takes",
    "key.serializer": "kafka.key_format says it",
    "value.serializer": "kafka.value_format says it",
    "metric.reporters": "metrics are Penstock's",
    "metrics.num.samples": "metrics are Penstock's",
    "metrics.recording.level": "metrics are Penstock's",
    "metrics.sample.window.ms": "metrics are Penstock's",
    "auto.include.jmx.reporter": "metrics are Penstock's",
    "ssl.protocol": "the newest that both sides know is used",
    "ssl.enabled.protocols": "the newest that both sides know is used",
    "ssl.truststore.password": "certificates in PEM have none",
    "sasl.client.callback.handler.class": "it is Java's",
    "partitioner.ignore.keys": "records are partitioned by key",
    "partitioner.adaptive.partitioning.enable": "records are partitioned by key",
    "partitioner.availability.timeout.ms": "records are partitioned by key",
    "metadata.recovery.strategy": "librdkafka has one of its own",
}
_REFUSED = {
    "transactional.id": 'it is made of the pipeline\'s name; set kafka.delivery = "exactly-once"',
    "interceptor.classes": "Java classes do not run here; use transform.functions",
    "security.providers": "Java classes do not run here",
    "ssl.engine.factory.class": "Java classes do not run here",
    "on_delivery": "the sink has its own",
    "error_cb": "the sink has its own",
    "stats_cb": "the sink has its own",
}
_DEFAULT_PARTITIONERS = ("DefaultPartitioner", "BuiltInPartitioner")
_JAAS_MODULE = re.compile(r"\s*[\w.]*\.(Plain|Scram)LoginModule\s", re.ASCII)
_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|[^\s;]+)")
_PEM_HINT = (
    "librdkafka reads certificates in PEM: convert it once with `keytool -exportcert -rfc` or `openssl pkcs12`, and "
    "set ssl.ca.location (and ssl.certificate.location, ssl.key.location)"
)


def client_properties(settings: KafkaSettings) -> dict[str, str]:
    """The properties that any client needs: where the brokers are, and how to log in."""
    return _Translation(settings).properties()


def producer_properties(settings: KafkaSettings) -> dict[str, str]:
    """The properties of the producer; what the operator gives wins over what is tuned here."""
    given = client_properties(settings)
    made = {**_ALWAYS, "queue.buffering.max.kbytes": str(settings.queue_bytes_max >> 10), **given}
    timeout_ms = str(int(settings.transaction_timeout_s * 1000))
    if settings.delivery is Delivery.EXACTLY_ONCE:
        made |= {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms}
    else:
        made["message.timeout.ms"] = "0"
    return made


def without_effect(settings: KafkaSettings) -> list[str]:
    """The names of given properties that change nothing."""
    return [name for name in settings.producer if name in _NO_EFFECT]


class _Translation:
    def __init__(self, settings: KafkaSettings) -> None:
        self._given: Mapping[str, str] = {name: value.get_secret_value() for name, value in settings.producer.items()}
        self._out: dict[str, str] = {}
        servers = ",".join(settings.bootstrap_servers) or self._given.get("bootstrap.servers", "")
        if not servers:
            raise InvalidSetting("no broker is named", setting="kafka.bootstrap_servers")
        self._out["bootstrap.servers"] = servers

    def properties(self) -> dict[str, str]:
        for name, value in self._given.items():
            if name in _NO_EFFECT or name == "bootstrap.servers":
                continue
            if name in _REFUSED:
                raise _refusal(name, _REFUSED[name])
            special = _SPECIAL.get(name)
            if special is not None:
                special(self, name, value.strip())
            else:
                self._out[_RENAMED.get(name, name)] = value
        return self._out

    def _login(self, name: str, value: str) -> None:
        """A line of JAAS: which login, and its options."""
        module = _JAAS_MODULE.match(value)
        options = {key: text.strip('"').replace('\\"', '"') for key, text in _JAAS_OPTION.findall(value)}
        if module is None or "username" not in options or "password" not in options:
            hint = "only PlainLoginModule and ScramLoginModule with username and password are known; "
            raise _refusal(name, hint + "otherwise use librdkafka's own sasl.* properties")
        self._out |= {"sasl.username": options["username"], "sasl.password": options["password"]}

    def _trust(self, name: str, value: str) -> None:
        kind = self._given.get("ssl.truststore.type", "JKS").strip().upper()
        if kind != "PEM" and not value.lower().endswith((".pem", ".crt", ".cer")):
            raise _refusal(name, f"a trust store of type {kind} cannot be read; {_PEM_HINT}")
        self._out["ssl.ca.location"] = value

    def _key_store(self, name: str, value: str) -> None:
        kind = self._given.get("ssl.keystore.type", "JKS").strip().upper()
        if kind == "PKCS12" or value.lower().endswith((".p12", ".pfx")):
            self._out["ssl.keystore.location"] = value
        elif kind == "PEM" or value.lower().endswith(".pem"):
            self._out |= {"ssl.certificate.location": value, "ssl.key.location": value}
        else:
            raise _refusal(name, f"a key store of type {kind} cannot be read; {_PEM_HINT}")

    def _host_check(self, name: str, value: str) -> None:
        self._out[name] = value.lower() or "none"

    def _nothing(self, name: str, value: str) -> None:
        """Said by another property."""

    def _partitioner(self, name: str, value: str) -> None:
        if not value.endswith(_DEFAULT_PARTITIONERS):
            raise _refusal(name, "Java classes do not run here; librdkafka's `partitioner` names some others")


_SPECIAL: dict[str, Callable[[_Translation, str, str], None]] = {
    "sasl.jaas.config": _Translation._login,
    "ssl.truststore.location": _Translation._trust,
    "ssl.truststore.type": _Translation._nothing,
    "ssl.keystore.location": _Translation._key_store,
    "ssl.keystore.type": _Translation._nothing,
    "ssl.endpoint.identification.algorithm": _Translation._host_check,
    "partitioner.class": _Translation._partitioner,
}


def _refusal(name: str, advice: str) -> InvalidSetting:
    return InvalidSetting(f"the producer property {name} is not supported: {advice}", setting="kafka.producer")
