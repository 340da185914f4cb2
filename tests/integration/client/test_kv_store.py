"""The worked example of conditional publish (examples/kv_store.py): nodes that lead side by side, are killed and stand
still, by two proxies in front of a real broker. The answers to its users are linearizable, by an existing checker."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.retention import DELETES_SOON, assert_retention_takes_nothing
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.scenes.kv_store import (
    Nodes,
    Users,
    check,
    checker_program,
    kill_leaders,
    wait_until_served,
    write_past,
)

pytestmark = pytest.mark.long

TOPIC, CONDITIONAL_PARTITIONS = "kv-short", 2
NODES, USERS, KEYS = 3, 6, 4
SECONDS = 10.0
CHECK_SECONDS_MAX = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path / "kafka", auto_create_topics=False, broker_settings=DELETES_SOON) as running:
        yield running


@pytest.mark.promise("conditional")
def test_answers_to_users_are_linearizable_while_leaders_and_a_proxy_are_killed(
    cluster: LegacyCluster, tmp_path: Path
) -> None:
    checker_program()
    cluster.create_topic(TOPIC, CONDITIONAL_PARTITIONS)
    with TwoProxies(tmp_path, cluster, settings="topics: {conditional: [kv-*]}") as pair:
        bootstrap = ",".join("{}:{}".format(*address) for address in pair.addresses)
        with Nodes(tmp_path, bootstrap, TOPIC, CONDITIONAL_PARTITIONS, NODES) as nodes:
            users = Users(nodes, CONDITIONAL_PARTITIONS, USERS, KEYS, seed=23)
            users.start()
            wait_until_served(users, 60.0)
            kills, stops = kill_leaders(nodes, users, Random(23), seconds=SECONDS / 2, every=1.5)
            pair.proxies[0].kill()
            pair.proxies[0].start()
            more = kill_leaders(nodes, users, Random(24), seconds=SECONDS / 2, every=1.5)
            wait_until_served(users, 60.0)
            wait_until(lambda: users.told > 20, "there is something to check", 60)
            users.finish()
        assert kills + more[0] >= 2
        assert stops + more[1] >= 1
        users.write(tmp_path / "history.jsonl")
        print(check(tmp_path / "history.jsonl", CHECK_SECONDS_MAX))
        assert pair.errors_of_ours() == []
    assert_retention_takes_nothing(cluster, TOPIC)


def test_operations_after_a_foreign_record_end_with_an_error(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    topic = "kv-displaced"
    legacy_broker.create_topic(topic, 1)
    with TwoProxies(tmp_path, legacy_broker, settings="topics: {conditional: [kv-*]}") as pair:
        bootstrap = "{}:{}".format(*pair.addresses[0])
        with Nodes(tmp_path, bootstrap, topic, 1, 1) as nodes:
            wait_until(lambda: answer_of(nodes, "1").get("done") is True, "the node serves", 60)
            write_past(legacy_broker, (topic, 0), b"foreign")
            assert all("error" in answer_of(nodes, value) for value in ("2", "3"))


def answer_of(nodes: Nodes, value: str) -> dict[str, Any]:
    """The answer to one operation; empty: none, as the node is not there yet."""
    try:
        with socket.create_connection(("127.0.0.1", nodes.ports[0]), 5.0) as line:
            line.settimeout(30.0)
            line.sendall(json.dumps({"op": "put", "key": "k", "value": value}).encode() + b"\n")
            answer: dict[str, Any] = json.loads(line.makefile("rb").readline())
    except ConnectionRefusedError:
        return {}
    return answer
