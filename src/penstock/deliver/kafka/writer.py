"""The Kafka writer: sends the records of one task, and returns when the brokers have them.

After a crash the same batch is sent again: consumers may then see records twice, with the same identity in the headers.
"""

from __future__ import annotations

from penstock.deliver.kafka.connection import KEPT, Connection
from penstock.deliver.kafka.packers import Packers
from penstock.deliver.kafka.parcels import NAME
from penstock.deliver.sink import Delivered, Task, Writer
from penstock.records.records import Records


class KafkaWriter(Writer):
    """Writes without transactions."""

    def __init__(self, packers: Packers, properties: dict[str, str], task: Task) -> None:
        self._packers = packers
        self._properties = properties
        self._task = task
        self._delivered = Delivered()
        self._connection: Connection | None = None

    def write(self, records: Records) -> None:
        if not len(records):
            return
        connection = self._open()
        for parcel in self._packers.pack(records, self._task):
            self._delivered.dead += parcel.dead
            self._delivered.records += parcel.records.num_rows
            self._delivered.bytes += connection.send(parcel)
            if connection.failures:
                connection.flush()

    def finish(self) -> Delivered:
        if self._connection is not None:
            self._connection.flush()
        return self._delivered

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.waiting.over()
        # What is on its way may arrive or not; the batch comes again. A producer with failures is not used again.
        KEPT.drop(self._key())

    def _open(self) -> Connection:
        if self._connection is None:
            name = self._task.pipeline
            connection: Connection = KEPT.get(self._key(), self._properties, lambda: Connection(self._properties, name))
            connection.waiting = self._task.waiting(NAME)
            self._connection = connection
        return self._connection

    def _key(self) -> object:
        return ("records", self._task.pipeline, self._properties["bootstrap.servers"])
