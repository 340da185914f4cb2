"""Producers that write to a topic through a proxy, and ``idemproxy rebuild``, which finds in the log what Redis has
lost of them."""

from __future__ import annotations

import json
import subprocess
import sys

from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess

PRODUCERS, PARTITIONS, RECORDS = 12, 3, 2
RUN_SECONDS_MAX = 120


class Scene:
    """Producers that write to a topic through a proxy with a private Redis."""

    def __init__(self, cluster: LegacyCluster, proxy: ProxyProcess) -> None:
        self._cluster, self.proxy = cluster, proxy
        self.topic = fresh_topic(cluster, PARTITIONS)
        self.told: list[list[int]] = [[] for _ in range(PRODUCERS)]
        with RawClient(proxy.address) as client:
            self.producer_ids = [client.new_producer_id() for _ in range(PRODUCERS)]

    def values(self, producer: int, number: int) -> list[bytes]:
        return [b"%d:%d:%d" % (producer, number, index) for index in range(RECORDS)]

    def send(self, client: RawClient, producer: int, number: int) -> PartitionAnswer:
        records = batch(
            self.values(producer, number), producer_id=self.producer_ids[producer], sequence=number * RECORDS
        )
        (answer,) = client.produce([(self.topic, producer % PARTITIONS, records)])
        return answer

    def send_all(self, number: int) -> None:
        """Every producer sends its next batch; none gets an error."""
        with RawClient(self.proxy.address) as client:
            for producer in range(PRODUCERS):
                answer = self.send(client, producer, number)
                assert answer.error_code == 0, (producer, answer)
                self.told[producer].append(answer.base_offset)

    def rebuild(self, *options: str, status: int = 0) -> dict[str, object]:
        """Run the command; return what it prints for machines."""
        command = self.command(*options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False)
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        assert found["problems"] == {}
        return found

    def command(self, *options: str) -> list[str]:
        """With whom and on what."""
        upstream = "{}:{}".format(*self._cluster.address(0))
        command = [sys.executable, "-P", "-m", "idemproxy", "rebuild", "--upstream", upstream, "--topic", self.topic]
        return [*command, "--data-directory", str(self.proxy.data_directory), "--all", "--json", *options]

    def searches(self) -> int:
        """How often the proxy has read the log for somebody."""
        return self.proxy.log.count("resolved as")

    def stored(self) -> list[bytes]:
        return [value for p in range(PARTITIONS) for _, value in stored_values(self._cluster, (self.topic, p))]
