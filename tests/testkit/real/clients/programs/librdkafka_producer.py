"""Numbered records by a ``librdkafka`` that is older than any wheel for the Pythons of today, spoken to by ctypes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Mapping
from ctypes import CFUNCTYPE, POINTER, c_int, c_int32, c_size_t, c_void_p

from .librdkafka_calls import NO_ERROR, Message, configured, loaded, made
from .program import Told, arguments

_PRODUCER, _COPIES, _QUEUE_FULL = 0, 2, -184
_ANSWER_SECONDS_MAX = 120
_POLL_MS = 100
_OF_TOPIC = ("request.required.acks", "message.timeout.ms", "produce.offset.report", "request.timeout.ms")
"""The settings that are a topic's."""


def main() -> None:
    """Send, wait for all answers, say what became of them."""
    given, library = arguments(), loaded()
    told = Told(given["partitions"], given["told_file"], given["pace"])
    unanswered = 0

    def delivered(_handle: c_void_p, found: ctypes._Pointer[Message], _opaque: c_void_p) -> None:
        nonlocal unanswered
        unanswered -= 1
        message = found.contents
        if message.error == NO_ERROR:
            number = int(ctypes.string_at(message.payload, message.payload_bytes).rpartition(b":")[2])
            told.acknowledged(message.partition, number, message.offset)
        else:
            told.failed(library.rd_kafka_err2str(message.error).decode())

    called = CFUNCTYPE(None, c_void_p, POINTER(Message), c_void_p)(delivered)
    settings: Mapping[str, object] = {"produce.offset.report": "true", **given["settings"]}
    of_topic = {name: settings[name] for name in _OF_TOPIC if name in settings}
    of_client = {name: content for name, content in settings.items() if name not in _OF_TOPIC}
    of_client |= {"bootstrap.servers": given["bootstrap"], "compression.codec": given["compression"]}
    configuration = configured(library, of_client, of_topic)
    library.rd_kafka_conf_set_dr_msg_cb(configuration, called)
    handle = made(library, _PRODUCER, configuration)
    topic = c_void_p(library.rd_kafka_topic_new(handle, given["topic"].encode(), None))
    for partition, _number, value in told.records(given["name"], given["records"]):
        unanswered += 1
        while library.rd_kafka_produce(
            *(topic, c_int32(partition), c_int(_COPIES), value, c_size_t(len(value)), None, c_size_t(0), None)
        ):
            error = library.rd_kafka_last_error()
            assert error == _QUEUE_FULL, library.rd_kafka_err2str(error)
            library.rd_kafka_poll(handle, _POLL_MS)
        library.rd_kafka_poll(handle, 0)
        time.sleep(told.ahead_seconds)
    deadline = time.monotonic() + _ANSWER_SECONDS_MAX
    while unanswered and time.monotonic() < deadline:
        library.rd_kafka_poll(handle, _POLL_MS)
    told.finish()


if __name__ == "__main__":
    main()
