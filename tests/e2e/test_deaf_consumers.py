"""Consumers that ask a real broker for much and take nothing of it: the proxy's memory stays where the limit is."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import peak_bytes, resident_bytes
from testkit.real.proxies.proxy_process import ProxyProcess

TOPIC = "large"
MIB = 1 << 20
LOG_BATCHES, BATCH_BYTES = 16, 250_000
ANSWER_BYTES = 3 * MIB
DEAF, FETCHES = 40, 10
ROOM_BYTES = 8 * MIB
GROWTH_BYTES_MAX = 64 * MIB
"""Twice the room, 200 KiB for each of them, and what malloc keeps. They ask for 1.2 GB."""
SECONDS = 4.0


def deaf_consumer(address: tuple[str, int]) -> socket.socket:
    """A connection that has asked for a lot and takes nothing."""
    connection = socket.create_connection(address, 10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": ANSWER_BYTES}
    topics = [{"topic": TOPIC, "partitions": [partition]}]
    body = messages.encode_request(ApiKey.FETCH, 2, replica_id=-1, max_wait_ms=0, min_bytes=1, topics=topics)
    for number in range(FETCHES):
        connection.sendall(frame(encode_request_header(ApiKey.FETCH, 2, number, "deaf"), body))
    return connection


@pytest.mark.timeout(240)
def test_deaf_consumers_cost_no_more_memory_than_the_limit_says(tmp_path: Path) -> None:
    config = tmp_path / "idemproxy.yaml"
    config.write_text(f"limits: {{response_bytes_total_max: {ROOM_BYTES}, client_response_bytes_max: {MIB}}}\n")
    with LegacyCluster(tmp_path / "kafka", auto_create_topics=False) as cluster:
        cluster.create_topic(TOPIC, 1)
        proxy = ProxyProcess(tmp_path / "proxy", cluster.address(0), options=("--config", os.fspath(config)))
        with proxy, RawClient(proxy.address) as client, ExitStack() as open_ones:
            for number in range(LOG_BATCHES):
                assert client.produce_one(TOPIC, 0, batch([bytes([number]) * BATCH_BYTES])).error_code == 0
            assert len(client.values(TOPIC, 0)) == LOG_BATCHES
            quiet_bytes = peak_bytes(proxy.pid)
            deaf = [open_ones.enter_context(deaf_consumer(proxy.address)) for _ in range(DEAF)]
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                assert resident_bytes(proxy.pid) < quiet_bytes + GROWTH_BYTES_MAX
                time.sleep(0.02)
            assert peak_bytes(proxy.pid) < quiet_bytes + GROWTH_BYTES_MAX
            answer = client.produce_one(TOPIC, 0, batch([b"goes on"]))
            assert (answer.error_code, answer.base_offset) == (0, LOG_BATCHES)
            assert len(client.fetch(TOPIC, 0, LOG_BATCHES, version=2)) < 1000, "a small answer needs no room"
            proxy.wait_for_log("disconnected 'deaf': it read none of ", 60)
            assert client.values(TOPIC, 0)[-1] == b"goes on", "and a large one finds it"
            assert len(deaf) == DEAF
