"""A broker's port that another process holds: the start ends, and clients do not see a broker that comes later."""

from __future__ import annotations

import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports, neighbouring_ports
from idemproxy.proxy.limits import LISTEN_AGAIN_SECONDS
from idemproxy.proxy.settings.addresses import UNLISTED_PORTS
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until

OTHER_PORTS = "give the listener other ports (--listen; in the file bind and first_broker_port)"


def settings_of(cluster: LegacyCluster, port: int, **listener: Any) -> dict[str, Any]:
    return {
        "upstream": {"bootstrap": cluster.bootstrap.split(",")},
        "listeners": [{"bind": f"127.0.0.1:{port}", **listener}],
    }


def sentence_of_a_start(directory: Path, settings: dict[str, Any]) -> str:
    """What ``idemproxy run`` says when it ends with status 2, without its notes."""
    proxy = ConfiguredProxy(directory, settings)
    try:
        proxy.launch()
        assert proxy.wait() == 2, proxy.log
        assert not (proxy.data_directory / "redis" / "redis.pid").exists(), "no private Redis is left behind"
        assert "point clients at" not in proxy.log
        (line,) = [line for line in proxy.log.splitlines() if " INFO " not in line]
        return re.split("idemproxy: | ERROR ", line)[1]
    finally:
        proxy.__exit__()


# ---------------------------------------------------------------------- at the start
@pytest.mark.parametrize("listed", [{}, {"broker_ids": "0"}], ids=["found", "listed"])
def test_a_start_ends_and_says_which_port_for_which_broker_and_what_to_do(
    legacy_broker: LegacyCluster, tmp_path: Path, listed: dict[str, str]
) -> None:
    bootstrap, first = sorted(free_ports(2))
    with socket.create_server(("127.0.0.1", first)):
        settings = settings_of(legacy_broker, bootstrap, first_broker_port=first, **listed)
        assert sentence_of_a_start(tmp_path, settings) == (
            f"listener 'clients': cannot listen on 127.0.0.1:{first} for broker 0: "
            f"address already in use by another process; end it, or {OTHER_PORTS}"
        )


def _port_outside(first_broker_port: int) -> int:
    """A free port for the bootstrap that is none of the brokers' ports."""
    while (port := neighbouring_ports(1)) in range(first_broker_port, first_broker_port + UNLISTED_PORTS):
        pass
    return port


def test_a_start_whose_ports_are_the_brokers_own_ends(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    _, port = legacy_broker.address(0)
    settings = settings_of(legacy_broker, _port_outside(port), first_broker_port=port)
    assert sentence_of_a_start(tmp_path, settings) == (
        f"listener 'clients': cannot listen on 127.0.0.1:{port} for broker 0: "
        f"the broker itself has this port; {OTHER_PORTS}"
    )


# ---------------------------------------------------------------------- later
def ready(admin: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def ports_taken(admin: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [line.rpartition(" ")[2] for line in lines if line.startswith("idemproxy_ports_taken")]
    return float(value)


def brokers_and_leaders(client: RawClient, topic: str) -> tuple[set[int], dict[int, tuple[int, int]]]:
    """The brokers that a client gets, and of each partition the error and the leader."""
    answer = client.ask(ApiKey.METADATA, 1, topics=[topic])
    (told,) = answer.topics
    partitions = {one.partition_index: (one.error_code, one.leader_id) for one in told.partitions}
    return {broker.node_id for broker in answer.brokers}, partitions


def test_clients_do_not_see_a_later_broker_until_its_port_is_free(tmp_path: Path) -> None:
    bootstrap, admin = neighbouring_ports(3), free_ports(1)[0]
    second = bootstrap + 2
    with LegacyCluster(tmp_path / "kafka", brokers=2, auto_create_topics=False, session_timeout_ms=4000) as cluster:
        cluster.create_topic("both", 2, 1)
        (of_second,) = [index for index in (0, 1) if cluster.leader("both", index) == 1]
        of_first = 1 - of_second
        cluster.stop_broker(1)
        settings = settings_of(cluster, bootstrap) | {"admin": {"bind": f"127.0.0.1:{admin}"}}
        with ConfiguredProxy(tmp_path / "proxy", settings) as proxy, RawClient(("127.0.0.1", bootstrap)) as client:
            assert (ready(admin)[0], ports_taken(admin)) == (200, 0)
            squatter = socket.create_server(("127.0.0.1", second))
            cluster.start_broker(1)
            what = f"cannot listen on 127.0.0.1:{second} for broker 1: address already in use by another process"
            line = proxy.wait_for_log(what, 60)
            assert "until then clients see that broker 1 leads nothing; tried again every 5 s" in line
            assert brokers_and_leaders(client, "both") == (
                {0},
                {of_first: (0, 0), of_second: (ErrorCode.LEADER_NOT_AVAILABLE, -1)},
            )
            status, text = ready(admin)
            assert status == 503
            assert text.startswith(f"listener 'clients': {what}")
            assert ports_taken(admin) == 1
            time.sleep(LISTEN_AGAIN_SECONDS + 1)
            assert proxy.log.count(what) == 1, "told once, not with every try"
            squatter.close()
            proxy.wait_for_log(f"listening on 127.0.0.1:{second} at last: clients see broker 1")
            wait_until(lambda: brokers_and_leaders(client, "both")[1][of_second] == (0, 1), "it has a leader")
            assert brokers_and_leaders(client, "both")[0] == {0, 1}
            assert (ready(admin), ports_taken(admin)) == ((200, "ok\n"), 0)
            with RawClient(("127.0.0.1", second)) as there:
                records = batch([b"x"], producer_id=there.new_producer_id(), sequence=0)
                assert there.produce_one("both", of_second, records).error_code == 0
