"""A blocking Kafka client without manners: sends any bytes, any version, any producer id, epoch and sequence.

Hands out what was answered and judges nothing. Built on our codecs, so that it can also say what no real client says.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from crc32c import crc32c

from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header, parse_response_header
from idemproxy.codecs.logged import Logged, LoggedBatch, iterate_logged
from idemproxy.codecs.message_set import inner_messages
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.codecs.record_batch import Record, encode_batch, iterate_records
from idemproxy.proxy.versions import ApiKey

ANSWER_SECONDS_MAX = 20.0
TIMEOUT_MS = 10_000
PRODUCE_VERSION = 3
OUTPUT_BYTES_MAX = 256 << 20
HIGH_WATERMARK, LOG_END = -1, -3
"""Replica ids of a ListOffsets: what consumers are shown, or all that the leader has."""

_CLIENT_ID = "raw"
_INT32_BYTES = 4
_CRC_AT, _ATTRIBUTES_AT = 17, 21
PartRecords = tuple[str, int, bytes | None]


def batch(
    values: Sequence[bytes],
    *,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    key: bytes | None = None,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    codec: Codec = Codec.NONE,
    attributes: int = 0,
) -> bytes:
    """Return one record batch of these values; without a producer id it has no epoch and no sequence either."""
    records = [Record(index, 1_700_000_000_000 + index, key, value, headers) for index, value in enumerate(values)]
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence if producer_id >= 0 else -1,
        codec=codec,
        attributes=attributes,
    )


def resigned(records: bytes, position: int, change: bytes) -> bytes:
    """Return the batch with other bytes at a position, and a checksum that fits."""
    changed = bytearray(records)
    changed[position : position + len(change)] = change
    changed[_CRC_AT:_ATTRIBUTES_AT] = crc32c(changed[_ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(changed)


class RawClient:
    """One connection."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_seconds: float = ANSWER_SECONDS_MAX,
        client_id: str | None = _CLIENT_ID,
        source: str | None = None,
    ) -> None:
        """``source``: the address to come from, where it is not to be the usual one."""
        self._socket = socket.create_connection(
            address, timeout_seconds, source_address=None if source is None else (source, 0)
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._asked: dict[int, tuple[int, int]] = {}

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    # ------------------------------------------------------------------ bytes and frames
    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def half_close(self) -> None:
        """Say that nothing more comes, and keep listening."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, api_key: int, api_version: int, body: bytes) -> int:
        """Send one request and return its correlation id; the answer is not waited for."""
        correlation_id, request = self._framed(api_key, api_version, body)
        self.send_bytes(request)
        return correlation_id

    def send_together(self, *requests: tuple[int, int, bytes]) -> None:
        """Send several requests, each API key, version and body, in one write."""
        self.send_bytes(b"".join(self._framed(*request)[1] for request in requests))

    def _framed(self, api_key: int, api_version: int, body: bytes) -> tuple[int, bytes]:
        correlation_id = next(self._correlation_ids)
        self._asked[correlation_id] = (api_key, api_version)
        return correlation_id, frame(encode_request_header(api_key, api_version, correlation_id, self._client_id), body)

    def answer(self) -> tuple[int, bytes]:
        """Return (correlation id, body) of the next answer. Raises ConnectionError when there is none."""
        payload = self._receive(int.from_bytes(self._receive(_INT32_BYTES), "big"))
        correlation_id = int.from_bytes(payload[:_INT32_BYTES], "big")
        _, start = parse_response_header(payload, *self._asked.pop(correlation_id))
        return correlation_id, payload[start:]

    def call(self, api_key: int, api_version: int, body: bytes) -> bytes:
        """Send one request and return the body of its answer, which has to be the next one."""
        wanted = self.send(api_key, api_version, body)
        correlation_id, answer = self.answer()
        assert correlation_id == wanted
        return answer

    def ask(self, api_key: int, api_version: int, /, **fields: Any) -> Any:
        """Send one request of the protocol library's fields and return the decoded answer."""
        body = messages.encode_request(api_key, api_version, **fields)
        return messages.decode_response(api_key, api_version, self.call(api_key, api_version, body))

    def is_closed(self) -> bool:
        """Wait until the other side hangs up: True. False when it says something. Raises TimeoutError for silence."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_silent(self, seconds: float) -> bool:
        """Does nothing arrive, not even an end, within this time?"""
        before = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        except ConnectionError:
            return False
        finally:
            self._socket.settimeout(before)
        return False

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the other side hung up")
            data += more
        return bytes(data)

    # ------------------------------------------------------------------ producing
    def init_producer_id(
        self, version: int = 0, transactional_id: str | None = None, producer_id: int = -1, producer_epoch: int = -1
    ) -> tuple[int, int, int]:
        """Return (error code, producer id, epoch). ``producer_id``, ``producer_epoch``: of who asks for a higher one,
        from version 3 on."""
        given = {"producer_id": producer_id, "producer_epoch": producer_epoch} if version >= 3 else {}
        answer = self.ask(
            ApiKey.INIT_PRODUCER_ID, version, transactional_id=transactional_id, transaction_timeout_ms=60_000, **given
        )
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def new_producer_id(self) -> int:
        """Return a fresh producer id."""
        error_code, producer_id, epoch = self.init_producer_id()
        assert (error_code, epoch) == (0, 0)
        return producer_id

    def send_produce(
        self,
        parts: Sequence[PartRecords],
        *,
        version: int = PRODUCE_VERSION,
        acks: int = -1,
        timeout_ms: int = TIMEOUT_MS,
        transactional_id: str | None = None,
    ) -> int:
        """Send (topic, partition, records) in this order, doubles kept; return the correlation id."""
        body = self.produce_body(
            parts, version=version, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
        )
        return self.send(ApiKey.PRODUCE, version, body)

    @staticmethod
    def produce_body(
        parts: Sequence[PartRecords],
        *,
        version: int = PRODUCE_VERSION,
        acks: int = -1,
        timeout_ms: int = TIMEOUT_MS,
        transactional_id: str | None = None,
    ) -> bytes:
        """Return the body of such a request."""
        topics: list[dict[str, Any]] = []
        for topic, partition, records in parts:
            if not topics or topics[-1]["name"] != topic:
                topics.append({"name": topic, "partition_data": []})
            topics[-1]["partition_data"].append({"index": partition, "records": records})
        return messages.encode_request(
            ApiKey.PRODUCE,
            version,
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=topics,
        )

    def produce_answer(self, version: int = PRODUCE_VERSION) -> list[PartitionAnswer]:
        """Return the next answer, which has to be one to a produce of this version."""
        _, body = self.answer()
        return _partition_answers(messages.decode_response(ApiKey.PRODUCE, version, body))

    def produce(
        self, parts: Sequence[PartRecords], *, version: int = PRODUCE_VERSION, **options: Any
    ) -> list[PartitionAnswer]:
        """Send one produce and return what every partition was answered."""
        self.send_produce(parts, version=version, **options)
        return self.produce_answer(version)

    def produce_one(self, topic: str, partition: int, records: bytes | None, **options: Any) -> PartitionAnswer:
        """The same for one partition."""
        (answer,) = self.produce([(topic, partition, records)], **options)
        assert (answer.topic, answer.partition) == (topic, partition)
        return answer

    # ------------------------------------------------------------------ reading
    def end_offset(self, topic: str, partition: int, replica_id: int = LOG_END) -> int:
        """Return the log end offset, or what consumers are shown (``HIGH_WATERMARK``)."""
        return self._end_offsets({topic: [partition]}, replica_id)[topic, partition]

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """Return the log end offsets of so many partitions of each topic."""
        return self._end_offsets({topic: range(count) for topic, count in partitions.items()}, LOG_END)

    def takes_requests_for(self, topic: str, partitions: Iterable[int]) -> bool:
        """Does the broker lead these partitions, and answers for them? One that leads none of a topic says nothing."""
        return not any(one.error_code for _, one in self._latest({topic: partitions}, LOG_END))

    def _end_offsets(self, partitions: Mapping[str, Iterable[int]], replica_id: int) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for place, one in self._latest(partitions, replica_id):
            assert one.error_code == 0, one
            found[place] = one.offset
        return found

    def _latest(
        self, partitions: Mapping[str, Iterable[int]], replica_id: int
    ) -> Iterator[tuple[tuple[str, int], Any]]:
        topics = [
            {"name": topic, "partitions": [{"partition_index": one, "timestamp": -1} for one in numbers]}
            for topic, numbers in partitions.items()
        ]
        answer = self.ask(ApiKey.LIST_OFFSETS, 1, replica_id=replica_id, topics=topics)
        for topic in answer.topics:
            for one in topic.partitions:
                yield (topic.name, one.partition_index), one

    def fetch(self, topic: str, partition: int, offset: int = 0, version: int = 4, max_bytes: int = 8 << 20) -> bytes:
        """Return the stored bytes from the message with ``offset`` on, at most ``max_bytes`` or one message."""
        answer = self.ask(
            ApiKey.FETCH,
            version,
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": partition, "fetch_offset": offset, "partition_max_bytes": max_bytes},
                    ],
                }
            ],
        )
        one = answer.responses[0].partitions[0]
        assert one.error_code == 0, one
        return bytes(one.records or b"")

    def values(self, topic: str, partition: int, offset: int = 0) -> list[bytes]:
        """Return all values from ``offset`` on as a consumer finds them, wrappers opened, offsets without a hole."""
        end = self.end_offset(topic, partition, HIGH_WATERMARK)
        found: list[bytes] = []
        due = offset
        while due < end:
            before = due
            for message in iterate_logged(self.fetch(topic, partition, due)):
                for at, value in _inside(message):
                    if at < due:
                        continue
                    assert at == due, f"offset {at} where {due} is due"
                    found.append(value)
                    due += 1
            assert due > before, f"nothing at offset {due} of {end}"
        return found


def _inside(logged: Logged) -> list[tuple[int, bytes]]:
    """Offset and value of each record."""
    if isinstance(logged, LoggedBatch):
        records = iterate_records(logged.records, logged.header, OUTPUT_BYTES_MAX, is_stored=True)
        return [(logged.first + one.offset_delta, one.value or b"") for one in records]
    inner = inner_messages(logged, OUTPUT_BYTES_MAX) if logged.is_wrapper else [logged]
    return [(one.offset, bytes(one.value or b"")) for one in inner]


def _partition_answers(response: Any) -> list[PartitionAnswer]:
    return [
        PartitionAnswer(
            topic.name,
            one.index,
            one.error_code,
            one.base_offset,
            one.log_append_time_ms,
            one.log_start_offset,
            one.error_message,
        )
        for topic in response.responses
        for one in topic.partition_responses
    ]
