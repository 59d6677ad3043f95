"""NativeProducer: librdkafka's producer, called without the Python package that carries it.

The package makes several objects of every record, and wakes Python for each one that was delivered, which together
costs more than all the rest of a record's way. Here a kernel hands records over by the thousand, and only failures come
back. The functions are those of librdkafka's public interface, in the library that the package has loaded. Where this
cannot be done `PackageProducer` serves. What comes back is fetched when it is wanted, so nothing is ever called from
inside another call, and an error of one call cannot disturb another.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.deliver.kafka import _send_loop

# From rdkafka.h.
_PRODUCER = 0
_EVENT_DELIVERY, _EVENT_ERROR = 0x1, 0x8
_PURGE_ALL = 0x3
_COPY = 0x2
_MESSAGE_BYTES = 512
# What comes back is looked at as often as this while everything is waited for.
_LOOK_MS = 20
# Records that are handed over between two looks at what came back.
_SOME = 5000
# The functions that are called, with what they give.
_FUNCTIONS: dict[str, Any] = {
    "rd_kafka_conf_new": ctypes.c_void_p,
    "rd_kafka_conf_set": ctypes.c_int,
    "rd_kafka_conf_set_events": None,
    "rd_kafka_conf_set_log_cb": None,
    "rd_kafka_conf_destroy": None,
    "rd_kafka_new": ctypes.c_void_p,
    "rd_kafka_destroy": None,
    "rd_kafka_topic_new": ctypes.c_void_p,
    "rd_kafka_topic_destroy": None,
    "rd_kafka_queue_get_main": ctypes.c_void_p,
    "rd_kafka_queue_destroy": None,
    "rd_kafka_queue_length": ctypes.c_size_t,
    "rd_kafka_queue_poll": ctypes.c_void_p,
    "rd_kafka_event_type": ctypes.c_int,
    "rd_kafka_event_message_next": ctypes.c_void_p,
    "rd_kafka_event_error": ctypes.c_int,
    "rd_kafka_event_error_string": ctypes.c_char_p,
    "rd_kafka_event_error_is_fatal": ctypes.c_int,
    "rd_kafka_event_destroy": None,
    "rd_kafka_flush": ctypes.c_int,
    "rd_kafka_purge": ctypes.c_int,
    "rd_kafka_outq_len": ctypes.c_int,
    "rd_kafka_produce": ctypes.c_int,
    "rd_kafka_last_error": ctypes.c_int,
    "rd_kafka_fatal_error": ctypes.c_int,
    "rd_kafka_produceva": ctypes.c_void_p,
    "rd_kafka_init_transactions": ctypes.c_void_p,
    "rd_kafka_begin_transaction": ctypes.c_void_p,
    "rd_kafka_commit_transaction": ctypes.c_void_p,
    "rd_kafka_abort_transaction": ctypes.c_void_p,
    "rd_kafka_error_code": ctypes.c_int,
    "rd_kafka_error_string": ctypes.c_char_p,
    "rd_kafka_error_is_fatal": ctypes.c_int,
    "rd_kafka_error_is_retriable": ctypes.c_int,
    "rd_kafka_error_txn_requires_abort": ctypes.c_int,
    "rd_kafka_error_destroy": None,
}


def usable(properties: Mapping[str, str]) -> bool:
    """Whether a producer with these properties can be made here."""
    # Tokens are fetched by the package's own callbacks.
    tokens = "OAUTHBEARER" in properties.get("sasl.mechanisms", "").upper()
    return _send_loop.compiled and not tokens and _library() is not None


@cache
def _library() -> Any:
    """The library that the package has loaded; None when it cannot be found or lacks something."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if "librdkafka" in line}
        library = ctypes.CDLL(min(paths))
        for name, result in _FUNCTIONS.items():
            getattr(library, name).restype = result
    except (OSError, ValueError, AttributeError):
        return None
    return library


