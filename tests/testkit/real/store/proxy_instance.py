"""One proxy on a real redis-server: its reactor, its store, and what the store reported."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from idemproxy.reactor import Address
from idemproxy.state.redis_store import RedisStore
from idemproxy.state.store import entry_key
from testkit.stage.select_reactor import SelectReactor

CLUSTER = "test"
KEY = entry_key(CLUSTER, 4711, "topic", 0)


def value(version: int, rest: bytes = b"") -> bytes:
    """A stored value: format, version, anything."""
    return b"\x01" + version.to_bytes(8, "big") + rest


class Proxy:
    """One process: its reactor, its store, what the store reported. A lease that is lost is followed by a new proxy
    instance."""

    def __init__(
        self,
        reactor: SelectReactor,
        address: Address,
        *,
        instance_id: bytes = b"incarnat",
        username: str | None = None,
        password: str | None = None,
        database: int = 0,
    ) -> None:
        self.reactor = reactor
        self.events: list[object] = []
        self.data_generations: list[bytes] = []
        self.lease_losses: list[bool] = []
        self.store = RedisStore(
            reactor,
            address,
            cluster=CLUSTER,
            instance_id=instance_id,
            random_bytes=os.urandom,
            on_data_generation=self.data_generations.append,
            on_lease_lost=self._begin_again,
            report=self.events.append,
            username=username,
            password=password,
            database=database,
        )
        self.store.start()

    def _begin_again(self) -> None:
        """As the engine does."""
        self.lease_losses.append(self.store.lease.may_send(self.reactor.now()))
        self.store.begin_instance(b"number%02d" % len(self.lease_losses), lambda: None)

    def ready(self, seconds: float = 30.0) -> Proxy:
        """Until the store can be used."""
        self.reactor.run_until(lambda: self.store.data_generation is not None, seconds)
        return self

    def until_event(self, kind: type, seconds: float = 30.0) -> Any:
        """The next event of that kind, counted from now."""
        start = len(self.events)
        self.reactor.run_until(lambda: any(isinstance(event, kind) for event in self.events[start:]), seconds)
        return next(event for event in self.events[start:] if isinstance(event, kind))

    def result(self, ask: Callable[[Callable[[Any], None]], None], seconds: float = 30.0) -> Any:
        """What one call was answered."""
        got: list[Any] = []
        ask(got.append)
        assert not got, "answered from inside the call"
        self.reactor.run_until(lambda: bool(got), seconds)
        self.reactor.run_for(0.01)
        assert len(got) == 1
        return got[0]

    def swap(self, expected: int, new: bytes, ttl_ms: int = 0, key: bytes = KEY) -> Any:
        """One swap."""
        return self.result(lambda done: self.store.swap(key, expected, new, ttl_ms, done))

    def read(self, key: bytes = KEY) -> Any:
        """One read."""
        return self.result(lambda done: self.store.read(key, done))

    def claim(self, key: bytes, new: bytes, ttl_ms: int = 0) -> Any:
        """Store the value if the key is absent."""
        return self.result(lambda done: self.store.claim(key, new, ttl_ms, done))

    def alive(self, instance_id: bytes) -> Any:
        """Whether somebody holds a lease."""
        return self.result(lambda done: self.store.member_alive(instance_id, done))
