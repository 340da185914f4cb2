"""A real cluster of Kafka 4, which has no ZooKeeper: broker 0 is the controller as well.

Owns its processes' lives like ``LegacyCluster``, of which it takes the rest.
"""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from idemproxy.demo.broker_settings import write_properties
from idemproxy.demo.jars import broker_class_path, java_runtime
from idemproxy.demo.legacy_cluster import ClusterError, LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.clients.raw_client import RawClient

NEWEST = "4.3.1"
KRAFT_FROM = 4
"""Brokers from this version on have no ZooKeeper."""
_FORMAT_SECONDS_MAX = 120
_CONTROLLER = "CONTROLLER"


def cluster_class(version: str) -> type[LegacyCluster]:
    """Return the class of clusters of this version."""
    return LegacyCluster if int(version.partition(".")[0]) < KRAFT_FROM else KraftCluster


class KraftCluster(LegacyCluster):
    """Brokers 0..n-1. A context manager, with the settings of ``LegacyCluster``."""

    def __init__(self, directory: Path, *, version: str = NEWEST, **settings: object) -> None:
        super().__init__(directory, version=version, **settings)  # type: ignore[arg-type]
        (self._controller_port,) = free_ports(1)
        # Of the letters one is "-", which as the first one would be taken for an option.
        self._id = "A" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip("=")

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        config: Mapping[str, str | int] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Make a topic and wait until every broker that runs knows a leader of every partition."""
        settings = {key: str(value) for key, value in (config or {}).items()}
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=replication, config=settings)
        if assignment is not None:
            replicas = [list(nodes) for nodes in assignment]
            wanted = NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas, config=settings)
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.create_topics([wanted])[name].result(60)
        self.wait_for_leaders(name, partitions)

    def _has_leaders(self, broker: int, topic: str, partitions: int) -> bool:
        """A broker tells of its leadership a moment before it takes requests for it."""
        if not super()._has_leaders(broker, topic, partitions):
            return False
        led = [number for number, one in self.state(broker).topics[topic].items() if one.leader == broker]
        with RawClient(self.address(broker)) as raw:
            return raw.takes_requests_for(topic, led)

    def start_broker(self, broker: int) -> None:
        """Start a broker that was killed or stopped, and wait until the cluster knows it again."""
        self._spawn_broker(broker)
        self.wait_until_ready()

    # Inside

    def _start_zookeeper(self) -> None:
        """Prepare the directories: there is no ZooKeeper."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "temporary").mkdir(exist_ok=True)
        for broker in self.broker_ids:
            path = write_properties(self.directory / f"broker-{broker}.properties", self._broker_settings(broker))
            command = [str(java_runtime()), "-cp", broker_class_path(self.version), "kafka.tools.StorageTool"]
            done = subprocess.run(
                [*command, "format", "-t", self._id, "-c", str(path)],
                capture_output=True,
                text=True,
                timeout=_FORMAT_SECONDS_MAX,
                check=False,
            )
            if done.returncode:
                raise ClusterError(f"broker {broker} can not be formatted:\n{done.stdout}{done.stderr}")

    def _broker_settings(self, broker: int) -> dict[str, str]:
        kept = {
            name: value
            for name, value in super()._broker_settings(broker).items()
            if not name.startswith("zookeeper") and name not in ("broker.id", "delete.topic.enable")
        }
        controller = f"{_CONTROLLER}://{HOST}:{self._controller_port}"
        kept |= {
            "node.id": str(broker),
            "process.roles": "broker,controller" if broker == 0 else "broker",
            "controller.quorum.voters": f"0@{HOST}:{self._controller_port}",
            "controller.listener.names": _CONTROLLER,
            "listener.security.protocol.map": kept["listener.security.protocol.map"] + f",{_CONTROLLER}:PLAINTEXT",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
        }
        if broker == 0:
            kept["listeners"] += f",{controller}"
        return kept
