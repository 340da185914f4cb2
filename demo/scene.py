"""The second scene: one producer id by hand, sequences that no sound client sends, and what the proxy answers.

One blocking connection; judges each answer by what Kafka's own broker would say.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any

from ..codecs import messages
from ..codecs.error_codes import ErrorCode
from ..codecs.errors import WireError
from ..codecs.framing import frame
from ..codecs.headers import encode_request_header, parse_response_header
from ..codecs.record_batch import Record, encode_batch
from ..proxy.versions import ApiKey

ANSWER_SECONDS_MAX = 30.0
WINDOW_BATCHES = 5
"""The last five batches of a producer on a partition are known with their offsets, as in Kafka."""
_PRODUCE_VERSION = 3
_SIZE_BYTES = 4
_ANSWER_BYTES_MAX = 1 << 20


class SceneFailed(Exception):
    """The proxy did not answer at all; one sentence."""


@dataclass(frozen=True, slots=True)
class Step:
    """One batch that was sent. ``offset`` -1: the answer had none."""

    what: str
    sequence: int
    expected: str
    expected_offset: int
    answer: str
    offset: int

    @property
    def is_right(self) -> bool:
        """Was it answered as Kafka's own broker would?"""
        return self.answer == self.expected and self.offset == self.expected_offset


def play(address: tuple[str, int], topic: str) -> list[Step]:
    """Send the batches to a fresh partition 0 of the topic. Raises SceneFailed."""
    try:
        with socket.create_connection(address, ANSWER_SECONDS_MAX) as connection:
            return _Producer(connection, topic).play()
    except (OSError, WireError) as error:
        raise SceneFailed(f"the second scene got no answer: {error}") from error


class _Producer:
    def __init__(self, connection: socket.socket, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._correlation_id = 0
        answer = self._ask(ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=60_000)
        if answer.error_code:
            raise SceneFailed(f"no producer id was given out: {ErrorCode(answer.error_code).name}")
        self._producer_id = answer.producer_id
        self._steps: list[Step] = []

    def play(self) -> list[Step]:
        none, gap, duplicate = (
            ErrorCode.NONE.name,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name,
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER.name,
        )
        self._send("the first batch", 0, none, 0)
        self._send("111 where 1 is due", 111, gap, -1)
        self._send("1, which is due", 1, none, 1)
        self._send("1 again: its old offset", 1, none, 1)
        for sequence in range(2, 2 + WINDOW_BATCHES):
            self._send("the next batch", sequence, none, sequence)
        self._send("0 again, below the last five", 0, duplicate, -1)
        self._send("the next batch: nothing was stored twice", 2 + WINDOW_BATCHES, none, 2 + WINDOW_BATCHES)
        return self._steps

    def _send(self, what: str, sequence: int, expected: str, expected_offset: int) -> None:
        batch = encode_batch(
            [Record(0, 1_500_000_000_000 + sequence, None, b"scene:0:%d" % sequence)],
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        error_code, offset = self._produce(batch)
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while error_code and ErrorCode(error_code).retriable and time.monotonic() < deadline:
            time.sleep(0.1)
            error_code, offset = self._produce(batch)
        self._steps.append(Step(what, sequence, expected, expected_offset, ErrorCode(error_code).name, offset))

    def _produce(self, batch: bytes) -> tuple[int, int]:
        answer = self._ask(
            ApiKey.PRODUCE,
            _PRODUCE_VERSION,
            transactional_id=None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[{"name": self._topic, "partition_data": [{"index": 0, "records": batch}]}],
        )
        one = answer.responses[0].partition_responses[0]
        return one.error_code, one.base_offset

    def _ask(self, api_key: int, api_version: int, /, **fields: Any) -> Any:
        self._correlation_id += 1
        header = encode_request_header(api_key, api_version, self._correlation_id, "scene")
        self._connection.sendall(frame(header, messages.encode_request(api_key, api_version, **fields)))
        size = int.from_bytes(self._receive(_SIZE_BYTES), "big")
        if size > _ANSWER_BYTES_MAX:
            raise SceneFailed(f"an answer of {size} bytes was announced")
        answer = self._receive(size)
        correlation_id, body_at = parse_response_header(answer, api_key, api_version)
        if correlation_id != self._correlation_id:
            raise SceneFailed(f"answer {correlation_id} came where {self._correlation_id} was due")
        return messages.decode_response(api_key, api_version, answer[body_at:])

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._connection.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the proxy closed the connection")
            data += part
        return bytes(data)
