"""A proxy that is full of connections which say nothing, on real sockets: a new client gets in, and who is at work
stays."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy import limits
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until

TOPIC = "full"
PLACES = 20
SECONDS_MAX = 30.0


def has_ended(line: socket.socket) -> bool:
    """Has the proxy closed it, by now?"""
    line.setblocking(False)
    try:
        return line.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_idle_connections_lock_nobody_out(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(LegacyCluster(tmp_path / "kafka", auto_create_topics=False))
        cluster.create_topic(TOPIC)
        settings = {
            "upstream": {"bootstrap": ["{}:{}".format(*cluster.address(0))]},
            "limits": {"connections_max": PLACES, "connections_per_ip_max": 0},
        }
        proxy = stack.enter_context(ConfiguredProxy(tmp_path / "proxy", settings, listener={}))

        def knock() -> socket.socket:
            return stack.enter_context(socket.create_connection(proxy.address, SECONDS_MAX))

        def produce(client: RawClient, sequence: int) -> None:
            records = batch([b"%d" % sequence], producer_id=producer_id, sequence=sequence)
            answer = client.produce_one(TOPIC, 0, records)
            assert (answer.error_code, answer.base_offset) == (0, sequence)

        producer = stack.enter_context(RawClient(proxy.address))
        producer_id = producer.new_producer_id()
        produce(producer, 0)
        opened_at = time.monotonic()
        idle = [knock() for _ in range(PLACES - 1)]

        late = knock()
        wait_until(lambda: has_ended(late), "a newcomer is closed while nobody is quiet", SECONDS_MAX)
        assert not any(map(has_ended, idle))
        proxy.wait_for_log(rf"no connection for 127\.0\.0\.1: {PLACES} connections are open$")

        time.sleep(max(0.0, opened_at + limits.QUIET_SECONDS + 1.5 - time.monotonic()))
        for number in range(3):
            newcomer = stack.enter_context(RawClient(proxy.address))
            produce(newcomer, number + 1)
        proxy.wait_for_log(
            r"no connection for 127\.0\.0\.1: idle for \d+ s, closed to admit a new client: "
            rf"{PLACES} connections are open"
        )
        wait_until(lambda: sum(map(has_ended, idle)) == 3, "three leave for three", SECONDS_MAX)
        produce(producer, 4)
        assert producer.values(TOPIC, 0) == [b"%d" % number for number in range(5)]
