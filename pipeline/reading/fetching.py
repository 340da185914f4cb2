"""One partition from offset to offset by Fetch: an entry that does not fit is asked for with more room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .broker import FETCH_BYTES_MAX, Cluster

if TYPE_CHECKING:
    from ...client.log_flows import Fetched

_GROWTH: Final = 4


class TooLarge(Exception):
    """An entry that the broker does not hand out whole; the message is a sentence for a person."""


class PartitionFetch:
    """Asks for more bytes where the last answer for the same offset had no whole entry in it."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, bytes_at_first: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._bytes_at_first = bytes_at_first
        self._bytes = bytes_at_first
        self._cut_at = -1

    def at(self, offset: int) -> Fetched:
        """Return what is stored at the offset. Asked again for the same offset, it asks for four times as many bytes.
        Raises OutOfRange, BrokerProblem, TooLarge."""
        if offset != self._cut_at:
            self._bytes = self._bytes_at_first
        elif self._bytes >= FETCH_BYTES_MAX:
            name = f"{self._topic}-{self._partition}"
            raise TooLarge(f"{name}: the entry at offset {offset} is larger than {FETCH_BYTES_MAX} bytes")
        else:
            self._bytes = min(_GROWTH * self._bytes, FETCH_BYTES_MAX)
        fetched = self._cluster.fetch(self._topic, self._partition, offset, self._bytes)
        self._cut_at = offset if fetched.records else -1
        return fetched