class NativeProducer:
    """One producer. What failed is given to `failed`, what the library says of itself to `said`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        failed: Callable[[KafkaError], None],
        said: Callable[[KafkaError], None],
    ) -> None:
        self._library = _library()
        self._failed = failed
        self._said = said
        self._producer = self._made({**properties, "delivery.report.only.error": "true"})
        self._queue = ctypes.c_void_p(self._library.rd_kafka_queue_get_main(self._producer))
        self._topics: dict[str, int] = {}
        self._calls = _send_loop.Calls(
            self._address("rd_kafka_produceva"),
            self._address("rd_kafka_error_code"),
            self._address("rd_kafka_error_destroy"),
            self._producer.value or 0,
        )

    def _address(self, function: str) -> int:
        return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0

    def _made(self, properties: Mapping[str, str]) -> ctypes.c_void_p:
        library = self._library
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        given = ctypes.c_void_p(library.rd_kafka_conf_new())
        for name, value in properties.items():
            if library.rd_kafka_conf_set(given, name.encode(), str(value).encode(), message, _MESSAGE_BYTES):
                library.rd_kafka_conf_destroy(given)
                raise _refusal(message)
        library.rd_kafka_conf_set_log_cb(given, None)
        library.rd_kafka_conf_set_events(given, _EVENT_DELIVERY | _EVENT_ERROR)
        made = library.rd_kafka_new(_PRODUCER, given, message, _MESSAGE_BYTES)
        if not made:
            library.rd_kafka_conf_destroy(given)
            raise _refusal(message)
        return ctypes.c_void_p(made)

    def __len__(self) -> int:
        """How many records are not delivered yet. The library counts what it has to tell as well."""
        while True:
            untold = int(self._library.rd_kafka_queue_length(self._queue))
            found = int(self._library.rd_kafka_outq_len(self._producer))
            if untold == self._library.rd_kafka_queue_length(self._queue):
                return found - untold

    def produce(self, topic: str, records: _send_loop.Records, first: int) -> tuple[int, KafkaError | None]:
        """Hand over some records from `first` on; gives the first that was not, and why when it was refused."""
        end = min(first + _SOME, records.count)
        at, code = records.hand_over(self._calls, self._topic(topic), first, end)
        return at, self._refusal(code) if code else None

    def put(self, topic: str, partition: int, key: bytes, value: bytes) -> KafkaError | None:
        """Hand over one record for one partition; gives why when it was refused."""
        place = ctypes.c_void_p(self._topic(topic))
        found = self._library.rd_kafka_produce(
            place, partition, _COPY, value, ctypes.c_size_t(len(value)), key, ctypes.c_size_t(len(key)), None
        )
        return self._refusal(self._library.rd_kafka_last_error()) if found else None

    def _refusal(self, code: int) -> KafkaError:
        """Why a record was not taken. A producer that has ended says that of each one, with the code of its end."""
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        ended = self._library.rd_kafka_fatal_error(self._producer, message, ctypes.c_size_t(_MESSAGE_BYTES))
        return KafkaError(code, message.value.decode(errors="replace") or None, bool(ended))

    def _topic(self, topic: str) -> int:
        if topic not in self._topics:
            made = self._library.rd_kafka_topic_new(self._producer, topic.encode(), None)
            if not made:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "a topic's name cannot be used"))
            self._topics[topic] = made
        return self._topics[topic]

    def init_transactions(self, seconds: float) -> None:
        """Become the one producer of the transactional id, and end what an earlier one has left open."""
        self._raise(self._library.rd_kafka_init_transactions(self._producer, int(seconds * 1000)))

    def begin_transaction(self) -> None:
        self._raise(self._library.rd_kafka_begin_transaction(self._producer))

    def commit_transaction(self, seconds: float) -> None:
        """Commit. The library waits in it for what is still on its way, and nobody hears of that meanwhile."""
        self._raise(self._library.rd_kafka_commit_transaction(self._producer, int(seconds * 1000)))

    def abort_transaction(self, seconds: float) -> None:
        """Give the transaction up; the same holds for what is still on its way."""
        self._raise(self._library.rd_kafka_abort_transaction(self._producer, int(seconds * 1000)))

    def _raise(self, given: int | None) -> None:
        """Raise the error that a call gave, if it gave one."""
        if not given:
            return
        library, error = self._library, ctypes.c_void_p(given)
        made = KafkaError(
            library.rd_kafka_error_code(error),
            (library.rd_kafka_error_string(error) or b"").decode(errors="replace"),
            bool(library.rd_kafka_error_is_fatal(error)),
            bool(library.rd_kafka_error_is_retriable(error)),
            bool(library.rd_kafka_error_txn_requires_abort(error)),
        )
        library.rd_kafka_error_destroy(error)
        raise KafkaException(made)

    def poll(self, seconds: float) -> None:
        """Tell what has come back; wait this long for it, or until something was delivered."""
        before = len(self)
        end = time.monotonic() + seconds
        while not self._tell_all() and len(self) >= before and (left_s := end - time.monotonic()) > 0:
            self._library.rd_kafka_flush(self._producer, min(_LOOK_MS, int(left_s * 1000) + 1))

    def flush(self, seconds: float) -> None:
        """Send everything at once, and wait this long until it is delivered or something fails."""
        end = time.monotonic() + seconds
        while not self._tell_all() and len(self) and (left_s := end - time.monotonic()) > 0:
            self._library.rd_kafka_flush(self._producer, min(_LOOK_MS, int(left_s * 1000) + 1))

    def purge(self) -> None:
        """Give up all that waits."""
        self._library.rd_kafka_purge(self._producer, _PURGE_ALL)

    def close(self) -> None:
        """Let the library go of it; nothing can be done with it afterwards."""
        for topic in self._topics.values():
            self._library.rd_kafka_topic_destroy(ctypes.c_void_p(topic))
        self._topics = {}
        self._library.rd_kafka_queue_destroy(self._queue)
        self._library.rd_kafka_destroy(self._producer)

    def _tell_all(self) -> bool:
        """Tell what has come back; whether anything has."""
        told = False
        while event := self._library.rd_kafka_queue_poll(self._queue, 0):
            told = True
            self._tell(ctypes.c_void_p(event))
        return told

    def _tell(self, event: ctypes.c_void_p) -> None:
        library = self._library
        kind = library.rd_kafka_event_type(event)
        if kind == _EVENT_DELIVERY:
            while message := library.rd_kafka_event_message_next(event):
                # A message begins with its error.
                code = ctypes.c_int.from_address(message).value
                if code:
                    self._failed(KafkaError(code))
        elif kind == _EVENT_ERROR:
            text = (library.rd_kafka_event_error_string(event) or b"").decode(errors="replace")
            fatal = bool(library.rd_kafka_event_error_is_fatal(event))
            self._said(KafkaError(library.rd_kafka_event_error(event), text, fatal))
        library.rd_kafka_event_destroy(event)


def _refusal(message: Any) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._INVALID_ARG, message.value.decode(errors="replace")))
