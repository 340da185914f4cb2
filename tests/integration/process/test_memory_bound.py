"""However much clients send while their broker hangs: a proxy takes the memory that its limits say, and no more."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.flood import Flood, Kind, Watch
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import resident_bytes
from testkit.real.proxies.proxy_process import ProxyProcess

pytestmark = pytest.mark.long

TOPIC, PARTITIONS = "flood", 12
MIB = 1 << 20
REQUEST_BYTES_MAX = 64 * MIB
CONNECTION_BYTES = 20_000
"""Of one that is at work."""
UNPACKED_BYTES = 130 * MIB
"""One batch while it is converted, as docs/explanation/performance.md says."""
LEFT_ALONE_AT_BYTES = 1 << 30
SECONDS = 5.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    # Longer than it is paused: else it comes back without leaders.
    kafka = tmp_path_factory.mktemp("kafka")
    with LegacyCluster(kafka, auto_create_topics=False, session_timeout_ms=60_000) as running:
        running.create_topic(TOPIC, PARTITIONS, 1)
        yield running


@pytest.mark.parametrize(
    "kind",
    [Kind(Codec.GZIP, 10, connections=600), Kind(Codec.GZIP, 1_000), Kind(Codec.LZ4, 10, is_named=False)],
    ids=lambda kind: kind.name,
)
def test_memory_stays_below_the_limits_while_a_broker_hangs(
    cluster: LegacyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    monkeypatch.setenv("IDEMPROXY_LIMITS__REQUEST_BYTES_TOTAL_MAX", str(REQUEST_BYTES_MAX))
    monkeypatch.setenv("IDEMPROXY_LIMITS__CONNECTIONS_PER_IP_MAX", "0")
    with ProxyProcess(tmp_path, cluster.address(0)) as proxy:
        with RawClient(proxy.address) as client:
            producer_id = client.new_producer_id()
            for partition in range(PARTITIONS):
                answer = client.produce_one(TOPIC, partition, batch([b"first"], producer_id=producer_id))
                assert answer.error_code == 0
        flood = Flood(proxy.address, TOPIC, PARTITIONS, kind)
        at_rest = resident_bytes(proxy.pid)
        cluster.pause_broker(0)
        try:
            with Watch(proxy.pid).running() as watch:
                flood.run(SECONDS, proxy.pid, LEFT_ALONE_AT_BYTES)
        finally:
            cluster.resume_broker(0)
    assert flood.requests > kind.connections
    bound = 1.2 * REQUEST_BYTES_MAX + kind.connections * CONNECTION_BYTES + (kind.ratio > 10) * UNPACKED_BYTES
    assert max(watch.seen) - at_rest <= bound
