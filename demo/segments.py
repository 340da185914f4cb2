"""Reads a partition straight out of a broker's segment files: what is stored, not what an API says. All formats.

Opens wrappers and batches, checks every CRC, recognises batch markers. Safe while the broker runs: a message that is
only partly written at the end of the newest segment is not there yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..codecs.batch_marker import Identity, parse_batch_marker
from ..codecs.errors import Malformed
from ..codecs.logged import Logged, LoggedBatch, iterate_logged
from ..codecs.message_set import ShallowMessage, inner_messages, iterate_shallow, tail_is_partial, verify_crc
from ..codecs.record_batch import CONTROL_FLAG, MAGIC, MAGIC_AT, iterate_records, iterate_stored
from ..codecs.record_batch import verify_crc as verify_batch_crc

_OFFSET_AND_SIZE = 12
WRAPPER_BYTES_MAX = 256 << 20
"""One wrapper, opened. Far above what a broker takes, far below what a broken file could state."""


class StoredRecord(NamedTuple):
    """One record as it stands in the log."""

    offset: int
    timestamp: int
    """In ms; -1 in format v0."""
    key: bytes | None
    value: bytes | None
    batch_marker: tuple[Identity, ...] | None
    """Of the wrapper around it; None for a plain record and for a wrapper without one."""
    codec: int
    """Of the wrapper around it; 0 for a plain record."""
    last_offset: int
    """The wrapper's last offset; its own for a plain record."""


def stored_partitions(log_directory: Path, topic: str) -> list[int]:
    """Return the numbers of the topic's partitions of which there is a replica in this directory."""
    numbers = (path.name.removeprefix(f"{topic}-") for path in log_directory.glob(f"{topic}-*") if path.is_dir())
    return sorted(int(number) for number in numbers if number.isdigit())


def read_partition(log_directory: Path, topic: str, partition: int) -> Iterator[StoredRecord]:
    """Yield all stored records in the order of the log. Raises WireError for a broken log, OSError for none."""
    for data in _segments(log_directory, topic, partition):
        for is_new, part in _by_format(data):
            if is_new:
                yield from _records_of_batches(part)
            else:
                for message in _messages(part):
                    yield from _records_of(message)


def logged(log_directory: Path, topic: str, partition: int) -> Iterator[Logged]:
    """Yield messages, wrappers and batches as they are stored, CRCs verified. Raises WireError, OSError."""
    for data in _segments(log_directory, topic, partition):
        for one in iterate_logged(data):
            if isinstance(one, LoggedBatch):
                verify_batch_crc(one.records, one.header)
            else:
                verify_crc(data, one)
            yield one


def _by_format(data: bytes) -> Iterator[tuple[bool, bytes]]:
    """Cut a segment where its format changes, as it does when a broker's is raised; is a part in format v2?"""
    begin = position = 0
    is_new = False
    while position + MAGIC_AT < len(data):
        if (data[position + MAGIC_AT] == MAGIC) != is_new:
            if position > begin:
                yield is_new, data[begin:position]
            begin, is_new = position, not is_new
        position += _OFFSET_AND_SIZE + int.from_bytes(data[position + 8 : position + _OFFSET_AND_SIZE], "big")
    yield is_new, data[begin:]


def _messages(data: bytes) -> Iterator[ShallowMessage]:
    for message in iterate_shallow(data):
        verify_crc(data, message)
        yield message


def _segments(log_directory: Path, topic: str, partition: int) -> Iterator[bytes]:
    segments = sorted((log_directory / f"{topic}-{partition}").glob("*.log"))
    if not segments:
        raise FileNotFoundError(f"no segment of {topic} {partition} in {log_directory}")
    for number, segment in enumerate(segments):
        data = segment.read_bytes()
        if number < len(segments) - 1 and tail_is_partial(data):
            raise Malformed(f"{segment}: ends within a message though a newer segment exists")
        yield data


def _records_of_batches(data: bytes) -> Iterator[StoredRecord]:
    """Yield the records of format v2, but no control records."""
    for base_offset, header, batch in iterate_stored(data):
        verify_batch_crc(batch, header)
        if header.attributes & CONTROL_FLAG:
            continue
        last_offset = base_offset + header.last_offset_delta
        for one in iterate_records(batch, header, WRAPPER_BYTES_MAX, is_stored=True):
            offset = base_offset + one.offset_delta
            yield StoredRecord(offset, one.timestamp, one.key, one.value, None, header.codec, last_offset)


def _records_of(message: ShallowMessage) -> Iterator[StoredRecord]:
    if not message.is_wrapper:
        yield _record(message, None, message)
        return
    batch_marker = parse_batch_marker(message.key)
    for inner in inner_messages(message, WRAPPER_BYTES_MAX):
        yield _record(inner, batch_marker, message)


def _record(message: ShallowMessage, batch_marker: tuple[Identity, ...] | None, around: ShallowMessage) -> StoredRecord:
    return StoredRecord(
        offset=message.offset,
        timestamp=message.timestamp,
        key=None if message.key is None else bytes(message.key),
        value=None if message.value is None else bytes(message.value),
        batch_marker=batch_marker,
        codec=around.codec,
        last_offset=around.offset,
    )
