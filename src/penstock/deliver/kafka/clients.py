"""Clients of the broker: what their errors mean to the pipeline, and where their log lines go."""

from __future__ import annotations

import logging
import re

from confluent_kafka import KafkaException

from penstock.errors import DeliveryFailed, InvalidSetting, TargetRefused


def refused_property(error: KafkaException) -> InvalidSetting:
    """A property that librdkafka does not know or cannot use; its message has the name and may have the value."""
    text = str(error.args[0].str())
    named = re.search(r'property:? "?([\w.]+)', text)
    which = f" {named[1]}" if named else ""
    return InvalidSetting(f"a property of the producer cannot be used:{which or ' ' + error.args[0].name()}")


def trouble(error: KafkaException, what: str, **place: object) -> DeliveryFailed | TargetRefused:
    found = error.args[0]
    kind = DeliveryFailed if found.retriable() or found.name().startswith("_") else TargetRefused
    return kind(f"{what}: {found.name()}", **place)


def silent() -> logging.Logger:
    """librdkafka's own log lines go nowhere: what matters comes as an error."""
    logger = logging.getLogger("penstock.kafka")
    logger.disabled = True
    return logger
