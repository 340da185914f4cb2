"""A pool of produce connections and the broker's ends of them, on a virtual network. The broker never answers by
itself."""

from __future__ import annotations

from functools import partial

from idemproxy.proxy import limits
from idemproxy.proxy.broker.produce_connection_pool import ProduceConnectionPool
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.reactor import Address

from .broker_end import BrokerEnd
from .network import Network, NetworkSettings
from .world import TOPIC

BROKER = 1
ADDRESS: Address = ("kafka", 9092)
WINDOW_BYTES = 4096
CALM = NetworkSettings(split_chance=0, partial_write_chance=0, truncation_chance=0, window_bytes=WINDOW_BYTES)
WIDE = NetworkSettings(split_chance=0, partial_write_chance=0, truncation_chance=0)


class ProduceConnections:
    """``may_send`` is what the lease says, ``produce_connections_max`` what the setting says."""

    def __init__(
        self, network: NetworkSettings = CALM, produce_connections_max: int = limits.PRODUCE_CONNECTIONS_PER_BROKER
    ) -> None:
        self.network = Network(1, network)
        self.broker = self.network.host("kafka")
        self.ends: list[BrokerEnd] = []
        self.may_send = True
        self.produce_connections_max = produce_connections_max
        self.network.listen(self.broker, ADDRESS, self._accept)
        host = self.network.host("proxy")
        self.pool = ProduceConnectionPool(
            host,
            BROKER,
            partial(host.connect, ADDRESS),
            may_send=lambda: self.may_send,
            report=lambda _event: None,
            produce_connections_max=lambda: self.produce_connections_max,
        )
        self.pool.set_usable(True)

    def _accept(self) -> BrokerEnd:
        self.ends.append(BrokerEnd())
        return self.ends[-1]

    def append(self, partition: int, *, size: int = 100, timeout_ms: int = 30_000, sender: str = "") -> list[Outcome]:
        """Ask for an append; what comes of it will be in the list."""
        outcomes: list[Outcome] = []
        effect = Append(BROKER, TOPIC, partition, bytes(size), timeout_ms, lambda: None, sender=sender)
        self.pool.append(effect, outcomes.append)
        return outcomes

    def run(self, seconds: float = 0.05) -> None:
        """Let time pass."""
        self.network.run(seconds)

    @property
    def out(self) -> list[list[int]]:
        """The partitions of each request that is not answered, one list for each produce connection."""
        return [end.partitions for end in self.ends if end.frames]

    def end_with(self, partition: int) -> BrokerEnd:
        """The one connection over which a request with this partition is out."""
        (end,) = [end for end in self.ends if partition in end.partitions]
        return end

    def answer_all(self, error_code: int = 0) -> None:
        """Answer every request that is out."""
        for end in self.ends:
            if end.frames:
                end.answer_produce(error_code)
        self.run()
