"""Addresses where something else listens than a broker or Redis, and addresses of two clusters: ``idemproxy check`` and
``idemproxy run`` say what is there."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.store.two_proxies_redis import ExternalRedis

Place = tuple[str, int]


@pytest.fixture(scope="module")
def redis() -> Iterator[ExternalRedis]:
    with ExternalRedis() as started:
        yield started


def problems(upstream: Place, *options: str) -> list[str]:
    """What ``check --connect`` finds wrong."""
    command = [sys.executable, "-m", "idemproxy", "check", "--connect", "--quiet", "--upstream", shown(upstream)]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, timeout=240)
    assert ended.returncode == 1, ended.stderr
    return [line for line in ended.stdout.splitlines() if line.startswith("PROBLEM")]


def shown(place: Place) -> str:
    return "{}:{}".format(*place)


def waits(directory: Path, upstream: Place, *options: str) -> str:
    """The line with which ``run`` says what it waits for."""
    proxy = ProxyProcess(directory, upstream, options=options)
    proxy.launch()
    try:
        return proxy.wait_for_log("still waiting for")
    finally:
        proxy.__exit__()


def test_zookeeper_in_place_of_a_broker_is_recognised(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    keeper = legacy_broker.zookeeper_address
    said = "; ZooKeeper listens there, not a Kafka broker: name another address"
    (line,) = problems(keeper)
    assert line == f"PROBLEM upstream {shown(keeper)}: the peer closed the connection{said}"
    assert f"(upstream {shown(keeper)}: the peer closed the connection{said})" in waits(tmp_path, keeper)


def test_redis_in_place_of_a_broker_is_recognised(redis: ExternalRedis, tmp_path: Path) -> None:
    said = "; Redis listens there, not a Kafka broker: name another address"
    (line,) = problems(redis.address)
    assert line.endswith(said)
    assert f"{said})" in waits(tmp_path, redis.address)


def test_a_broker_or_zookeeper_in_place_of_redis_is_recognised(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    upstream, keeper = legacy_broker.address(0), legacy_broker.zookeeper_address
    for place, what in ((upstream, "a Kafka broker"), (keeper, "ZooKeeper")):
        url = f"redis://{shown(place)}"
        said = f"the peer closed the connection; {what} listens there, not Redis: name another address"
        assert problems(upstream, "--redis", url) == [f"PROBLEM redis {shown(place)}: {said}"]
        line = waits(tmp_path / what, upstream, "--redis", url)
        assert f"({url}; Redis is away: {said})" in line


def test_addresses_of_two_clusters_end_the_start(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    with LegacyCluster(tmp_path / "other") as other:
        proxy = ProxyProcess(tmp_path, legacy_broker.address(0), options=("--upstream", both(legacy_broker, other)))
        proxy.launch()
        try:
            assert proxy.wait() == 2
            (line,) = (one for one in proxy.log.splitlines() if " ERROR " in one)
        finally:
            proxy.__exit__()
    assert "cannot be served: it belongs to another cluster, " in line
    assert "and another address there answered first. Name addresses of one cluster only (upstream.bootstrap)" in line


def both(*clusters: LegacyCluster) -> str:
    return ",".join(shown(cluster.address(0)) for cluster in clusters)


def test_a_proxy_without_redis_says_in_readyz_why_and_accuses_no_broker(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    redis, admin = free_ports(2)
    options = ("--redis", f"redis://127.0.0.1:{redis}", "--admin-bind", f"127.0.0.1:{admin}")
    proxy = ProxyProcess(tmp_path, legacy_broker.address(0), options=options)
    proxy.launch()
    why = "Redis is away: cannot connect: connection refused: nothing listens there\n"
    try:
        proxy.wait_for_log("still waiting for Redis")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=30)
        with refused.value as answer:
            assert answer.read().decode() == why
    finally:
        proxy.__exit__()
