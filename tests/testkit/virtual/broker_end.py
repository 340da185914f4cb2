"""The broker's end of one connection on the virtual network: keeps requests until the test answers them. Never answers
by itself, and has no log."""

from __future__ import annotations

from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_response_header

from . import kafka_bytes as kafka
from .line import End

PRODUCE_VERSION = 2


class BrokerEnd(End):
    """Of the requests that are not answered yet the oldest one comes first. ``data``: all of them, and what has come of
    the next one."""

    # ------------------------------------------------------------------ what is here
    @property
    def frames(self) -> list[bytes]:
        """Whole requests, without their sizes."""
        data, found = bytes(self.data), []
        while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:4], "big")):
            found.append(data[4:end])
            data = data[end:]
        return found

    @property
    def keys(self) -> list[int]:
        """Their API keys."""
        return [int.from_bytes(one[:2], "big") for one in self.frames]

    @property
    def produced(self) -> list[tuple[str, int, bytes]]:
        """Topic, partition and message set of each part of the oldest request, a produce; empty where there is none."""
        frames = self.frames
        parts = kafka.parse_produce(kafka.parse_request(frames[0]).body).partitions if frames else []
        return [(topic, partition, message_set or b"") for topic, partition, message_set in parts]

    @property
    def partitions(self) -> list[int]:
        """Of the oldest request, a produce."""
        return [partition for _, partition, _ in self.produced]

    # ------------------------------------------------------------------ what becomes of it
    def drop(self) -> kafka.Request:
        """Forget the oldest request, and return it."""
        oldest = self.frames[0]
        del self.data[: 4 + len(oldest)]
        return kafka.parse_request(oldest)

    def answer(self, body: bytes = b"", *, correlation_shift: int = 0) -> None:
        """Answer the oldest request; with a shift, as if it had been another one."""
        request = self.drop()
        assert self.wire is not None
        correlation_id = request.correlation_id + correlation_shift
        self.wire.send(frame(encode_response_header(request.api_key, request.api_version, correlation_id), body))

    def answer_produce(
        self, error_code: int = 0, base_offset: int = 7, *, correlation_shift: int = 0, throttle_ms: int = 0
    ) -> None:
        """Answer the oldest request, a produce: the same for each partition."""
        rows = [(topic, partition, error_code, base_offset) for topic, partition, _ in self.produced]
        self.answer(kafka.produce_answer(PRODUCE_VERSION, rows, throttle_ms), correlation_shift=correlation_shift)
