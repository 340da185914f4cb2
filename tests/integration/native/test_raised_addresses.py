"""Old clients of one address whose broker is silent take no more than their share of the producer ids: those of another
address are served."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies import few_ids_proxy
from testkit.real.proxies.few_ids_proxy import IDS
from testkit.real.proxies.proxy_process import ProxyProcess

AWAKE, SILENT = 0, 1
ELSEWHERE = "127.0.0.2"
LONG_MS, SHORT_MS = 60_000, 2_000
TOPIC = "t"


def body(timeout_ms: int) -> bytes:
    """Of a Produce 2 to partition 0, which the broker leads that is awake."""
    sent = encode_set([(None, b"v", 1_700_000_000_000)], magic=1)
    return RawClient.produce_body([(TOPIC, 0, sent)], version=2, timeout_ms=timeout_ms)


def test_an_address_whose_broker_is_silent_takes_no_producer_id_from_others(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(KraftCluster(tmp_path / "kafka", brokers=2, auto_create_topics=False))
        cluster.create_topic(TOPIC, assignment=[[AWAKE]])
        proxy = ProxyProcess(tmp_path / "proxy", cluster.address(AWAKE), brokers=2, program=few_ids_proxy.__file__)
        stack.enter_context(proxy)

        def client(broker: int, source: str | None = None) -> RawClient:
            host, port = proxy.address
            return stack.enter_context(RawClient((host, port + 1 + broker), source=source))

        cluster.pause_broker(SILENT)
        stack.callback(cluster.resume_broker, SILENT)
        for _ in range(2 * IDS):
            client(SILENT).send(ApiKey.PRODUCE, 2, body(LONG_MS))
        time.sleep(0.5)

        witness = client(AWAKE, ELSEWHERE)
        for _ in range(IDS):
            witness.send(ApiKey.PRODUCE, 2, body(SHORT_MS))
            (answer,) = witness.produce_answer(2)
            assert answer.error_code == ErrorCode.NONE
        neighbour = client(AWAKE)
        neighbour.send(ApiKey.PRODUCE, 2, body(SHORT_MS))
        (answer,) = neighbour.produce_answer(2)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it waits for its address, and may ask again"
