"""A real broker, the proxy, and a relay between them that swallows an answer when a test asks for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.clients.raw_client import TIMEOUT_MS, RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

UNDECIDED_SECONDS_MAX = 90.0
_RESOLVED = re.compile(r"resolved as (\w+): producer (\d+) sequence (\d+) on \S+, (\d+) bytes read in ([0-9.]+) s")
_RETRIABLE = {3, 6, 7, 19}
_SETTLED_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Resolved:
    """An unknown outcome as the proxy's log tells of it."""

    result: str
    producer_id: int
    sequence: int
    bytes_read: int
    seconds: float


def resolved_in(log: str) -> list[Resolved]:
    """Return every unknown outcome that the log says was resolved."""
    return [
        Resolved(found[1], int(found[2]), int(found[3]), int(found[4]), float(found[5]))
        for found in _RESOLVED.finditer(log)
    ]


class LossyScene:
    """A real broker, the proxy, and a relay between them that swallows an answer when a test asks for it."""

    def __init__(
        self,
        directory: Path,
        broker_settings: Mapping[str, str | int] | None = None,
        *,
        version: str = "0.10.2.2",
        make_proxy: Callable[[Path, tuple[str, int]], ProxyProcess] = ProxyProcess,
    ) -> None:
        (port,) = free_ports(1)
        self.cluster = LegacyCluster(
            directory / "cluster",
            version=version,
            advertised={0: (HOST, port)},
            auto_create_topics=False,
            broker_settings=broker_settings,
        )
        plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=1)
        self.relay = FaultRelay(self.cluster.address(0), plan=plan, port=port)
        self.proxy = make_proxy(directory / "proxy", (HOST, port))

    def __enter__(self) -> LossyScene:
        self.relay.start()
        self.relay.set_faults(False)
        try:
            self.cluster.__enter__()
            self.proxy.__enter__()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.proxy.__exit__()
        self.cluster.__exit__(None, None, None)
        self.relay.stop()

    def lose_answer(self, client: RawClient, place: tuple[str, int], records: bytes) -> float:
        """Send a batch whose answer is lost between broker and proxy; send it again until it is answered with success.

        Returns the seconds that took; ``told`` has the offset.
        """
        begun = time.monotonic()
        answer = self.lose_answer_of(client, place, records)
        if answer.error_code:
            assert answer.error_code in _RETRIABLE, answer
            answer = insist(client, place, records)
        self.told = answer.base_offset
        return time.monotonic() - begun

    def lose_answer_of(
        self, client: RawClient, place: tuple[str, int], records: bytes, timeout_ms: int = TIMEOUT_MS
    ) -> PartitionAnswer:
        """Send a batch whose answer is lost between broker and proxy, once; return what the proxy makes of it."""
        lost = self.relay.counts[FaultKind.LOST_ANSWER]
        self.relay.set_faults(True)
        client.send_produce([(*place, records)], timeout_ms=timeout_ms)
        wait_until(lambda: self.relay.counts[FaultKind.LOST_ANSWER] > lost, "an answer was lost")
        self.relay.set_faults(False)
        (answer,) = client.produce_answer()
        return answer

    def lose_undecidably(self, client: RawClient, place: tuple[str, int], producer_id: int) -> PartitionAnswer:
        """Lose the answer to a producer's second batch, where nobody can tell whether it is stored.

        Return the final answer to a retry of it.
        """
        records = batch([b"second"], producer_id=producer_id, sequence=1)
        self.lose_answer_of(client, place, records, timeout_ms=1000)
        self.proxy.wait_for_log(f"resolved as unrecoverable: producer {producer_id} ", UNDECIDED_SECONDS_MAX)
        return client.produce_one(*place, records, version=8, timeout_ms=30_000)


def told_in_the_end(client: RawClient, place: tuple[str, int], records: bytes, **options: Any) -> PartitionAnswer:
    """Send the same bytes until they are answered with another code than a retriable one; return that answer."""
    end = time.monotonic() + _SETTLED_SECONDS_MAX
    while True:
        answer = client.produce_one(*place, records, **options)
        if answer.error_code not in _RETRIABLE:
            return answer
        assert time.monotonic() < end, answer
        time.sleep(0.05)


def insist(client: RawClient, place: tuple[str, int], records: bytes, timeout_ms: int = TIMEOUT_MS) -> PartitionAnswer:
    """Send the same bytes until they are answered with success; return that answer."""
    answer = told_in_the_end(client, place, records, timeout_ms=timeout_ms)
    assert answer.error_code == 0, answer
    return answer
