"""A 3.9.1 that still has a ZooKeeper, and the proxy in front of a 4.3.1: the same old requests to both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.old_scripts import STEPS, Difference, OldScript, Side, differences, readable
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

SERVES_THEM = "3.9.1"
FETCH_VERSIONS = range(4)
LIMITS = (1 << 20, 20_000)
"""Of a fetch: all that a script writes, and a part of it. A 3.9.1 gets stuck at a message above the limit."""


@dataclass
class Compared:
    """What became of some scripts."""

    requests: int = 0
    entries: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)


@dataclass
class BothServers:
    """``theirs``: answers old requests itself. ``ours``: behind the proxy, where messages of format v0 get no
    timestamp, so that both store the same."""

    theirs: LegacyCluster
    ours: LegacyCluster
    proxy: ProxyProcess

    def compare(self, seed: int, steps: int = STEPS) -> Compared:
        """Run the script of a seed at both."""
        now_ms = int(time.time() * 1000)
        compared, sides = Compared(), list[Side]()
        host, port = self.proxy.address
        reads = []
        for cluster, address in ((self.theirs, self.theirs.address(0)), (self.ours, (host, port + 1))):
            script = OldScript(seed, now_ms)
            for topic, (count, config) in script.topics.items():
                cluster.create_topic(topic, count, config=config)
            partitions = {topic: count for topic, (count, _) in script.topics.items()}
            with RawClient(address) as raw:
                wait_until(partial(_are_led, raw, partitions), "all partitions have a leader")
                wait_until(partial(_is_coordinated, raw), "groups have their coordinator")
                side = Side(raw)
                script.run(side, steps)
                reads.append(
                    [
                        (version, limit, script.read_all(side, version, limit))
                        for version in FETCH_VERSIONS
                        for limit in LIMITS
                    ]
                )
            sides.append(side)
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            for gone in admin.delete_topics(list(script.topics)).values():  # thousands of partitions are too many
                gone.result(60)
        compared.requests = len(sides[0].seen)
        for one in differences(*sides):
            self._count(compared, one)
        for (version, limit, theirs), (_, _, ours) in zip(*reads, strict=True):
            for (topic, partition), left, right in zip(script.read_back, theirs, ours, strict=True):
                compared.entries += len(right)
                if readable(left) != right:
                    what = f"seed {seed}: {topic}-{partition} in fetches of version {version} and {limit} bytes"
                    compared.complaints.append(f"{what}: {len(left)} entries, {len(right)}")
        return compared

    @staticmethod
    def _count(compared: Compared, one: Difference) -> None:
        if (found := one.allowed) is not None:
            compared.allowed[f"{one.what}: {found.why}"] += 1
        else:
            compared.complaints.append(f"{one.what}, {one.where}: {one.theirs!r}, {one.ours!r}")


def _are_led(raw: RawClient, partitions: Mapping[str, int]) -> bool:
    """A broker reports a leader some moments before that one knows it."""
    try:
        return len(raw.end_offsets(partitions)) == sum(partitions.values())
    except AssertionError:
        return False


def _is_coordinated(raw: RawClient) -> bool:
    """The first group that a cluster sees makes it create the topic of offsets."""
    if raw.ask(ApiKey.FIND_COORDINATOR, 0, key="group").error_code:
        return False
    answer = raw.ask(ApiKey.OFFSET_FETCH, 1, group_id="group", topics=[{"name": "t", "partition_indexes": [0]}])
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    return bool(codes) and codes[0] in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@contextmanager
def both_servers(directory: Path) -> Iterator[BothServers]:
    """Start them."""
    settings: dict[str, str | int] = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with (
        LegacyCluster(
            directory / "theirs", version=SERVES_THEM, auto_create_topics=False, broker_settings=settings
        ) as theirs,
        KraftCluster(directory / "ours", auto_create_topics=False, broker_settings=settings) as ours,
        ConfiguredProxy(
            directory / "proxy",
            {
                "upstream": {"bootstrap": ["{}:{}".format(*ours.address(0))]},
                "old_clients": {"timestamps": "missing"},
            },
            listener={},
        ) as proxy,
    ):
        yield BothServers(theirs, ours, proxy)
