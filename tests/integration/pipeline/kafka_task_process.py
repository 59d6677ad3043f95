"""One bucket of a pipeline in a process of its own, to be killed: delivers batch after batch, and notes which it did.

Arguments: broker, topic prefix, name of the pipeline, file with the number of the next batch, number of batches. It
says each step on standard output: `sent`, when the records of a batch are with the producer; `done`, when the sink has
finished; `kept`, when the batch is noted as done, as Spark would.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.deliver.kafka.sink import KafkaSink
from penstock.deliver.sink import Task
from penstock.settings.kafka import KafkaSettings
from tests.kafka_records import NOW_US, USERS, records_of, user

RECORDS = 300


def main(broker: str, prefix: str, pipeline: str, place: Path, batches: int) -> None:
    given = {"bootstrap_servers": broker, "topic_prefix": prefix, "delivery": "exactly-once"}
    sink = KafkaSink(KafkaSettings.model_validate(given))
    sink.keep_in(place.with_suffix(".sink"), pipeline)
    sink.divide(1)
    sink.check()
    sink.prepare([USERS])
    first = int(place.read_text()) if place.exists() else 0
    for batch in range(first, batches):
        with sink.writer(Task(pipeline, batch, 0, NOW_US + batch)) as writer:
            for part in range(3):
                begin = batch * RECORDS + part * RECORDS // 3
                writer.write(records_of(USERS, [user(begin + number) for number in range(RECORDS // 3)]))
            _say("sent")
            writer.finish()
        _say("done")
        made = place.with_suffix(".new")
        made.write_text(str(batch + 1))
        made.replace(place)
        _say("kept")


def _say(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), int(sys.argv[5]))
