"""Several producers that a proxy may merge into one wrapper, in a world of their own: served once, then sending at the
same moment to the same partition. Judges nothing but what every world has to keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulation.log_records import records_of
from simulation.oracle import Oracle

from idemproxy.codecs.marker import parse_marker
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.proxy.events import DoubtResolved
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.network import NetworkSettings
from testkit.virtual.producer import Batch
from testkit.virtual.world import TOPIC, World, WorldSettings

CALM = NetworkSettings(
    latency=(0.001, 0.001),
    pass_duration=(0.0001, 0.0001),
    split_chance=0,
    partial_write_chance=0,
    truncation_chance=0,
)
"""Everything takes the same time, so what leaves together arrives together."""


def producers_of(message_set: bytes) -> list[int]:
    """The producer ids in the marker of the one wrapper that a set is."""
    (wrapper,) = iterate_shallow(message_set)
    return [identity.producer_id for identity in parse_marker(wrapper.key) or ()]


class Crowd:
    """Some producers that have been served once, and then send at the same moment to the same partition."""

    def __init__(self, producers: int = 4, *, proxies: int = 1) -> None:
        settings = WorldSettings(proxies, brokers=1, clients=producers, network=CALM, merge_producers=True)
        self.world = World(1, settings)
        self.oracle = Oracle(self.world.cluster, self.world.clients)
        self.world.start()
        self.seen: list[list[int]] = []
        self.fault: Callable[[list[int]], BrokerFault] = lambda _producers: BrokerFault.NONE
        for client in self.world.clients:
            client.addresses = [self.world.proxies[0].address]
            client.send(TOPIC, 0)
        self.finish()
        self.world.cluster.choose_fault = self._choose

    def _choose(self, seen: ProduceSeen) -> BrokerFault:
        producers = [one for _, _, data in seen.body.partitions for one in producers_of(data or b"")]
        self.seen.append(producers)
        return self.fault(producers)

    @property
    def ids(self) -> list[int]:
        """The producer id of each client."""
        return [client.batches[0].sent_as[0].producer_id for client in self.world.clients]

    def send(self) -> list[Batch]:
        """Two records of each, at once."""
        return [client.send(TOPIC, 0, 2) for client in self.world.clients]

    def finish(self, seconds: float = 60.0) -> None:
        """Until everybody is answered."""
        assert self.world.network.run(seconds, lambda: self.world.is_done)

    def check(self) -> None:
        """Each batch once, in order, where its producer was told."""
        self.world.network.run(3)
        assert self.oracle.finish() + self.world.errors() == []
        records, _ = records_of(self.world.cluster.log(TOPIC, 0).messages)
        assert len(records) == sum(len(batch.values) for client in self.world.clients for batch in client.batches)


def first_time(faults: Sequence[BrokerFault]) -> Callable[[list[int]], BrokerFault]:
    """These happen to the first requests, nothing to the others."""
    left = list(faults)
    return lambda _producers: left.pop(0) if left else BrokerFault.NONE


def resolved(crowd: Crowd) -> list[DoubtResolved]:
    """Every doubt of every proxy, as it ended."""
    return [event for proxy in crowd.world.proxies for _, _, event in proxy.events if isinstance(event, DoubtResolved)]
