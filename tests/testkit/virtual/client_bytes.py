"""What an idempotent producer sends and reads, as bytes: InitProducerId v0 and Produce v3 or v7. Only layouts."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.record_batch import Record, encode_batch
from testkit.virtual.kafka_bytes import INIT_PRODUCER_ID, PRODUCE, Reader, string

PRODUCE_VERSION, ZSTD_PRODUCE_VERSION = 3, 7
ZSTD = 4
"""A codec that brokers take from version 7 on (KIP-110)."""
_PARTITION_ANSWER = struct.Struct(">ihqq")


def _framed(api_key: int, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    header = struct.pack(">hhi", api_key, version, correlation_id) + string(client_id)
    return struct.pack(">i", len(header) + len(body)) + header + body


def init_producer_id(correlation_id: int, client_id: str, name: str | None = None) -> bytes:
    """A request for a producer id: a fresh one, or that of a name, which goes as transactional id."""
    return _framed(INIT_PRODUCER_ID, 0, correlation_id, client_id, string(name) + struct.pack(">i", -1))


def parse_init_producer_id(body: bytes) -> tuple[int, int, int]:
    """(error code, producer id, producer epoch)."""
    reader = Reader(body)
    reader.int32()
    found = reader.int16(), reader.int64(), reader.int16()
    reader.end()
    return found


def batch_bytes(
    values: Sequence[bytes], producer_id: int, producer_epoch: int, base_sequence: int, at: int, codec: int = 0
) -> bytes:
    """One batch of the values with their number as key; ``at``: its creation time in ms."""
    records = [Record(index, at, b"key", value) for index, value in enumerate(values)]
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        codec=Codec(codec),
    )


def produce(
    correlation_id: int,
    client_id: str,
    timeout_ms: int,
    parts: Sequence[tuple[str, int, bytes]],
    acks: int = -1,
    version: int = PRODUCE_VERSION,
) -> bytes:
    """A produce request with at most one batch for each partition."""
    topics: dict[str, list[bytes]] = {}
    for topic, partition, data in parts:
        topics.setdefault(topic, []).append(struct.pack(">ii", partition, len(data)) + data)
    body = string(None) + struct.pack(">hii", acks, timeout_ms, len(topics))
    for topic, rows in topics.items():
        body += string(topic) + struct.pack(">i", len(rows)) + b"".join(rows)
    return _framed(PRODUCE, version, correlation_id, client_id, body)


def parse_produce(body: bytes, version: int = PRODUCE_VERSION) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, partition) -> (error code, base offset)."""
    reader = Reader(body)
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for _ in range(reader.count()):
        topic = reader.text()
        for _ in range(reader.count()):
            number, error, base_offset, _append_time = reader.numbers(_PARTITION_ANSWER)
            if version >= ZSTD_PRODUCE_VERSION:
                reader.int64()  # where the log starts
            assert (topic, number) not in found, "a partition is answered twice"
            found[topic, number] = error, base_offset
    reader.int32()
    reader.end()
    return found
