"""Topics: their names, and on the driver their making and what they take.

A topic is `prefix.keyspace.table` unless a function of the operator's names it. Characters that Kafka does not allow
become underscores, as in Debezium; two tables whose names would then be one are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaException

# They are public, but the library's types do not say so.
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from penstock.deliver.kafka.clients import refused_property, silent, trouble
from penstock.deliver.kafka.producer_properties import client_properties
from penstock.errors import DeliveryInDoubt, InvalidSetting, TargetRefused
from penstock.filters.functions import Functions
from penstock.model.schema import TableId
from penstock.settings.kafka import KafkaSettings

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_NAME_MAX = 249
_ANSWER_S = 30.0
_EXISTS = "TOPIC_ALREADY_EXISTS"
_SIZE_SETTING = "max.message.bytes"
_POLICY_SETTING = "cleanup.policy"
# Only the last mark of each bucket is of use. Segments are small, so that compaction comes to the others before long.
_PROGRESS = {_POLICY_SETTING: "compact", "segment.bytes": str(64 << 20)}


class TopicNames:
    """The topic of each table."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._prefix = settings.topic_prefix
        self._delimiter = settings.topic_delimiter
        self._function: Callable[..., object] | None = None
        if settings.topic_function is not None:
            self._function = Functions.load({"topic": settings.topic_function})["topic"]
        self._tables: dict[str, TableId] = {}

    def of(self, table: TableId) -> str:
        """The topic's name; raises when another table has it."""
        if self._function is None:
            name = _ILLEGAL.sub("_", self._delimiter.join((self._prefix, table.keyspace, table.table)))
        else:
            name = str(self._function(self._prefix, table.keyspace, table.table))
        if not name or len(name) > _NAME_MAX or _ILLEGAL.search(name) or name in (".", ".."):
            raise InvalidSetting("a table's name makes no name of a topic", table=table, topic=name[:_NAME_MAX])
        # A function may send many tables to one topic on purpose; a clash of made names loses events.
        other = self._tables.setdefault(name, table)
        if other != table and self._function is None:
            raise InvalidSetting(f"two tables have the same topic: {other} and {table}", topic=name)
        return name


class Topics:
    """The broker's topics, from the driver's side."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        try:
            self._admin = AdminClient({**client_properties(settings), "log.connection.close": "false"}, logger=silent())
        except KafkaException as error:
            raise refused_property(error) from error

    def check(self) -> None:
        """Raise when no broker answers."""
        self._existing()

    def _existing(self) -> set[str]:
        return set(self._topics())

    def _topics(self) -> dict[str, Any]:
        try:
            return dict(self._admin.list_topics(timeout=_ANSWER_S).topics)
        except KafkaException as error:
            raise trouble(error, "the brokers do not answer") from error

    def make(self, names: Iterable[str]) -> None:
        """Make the topics that are missing."""
        wanted = sorted(set(names))
        if not self._settings.create_topics or not wanted:
            return
        missing = set(wanted) - self._existing()
        settings = self._settings
        self._create(missing, settings.partitions, settings.topic_settings)

    def make_progress(self, name: str, partitions: int, *, begun: bool) -> None:
        """Make the topic in which sent batches are noted, or check that it will keep what it holds.

        `begun`: it holds notes of this pipeline, and one that is made anew would not.
        """
        there = self._partitions(name)
        if begun and there < partitions:
            raise DeliveryInDoubt(
                "the topic in which sent batches are noted is gone, or was made anew", topic=name, partitions=there
            )
        if there < partitions and not self._settings.create_topics:
            raise TargetRefused(
                f"a topic is missing, and kafka.create_topics is off; make it with {partitions} partitions and "
                "cleanup.policy=compact",
                topic=name,
            )
        if not there:
            self._create({name}, partitions, _PROGRESS)
        elif there < partitions:
            self._done(self._admin.create_partitions([NewPartitions(name, partitions)]), "add partitions to")
        policy = self._configs([name], _POLICY_SETTING).get(name, _PROGRESS[_POLICY_SETTING])
        if policy != _PROGRESS[_POLICY_SETTING]:
            raise TargetRefused(
                f"the topic in which sent batches are noted would forget them: its cleanup.policy is {policy} and "
                "must be compact",
                topic=name,
            )

    def _partitions(self, name: str) -> int:
        found = self._topics().get(name)
        return 0 if found is None else len(found.partitions)

    def _create(self, names: set[str], partitions: int | None, config: dict[str, str]) -> None:
        made = [
            NewTopic(
                name,
                num_partitions=-1 if partitions is None else partitions,
                replication_factor=self._settings.replication_factor or -1,
                config=config,
            )
            for name in sorted(names)
        ]
        if not made:
            return
        self._done(self._admin.create_topics(made, operation_timeout=_ANSWER_S), "make")

    @staticmethod
    def _done(asked: Mapping[str, Any], what: str) -> None:
        for name, done in asked.items():
            try:
                done.result()
            except KafkaException as error:
                if error.args[0].name() != _EXISTS:
                    raise trouble(error, f"the broker does not {what} a topic", topic=name) from error

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """How large a batch of records each topic takes, at the most."""
        return {name: int(value) for name, value in self._configs(names, _SIZE_SETTING).items()}

    def _configs(self, names: Iterable[str], setting: str) -> dict[str, str]:
        """One setting of each topic, as far as this login may ask."""
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        found: dict[str, str] = {}
        if not asked:
            return found
        for resource, done in self._admin.describe_configs(asked, request_timeout=_ANSWER_S).items():
            try:
                entry = done.result().get(setting)
            except KafkaException:
                # Not every login may ask; then the producer's own limit, or the refusal when it is needed, must do.
                continue
            if entry is not None and entry.value is not None:
                found[resource.name] = entry.value
        return found
