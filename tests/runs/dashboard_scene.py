"""Two proxies on one Redis before two brokers, under five minutes of varied load and faults: something to look at for
the dashboard. Everything is real; what happens when is in ``EVENTS``, and each of its names is printed as it begins.

It proves nothing about records: other runs do. It only has to make every kind of series move.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer

from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports, neighbouring_ports
from testkit.real.brokers.kafka_cluster import librdkafka_settings
from testkit.real.clients.raw_client import RawClient, batch, resigned
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.two_proxies_relays import Keeping, KeepingRelay
from testkit.real.store.inspecting import idemproxy
from testkit.real.store.two_proxies_redis import ExternalRedis
from testkit.real.tls.certificates import Authority
from testkit.real.tls.settings import listener_tls

SECONDS: Final = 300.0
ORDERS, PAYMENTS, CLICKS, IMPORT = "orders", "payments", "clicks", "legacy-import"
PARTITIONS = 6
ELSEWHERE = "127.0.0.2"
"""Another address of this machine: what is refused by address hits nobody else."""
_BROKERS = 2
_STEP_SECONDS = 0.05
_CRC_AT = 17
_TOO_LARGE_BYTES = 1_200_000
"""Above a broker's message.max.bytes, also when it was compressed."""


class Load(threading.Thread):
    """A producer of librdkafka whose rate goes up and down around ``rate`` records per second."""

    def __init__(self, client_id: str, bootstrap: str, topic: str, rate: float, size: int, period: float) -> None:
        super().__init__(name=client_id, daemon=True)
        settings = librdkafka_settings(bootstrap, delivery_seconds=240, enable_idempotence=True)
        self._producer = Producer({**settings, "client.id": client_id, "linger.ms": 20})
        self._topic, self._rate, self._value, self._period = topic, rate, b"v" * size, period
        self._ending = threading.Event()

    def run(self) -> None:
        """Produce until ``end``."""
        begun, due = time.monotonic(), 0.0
        while not self._ending.wait(_STEP_SECONDS):
            wave = 1 + 0.6 * math.sin((time.monotonic() - begun) / self._period * math.tau)
            due += self._rate * wave * _STEP_SECONDS
            while due >= 1:
                due -= 1
                with suppress(BufferError, KafkaException):
                    self._producer.produce(self._topic, self._value)
            self._producer.poll(0)

    def end(self) -> None:
        """Send nothing more; what is under way is given a moment."""
        self._ending.set()
        self.join()
        self._producer.flush(5)


class Reader(threading.Thread):
    """A consumer in a group."""

    def __init__(self, client_id: str, bootstrap: str, topics: list[str], **settings: str) -> None:
        super().__init__(name=client_id, daemon=True)
        base = {"bootstrap.servers": bootstrap, "group.id": client_id, "client.id": client_id, "log_level": 0}
        tls = {name.replace("_", "."): value for name, value in settings.items()}
        self._consumer = Consumer({**base, "auto.offset.reset": "earliest", **tls})
        self._topics = topics
        self._ending = threading.Event()

    def run(self) -> None:
        """Read until ``end``."""
        self._consumer.subscribe(self._topics)
        while not self._ending.is_set():
            self._consumer.consume(500, 0.5)
        self._consumer.close()

    def end(self) -> None:
        """Leave the group."""
        self._ending.set()
        self.join()


