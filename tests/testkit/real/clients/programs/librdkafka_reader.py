"""Reads a topic by a ``librdkafka`` that is older than any wheel for the Pythons of today, as a member of a group.

Spoken to by ctypes, with the little of its interface that all releases from 0.11 on have."""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_void_p,
    create_string_buffer,
)

from .program import Read, arguments

LIBRARY_VARIABLE = "LIBRDKAFKA"
"""Has the path of the library."""
_CONSUMER, _CONF_OK, _PARTITION_EOF, _NO_ERROR = 1, 0, -191, 0
_POLL_MS, _ASK_MS = 200, 20_000
_TEXT_BYTES = 512


class _Message(Structure):
    """``rd_kafka_message_t``"""

    _fields_ = [
        ("error", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("payload_bytes", c_size_t),
        ("key", c_void_p),
        ("key_bytes", c_size_t),
        ("offset", c_int64),
    ]


class _Partition(Structure):
    """``rd_kafka_topic_partition_t``"""

    _fields_ = [
        ("topic", c_char_p),
        ("partition", c_int32),
        ("offset", c_int64),
        ("metadata", c_void_p),
        ("metadata_bytes", c_size_t),
        ("opaque", c_void_p),
        ("error", c_int),
        ("private", c_void_p),
    ]


class _Partitions(Structure):
    """``rd_kafka_topic_partition_list_t``"""

    _fields_ = [("count", c_int), ("room", c_int), ("elements", POINTER(_Partition))]


def _loaded() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ[LIBRARY_VARIABLE])
    for name in ("rd_kafka_conf_new", "rd_kafka_new"):
        getattr(library, name).restype = c_void_p
    library.rd_kafka_err2str.restype = c_char_p
    library.rd_kafka_consumer_poll.restype = POINTER(_Message)
    library.rd_kafka_topic_partition_list_new.restype = POINTER(_Partitions)
    library.rd_kafka_topic_partition_list_add.restype = POINTER(_Partition)
    return library


class _Consumer:
    """One consumer of a group."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._library = _loaded()
        text = create_string_buffer(_TEXT_BYTES)
        configuration = c_void_p(self._library.rd_kafka_conf_new())
        wanted = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": "false"}
        for name, content in {**wanted, "auto.offset.reset": "earliest", "enable.partition.eof": "true"}.items():
            done = self._library.rd_kafka_conf_set(configuration, name.encode(), content.encode(), text, _TEXT_BYTES)
            assert done == _CONF_OK, text.value
        self._handle = c_void_p(self._library.rd_kafka_new(_CONSUMER, configuration, text, _TEXT_BYTES))
        assert self._handle, text.value
        self._library.rd_kafka_poll_set_consumer(self._handle)

    def _check(self, error: int, what: str) -> None:
        if error != _NO_ERROR:
            raise SystemExit(f"{what}: {self._library.rd_kafka_err2str(error).decode()}")

    def _listed(self, topic: str, partitions: range) -> ctypes._Pointer[_Partitions]:
        listed: ctypes._Pointer[_Partitions] = self._library.rd_kafka_topic_partition_list_new(len(partitions))
        for partition in partitions:
            self._library.rd_kafka_topic_partition_list_add(listed, topic.encode(), c_int32(partition))
        return listed

    def subscribe(self, topic: str) -> None:
        """Join."""
        self._check(self._library.rd_kafka_subscribe(self._handle, self._listed(topic, range(-1, 0))), "subscribe")

    def poll(self, reading: Read) -> None:
        """Take one record, if one comes soon."""
        found = self._library.rd_kafka_consumer_poll(self._handle, _POLL_MS)
        if not found:
            return
        message = found.contents
        if message.error == _NO_ERROR:
            value = ctypes.string_at(message.payload, message.payload_bytes) if message.payload else b""
            reading.record(message.partition, message.offset, value)
        elif message.error != _PARTITION_EOF:
            reading.told_of(self._library.rd_kafka_err2str(message.error).decode())
        self._library.rd_kafka_message_destroy(found)

    def commit(self) -> None:
        """Commit what was read, and wait for it."""
        self._check(self._library.rd_kafka_commit(self._handle, None, 0), "commit")

    def committed(self, topic: str, partitions: int) -> dict[int, int]:
        """Ask where the group stands."""
        listed = self._listed(topic, range(partitions))
        self._check(self._library.rd_kafka_committed(self._handle, listed, _ASK_MS), "committed")
        found = (listed.contents.elements[number] for number in range(listed.contents.count))
        return {one.partition: one.offset for one in found}

    def watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        """Ask for the first and the next offset."""
        low, high = c_int64(), c_int64()
        error = self._library.rd_kafka_query_watermark_offsets(
            self._handle, topic.encode(), c_int32(partition), byref(low), byref(high), _ASK_MS
        )
        self._check(error, "watermarks")
        return low.value, high.value

    def close(self) -> None:
        """Leave the group."""
        self._check(self._library.rd_kafka_consumer_close(self._handle), "close")


def main() -> None:
    """Read so many records, or until the time is up."""
    given = arguments()
    assert given["group"], "this program reads in groups only"
    consumer, reading = _Consumer(given["bootstrap"], given["group"]), Read(given)
    consumer.subscribe(given["topic"])
    while reading.goes_on:
        consumer.poll(reading)
        if reading.commit_is_due:
            consumer.commit()
    if reading.records:
        consumer.commit()
    committed = consumer.committed(given["topic"], given["partitions"])
    ends = {number: consumer.watermarks(given["topic"], number) for number in range(given["partitions"])}
    consumer.close()
    reading.finish(committed=committed, ends={number: end for number, (_, end) in ends.items()})


if __name__ == "__main__":
    main()
