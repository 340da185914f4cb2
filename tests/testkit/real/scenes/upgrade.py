"""A cluster that is upgraded broker by broker under the proxy, from 0.10.2 to 3.9, message format last, while clients
produce, with faults on both sides of the proxy; and what may happen once producers are handed over: proxies that begin
anew, a broker that is rolled back.

Says what became of each client's records, as ``faulty.py`` does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Self

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.demo.zookeeper import ZooKeeper
from testkit.real.brokers.kafka_cluster import fresh_topic, stored, stored_texts, told, verdict
from testkit.real.clients.client_runs import AIOKAFKA, read_plainly, start_producer
from testkit.real.clients.java_clients import JavaProgram as ClientProgram
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.store.two_proxies_redis import ExternalRedis

from .faulty import ClientResult

OLD, MIDDLE, NEW = "0.10.2.2", "2.8.2", "3.9.1"
_FORMAT, _PROTOCOL = "log.message.format.version", "inter.broker.protocol.version"
STAGES: tuple[tuple[str, str, Mapping[str, str | int]], ...] = (
    ("2.8, protocol and format of 0.10.2", MIDDLE, {_PROTOCOL: "0.10.2", _FORMAT: "0.10.2"}),
    ("2.8, its own protocol", MIDDLE, {_PROTOCOL: "2.8", _FORMAT: "0.10.2"}),
    ("3.9, protocol of 2.8", NEW, {_PROTOCOL: "2.8", _FORMAT: "0.10.2"}),
    ("3.9, its own format", NEW, {}),
)
"""As the page on cutting over says: what brokers become, one after the other."""
PARTITIONS = 3
RECORDS_MAX = 1_000_000
RECORDS_PER_SECOND = 40
PATIENT = {AIOKAFKA: {"request_timeout_ms": 3_600_000}}
"""It takes its request timeout for the delivery time as well, and brokers restart."""
HANDED_OVER = "producers are handed over to them"
GOES_ON_HANDING_OVER = "with ids of the proxy are handed over to them"
"""What a proxy says at its start that knows from before that they are."""
ROLLED_BACK = "cannot be served: it has producer ids of its own, but stores message format"
_LEADERS_STAY = {"auto.leader.rebalance.enable": "false"}
"""As the page says, so that no leader moves to a broker that waits for the others."""


class UpgradedCluster(LegacyCluster):
    """Its ZooKeeper is one that brokers of all versions work with."""

    def _start_zookeeper(self) -> None:
        version, self.version = self.version, MIDDLE
        super()._start_zookeeper()
        self.version = version


class UpgradeScene:
    """A context manager: entering starts relays, brokers and the proxy."""

    def __init__(
        self,
        directory: Path,
        clients: tuple[str, ...],
        *,
        brokers: int,
        plan: FaultPlan,
        starts_with: int = 0,
        proxies: int = 1,
    ) -> None:
        """``starts_with``: so many of the stages are done already when the brokers start for the first time.
        ``proxies``: clients use one of them each, in turn; several have one Redis."""
        version, settings = STAGES[starts_with - 1][1:] if starts_with else (OLD, {})
        self.stages = STAGES[starts_with:]
        self.directory = directory
        self.clients = clients
        ports = free_ports(brokers)
        self.cluster = UpgradedCluster(
            directory / "cluster",
            version=version,
            brokers=brokers,
            broker_settings={**_LEADERS_STAY, **settings},
            advertised={broker: (HOST, port) for broker, port in enumerate(ports)},
            auto_create_topics=False,
        )
        self.broker_relays = [
            FaultRelay(self.cluster.address(broker), plan=plan, port=port) for broker, port in enumerate(ports)
        ]
        self._redis = ExternalRedis() if proxies > 1 else None
        host, port = ("", 0) if self._redis is None else self._redis.address
        options = () if self._redis is None else ("--redis", f"redis://{host}:{port}/0")
        self._proxy_directories = [directory / f"proxy-{number}" for number in range(proxies)]
        self.proxies = [
            ProxyProcess(folder, (HOST, ports[0]), brokers=brokers, options=options)
            for folder in self._proxy_directories
        ]
        self.topics: dict[str, str] = {}
        self._plan = plan
        self._programs: dict[str, ClientProgram] = {}
        self._relays: dict[str, FaultRelay] = {}
        self._children = ChildProcesses()
        self._until = directory / "enough"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for relay in self.broker_relays:
                started.enter_context(relay)
            if self._redis is not None:
                started.enter_context(self._redis)
            managers: list[AbstractContextManager[object]] = [self.cluster, *self.proxies, self._children]
            for manager in managers:
                started.enter_context(manager)
            self._stack = started.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(None, None, None)

    # ------------------------------------------------------------------ clients
    def start_clients(self, *, seconds_max: int) -> None:
        """Let each produce to a topic and over a relay of its own, until ``results``."""
        replication = len(self.broker_relays)
        for number, client in enumerate(self.clients):
            proxy = self.proxies[number % len(self.proxies)]
            topic = self.topics[client] = fresh_topic(self.cluster, PARTITIONS, replication)
            relay = FaultRelay(proxy.address, rewrite_addresses=True, plan=self._plan)
            self._relays[client] = self._stack.enter_context(relay)
            self._programs[client] = start_producer(
                self._children,
                self.directory,
                client,
                bootstrap=relay.address,
                topic=topic,
                partitions=PARTITIONS,
                records=RECORDS_MAX,
                delivery_seconds=seconds_max,
                settings=PATIENT.get(client),
                pace={"records_per_second": RECORDS_PER_SECOND, "until_file": str(self._until)},
            )

    def stored_records(self, client: str) -> int:
        """How many of its records are in the log of the leaders by now."""
        log = stored(self.cluster, self.topics[client], PARTITIONS)
        return sum(map(len, log.values()))

    def wait_for_more(self, records: int, seconds_max: float) -> None:
        """Return when so many more records of each client are stored."""
        wanted = {client: self.stored_records(client) + records for client in self.clients}
        end = time.monotonic() + seconds_max
        for client, count in wanted.items():
            while self.stored_records(client) < count:
                assert time.monotonic() < end, f"{client} stands still:\n{self._logs_end}"
                time.sleep(0.5)

    def wait_for_faults(self, seconds_max: float) -> None:
        """Return when each client has lost an answer and a connection."""
        end = time.monotonic() + seconds_max
        for client, relay in self._relays.items():
            while not (relay.counts[FaultKind.LOST_ANSWER] and relay.counts[FaultKind.CUT]):
                assert time.monotonic() < end, f"{client} was not hit: {relay.counts}"
                time.sleep(0.5)

    def results(self, *, seconds_max: float) -> dict[str, ClientResult]:
        """Let the clients end, and judge what became of their records."""
        start = time.monotonic()
        self._until.touch()
        found = {}
        for client, program in self._programs.items():
            outcome = program.wait(max(1.0, start + seconds_max - time.monotonic()))
            acknowledged = told(client, program.acknowledged())
            topic, relay = self.topics[client], self._relays[client]
            found[client] = ClientResult(
                client=client,
                records=int(outcome["sent"]),
                outcome=outcome,
                acknowledged=len(acknowledged),
                verdict=verdict(self.cluster, topic, PARTITIONS, acknowledged),
                consumed=read_plainly(
                    self._children,
                    self.directory,
                    bootstrap=self.cluster.bootstrap,
                    topic=topic,
                    partitions=PARTITIONS,
                    records=int(outcome["sent"]),
                    name=f"{client}-checked",
                ),
                stored=stored_texts(self.cluster, topic, PARTITIONS),
                faults=relay.counts,
                init_producer_id_requests=relay.init_producer_id_requests,
                producer_ids=relay.producer_ids,
                produce_requests=relay.produce_requests,
                seconds=time.monotonic() - start,
            )
        return found

    # ------------------------------------------------------------------ brokers
    def become(self, broker: int, version: str, settings: Mapping[str, str | int]) -> None:
        """Restart one broker as another version, and wait until all replicas are in sync."""
        self.cluster.stop_broker(broker)
        self.cluster.become(version, {**_LEADERS_STAY, **settings})
        self.cluster.start_broker(broker)
        for topic in self.topics.values():
            self.cluster.wait_for_leaders(topic, PARTITIONS)
            self.cluster.wait_in_sync(topic, PARTITIONS)

    def roll_back(self, broker: int, *, seconds_max: float) -> None:
        """One that producers were handed over to gets the old format again, and leads partitions; return when every
        proxy has said that it does not serve it."""
        _, version, settings = STAGES[-2]
        self.become(broker, version, settings)
        for proxy in self.proxies:
            proxy.wait_for_log(ROLLED_BACK, seconds_max)
        places = [{"topic": topic, "partition": number} for topic, number in self._places]
        with ZooKeeper(self.cluster.zookeeper_address) as keeper:
            keeper.create(
                "/admin/preferred_replica_election", json.dumps({"version": 1, "partitions": places}).encode()
            )
        end = time.monotonic() + seconds_max
        while not any(self.cluster.leader(topic, number) == broker for topic, number in self._places):
            assert time.monotonic() < end, f"broker {broker} leads nothing"
            time.sleep(0.2)

    # ------------------------------------------------------------------ proxies
    def wait_until_handed_over(self, seconds_max: float) -> None:
        """Return when every proxy says that producers are handed over."""
        for proxy in self.proxies:
            proxy.wait_for_log(HANDED_OVER, seconds_max)

    def restart_proxies(self, *, by_kill: bool, seconds_max: float) -> None:
        """End and start them, one after the other, while they hand over; return when all go on with it."""
        for proxy in self.proxies:
            if by_kill:
                proxy.kill()
            else:
                assert (code := proxy.stop()) == 0, f"the proxy ended with {code}"
            proxy.start()
            proxy.wait_for_log(GOES_ON_HANDING_OVER, seconds_max)

    @property
    def internal_errors(self) -> list[str]:
        """What went wrong inside the proxies, in all their lives."""
        logs = [(folder / "proxy.log").read_text(errors="replace") for folder in self._proxy_directories]
        return [log[log.index("internal error") :][:2000] for log in logs if "internal error" in log]

    # ------------------------------------------------------------------ inside
    @property
    def _places(self) -> list[tuple[str, int]]:
        return [(topic, number) for topic in self.topics.values() for number in range(PARTITIONS)]

    @property
    def _logs_end(self) -> str:
        return "\n".join(proxy.log[-3000:] for proxy in self.proxies)
