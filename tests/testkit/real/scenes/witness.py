"""Sees to it that nothing happens: stored entries and log ends stay as they are, an innocent producer is unaffected.

Looks at Redis and at the broker past the proxy. Judges no answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess


class Witness:
    """A well-behaved producer on a connection that was opened before all the others. A context manager."""

    def __init__(
        self, proxy: ProxyProcess, direct: RawClient, place: tuple[str, int], partitions: Mapping[str, int]
    ) -> None:
        """It produces to ``place``, alone; ``partitions`` are those that are looked at, so many of each topic."""
        self._proxy = proxy
        self._direct = direct
        self._place = place
        self._partitions = partitions
        self._first_offset = direct.end_offset(*place)
        self._sequences = itertools.count()
        self._client = RawClient(proxy.address)
        self._producer_id = self._client.new_producer_id()

    def __enter__(self) -> Witness:
        self.goes_on()
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def goes_on(self) -> None:
        """It produces, on the connection that it has always had."""
        sequence = next(self._sequences)
        records = batch([b"witness"], producer_id=self._producer_id, sequence=sequence)
        answer = self._client.produce_one(*self._place, records)
        assert (answer.error_code, answer.base_offset) == (0, self._first_offset + sequence)

    @contextmanager
    def nothing_moves(self) -> Iterator[None]:
        """Entries and log ends are the same after the block as before, and the witness is unaffected."""
        before = self._proxy.entries(), self._direct.end_offsets(self._partitions)
        yield
        assert (self._proxy.entries(), self._direct.end_offsets(self._partitions)) == before
        self.goes_on()
