"""A topic that a client has had created, before a broker has heard of it: one of two real brokers stands still."""

import time
from pathlib import Path
from typing import Any

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy import limits
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

UNKNOWN, LEADER_NOT_AVAILABLE = 3, 5
LOOKS = 3
"""Each takes a second at most."""


def described(client: RawClient, name: str) -> Any:
    """By who may not create it, as kafkajs' admin client asks."""
    return client.ask(ApiKey.METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=False).topics[0]


def test_a_new_topic_is_never_unknown_while_a_broker_has_not_heard_of_it(tmp_path: Path) -> None:
    """The proxy asks one broker as well as the other; a client that asks the controller itself hears of it at once."""
    with (
        LegacyCluster(tmp_path / "kafka", brokers=2, auto_create_topics=False, session_timeout_ms=40_000) as cluster,
        ProxyProcess(tmp_path / "proxy", cluster.address(0), brokers=2) as proxy,
    ):
        with RawClient(proxy.address) as client:
            controller = client.ask(ApiKey.METADATA, 1, topics=[]).controller_id
        host, port = proxy.address
        with RawClient((host, port + 1 + controller)) as client:
            assert described(client, "new").error_code == UNKNOWN
            here = [{"partition_index": 0, "broker_ids": [controller]}]
            wanted = [{"name": "new", "num_partitions": -1, "replication_factor": -1, "assignments": here}]
            cluster.pause_broker(1 - controller)
            try:
                answer = client.ask(ApiKey.CREATE_TOPICS, 1, topics=wanted, timeout_ms=5_000, validate_only=False)
                assert answer.topics[0].error_code == 0
                began = time.monotonic()
                codes = [described(client, "new").error_code for _ in range(LOOKS)]
                assert time.monotonic() - began < limits.NEW_TOPIC_SECONDS
            finally:
                cluster.resume_broker(1 - controller)
            assert set(codes) <= {0, LEADER_NOT_AVAILABLE}
            wait_until(lambda: described(client, "new").error_code == 0, "the topic is there")
            assert described(client, "other").error_code == UNKNOWN
