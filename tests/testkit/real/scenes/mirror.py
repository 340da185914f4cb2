"""Two real clusters, two proxies before the second one, and examples/mirror.py between them; all of it can be killed.

Owns the processes, and compares what the segment files of both clusters hold."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from confluent_kafka import Producer

from idemproxy.client import Client, Progress
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.segments import read_partition
from testkit.real.brokers.kafka_cluster import patient_settings
from testkit.real.brokers.retention import DELETES_SOON
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies

from .example_lives import Lives

NAME = "mirror"


@dataclass(frozen=True, slots=True)
class Compared:
    """The output against the input, over all partitions. ``different``: records at the same place in the order."""

    stored: int
    missing: int
    surplus: int
    different: int


class MirrorScene:
    """A context manager. Topics are made by ``begin``."""

    def __init__(self, directory: Path, *, topics: dict[str, int]) -> None:
        self._directory = directory
        self._stack = ExitStack()
        self.topics = topics
        self._fed = 0
        self._begun_ms = time.time_ns() // 1_000_000

    def __enter__(self) -> MirrorScene:
        with ExitStack() as started:
            clusters = []
            for name in ("source", "destination"):
                # Neither is to lose what the mirror counts on: min.insync.replicas is 1, and each log one disk.
                cluster = started.enter_context(
                    LegacyCluster(
                        self._directory / name,
                        auto_create_topics=False,
                        session_timeout_ms=3000,
                        broker_settings=DELETES_SOON,
                    )
                )
                for topic, partitions in self.topics.items():
                    cluster.create_topic(topic, partitions)
                clusters.append(cluster)
            self.source, self.destination = clusters
            self.proxies = started.enter_context(TwoProxies(self._directory / "proxies", self.destination))
            self._arguments = (self.source.bootstrap, self.bootstrap, NAME, *self.topics)
            self.lives = started.enter_context(self.instance("mirror"))
            self._stack = started.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        """Of both proxies."""
        return ",".join(f"{host}:{port}" for host, port in self.proxies.addresses)

    # ------------------------------------------------------------------ the mirror
    def instance(self, name: str) -> Lives:
        """Return one more instance of it; ``name``: of the file for what it says."""
        output = self._directory / f"{name}.out"
        return Lives("mirror", ("run", *self._arguments), output, ending=("--until-end",))

    def begin(self) -> None:
        """Give it its numbers."""
        self.lives.run("begin", *self._arguments)

    def finish(self, seconds_max: float) -> None:
        """Let it copy to the end of the input."""
        self.lives.stop()
        self.lives.run_until_it_ends_well(seconds_max)

    def planned(self) -> int:
        """Return of how many partitions batches are planned, some of which may be in the log. The source runs."""
        places = [(topic, one) for topic, partitions in self.topics.items() for one in range(partitions)]
        with Client(self.source.bootstrap) as client:
            saved = client.committed_offsets(NAME, places)
        return sum(bool(Progress.committed(one).batches) for one in saved.values())

    # ------------------------------------------------------------------ records
    def feed(self, records: int) -> None:
        """Append so many to the source, to partitions and topics in turn; some have keys, some no value."""
        producer = Producer(patient_settings(self.source.bootstrap, batch_num_messages=1000, linger_ms=5))
        places = [(topic, one) for topic, partitions in self.topics.items() for one in range(partitions)]
        for number in range(self._fed, self._fed + records):
            topic, partition = places[number % len(places)]
            value = None if number % 97 == 0 else b"%d " % number + b"." * (number % 150)
            key = b"key %d" % (number % 1000) if number % 3 else None
            while True:
                try:
                    producer.produce(topic, value, key, partition, timestamp=self._begun_ms + number)
                    break
                except BufferError:
                    producer.poll(0.05)
        assert producer.flush(60) == 0
        self._fed += records

    # ------------------------------------------------------------------ kills
    def kill_proxy(self, index: int) -> None:
        """End a proxy by SIGKILL, and start it again. While its broker is away it does not listen."""
        self.proxies.proxies[index].kill()
        self.proxies.proxies[index].launch()

    def wait_for_proxies(self) -> None:
        """Return when both listen."""
        wait_until(lambda: all(_listens(address) for address in self.proxies.addresses), "the proxies listen", 120)

    def kill_broker(self, cluster: LegacyCluster) -> None:
        """End the broker of a cluster by SIGKILL, and start it again."""
        cluster.kill_broker(0)
        cluster.start_broker(0)

    # ------------------------------------------------------------------ what came of it
    def compare(self) -> Compared:
        """Read the segment files of both."""
        stored = missing = surplus = different = 0
        for topic, partitions in self.topics.items():
            for partition in range(partitions):
                pairs = zip_longest(
                    _records(self.source, topic, partition), _records(self.destination, topic, partition)
                )
                for given, copied in pairs:
                    stored += copied is not None
                    missing += copied is None
                    surplus += given is None
                    different += given is not None and copied is not None and given != copied
        return Compared(stored, missing, surplus, different)


def _listens(address: tuple[str, int]) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


def _records(
    cluster: LegacyCluster, topic: str, partition: int
) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    for one in read_partition(cluster.log_directories[0], topic, partition):
        yield one.offset, one.timestamp, one.key, one.value
