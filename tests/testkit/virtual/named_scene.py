"""Two proxies on a virtual network whose clients' ids, or transactional ids, are names (rule R22)."""

from __future__ import annotations

from idemproxy.proxy.events import InstanceBegan
from idemproxy.reactor import Address
from idemproxy.state.names import NameRecord, unpack_name
from idemproxy.state.store import name_key
from testkit.virtual.client import VirtualClient
from testkit.virtual.producer import Batch
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.world import TOPIC, World, WorldSettings

SECONDS_MAX = 60.0
NAME = "client-1"


class NamedScene:
    """Two proxies with their clients' ids as names, and instances of the name ``client-1``."""

    def __init__(
        self,
        *,
        by_client_id: bool = False,
        expiry_seconds: float | None = None,
        name_expiry_seconds: float | None = None,
        has_principals: bool = False,
    ) -> None:
        """``by_client_id``: the name is the client id; else it is the transactional id."""
        self.world = World(
            1,
            WorldSettings(
                proxies=2,
                brokers=1,
                partitions=2,
                has_names=True,
                expiry_seconds=expiry_seconds,
                name_expiry_seconds=name_expiry_seconds,
                has_principals=has_principals,
            ),
        )
        self.network = self.world.network
        self._by_client_id = by_client_id
        self._instances = 0
        self.world.start()

    def instance(self, proxy: int = 0) -> VirtualClient:
        """One more instance, that comes to this proxy."""
        self._instances += 1
        address: Address = self.world.proxies[proxy].addresses[0]
        client = VirtualClient(self.network, f"instance-{self._instances}", [address])
        if self._by_client_id:
            client.client_id = NAME
        else:
            client.producer_name = NAME
        return client

    def send(self, client: VirtualClient, partition: int = 0) -> Batch:
        """One batch, and its answer."""
        batch = client.send(TOPIC, partition)
        assert self.network.run(SECONDS_MAX, lambda: batch.is_done), "no answer"
        return batch

    def codes(self, batch: Batch) -> list[int]:
        return [answer.error_code for answer in batch.answers]

    def stored(self, partition: int = 0) -> list[bytes | None]:
        messages = self.world.cluster.log(TOPIC, partition).messages
        return [record.value for stored in messages for record in stored.message.records]

    def record(self, name: str = NAME) -> NameRecord:
        value = self.world.redis.get(name_key(CLUSTER_NAME, name))
        assert value is not None
        return unpack_name(value)

    def began(self) -> list[tuple[int, int]]:
        """Producer id and epoch of all instances, in order of time."""
        events = [one for proxy in self.world.proxies for one in proxy.events if isinstance(one[2], InstanceBegan)]
        return [(event.producer_id, event.producer_epoch) for _, _, event in sorted(events, key=lambda one: one[0])]
