"""A consumer of Fetch v0 to v3, at a broker that serves these versions, or raised to higher ones; it reads a partition
as such consumers do, each time from after the last message that it got."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from idemproxy.codecs import messages
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.upward.fetch import BROKER_VERSIONS, FurtherFetch, RaisedFetch
from idemproxy.proxy.bridge.upward.positions import FetchPositions
from idemproxy.proxy.versions import ApiKey

from .raw_client import RawClient

LIMIT_BYTES = 1 << 20
WAIT_MS = 200


@dataclass
class ReadLog:
    """All of a partition."""

    message_sets: list[bytes] = field(default_factory=list)
    """Of each fetch, without a part of a message at its end."""
    stuck_at: list[int] = field(default_factory=list)
    """Offsets before the end for which there was no message, or only earlier ones; it was read on from the next one."""
    error_codes: set[int] = field(default_factory=set)


@dataclass
class OldConsumer:
    """One connection, on which fetches of this version are sent as they are."""

    raw: RawClient
    version: int

    def fetch(
        self,
        topic: str,
        wanted: dict[int, int],
        *,
        bytes_max: int = LIMIT_BYTES,
        answer_bytes_max: int = 50 * LIMIT_BYTES,
        wait_ms: int = WAIT_MS,
    ) -> dict[int, Any]:
        """Return partition -> its entry of the answer. ``wanted``: partition -> offset."""
        partitions = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": bytes_max}
            for number, offset in wanted.items()
        ]
        fields: dict[str, Any] = {
            "replica_id": -1,
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "topics": [{"topic": topic, "partitions": partitions}],
        }
        if self.version >= 3:
            fields["max_bytes"] = answer_bytes_max
        body = self._call(messages.encode_request(ApiKey.FETCH, self.version, **fields))
        (answered,) = messages.decode_response(ApiKey.FETCH, self.version, body).responses
        return {one.partition_index: one for one in answered.partitions}

    def read(self, topic: str, end: int, *, offset: int = 0, bytes_max: int = LIMIT_BYTES) -> ReadLog:
        """Read partition 0 up to an offset; over what it gets stuck at."""
        log = ReadLog()
        while offset < end:
            one = self.fetch(topic, {0: offset}, bytes_max=bytes_max)[0]
            if one.error_code:
                log.error_codes.add(one.error_code)
            records = bytes(one.records or b"")
            whole = list(iterate_shallow(records))
            if whole and whole[-1].offset >= offset:
                log.message_sets.append(records[: whole[-1].start + whole[-1].size_bytes])
                offset = whole[-1].offset + 1
            else:
                log.stuck_at.append(offset)
                offset += 1
        return log

    def _call(self, body: bytes) -> bytes:
        return self.raw.call(ApiKey.FETCH, self.version, body)


@dataclass
class RaisedConsumer(OldConsumer):
    """The same, raised to a higher version."""

    committed: bool = False
    broker_version: int = BROKER_VERSIONS[0]
    positions: FetchPositions = field(default_factory=FetchPositions)
    fetches: int = 0
    """That were sent to the broker."""
    messages_without_headers: int = 0

    def _call(self, body: bytes) -> bytes:
        begun = time.monotonic()
        raised = RaisedFetch(self.version, self.positions, broker_version=self.broker_version, committed=self.committed)
        bodies = at_once(raised.requests(body))
        while True:
            self.fetches += len(bodies)
            answers = [self.raw.call(ApiKey.FETCH, raised.broker_version, bytes(one)) for one in bodies]
            elapsed_ms = int(1000 * (time.monotonic() - begun))
            made = at_once(raised.response(answers, elapsed_ms))
            if not isinstance(made, FurtherFetch):
                assert not raised.refused
                self.messages_without_headers += sum(raised.messages_without_headers.values())
                return bytes(made)
            bodies = made.bodies
