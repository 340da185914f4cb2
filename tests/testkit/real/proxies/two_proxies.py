"""Two proxies on one external Redis in front of one real broker, each with a relay of its own to that broker.

Owns the processes; who produces, and what is broken when, is the caller's.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from idemproxy.demo.fault_relay import FaultPlan
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST
from testkit.real.brokers.kafka_cluster import stored_values
from testkit.real.store.two_proxies_redis import ExternalRedis

from . import two_proxies_program
from .proxy_process import ProxyProcess, wait_until
from .two_proxies_relays import KeepingRelay

Address = tuple[str, int]
Place = tuple[str, int]


class StoppableProxy(ProxyProcess):
    """Runs ``two_proxies_program`` instead of the shipped command."""

    def __init__(self, directory: Path, upstream: Address, *, options: tuple[str, ...] = ()) -> None:
        super().__init__(directory, upstream, options=options)
        shipped = self._command.index("run")
        self._command = [sys.executable, os.fspath(two_proxies_program.__file__), *self._command[shipped:]]


class TwoProxies:
    """A context manager: entering starts Redis, relays and proxies. ``plan``: faults between proxies and broker."""

    def __init__(
        self,
        directory: Path,
        cluster: LegacyCluster,
        *,
        plan: FaultPlan | None = None,
        redis: ExternalRedis | None = None,
        redis_address: Address | None = None,
        options: tuple[str, ...] = (),
        settings: str = "",
        stoppable: bool = False,
    ) -> None:
        """``redis``: a server that the caller owns. ``redis_address``: what the proxies are given, its own by default.
        ``settings``: a configuration in YAML. ``stoppable``: they are ``StoppableProxy``. Topics have to be there
        before: a proxy learns them at its start."""
        self.cluster = cluster
        self._directory = directory
        self._plan = plan
        self._given_redis = redis
        self._redis_address = redis_address
        self._options = options
        self._settings = settings
        self._proxy_class = StoppableProxy if stoppable else ProxyProcess
        self._stack = ExitStack()
        self.relays: list[KeepingRelay] = []
        self.proxies: list[ProxyProcess] = []

    def __enter__(self) -> TwoProxies:
        with ExitStack() as started:
            self.redis = self._given_redis or started.enter_context(ExternalRedis())
            host, port = self._redis_address or self.redis.address
            self.redis_url = f"redis://{host}:{port}/0"
            options = ("--redis", self.redis_url, *self._options)
            if self._settings:
                config = self._directory / "idemproxy.yaml"
                config.write_text(self._settings)
                options += ("--config", str(config))
            for index in range(2):
                relay = started.enter_context(KeepingRelay(self.cluster.address(0), self._plan))
                self.relays.append(relay)
                upstream = (HOST, relay.port)
                proxy = self._proxy_class(self._directory / f"proxy-{index}", upstream, options=options)
                self.proxies.append(started.enter_context(proxy))
            self._stack = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def addresses(self) -> list[Address]:
        """Where clients reach the proxies."""
        return [proxy.address for proxy in self.proxies]

    def stored(self, places: Sequence[Place]) -> Mapping[Place, list[tuple[int, bytes]]]:
        """(offset, value) of all records of these partitions, out of the segment files."""
        return {place: stored_values(self.cluster, place) for place in set(places)}

    def errors_of_ours(self, said: Sequence[str] = ("internal error", "DUPLICATE")) -> list[str]:
        """Return the first lines of what went wrong inside the proxies, since their first start."""
        found = []
        for index in range(2):
            log = (self._directory / f"proxy-{index}" / "proxy.log").read_text(errors="replace")
            found += [line for line in log.splitlines() if any(one in line for one in said)]
        return found[:5]


def stop_before(proxy: ProxyProcess, number: signal.Signals) -> None:
    """Have it stop itself at that moment (``STOP_BEFORE_...``); return when it knows."""
    heard = proxy.log.count(two_proxies_program.HEARD)
    proxy.signal(number)
    wait_until(lambda: proxy.log.count(two_proxies_program.HEARD) > heard, "the signal is heard")
