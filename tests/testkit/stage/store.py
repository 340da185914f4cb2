"""The store on a virtual network and clock with a virtual server: what it reported, and what the server then holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from idemproxy.state.redis_store import RedisStore
from idemproxy.state.store import StoreEvent, member_key
from testkit.virtual.network import Network
from testkit.virtual.redis import RedisFaultRates, VirtualRedis

ADDRESS = ("redis", 6379)
FIRST = b"first---"


def value(version: int, rest: bytes = b"") -> bytes:
    """A stored value."""
    return b"\x01" + version.to_bytes(8, "big") + rest


class StoreScene:
    """One store and one server. ``renews``: the owner begins a new proxy instance whenever the rules ask for one."""

    def __init__(self, seed: int = 1, *, renews: bool = False, rates: RedisFaultRates | None = None) -> None:
        self.network = Network(seed)
        self.redis = VirtualRedis(self.network, ADDRESS, rates=rates)
        self.host = self.network.host("proxy")
        self.events: list[StoreEvent] = []
        self.data_generations: list[bytes] = []
        self.losses: list[float] = []
        self.registrations: list[float] = []
        """When a new proxy instance was registered."""
        self.instance_ids = [FIRST]
        self.renews = renews
        self.store = RedisStore(
            self.host,
            ADDRESS,
            cluster="c",
            instance_id=FIRST,
            random_bytes=self.network.random.randbytes,
            on_data_generation=self._on_data_generation,
            on_lease_lost=self._on_lease_lost,
            report=self.events.append,
        )
        self.store.start()

    def _on_data_generation(self, data_generation: bytes) -> None:
        assert self.store.data_generation == data_generation
        self.data_generations.append(data_generation)
        if self.renews and len(self.data_generations) > 1:
            self._begin()

    def _on_lease_lost(self) -> None:
        assert not self.store.lease.may_send(self.host.now())
        self.losses.append(self.host.now())
        if self.renews:
            self._begin()

    def _begin(self) -> None:
        self.instance_ids.append(b"number%02d" % len(self.instance_ids))
        self.store.begin_instance(self.instance_ids[-1], self._on_registered)

    def _on_registered(self) -> None:
        assert self.store.data_generation is None
        self.registrations.append(self.host.now())

    def ready(self, seconds: float = 5.0) -> StoreScene:
        """Until the store can be used."""
        assert self.network.run(seconds, lambda: self.store.data_generation is not None)
        return self

    def until(self, done: Callable[[], bool], seconds: float = 60.0) -> None:
        """Run until then."""
        assert self.network.run(seconds, done)

    def ask(self, call: Callable[[Callable[[Any], None]], None]) -> Any:
        """The one answer to a call."""
        got: list[Any] = []
        self.host.post(lambda: call(got.append))
        self.until(lambda: bool(got))
        return got[0]

    def may_send(self) -> bool:
        """Whether a frame may leave now."""
        return self.store.lease.may_send(self.host.now())

    def registered(self) -> set[bytes]:
        """Proxy instances whose lease runs, as the server sees it."""
        return {name for name in self.instance_ids if self.redis.get(member_key("c", name)) is not None}
