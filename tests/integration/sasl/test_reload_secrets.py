"""What a running proxy takes over on SIGHUP with its settings: other passwords, descriptors for a higher limit."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.two_proxies_redis import ExternalRedis
from testkit.real.tls.certificates import Authority

Place = tuple[str, int]


@pytest.fixture
def settings(legacy_broker: LegacyCluster) -> dict[str, Any]:
    bootstrap, first = sorted(free_ports(2))
    host, port = legacy_broker.address(0)
    return {
        "upstream": {"bootstrap": [f"{host}:{port}"]},
        "listeners": [{"bind": f"127.0.0.1:{bootstrap}", "first_broker_port": first}],
    }


@pytest.fixture
def redis() -> Iterator[ExternalRedis]:
    with ExternalRedis() as server:
        yield server


def test_a_new_redis_password_awaits_the_next_connection_and_delays_nothing_else(
    redis: ExternalRedis, settings: dict[str, Any], place: Place, tmp_path: Path
) -> None:
    def let_in(password: str) -> None:
        rules = ("reset", "on", f">{password}", "~*", "&*", "+@all")
        assert redis.call("ACL", "SETUSER", "proxy", *rules) == b"OK"

    let_in("old")
    secret = tmp_path / "secret"
    secret.write_text("old\n")
    where = {"url": f"redis://127.0.0.1:{redis.port}", "username": "proxy", "password_file": os.fspath(secret)}
    settings["redis"] = where
    with ConfiguredProxy(tmp_path, settings) as proxy, RawClient(proxy.address) as client:
        producer_id = client.new_producer_id()

        def append(sequence: int) -> int:
            records = batch([b"a"], producer_id=producer_id, sequence=sequence)
            return int(client.produce_one(*place, records).error_code)

        assert append(0) == 0
        let_in("new")
        secret.write_text("new\n")
        proxy.write({**settings, "limits": {"drain_seconds": 5}})
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("reloaded: redis.password, limits.drain_seconds changed")
        assert append(1) == 0
        assert "Redis is away" not in proxy.log
        assert redis.call("CLIENT", "KILL", "USER", "proxy") == 1, "the connection that was up has stayed"
        wait_until(lambda: redis.call("CLIENT", "LIST").count(b"user=proxy") == 1, "it is connected again")
        wait_until(lambda: append(2) == 0, "it serves again")

        let_in("newer")
        redis.call("CLIENT", "KILL", "USER", "proxy")
        proxy.wait_for_log("WRONGPASS")
        secret.write_text("newer\n")
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("reloaded: redis.password changed")
        wait_until(lambda: append(3) == 0, "it serves again")


def test_a_key_that_has_another_password_is_read_with_it(settings: dict[str, Any], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("own", common_name="first")
    key, secret = authority.encrypted_key(own, "old"), tmp_path / "secret"
    secret.write_text("old\n")
    tls = {"cert_file": os.fspath(own.cert), "key_file": os.fspath(key), "key_password_file": os.fspath(secret)}
    settings["listeners"][0]["tls"] = tls
    with ConfiguredProxy(tmp_path, settings) as proxy:
        authority.issue("own", common_name="second", into=own)
        authority.encrypted_key(own, "new")
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("not reloaded: everything stays as it was")
        secret.write_text("new\n")
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log(r"listeners\[0\]\.tls: certificates were read again.*CN=second")
        proxy.wait_for_log(r"reloaded: listeners\[0\]\.tls\.key_password changed")
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("reloaded: nothing has changed")


def test_a_higher_limit_of_connections_brings_its_descriptors_or_a_warning(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    with ConfiguredProxy(tmp_path, settings) as proxy:
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (1000, 3000))
        proxy.write({**settings, "limits": {"connections_max": 1500}})
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("reloaded: limits.connections_max changed")
        assert resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE) == (3000, 3000)
        assert "descriptors" not in proxy.log
        proxy.write({**settings, "limits": {"connections_max": 1501}})
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("3000 descriptors are too few for limits.connections_max 1501: 3002 are wanted")
