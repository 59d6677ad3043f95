"""Every property of Debezium's Cassandra connector, and what Penstock makes of it.

The table is data: `debezium_properties` follows it when it reads a file, and docs/reference/debezium.md is made from
it. A name that ends in `*` stands for all names that begin so. Names that Debezium has dropped are here too, because
the files that use them still exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """What becomes of a property."""

    MAPPED = "mapped"
    PIPELINE = "kept for the pipeline"
    IGNORED = "accepted without effect"
    REFUSED = "refused"


class Kind(StrEnum):
    """What a value must look like."""

    TEXT = "text"
    BOOLEAN = "true or false"
    WHOLE = "whole number"
    POSITIVE = "whole number above 0"
    CHOICE = "one of a few words"


class Origin(StrEnum):
    """Where a property comes from."""

    CONNECTOR = "Properties of the connector"
    CORE = "Properties that it inherits"
    OLD = "Properties of earlier versions"
    PLATFORM = "Properties of Kafka Connect and of Debezium Server"


@dataclass(frozen=True, slots=True)
class Known:
    """One property, or all that begin with a prefix."""

    name: str
    default: str
    status: Status
    note: str
    settings: tuple[str, ...] = ()
    kind: Kind = Kind.TEXT
    choices: tuple[str, ...] = ()
    # The name under which newer versions have it; the pipeline sees only that one.
    now: str = ""
    origin: Origin = Origin.CONNECTOR

    @property
    def is_prefix(self) -> bool:
        """Whether it stands for many properties."""
        return self.name.endswith("*")


def _mapped(name: str, default: str, note: str, *settings: str, kind: Kind = Kind.TEXT, choices: str = "") -> Known:
    return Known(name, default, Status.MAPPED, note, settings, kind, tuple(choices.split()))


def _kept(name: str, default: str, note: str, *, kind: Kind = Kind.TEXT, choices: str = "", now: str = "") -> Known:
    return Known(name, default, Status.PIPELINE, note, kind=kind, choices=tuple(choices.split()), now=now)


def _ignored(name: str, default: str, note: str, *, kind: Kind = Kind.TEXT, choices: str = "") -> Known:
    return Known(name, default, Status.IGNORED, note, kind=kind, choices=tuple(choices.split()))


def _refused(name: str, default: str, note: str) -> Known:
    return Known(name, default, Status.REFUSED, note)


def _of(origin: Origin, *entries: Known) -> tuple[Known, ...]:
    return tuple(
        Known(e.name, e.default, e.status, e.note, e.settings, e.kind, e.choices, e.now, origin) for e in entries
    )


CONSISTENCY_LEVELS = "ANY ONE TWO THREE QUORUM ALL LOCAL_ONE LOCAL_QUORUM EACH_QUORUM SERIAL LOCAL_SERIAL"
BLACK_HOLE = "io.debezium.connector.cassandra.BlackHoleCommitLogTransfer"

_CONNECTOR = _of(
    Origin.CONNECTOR,
    _kept("topic.prefix", "", "first part of the topics' names"),
    _kept("key.converter", "", "how keys are written to Kafka"),
    _kept("key.converter.*", "", "settings of that converter"),
    _kept("value.converter", "", "how values are written to Kafka"),
    _kept("value.converter.*", "", "settings of that converter"),
    _mapped(
        "snapshot.mode",
        "INITIAL",
        "the same modes, each table once; `initial` also copies tables that get CDC later",
        "snapshot.mode",
        kind=Kind.CHOICE,
        choices="initial always never",
    ),
    _mapped(
        "snapshot.consistency",
        "QUORUM",
        "the same names; without it Penstock reads at ALL, as Debezium's documentation says",
        "snapshot.consistency",
        kind=Kind.CHOICE,
        choices=CONSISTENCY_LEVELS,
    ),
    _mapped(
        "snapshot.scan.interval.ms",
        "10000",
        "how often new CDC tables are looked for",
        "snapshot.scan_interval_s",
        kind=Kind.POSITIVE,
    ),
    _mapped(
        "http.port",
        "8000",
        "the same paths, but on the loopback only; see http.host to change that",
        "http.port",
        kind=Kind.WHOLE,
    ),
    _mapped("cassandra.config", "", "the node's cassandra.yaml", "cassandra.config_file"),
    _kept("cassandra.cluster.name", "Test Cluster", "`source.cluster` of the events"),
    _mapped("cassandra.node.id", "", "the node's name in the logs", "agent.node"),
    _mapped(
        "cassandra.driver.config.file",
        "application.conf",
        "contact points, data centre, user, password and TLS are read from it; see below",
        "cassandra.contact_points",
        "cassandra.local_data_centre",
        "cassandra.username",
        "cassandra.password",
        "cassandra.tls",
    ),
    _mapped(
        "commit.log.relocation.dir",
        "",
        "segments that cannot be read go to `error` below it, kept ones to `archive`",
        "agent.error_directory",
        "agent.archive_directory",
    ),
    _ignored(
        "commit.log.relocation.dir.poll.interval.ms",
        "10000",
        "a segment goes as soon as it is done",
        kind=Kind.POSITIVE,
    ),
    _mapped(
        "commit.log.post.processing.enabled",
        "true",
        "`false`: processed segments stay in `archive` of the relocation directory",
        "agent.transfer",
        kind=Kind.BOOLEAN,
    ),
    _mapped(
        "commit.log.transfer.class",
        BLACK_HOLE,
        f"`{BLACK_HOLE}`: processed segments are deleted. Other Java classes are refused: "
        "write a Python class with the same duty and name it as `module:Class`",
        "agent.transfer",
    ),
    _mapped("commit.log.transfer.*", "", "passed to a transfer class of your own", "agent.transfer_options"),
    _mapped(
        "commit.log.error.reprocessing.enabled",
        "false",
        "at the start, segments in the error directory are read again",
        "agent.reprocess_errors",
        kind=Kind.BOOLEAN,
    ),
    _mapped(
        "commit.log.real.time.processing.enabled",
        "false",
        "both values, and none, mean `synced`: changes come as soon as Cassandra's index says that they are durable. "
        "`PENSTOCK_AGENT__TAIL=written` brings them milliseconds after the write",
        "agent.tail",
        kind=Kind.BOOLEAN,
    ),
    _ignored(
        "commit.log.marked.complete.poll.interval.ms",
        "10000",
        "the index is looked at all the time",
        kind=Kind.POSITIVE,
    ),
    _ignored(
        "commit.log.processor.shutdown.timeout.seconds",
        "5",
        "a stop waits until what was read is durable",
        kind=Kind.WHOLE,
    ),
    _ignored("cdc.dir.poll.interval.ms", "10000", "the directory is looked at all the time", kind=Kind.POSITIVE),
    _mapped(
        "offset.backing.store.dir",
        "",
        "the logs and the agent's place go to `penstock` below it; Debezium's own offset files are left alone",
        "agent.directory",
    ),
    _ignored("offset.flush.interval.ms", "0", "the place is saved with what was written", kind=Kind.WHOLE),
    _ignored("max.offset.flush.size", "100", "the place is saved with what was written", kind=Kind.POSITIVE),
    _mapped(
        "schema.refresh.interval.ms",
        "10000",
        "schema changes are learned from the commit log itself; the node is asked only about what is unknown, "
        "and at most this often",
        "agent.schema_refresh_s",
        kind=Kind.POSITIVE,
    ),
    _ignored("num.of.change.event.queues", "1", "there are no queues between log and log", kind=Kind.POSITIVE),
    _ignored(
        "event.order.guarantee.mode",
        "commitlog_file",
        "every table's log has the order of the commit log",
        kind=Kind.CHOICE,
        choices="commitlog_file partition_values",
    ),
    _kept("field.exclude.list", "", "columns that are not sent on; the log has them all"),
    _ignored(
        "latest.commit.log.only",
        "false",
        "meant for Debezium's tests; every segment is read, the oldest first",
        kind=Kind.BOOLEAN,
    ),
    _kept(
        "decimal.handling.mode",
        "double",
        "how decimals are sent on; the log has them exactly",
        kind=Kind.CHOICE,
        choices="double precise string",
    ),
    _kept(
        "varint.handling.mode",
        "long",
        "how varints are sent on; the log has them exactly",
        kind=Kind.CHOICE,
        choices="long precise string",
    ),
    _kept("tombstones.on.delete", "false", "a null record after each delete", kind=Kind.BOOLEAN),
    _ignored("poll.interval.ms", "1000", "nothing is polled from a queue", kind=Kind.POSITIVE),
    _ignored("tracing.enabled", "false", "there are metrics, but no traces", kind=Kind.BOOLEAN),
    _kept("kafka.producer.*", "", "settings of the Kafka producer"),
)

_CORE = _of(
    Origin.CORE,
    _ignored("max.queue.size", "8192", "memory is bounded in bytes, not in events", kind=Kind.POSITIVE),
    _ignored("max.batch.size", "2048", "memory is bounded in bytes, not in events", kind=Kind.POSITIVE),
    _ignored("max.queue.size.in.bytes", "0", "memory is bounded by the agent's own settings", kind=Kind.WHOLE),
    _ignored("poll.dispatch.interval.ms", "", "nothing is polled from a queue", kind=Kind.WHOLE),
    _kept("topic.naming.strategy", "io.debezium.schema.SchemaTopicNamingStrategy", "how topics are named"),
    _kept("topic.delimiter", ".", "what stands between the parts of a topic's name"),
    _kept("topic.cache.size", "10000", "how many topic names are kept at hand", kind=Kind.POSITIVE),
    _kept("topic.heartbeat.prefix", "__debezium-heartbeat", "the heartbeat topic's first part"),
    _kept("topic.transaction", "transaction", "the transaction topic's last part"),
    _kept(
        "schema.name.adjustment.mode",
        "none",
        "how schema names are made to suit Avro",
        kind=Kind.CHOICE,
        choices="none avro avro_unicode",
    ),
    _kept(
        "field.name.adjustment.mode",
        "none",
        "how field names are made to suit Avro",
        kind=Kind.CHOICE,
        choices="none avro avro_unicode",
    ),
    _ignored("custom.metric.tags", "", "give labels in Prometheus's scrape configuration instead"),
    _kept("skipped.operations", "t", "kinds of change that are not sent on; the log has them all"),
    _ignored("errors.max.retries", "-1", "what may pass by itself is tried again without end"),
    _ignored("retriable.restart.connector.wait.ms", "10000", "what may pass by itself is tried again", kind=Kind.WHOLE),
    _kept(
        "sourceinfo.struct.maker",
        "io.debezium.connector.cassandra.CassandraSourceInfoStructMaker",
        "the shape of `source` in the events",
    ),
    _kept("source.struct.version", "v2", "the version of `source` in the events"),
    _kept("converters", "", "names of value converters; `NAME.type` and all other `NAME.…` are kept with it"),
    _kept(
        "binary.handling.mode",
        "bytes",
        "how blobs are sent on",
        kind=Kind.CHOICE,
        choices="bytes base64 base64-url-safe hex",
    ),
    _ignored("event.processing.failure.handling.mode", "fail", "damage is counted and reported, never hidden"),
    _ignored("provide.transaction.metadata", "false", "Cassandra's log has no transactions", kind=Kind.BOOLEAN),
    _ignored("transaction.metadata.factory", "", "Cassandra's log has no transactions"),
    _ignored("heartbeat.*", "", "Debezium's Cassandra connector sends no heartbeats either"),
    _ignored("snapshot.delay.ms", "0", "Debezium's Cassandra connector does not use it either", kind=Kind.WHOLE),
    _ignored("snapshot.fetch.size", "0", "Debezium's Cassandra connector does not use it; see snapshot settings"),
    _ignored("snapshot.max.threads", "1", "Debezium's Cassandra connector does not use it; see snapshot settings"),
    _ignored("snapshot.mode.*", "", "Debezium's Cassandra connector does not use it either"),
    _ignored("snapshot.include.collection.list", "", "Debezium's Cassandra connector does not use it either"),
    _ignored("snapshot.locking.mode.*", "", "there is nothing to lock"),
    _ignored("snapshot.query.mode*", "", "Debezium's Cassandra connector does not use it either"),
    _ignored("snapshot.tables.order.by.row.count", "disabled", "Debezium's Cassandra connector does not use it either"),
    _ignored("streaming.delay.ms", "0", "Debezium's Cassandra connector does not use it either", kind=Kind.WHOLE),
    _ignored("query.fetch.size", "0", "Debezium's Cassandra connector does not use it either", kind=Kind.WHOLE),
    _ignored("incremental.snapshot.*", "", "Debezium's Cassandra connector has no incremental snapshots"),
    _ignored("signal.*", "", "ask for a new snapshot of a table with `penstock` instead"),
    _ignored("notification.*", "", "read the metrics instead"),
    _ignored("openlineage.*", "", "no lineage is reported"),
    _ignored("guardrail.*", "", "there is no limit to the number of tables"),
    _ignored("executor.shutdown.timeout.ms", "", "a stop waits until what was read is durable"),
    _ignored("connection.validation.timeout.ms", "", "the driver's own timeouts apply"),
    _ignored("extended.headers.enabled", "true", "no headers are written to the log", kind=Kind.BOOLEAN),
)

_OLD = _of(
    Origin.OLD,
    _kept("connector.name", "", "the connector's name"),
    _kept("kafka.topic.prefix", "", "first part of the topics' names", now="topic.prefix"),
    _mapped("cassandra.hosts", "localhost", "comma-separated; `host:port` also works", "cassandra.contact_points"),
    _mapped("cassandra.port", "9042", "the port of every contact point", "cassandra.port", kind=Kind.POSITIVE),
    _mapped("cassandra.username", "", "the user for CQL", "cassandra.username"),
    _mapped("cassandra.password", "", "kept in memory only; a password file is better", "cassandra.password"),
    _mapped("cassandra.ssl.enabled", "false", "TLS for CQL", "cassandra.tls", kind=Kind.BOOLEAN),
    _mapped(
        "cassandra.ssl.config.path",
        "",
        "trust store and key store are read from it; see below",
        "cassandra.tls_trust_store_file",
        "cassandra.tls_key_store_file",
    ),
    _kept("sanitize.field.names", "false", "field names that suit Avro", kind=Kind.BOOLEAN),
    _kept("field.blacklist", "", "columns that are not sent on", now="field.exclude.list"),
    _ignored("commit.log.location", "", "cassandra.yaml says where the commit log is"),
    _refused(
        "remote.commit.log.relocation.dir",
        "",
        "write a Python transfer class that copies segments; commit.log.transfer.class names it as module:Class",
    ),
    _refused(
        "storage.credential.key.file",
        "",
        "write a Python transfer class that copies segments; commit.log.transfer.class names it as module:Class",
    ),
    _ignored("kafka.consumer.*", "", "nothing is read from Kafka"),
)

_PLATFORM = _of(
    Origin.PLATFORM,
    _ignored("name", "", "an agent has no name in Kafka Connect"),
    _mapped(
        "connector.class",
        "",
        "a class of Debezium's Cassandra connector, of any version; other connectors are refused",
    ),
    _ignored("tasks.max", "1", "one agent per node does the work"),
    _kept("transforms", "", "names of transforms"),
    _kept("transforms.*", "", "settings of transforms"),
    _kept("predicates", "", "names of predicates"),
    _kept("predicates.*", "", "settings of predicates"),
    _mapped("debezium.source.*", "", "the rest of the name is the property, so that a file of Debezium Server works"),
    _kept("debezium.sink.*", "", "the sink of Debezium Server"),
    _kept("debezium.format.*", "", "formats of Debezium Server"),
    _kept("debezium.transforms", "", "names of transforms", now="transforms"),
    _kept("debezium.transforms.*", "", "settings of transforms", now="transforms.*"),
    _kept("debezium.predicates", "", "names of predicates", now="predicates"),
    _kept("debezium.predicates.*", "", "settings of predicates", now="predicates.*"),
    _mapped("quarkus.http.port", "8080", "the port of Debezium Server", "http.port", kind=Kind.WHOLE),
    _ignored("quarkus.*", "", "settings of Debezium Server's platform"),
    _ignored("offset.storage*", "", "the place is kept in the agent's directory"),
    _ignored("schema.history.internal*", "", "schemas are learned from the commit log"),
)

TABLE: tuple[Known, ...] = (*_CONNECTOR, *_CORE, *_OLD, *_PLATFORM)
SOURCE_PREFIX = "debezium.source."
EXACT: dict[str, Known] = {entry.name: entry for entry in TABLE if not entry.is_prefix}
# The longest prefix that fits decides.
PREFIXES: tuple[Known, ...] = tuple(
    sorted((entry for entry in TABLE if entry.is_prefix), key=lambda entry: -len(entry.name))
)


def find(name: str) -> Known | None:
    """What is known about a property."""
    exact = EXACT.get(name)
    if exact is not None:
        return exact
    return next((entry for entry in PREFIXES if name.startswith(entry.name[:-1]) and name != entry.name[:-1]), None)
