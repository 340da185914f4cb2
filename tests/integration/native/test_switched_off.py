"""What has no effect in front of a real 3.9 broker says so: settings are refused by ``check`` and ``run``, and
``hide add`` writes nothing."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.store.inspecting import idemproxy
from testkit.real.store.two_proxies_redis import ExternalRedis

VERSION = "3.9.1"
SWITCHED_OFF: dict[str, Any] = {
    "producers": {"names": ["orders-*"], "append_reservations": False, "dropped_headers": ["trace"]},
    "topics": {"default_replication_factor": 2, "default_partitions": 3},
    "hidden_ranges": {"topic": "copies"},
    "limits": {"produce_connections_per_broker_max": 2},
}
NAMES = (
    *("producers.names", "producers.append_reservations", "producers.dropped_headers"),
    *("topics.default_partitions", "topics.default_replication_factor", "hidden_ranges.topic", "journal.path"),
    "limits.produce_connections_per_broker_max",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("native-off"), version=VERSION, auto_create_topics=False) as running:
        yield running


@pytest.fixture(scope="module")
def redis() -> Iterator[ExternalRedis]:
    with ExternalRedis() as running:
        yield running


def switched_off(directory: Path) -> dict[str, Any]:
    return {**SWITCHED_OFF, "journal": os.fspath(directory / "journal.jsonl")}


def settings_for(cluster: LegacyCluster, **more: Any) -> dict[str, Any]:
    return {"upstream": {"bootstrap": ["{}:{}".format(*cluster.address(0))]}, **more}


def test_check_names_every_setting_that_has_no_effect(
    cluster: LegacyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    path = tmp_path / "c.yaml"
    (port,) = free_ports(1)
    listeners = [{"bind": f"{HOST}:{port}"}]
    path.write_text(yaml.safe_dump(settings_for(cluster, listeners=listeners, **switched_off(tmp_path))))
    assert idemproxy("check", path).returncode == 0, "the brokers were not asked"
    done = idemproxy("check", path, "--connect")
    assert done.returncode == 1
    assert sorted(re.findall(r"^PROBLEM +(\S+?):", done.stdout, re.MULTILINE)) == sorted(NAMES)
    assert re.search(r"^warning +spans: .*no spans", done.stdout, re.MULTILINE)
    path.write_text(yaml.safe_dump(settings_for(cluster, listeners=listeners)))
    assert idemproxy("check", path, "--connect").returncode == 0


def test_a_start_ends_and_names_them_and_a_reload_is_refused(
    cluster: LegacyCluster, redis: ExternalRedis, tmp_path: Path
) -> None:
    url = f"redis://{redis.address[0]}:{redis.address[1]}"
    state = {"redis": {"url": url}, "cluster_name": "off"}
    proxy = ConfiguredProxy(tmp_path / "off", settings_for(cluster, **state, **switched_off(tmp_path)), listener={})
    proxy.launch()
    try:
        assert proxy.wait() == 2
        line = proxy.wait_for_log("the brokers give idempotence themselves")
        assert [name for name in NAMES if f"{name}: " not in line] == []
        assert redis.call("KEYS", "*") == []
    finally:
        proxy.__exit__()
    with ConfiguredProxy(tmp_path / "on", settings_for(cluster), listener={}) as running:
        running.write({**running.configuration, "producers": {"names": ["orders-*"]}})
        running.signal(signal.SIGHUP)
        running.wait_for_log("not reloaded: producers.names: where brokers give idempotence themselves, no client id")


@pytest.mark.parametrize("said", ["auto", "native"])
def test_a_hidden_range_is_refused_and_the_record_is_read(
    cluster: LegacyCluster, redis: ExternalRedis, tmp_path: Path, said: str
) -> None:
    topic = fresh_topic(cluster, 1)
    settings = settings_for(
        cluster, redis={"url": f"redis://{redis.address[0]}:{redis.address[1]}"}, cluster_name=f"hidden-{said}"
    )
    settings["upstream"]["idempotence"] = said
    with ConfiguredProxy(tmp_path / "p", settings, listener={}) as running, RawClient(running.address) as client:
        assert client.produce_one(topic, 0, batch([b"a", b"a"]), version=7).error_code == 0
        for command in (("add", topic, 0, 0, 0, "--yes"), ("add", topic, 0, 0, 0, "--reason", "r")):
            done = idemproxy("hide", *command, "--config", os.fspath(running.file))
            assert done.returncode == 2
            assert "nothing was changed" in done.stderr
            assert "(native) there are no hidden ranges" in done.stderr
        assert redis.call("KEYS", "*") == []
