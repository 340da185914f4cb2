"""``idemproxy probe`` with a login and without some rights: it says which one, and what can be done."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.proxy.main import main
from idemproxy.proxy.probing.cluster_probe import TOPIC_PREFIX
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.tls.certificates import Authority
from testkit.real.tls.settings import client_tls

ALL = ("Describe", "Write", "Read", "Delete")
USERS = {
    "everything": ALL,
    "ids": ALL,
    "nothing": (),
    "keeper": ALL[:3],
    "writer": (*ALL[:2], "Delete"),
    "reader": ("Describe", "Read"),
}


@dataclass
class World:
    """A broker of 1.1, which still wants IdempotentWrite of everybody who produces under a producer id."""

    authority: Authority
    cluster: SaslCluster
    directory: Path

    def config(self, name: str, mechanism: str = "PLAIN", *, over_tls: bool = False, password: str = "") -> str:
        """Return a file with a login."""
        address = (self.cluster.sasl_tls_address if over_tls else self.cluster.sasl_address)(0)
        upstream: dict[str, Any] = {
            "bootstrap": ["{}:{}".format(*address)],
            "sasl": {"mechanism": mechanism, "username": name, "password": password or f"{name}'s"},
            "allow_unauthenticated_clients": True,
        }
        if over_tls:
            upstream["tls"] = client_tls(self.authority)
        file = self.directory / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"upstream": upstream}))
        return str(file)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("rights")
    authority = Authority(directory / "ours")
    passwords = {name: f"{name}'s" for name in USERS}
    kafka = SaslCluster(
        directory / "kafka",
        passwords,
        version="1.1.1",
        auto_create_topics=False,
        authority=authority,
        own=authority.issue("broker"),
    )
    with kafka as cluster:
        cluster.allow("Topic:*", {name: rights for name, rights in USERS.items() if rights})
        creating: dict[str, list[str]] = {name: ["Create"] for name, rights in USERS.items() if rights}
        cluster.allow("Cluster:kafka-cluster", {**creating, "ids": ["Create", "IdempotentWrite"]})
        yield World(authority, cluster, directory)


def test_a_login_over_tls_probes_as_any_other(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    config = world.config("ids", "SCRAM-SHA-256", over_tls=True)
    assert main(["probe", "--config", config, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (found["form"], found["hints"], said.err) == ("v2, marked", [], "")
    rows = {one["trial"]: one["seen"] for one in found["trials"]}
    assert rows["unknown producer id from sequence 17"] == "refused: UNKNOWN_PRODUCER_ID"


def test_without_idempotent_write_there_is_a_verdict_and_a_hint(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "--config", world.config("everything")]) == 0
    said = capsys.readouterr()
    assert said.out.endswith(
        "verdict: v2, marked\n  InitProducerId is not allowed: to probe producer ids, grant IdempotentWrite on Cluster "
        "(Kafka before 2.8 needs it)\n"
    )
    assert said.err == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nothing",
            [
                "the topic NAME cannot be created: CLUSTER_AUTHORIZATION_FAILED: grant Create on Cluster, or create an "
                "empty topic, and name it with --topic"
            ],
        ),
        ("writer", ["TOPIC_AUTHORIZATION_FAILED: grant Read on the topic NAME"]),
        (
            "reader",
            [
                "the topic NAME is still there, delete it: TOPIC_AUTHORIZATION_FAILED: grant Delete on the topic",
                "TOPIC_AUTHORIZATION_FAILED: grant Write on the topic NAME",
            ],
        ),
    ],
)
def test_a_right_without_which_there_is_no_verdict_is_named(
    world: World, capsys: pytest.CaptureFixture[str], name: str, said: list[str]
) -> None:
    assert main(["probe", "--config", world.config(name)]) == 1
    lines = re.sub(rf"{TOPIC_PREFIX}[0-9a-f]{{12}}", "NAME", capsys.readouterr().err).splitlines()
    assert lines == [f"idemproxy probe: {one}" for one in said]


def test_a_topic_that_may_not_be_deleted_is_named(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--config", world.config("keeper"), "--json"]) == 0
    said = capsys.readouterr()
    topic = json.loads(said.out)["topic"]
    assert said.err == (
        f"idemproxy probe: the topic {topic} is still there, delete it: TOPIC_AUTHORIZATION_FAILED: grant Delete on "
        "the topic\n"
    )


def test_a_wrong_password_is_said_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--config", world.config("ids", password="mistaken-4711")]) == 1
    said = capsys.readouterr().err
    assert "cannot be probed: authentication failed: " in said
    assert len(said.splitlines()) == 1
    assert "mistaken-4711" not in said
