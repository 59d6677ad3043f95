"""Progress: the proof that a task's part of a batch is in Kafka, and how it is asked for.

A pipeline has a compacted topic with a partition for each bucket. Each transaction ends with a record there, the mark:
which checkpoint, which batch, of which time. Compaction never removes the last record of a key, so the end of the
partition says for ever what was committed last. A mark stands in every partition before the first batch is sent, and
the checkpoint knows it: where a partition does not end with a mark of the checkpoint, the proof was lost, and nothing
is sent. A partition belongs to one bucket alone, because an open transaction hides all that comes behind it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.deliver.kafka.clients import silent
from penstock.deliver.sink import Task
from penstock.errors import CorruptCheckpoint, DeliveryInDoubt, InvalidSetting, StorageError
from penstock.log import sealed
from penstock.system import json_text
from penstock.system.files import OsFiles, make_durable_directory

_VERSION = 1
_FILE = "progress.json"
_ANSWER_S = 10.0
# How far before a partition's end a mark is looked for: further back each time that there is none. What ends a
# transaction takes a place in the partition too, and so do transactions that were given up.
_BACK = 16
_FARTHER = 16
# Of the mark that is there before the first batch.
_NO_BATCH = -1


@dataclass(frozen=True, slots=True)
class Mark:
    """What the last record of a bucket's partition says."""

    checkpoint: str
    batch: int
    time_us: int

    def encode(self) -> bytes:
        return json.dumps({"version": _VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Mark:
        """Raises ValueError for what is no mark."""
        try:
            found = json_text.parse(data or b"")
            if found["version"] != _VERSION:
                raise ValueError("of another version")
            return cls(str(found["checkpoint"]), int(found["batch"]), int(found["time_us"]))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError("no mark") from error


@dataclass(frozen=True, slots=True)
class Proof:
    """Where a task's mark goes, and what must be there before."""

    topic: str
    bucket: int
    mark: Mark
    # The last mark of the bucket that this run of the pipeline knows of.
    known: Mark | None = None

    @property
    def key(self) -> bytes:
        return key_of(self.bucket)

    def check(self, found: Mark | None) -> None:
        """Raise when the end of the partition does not say whether the batch was sent."""
        if found is None or (self.known is not None and found.batch < self.known.batch):
            raise self._doubt("what says which batches were sent is gone from Kafka")
        if found.checkpoint != self.mark.checkpoint:
            raise self._doubt("a pipeline of the same name with another checkpoint has sent batches")
        if found.batch > self.mark.batch or (found.batch == self.mark.batch and found != self.mark):
            raise self._doubt(f"Kafka has batch {found.batch}, and the checkpoint does not know of it")

    def _doubt(self, reason: str) -> DeliveryInDoubt:
        return DeliveryInDoubt(
            f"whether batch {self.mark.batch} was sent cannot be told: {reason}",
            topic=self.topic,
            partition=self.bucket,
        )


def key_of(bucket: int) -> bytes:
    return str(bucket).encode()


@dataclass(frozen=True, slots=True)
class Progress:
    """The marks of one checkpoint: which topic they are in, and the last of this run by bucket."""

    topic: str
    checkpoint: str
    last: dict[int, Mark] = field(default_factory=dict)

    def proof(self, task: Task) -> Proof:
        mark = Mark(self.checkpoint, task.batch, task.now_us)
        return Proof(self.topic, task.bucket, mark, self.last.get(task.bucket))

    def first(self, now_us: int = 0) -> Mark:
        """The mark that stands in every partition before the first batch."""
        return Mark(self.checkpoint, _NO_BATCH, now_us)

    def done(self, payload: bytes) -> None:
        """Note what a task has left for the driver."""
        bucket, _, mark = payload.partition(b" ")
        self.last[int(bucket)] = Mark.decode(mark)


def payload_of(proof: Proof) -> bytes:
    """What a task leaves for the driver."""
    return proof.key + b" " + proof.mark.encode()


def read_note(directory: Path, topic: str) -> Progress | None:
    """What the checkpoint knows; None when its first marks are still to be made."""
    file = directory / _FILE
    if not file.exists():
        return None
    try:
        found = sealed.read(OsFiles(), str(file))
        if found["version"] != _VERSION:
            raise ValueError("of another version")
        noted = Progress(str(found["topic"]), str(found["checkpoint"]))
    except OSError as error:
        raise StorageError(f"cannot read where sent batches are noted: {error.strerror}", file=file) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpoint("the file that says where sent batches are noted is damaged", file=file) from error
    if noted.topic != topic:
        raise InvalidSetting(
            f"the batches of this checkpoint are noted in the topic {noted.topic}, not in {topic}",
            setting="kafka.progress_topic",
        )
    return noted


def write_note(directory: Path, progress: Progress) -> None:
    """Let the checkpoint know that the first marks are there. It is durable before anything is sent."""
    try:
        make_durable_directory(OsFiles(), str(directory))
        content = {"version": _VERSION, "topic": progress.topic, "checkpoint": progress.checkpoint}
        sealed.write(OsFiles(), str(directory), _FILE, content)
    except OSError as error:
        raise StorageError(f"cannot note where sent batches are noted: {error.strerror}", file=_FILE) from error


class TopicMissingError(Exception):
    """The brokers do not know the topic or the partition, at least not now."""


def last_mark(client: Mapping[str, str], group: str, proof: Proof) -> Mark | None:
    """The last mark that is committed; None when there is none. Raises KafkaException when there is no answer."""
    consumer = Consumer(
        {
            **client,
            "group.id": group,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            # The end of the partition is told by an answer without records, which need not be waited for.
            "fetch.wait.max.ms": "10",
            "enable.partition.eof": "true",
            # A copy that is nearer may not have the end yet.
            "client.rack": "",
            "reconnect.backoff.max.ms": "1000",
        },
        logger=silent(),
    )
    try:
        found = consumer.list_topics(proof.topic, _ANSWER_S).topics.get(proof.topic)
        if found is None or proof.bucket not in found.partitions:
            raise TopicMissingError
        place = TopicPartition(proof.topic, proof.bucket)
        first, end = consumer.get_watermark_offsets(place, _ANSWER_S)
        back = _BACK
        while True:
            start = max(first, end - back)
            value = _last(consumer, TopicPartition(proof.topic, proof.bucket, start))
            if value is not None:
                return _decoded(value, proof)
            if start == first:
                return None
            back *= _FARTHER
    finally:
        consumer.close()


def _last(consumer: Consumer, start: TopicPartition) -> bytes | None:
    """The value of the last record from here on."""
    consumer.assign([start])
    value: bytes | None = None
    while True:
        message = consumer.poll(_ANSWER_S)
        if message is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = message.error()
        if error is None:
            value = bytes(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            return value
        else:
            raise KafkaException(error)


def _decoded(value: bytes, proof: Proof) -> Mark:
    try:
        return Mark.decode(value)
    except ValueError as error:
        raise DeliveryInDoubt(
            "the topic in which sent batches are noted holds something else", topic=proof.topic, partition=proof.bucket
        ) from error
