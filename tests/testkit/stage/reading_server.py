"""A broker of one partition, t-0, on sockets, for readers: what a proxy makes of its fetches where messages are
hidden, quotas that are used up, connections that end. It says that it has what the proxies offer before old brokers.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any, Self

from idemproxy.codecs import messages
from idemproxy.codecs.framing import FrameSplitter, frame
from idemproxy.codecs.headers import encode_response_header, parse_request_header
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.proxy.bridge.fetch import Fetch
from idemproxy.proxy.hidden_ranges.fetch import FetchWithoutHiddenRanges
from idemproxy.proxy.hidden_ranges.known import KnownHiddenRanges, Skips
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.hidden_ranges import HiddenRange, OffsetRange, State

_BROKER_FETCH_VERSION = 3
EARLIEST = -2
THROTTLE_MS = 20


class ReadingServer:
    """``log``: messages by offset, as stored. ``named``: offsets that are left out. ``throttled``: fetches that are
    answered with a time to wait and no partition. ``ends_at``, ``fails_at``: fetches, counted from 1, at which the
    connection ends, or the leader has moved for a moment. ``fetch_versions``: what it says that it has.
    ``quota_bytes``: fetches of more are throttled each time, as before 2.6 where that is above the quota of all of its
    windows. ``seconds_between_parts``: each answer comes in four parts, so long apart."""

    def __init__(
        self,
        log: Sequence[bytes | None],
        named: Collection[int] = (),
        *,
        throttled: Collection[int] = (),
        ends_at: Collection[int] = (),
        fails_at: Collection[int] = (),
        fetch_versions: tuple[int, int] = (0, 5),
        quota_bytes: int = 1 << 30,
        seconds_between_parts: float = 0.0,
    ) -> None:
        self._seconds_between_parts = seconds_between_parts
        self._quota_bytes = quota_bytes
        self._log = log
        self._throttled, self._ends_at, self._fails_at = throttled, ends_at, fails_at
        self._fetch_versions = fetch_versions
        self._known = KnownHiddenRanges(time.monotonic)
        noted = tuple((at, _crc(log[at]), at) for at in sorted(named))
        if noted:
            hidden = OffsetRange("t", 0, noted[0][0], noted[-1][0] + 1)
            self._known.take_list({hidden: HiddenRange(State.ACTIVE, 1, messages=noted)})
        self.fetches = 0
        self.topics = ["t"]
        self.without_partitions: list[str] = []
        """Topics that are there, and of which no partition can be seen."""
        """Those that are there; all have the same log."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.address: tuple[str, int] = self._listener.getsockname()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._open.append(connection)
                self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        skips, splitter = Skips(time.monotonic), FrameSplitter(1 << 20)
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(1 << 16):
                for one in splitter.feed(data):
                    header = parse_request_header(one)
                    key, version = header.api_key, header.api_version
                    body = memoryview(one)[header.body_offset :]
                    answer = (
                        self._fetched(skips, version, body) if key == ApiKey.FETCH else self._said(key, version, body)
                    )
                    if answer is None:
                        return
                    self._send(connection, frame(encode_response_header(key, version, header.correlation_id), answer))

    def _send(self, connection: socket.socket, data: bytes) -> None:
        size = -(-len(data) // 4) if self._seconds_between_parts else len(data)
        for at in range(0, len(data), size):
            connection.sendall(data[at : at + size])
            time.sleep(self._seconds_between_parts)

    def _said(self, key: int, version: int, body: memoryview) -> bytes:
        host, port = self.address
        if key == ApiKey.API_VERSIONS:
            ranges = {ApiKey.FETCH: self._fetch_versions, ApiKey.LIST_OFFSETS: (1, 1), ApiKey.METADATA: (1, 1)}
            keys = [{"api_key": one, "min_version": low, "max_version": high} for one, (low, high) in ranges.items()]
            return messages.encode_response(key, version, error_code=0, api_keys=keys)
        if key == ApiKey.METADATA:
            partition = {"error_code": 0, "partition_index": 0, "leader_id": 0, "replica_nodes": [0], "isr_nodes": [0]}
            topics = [
                {"error_code": code, "name": name, "is_internal": False, "partitions": partitions}
                for names, code, partitions in ((self.topics, 0, [partition]), (self.without_partitions, 5, []))
                for name in names
            ]
            brokers = [{"node_id": 0, "host": host, "port": port, "rack": None}]
            return messages.encode_response(key, version, brokers=brokers, controller_id=0, topics=topics)
        end = len(self._log)
        topics = [
            {"name": topic.name, "partitions": [
                {"partition_index": one.partition_index, "error_code": 0 if topic.name in self.topics else 3,
                 "timestamp": -1, "offset": 0 if one.timestamp == EARLIEST else end}
                for one in topic.partitions]}
            for topic in messages.decode_request(key, version, body).topics
        ]  # fmt: skip
        return messages.encode_response(key, version, topics=topics)

    def _fetched(self, skips: Skips, version: int, body: memoryview) -> bytes | None:
        self.fetches += 1
        if self.fetches in self._ends_at:
            return None
        asked_bytes = messages.decode_request(ApiKey.FETCH, version, body).topics[0].partitions[0].partition_max_bytes
        if self.fetches in self._throttled or asked_bytes > self._quota_bytes:
            return messages.encode_response(ApiKey.FETCH, version, throttle_time_ms=THROTTLE_MS, responses=[])
        between = Fetch(version, _BROKER_FETCH_VERSION)
        fetch = FetchWithoutHiddenRanges(between, version, self._known, skips)
        chunks = fetch.request(body)
        assert not hasattr(chunks, "error_code")
        asked = messages.decode_request(ApiKey.FETCH, _BROKER_FETCH_VERSION, b"".join(chunks))
        code = 6 if self.fetches in self._fails_at else 0 if asked.topics[0].topic in self.topics else 3
        answered = self._answer(asked.topics[0].partitions[0], code)
        return b"".join(fetch.response(memoryview(answered)))

    def _answer(self, wanted: Any, error_code: int) -> bytes:
        """As a broker does: up to so many bytes, the last message cut off, but the first one whole."""
        stored = [one for one in self._log[wanted.fetch_offset :] if one is not None]
        first = len(stored[0]) if stored else 0
        records = b"" if error_code else b"".join(stored)[: max(first, wanted.partition_max_bytes)]
        partition = {
            "partition_index": 0,
            "error_code": error_code,
            "high_watermark": len(self._log),
            "records": records,
        }
        topics = [{"topic": "t", "partitions": [partition]}]
        return messages.encode_response(ApiKey.FETCH, _BROKER_FETCH_VERSION, responses=topics)


def _crc(stored: bytes | None) -> int:
    assert stored is not None
    (message,) = iterate_shallow(stored)
    return message.crc
