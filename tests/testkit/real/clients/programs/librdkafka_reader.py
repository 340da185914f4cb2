"""Reads a topic by a ``librdkafka`` that is older than any wheel for the Pythons of today: as a member of a group, or
with all partitions assigned by hand. Spoken to by ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import byref, c_int32, c_int64

from .librdkafka_calls import NO_ERROR, Partitions, configured, loaded, made
from .program import Read, arguments

_CONSUMER, _PARTITION_EOF, _BEGINNING = 1, -191, -2
_POLL_MS, _ASK_MS = 200, 20_000
_OF_TOPIC = {"auto.offset.reset": "earliest"}
_NO_GROUP = "none"
"""One has to have a name, even if partitions are assigned by hand."""


class _Consumer:
    """One consumer of a group."""

    def __init__(self, bootstrap: str, group: str, settings: Mapping[str, object]) -> None:
        self._library = loaded()
        wanted = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": "false", **settings}
        self._handle = made(self._library, _CONSUMER, configured(self._library, wanted, _OF_TOPIC))
        self._library.rd_kafka_poll_set_consumer(self._handle)

    def _check(self, error: int, what: str) -> None:
        if error != NO_ERROR:
            raise SystemExit(f"{what}: {self._library.rd_kafka_err2str(error).decode()}")

    def _listed(self, topic: str, partitions: range) -> ctypes._Pointer[Partitions]:
        listed: ctypes._Pointer[Partitions] = self._library.rd_kafka_topic_partition_list_new(len(partitions))
        for partition in partitions:
            self._library.rd_kafka_topic_partition_list_add(listed, topic.encode(), c_int32(partition))
        return listed

    def subscribe(self, topic: str) -> None:
        """Join."""
        self._check(self._library.rd_kafka_subscribe(self._handle, self._listed(topic, range(-1, 0))), "subscribe")

    def assign(self, topic: str, partitions: int) -> None:
        """Take all partitions, from their begin."""
        listed = self._listed(topic, range(partitions))
        for number in range(partitions):
            listed.contents.elements[number].offset = _BEGINNING
        self._check(self._library.rd_kafka_assign(self._handle, listed), "assign")

    def poll(self, reading: Read) -> None:
        """Take one record, if one comes soon."""
        found = self._library.rd_kafka_consumer_poll(self._handle, _POLL_MS)
        if not found:
            return
        message = found.contents
        if message.error == NO_ERROR:
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

    def offsets_at(self, topic: str, partitions: int, time_ms: int) -> dict[int, int]:
        """Ask for the first offsets of that time or later."""
        listed = self._listed(topic, range(partitions))
        for number in range(partitions):
            listed.contents.elements[number].offset = time_ms
        self._check(self._library.rd_kafka_offsets_for_times(self._handle, listed, _ASK_MS), "offsets for times")
        found = (listed.contents.elements[number] for number in range(listed.contents.count))
        return {one.partition: one.offset for one in found}

    def close(self) -> None:
        """Leave the group."""
        self._check(self._library.rd_kafka_consumer_close(self._handle), "close")


def main() -> None:
    """Read so many records, or until the time is up."""
    given = arguments()
    topic, group = given["topic"], given["group"]
    consumer, reading = _Consumer(given["bootstrap"], group or _NO_GROUP, given["settings"]), Read(given)
    if group:
        consumer.subscribe(topic)
    else:
        consumer.assign(topic, given["partitions"])
    while reading.goes_on:
        consumer.poll(reading)
        if group and reading.commit_is_due:
            consumer.commit()
    more: dict[str, object] = {}
    if group:
        if reading.records:
            consumer.commit()
        more["committed"] = consumer.committed(topic, given["partitions"])
    ends = {number: consumer.watermarks(topic, number) for number in range(given["partitions"])}
    if (time_ms := given.get("time_ms")) is not None:
        more["times"] = consumer.offsets_at(topic, given["partitions"], time_ms)
    consumer.close()
    reading.finish(**more, ends={number: end for number, (_, end) in ends.items()})


if __name__ == "__main__":
    main()