class DashboardScene:
    """A context manager: entering starts Redis, brokers, relays and proxies. ``play`` takes ``SECONDS``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self._clients: list[Load | Reader] = []
        self._open: list[socket.socket] = []
        self.admin_ports = free_ports(2)
        self.proxies: list[ConfiguredProxy] = []
        self._relays: list[KeepingRelay] = []
        self._tls_ports: list[int] = []

    def __enter__(self) -> DashboardScene:
        with ExitStack() as started:
            self._authority = Authority(self._directory / "certificates")
            self._redis = started.enter_context(ExternalRedis("--maxmemory", "64mb"))
            self._cluster = started.enter_context(
                LegacyCluster(self._directory / "cluster", brokers=_BROKERS, replication=2, auto_create_topics=False)
            )
            for topic in (ORDERS, PAYMENTS, CLICKS):
                self._cluster.create_topic(topic, PARTITIONS, replication=2)
            self._cluster.create_topic(IMPORT, 1, replication=2, config={"message.format.version": "0.9.0"})
            for number in range(2):
                self._start_proxy(started, number)
            # Answers of the proxies are lost as well: what the clients send again then is a duplicate.
            plan = FaultPlan(seed=3, kinds=[FaultKind.LOST_ANSWER], rate=0.03)
            self._front = [
                started.enter_context(FaultRelay(proxy.address, rewrite_addresses=True, plan=plan))
                for proxy in self.proxies
            ]
            self._stack = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.end()
        for one in self._open:
            one.close()
        self._stack.__exit__(kind, error, trace)

    def _start_proxy(self, started: ExitStack, number: int) -> None:
        plan = FaultPlan(seed=number, kinds=[FaultKind.LOST_ANSWER, FaultKind.CUT], rate=0.01)
        relay = started.enter_context(KeepingRelay(self._cluster.address(0), plan))
        tls_port = neighbouring_ports(1 + _BROKERS)
        settings = {
            "upstream": {"bootstrap": [f"{HOST}:{relay.port}"]},
            "listeners": [
                {"name": "inside", "bind": f"{HOST}:{neighbouring_ports(1 + _BROKERS)}", "broker_ids": "0-1"},
                {
                    "name": "outside",
                    "bind": f"{HOST}:{tls_port}",
                    "broker_ids": "0-1",
                    "tls": listener_tls(self._authority.issue(f"proxy-{number}")),
                },
            ],
            "redis": {"url": f"redis://{HOST}:{self._redis.port}/0"},
            "admin": {"bind": f"{HOST}:{self.admin_ports[number]}"},
            "journal": str(self._directory / f"journal-{number}"),
            "limits": {"connections_per_ip_max": 64},
        }
        proxy = ConfiguredProxy(self._directory / f"proxy-{number}", settings, brokers=_BROKERS)
        self.proxies.append(started.enter_context(proxy))
        self._relays.append(relay)
        self._tls_ports.append(tls_port)

    # ------------------------------------------------------------------ the play
    def play(self, tell: Callable[[str], None]) -> None:
        """Produce and consume for ``SECONDS``, and let everything happen at its time."""
        self._begin_load()
        begun = time.monotonic()
        for at, act in self._events():
            time.sleep(max(0.0, begun + at - time.monotonic()))
            tell(f"{time.monotonic() - begun:5.0f} s  {(act.__doc__ or '').splitlines()[0]}")
            act()
        time.sleep(max(0.0, begun + SECONDS - time.monotonic()))

    def _events(self) -> list[tuple[float, Callable[[], None]]]:
        return [
            (25, self._name_producers),
            (35, self._misbehave),
            (60, self._keep_answers),
            (82, self._let_go),
            (95, self._stop_broker),
            (120, self._start_broker),
            (145, self._kill_redis),
            (170, self._kill_proxy),
            (183, self._start_proxy_again),
            (200, self._break_handshakes),
            (215, self._crowd),
            (225, self._bury),
            (255, self._end_and_start),
        ]

    def _begin_load(self) -> None:
        first, second = (relay.address for relay in self._front)
        host, port = self.proxies[1].address
        self._clients += [
            Load("orders-service", f"{first},{second}", ORDERS, rate=60, size=300, period=90),
            Load("payments-service", f"{second},{first}", PAYMENTS, rate=25, size=900, period=60),
            Load("web", f"{first},{second}", CLICKS, rate=120, size=120, period=140),
            Load("mobile", f"{second},{first}", CLICKS, rate=80, size=120, period=75),
            Load("nightly-import", f"{host}:{port}", IMPORT, rate=2, size=2000, period=50),
            Reader("billing", f"{first},{second}", [ORDERS, PAYMENTS]),
            Reader("search", f"{second},{first}", [CLICKS]),
        ]
        for client in self._clients:
            client.start()

    def _name_producers(self) -> None:
        """Three instances begin under the name of one producer; each fences the one before."""
        for _ in range(3):
            with RawClient(self.proxies[0].address, client_id="ledger") as client:
                client.init_producer_id(transactional_id="ledger")
            time.sleep(2)

    def _misbehave(self) -> None:
        """Clients leave out batches, send what is too large and what is malformed, and stop in the middle."""
        for _ in range(5):
            stuck = socket.create_connection(self.proxies[0].address)
            stuck.sendall(b"\0\0\1\0\0\3")
            self._open.append(stuck)
        for number in range(6):
            with RawClient(self.proxies[number % 2].address, client_id="homemade") as client:
                producer_id = client.new_producer_id()
                client.produce_one(ORDERS, 0, batch([b"first"], producer_id=producer_id))
                client.produce_one(ORDERS, 0, batch([b"gap"], producer_id=producer_id, sequence=7))
                broken = resigned(batch([b"broken"], producer_id=producer_id, sequence=1), _CRC_AT, bytes(4))
                changed = bytearray(broken)
                changed[-3] ^= 0xFF  # after its checksum was made
                client.produce_one(ORDERS, 0, bytes(changed))
                large = batch([os.urandom(_TOO_LARGE_BYTES)], producer_id=client.new_producer_id())
                client.produce_one(PAYMENTS, 0, large)
            time.sleep(2)

    def _keep_answers(self) -> None:
        """What the brokers answer to one proxy does not arrive."""
        self._relays[0].keep(Keeping.ALL_ANSWERS)

    def _let_go(self) -> None:
        """It arrives."""
        self._relays[0].let_go()

    def _stop_broker(self) -> None:
        """A broker is stopped."""
        self._cluster.stop_broker(1)

    def _start_broker(self) -> None:
        """It is started."""
        self._cluster.start_broker(1)

    def _kill_redis(self) -> None:
        """Redis is killed, and started after four seconds."""
        self._redis.kill()
        time.sleep(4)
        self._redis.start()

    def _kill_proxy(self) -> None:
        """A proxy is killed while it waits for the brokers."""
        self._relays[1].keep(Keeping.ANSWERS)
        time.sleep(1)
        self.proxies[1].kill()
        self._relays[1].let_go()

    def _start_proxy_again(self) -> None:
        """It is started."""
        self.proxies[1].start()

    def _break_handshakes(self) -> None:
        """Clients speak plainly to a port with TLS; one reads by TLS."""
        for _ in range(8):
            with socket.create_connection((HOST, self._tls_ports[0])) as plain, suppress(OSError):
                plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
                plain.recv(100)
            time.sleep(0.5)
        tls = {"security_protocol": "ssl", "ssl_ca_location": str(self._authority.ca_file)}
        reader = Reader("partner", f"localhost:{self._tls_ports[0]}", [ORDERS], **tls)
        self._clients.append(reader)
        reader.start()

    def _crowd(self) -> None:
        """A hundred connections come from one address."""
        crowd = []
        for _ in range(100):
            with suppress(OSError):
                crowd.append(socket.create_connection(self.proxies[0].address, 5, source_address=(ELSEWHERE, 0)))
                time.sleep(0.02)
        time.sleep(4)
        for one in crowd:
            one.close()

    def _bury(self) -> None:
        """Two records are named as duplicates, and read around."""
        url = f"redis://{HOST}:{self._redis.port}/0"
        done = idemproxy("hide", "add", ORDERS, 0, 1, 2, "--yes", "--redis", url, "--reason", "ticket 4711")
        assert done.returncode == 0, done.stdout + done.stderr
        reader = Reader("auditor", f"{self.proxies[0].address[0]}:{self.proxies[0].address[1]}", [ORDERS])
        self._clients.append(reader)
        reader.start()

    def _end_and_start(self) -> None:
        """A proxy is asked to end while an answer is on its way, ends, and is started."""
        self._relays[0].keep(Keeping.ANSWERS)
        time.sleep(1)
        releasing = threading.Timer(6, self._relays[0].let_go)
        releasing.start()
        self.proxies[0].stop()
        releasing.join()
        self.proxies[0].start()
