"""Settings of the Kafka sink."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from penstock.settings.pipeline import RecordType, SchemaPolicy
from penstock.settings.section import FunctionPath, Names, PassedOn, Section, flat
from penstock.system.addresses import keeps_secrets


class Serialisation(StrEnum):
    """How the keys or values of Kafka records are written."""

    JSON = "json"
    JSON_SCHEMA = "json_schema"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    STRING = "string"

    @property
    def registered(self) -> bool:
        """Whether the schema goes to a registry, and its number in front of each record."""
        return self in (Serialisation.AVRO, Serialisation.PROTOBUF)


class EnvelopeKind(StrEnum):
    """What the events of a Kafka record look like."""

    DEBEZIUM = "debezium"
    CLOUDEVENTS = "cloudevents"


class CloudEventsMode(StrEnum):
    """Where a CloudEvent has its attributes: beside the data in the value, or in the headers."""

    STRUCTURED = "structured"
    BINARY = "binary"


class Handling(StrEnum):
    """How numbers without a bound are written: as a double or long, exactly, or as text."""

    DOUBLE = "double"
    LONG = "long"
    PRECISE = "precise"
    STRING = "string"


class Delivery(StrEnum):
    """Whether a batch that is delivered again after a crash shows twice."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class Compatibility(StrEnum):
    """What a schema registry demands of the next version of a schema."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class KafkaSettings(Section):
    """Kafka topics, one per table, with the events that consumers of Debezium or of CloudEvents know."""

    bootstrap_servers: Names = ()
    """The brokers to begin with, as `broker1:9092`."""
    topic_prefix: str = Field(default="penstock", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """The first part of the topics' names, before keyspace and table, and `source.name` of the events."""
    topic_delimiter: str = Field(default=".", pattern=r"^[._-]$")
    """What stands between the parts of a topic's name."""
    topic_function: FunctionPath | None = None
    """A callable as `module:callable` that is given prefix, keyspace and table and returns the topic's name."""
    record: RecordType = RecordType.CHANGE
    """What an event tells. `change`: the changed columns only; `after`: the whole row after the change; `all`: the same
    with the row before it too."""
    envelope: EnvelopeKind = EnvelopeKind.DEBEZIUM
    """How it is told. `debezium`: with `change` the events of Debezium's connector for Cassandra, else its standard
    envelope; `cloudevents`: CloudEvents 1.0, whose values are `json` or `avro`."""
    cloudevents_mode: CloudEventsMode = CloudEventsMode.STRUCTURED
    """Where a CloudEvent has its attributes: `structured`: with the data, in the value; `binary`: in headers."""
    key_format: Serialisation = Serialisation.JSON
    """How keys are written: `json`, `json_schema` (with Connect's schema beside the payload), `avro`, `protobuf`, or
    `string`."""
    value_format: Serialisation = Serialisation.JSON
    """How values are written."""
    registry_url: str | None = None
    """The schema registry, which avro and protobuf need; any that speaks Confluent's interface."""
    registry_username: str | None = None
    """The user to log in to the registry as; none when it asks for none."""
    registry_password: SecretStr | None = None
    """The user's password. Better kept in registry_password_file."""
    registry_password_file: Path | None = None
    """A file that holds the password and nothing else."""
    registry_ca_file: Path | None = None
    """The certificates (PEM) that the registry's must be signed by; none: the system's."""
    registry_plain_http: bool = False
    """Send the login without TLS beyond this machine too, as where the network itself is encrypted."""
    registry_timeout_s: float = Field(default=30.0, gt=0)
    """A request to the registry that is not answered within this time has failed, and is made again with the batch."""
    compatibility: Compatibility | None = None
    """What the registry shall demand of later versions of each subject. None: what the registry itself has set."""
    schema_policy: SchemaPolicy = SchemaPolicy.EVOLVE
    """When a table's schema changes: `evolve` registers the new version and goes on, `ignore` goes on with the columns
    that the table had before, `fail` stops."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    """`at-least-once`: a batch that was cut short is sent again; `exactly-once`: each task's part of a batch is one
    transaction, which consumers with `isolation.level=read_committed` see as a whole and once."""
    progress_topic: str = Field(default="penstock-progress", pattern=r"^[A-Za-z0-9._-]{1,140}$")
    """With exactly-once: how the name of the topic begins that says which batches were sent; the pipeline's name
    follows. It is made with `cleanup.policy=compact` and must keep its records for as long as the pipeline lives."""
    transaction_timeout_s: float = Field(default=60.0, ge=1, le=900)
    """With exactly-once: the broker gives a transaction up after this time; it is then done again from the start."""
    tombstones: bool = False
    """Whether a record without a value follows each delete, for compacted topics."""
    headers: bool = True
    """Whether records carry the change's identity, the schema version and the batch in a header."""
    partial_keys: bool = True
    """With whole rows: whether the deletion of a partition has an event of its own, whose key lacks the clustering
    columns. Its rows have events anyway."""
    sanitise_names: bool = False
    """Whether fields have names that suit Avro also where the format does not ask for it."""
    decimals: Handling = Handling.DOUBLE
    """How decimals are written: `double`, `precise` (unscaled bytes and scale), or `string`."""
    varints: Handling = Handling.LONG
    """How varints are written: `long` (one that does not fit goes to the dead letters), `precise` (bytes), `string`."""
    cluster_name: str = "Test Cluster"
    """`source.cluster` of the events."""
    create_topics: bool = True
    """Whether topics that are missing are made. Otherwise they must be there, or the broker must make them itself."""
    partitions: int | None = Field(default=None, ge=1)
    """Of topics that Penstock makes, how many partitions. None: the broker's own default."""
    replication_factor: int | None = Field(default=None, ge=1)
    """Of topics that Penstock makes, how many copies. None: the broker's own default."""
    topic_settings: PassedOn = Field(default_factory=dict)
    """More settings of topics that Penstock makes, as `retention.ms` or `cleanup.policy`."""
    record_bytes_max: int | None = Field(default=None, ge=1024)
    """Larger records go to the dead letters. None: what the topic takes."""
    refused_records_max: int = Field(default=1000, ge=0)
    """So many records of one task may go to the dead letters; more stop the pipeline, for then something is wrong."""
    queue_bytes_max: int = Field(default=64 << 20, ge=1 << 20, le=2 << 30)
    """So much waits in memory for the broker, in each task, before the task waits too."""
    producer: Annotated[dict[str, SecretStr], BeforeValidator(flat)] = Field(default_factory=dict)
    """More settings of the producer, by the names of Kafka's own (Java) or librdkafka's documentation. Some are
    passwords, so none is ever shown."""

    @model_validator(mode="after")
    def _target_is_clear(self) -> KafkaSettings:
        registered = [name for name in ("key_format", "value_format") if getattr(self, name).registered]
        if registered and self.registry_url is None:
            raise ValueError(f"registry_url is missing, and {registered[0]} needs a schema registry")
        if self.registry_url is not None:
            parts = urlsplit(self.registry_url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("registry_url looks like https://registry:8081")
            if parts.username is not None:
                raise ValueError("registry_url: a login belongs into registry_username and registry_password_file")
        if self.registry_password is not None and self.registry_password_file is not None:
            raise ValueError("registry_password or registry_password_file, not both")
        password = self.registry_password or self.registry_password_file
        shown = password is not None and not self.registry_plain_http
        if shown and self.registry_url is not None and not keeps_secrets(self.registry_url):
            reason = "the login would be sent in the clear; use https://, or registry_plain_http = true"
            raise ValueError(f"registry_url: {reason}")
        values = (Serialisation.JSON, Serialisation.AVRO)
        if self.envelope is EnvelopeKind.CLOUDEVENTS and self.value_format not in values:
            raise ValueError("value_format is json or avro with envelope = cloudevents")
        if self.decimals is Handling.LONG:
            raise ValueError("decimals is double, precise or string")
        if self.varints is Handling.DOUBLE:
            raise ValueError("varints is long, precise or string")
        return self
