"""``idemproxy probe`` at real brokers, and at services that do otherwise than these: the verdict follows from what was
seen."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from idemproxy.client import limits as client_limits
from idemproxy.codecs.headers import API_VERSIONS
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.main import main
from idemproxy.proxy.probing import limits
from idemproxy.proxy.probing.cluster_probe import TOPIC_PREFIX
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kraft_cluster import NEWEST, KraftCluster
from testkit.real.brokers.service_relay import (
    AnswersOutOfOrder,
    Damages,
    Fails,
    FewVersions,
    IgnoresIds,
    ListsNoIds,
    Rebuilds,
    ReturnsNoOffset,
    SameIdForAll,
    Service,
    ServiceRelay,
)
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import wait_until

OWN_IDS, MARKED, WRAPPER_V1 = "v2, own ids", "v2, marked", "wrapper v1"
GONE_SECONDS_MAX = 30.0


class Probed:
    """What one run printed."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.err = status, err
        self.found: dict[str, Any] = json.loads(out) if out else {}
        self.rows = {one["trial"]: one["seen"] for one in self.found.get("trials", ())}

    @property
    def verdict(self) -> tuple[int, str | None]:
        return self.status, self.found.get("form")


Probe = Callable[..., Probed]


@pytest.fixture
def probe(capsys: pytest.CaptureFixture[str]) -> Probe:
    """Run the command in this process."""

    def run(address: tuple[str, int], *arguments: str) -> Probed:
        status = main(["probe", "{}:{}".format(*address), "--json", *arguments])
        said = capsys.readouterr()
        return Probed(status, said.out, said.err)

    return run


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """A broker of 3.9.1."""
    with KraftCluster(tmp_path_factory.mktemp("kafka"), version="3.9.1", auto_create_topics=False) as running:
        yield running


def topics(address: tuple[str, int]) -> list[str]:
    with RawClient(address) as client:
        return [one.name for one in client.ask(ApiKey.METADATA, 1, topics=None).topics]


def assert_nothing_is_left(address: tuple[str, int]) -> None:
    def is_gone() -> bool:
        return not [name for name in topics(address) if name.startswith(TOPIC_PREFIX)]

    wait_until(is_gone, "no topic of a probe is left", GONE_SECONDS_MAX)


# ---------------------------------------------------------------------- brokers
def test_a_broker_of_3_9_is_served_with_its_own_ids(kafka: KraftCluster, probe: Probe) -> None:
    found = probe(kafka.address(0))
    assert found.verdict == (0, OWN_IDS), found.found
    assert found.err == ""
    assert found.rows["last batch again"] == found.rows["fifth last batch again"] == "its first offset, stored once"
    assert found.rows["sixth last batch again"] == "refused: OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert found.rows["last sequence with other records"] == ("taken for a duplicate, not stored")
    assert found.rows["gap in the sequence"] == "refused: OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert found.rows["older epoch"] == "refused: INVALID_PRODUCER_EPOCH"
    assert found.rows["unknown producer id from sequence 17"] == "taken"
    assert_is_kept(found)
    assert_nothing_is_left(kafka.address(0))


def assert_is_kept(found: Probed) -> None:
    """Would batches without producer ids be recognised as well?"""
    for trial in (
        "batch borders",
        "epoch and sequence without producer id",
        "record headers",
        "timestamps of records",
        "compression: gzip",
    ):
        assert found.rows[trial] == "kept", trial
    assert found.rows["base offset in responses"] == "where the batch is"
    assert found.rows["five requests sent at once"] == "returned and stored in order"
    assert found.rows["records in fetches"].startswith("all ")


def test_a_broker_of_0_10_is_served_with_wrappers(legacy_broker: LegacyCluster, probe: Probe) -> None:
    found = probe(legacy_broker.address(0))
    assert found.verdict == (0, WRAPPER_V1), found.found
    assert found.rows["message format that is stored"] == "v1"
    assert found.rows["key of a compressed message"] == found.rows["batch borders"] == "kept"
    assert "new producer ids" not in found.rows
    assert_nothing_is_left(legacy_broker.address(0))


@contextmanager
def broker_of(directory: Path, version: str) -> Iterator[LegacyCluster]:
    make = KraftCluster if version == NEWEST else LegacyCluster
    with make(directory / "kafka", version=version, auto_create_topics=False) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "form", "rows"),
    [
        (
            "0.11.0.3",
            MARKED,
            {
                "last batch again": "its first offset, stored once",
                "fifth last batch again": "refused: OUT_OF_ORDER_SEQUENCE_NUMBER",
                "unknown producer id from sequence 17": "refused: OUT_OF_ORDER_SEQUENCE_NUMBER",
            },
        ),
        (
            "1.1.1",
            MARKED,
            {
                "fifth last batch again": "its first offset, stored once",
                "unknown producer id from sequence 17": "refused: UNKNOWN_PRODUCER_ID",
            },
        ),
        ("2.8.2", OWN_IDS, {"unknown producer id from sequence 17": "taken"}),
        (NEWEST, OWN_IDS, {"unknown producer id from sequence 17": "taken", "compression: zstd": "kept"}),
    ],
)
def test_brokers_of_other_versions(tmp_path: Path, probe: Probe, version: str, form: str, rows: dict[str, str]) -> None:
    with broker_of(tmp_path, version) as cluster:
        found = probe(cluster.address(0))
        assert found.verdict == (0, form), found.found
        assert found.rows.items() >= rows.items()
        assert_is_kept(found)
        assert_nothing_is_left(cluster.address(0))


@pytest.mark.long
@pytest.mark.parametrize("version", ["0.9.0.1", "0.10.0.1"])
def test_brokers_that_lack_a_request(tmp_path: Path, probe: Probe, version: str) -> None:
    with broker_of(tmp_path, version) as cluster:
        cluster.create_topic("given", 1)
        found = probe(cluster.address(0))
        if version == "0.9.0.1":
            assert found.verdict == (1, None)
            assert found.found["because"] == [
                "message format that is stored: not known: no version of Produce for message format v1 or v2 is listed"
            ]
        else:
            assert "lists no CreateTopics: create an empty topic, and name it with --topic" in found.err
            assert probe(cluster.address(0), "--topic", "given").verdict == (0, WRAPPER_V1)


@pytest.mark.long
def test_topics_decide_what_is_stored(tmp_path: Path, probe: Probe) -> None:
    with broker_of(tmp_path, "2.8.2") as cluster:
        for name, config, form, rows in (
            (
                "old",
                {"message.format.version": "0.10.2"},
                WRAPPER_V1,
                {"message format that is stored": "v1", "batch borders": "kept", "key of a compressed message": "kept"},
            ),
            ("oldest", {"message.format.version": "0.9.0"}, None, {"message format that is stored": "v0"}),
            ("zstd", {"compression.type": "zstd"}, OWN_IDS, {"compression: gzip": "compressed again: zstd"}),
            (
                "times",
                {"message.timestamp.type": "LogAppendTime"},
                OWN_IDS,
                {"timestamps of records": "replaced by the time of the append"},
            ),
            ("compacted", {"cleanup.policy": "compact"}, OWN_IDS, {}),
        ):
            cluster.create_topic(name, 1, config=config)
            found = probe(cluster.address(0), "--topic", name)
            assert found.verdict == (0 if form else 1, form), (name, found.found)
            assert found.rows.items() >= rows.items()
            assert name in topics(cluster.address(0)), "a topic that was given is left"


@pytest.mark.long
def test_the_leader_may_be_any_of_several_brokers(tmp_path: Path, probe: Probe) -> None:
    with LegacyCluster(tmp_path / "kafka", version="2.8.2", brokers=3, auto_create_topics=False) as cluster:
        for _ in range(3):
            assert probe(cluster.address(0)).verdict == (0, OWN_IDS)
        assert_nothing_is_left(cluster.address(0))


# ---------------------------------------------------------------------- services
@pytest.mark.parametrize(
    ("service", "form", "rows"),
    [
        (
            IgnoresIds(),
            MARKED,
            {
                "last batch again": "another offset, stored twice",
                "gap in the sequence": "taken",
                "older epoch": "taken",
                "epoch and sequence without producer id": "kept",
            },
        ),
        (SameIdForAll(), MARKED, {"new producer ids": "not new: 0, 0"}),
        (ListsNoIds(), MARKED, {"new producer ids": "InitProducerId is not listed"}),
        (
            Rebuilds(),
            None,
            {
                "batch borders": "lost: batches are merged or split",
                "epoch and sequence without producer id": "lost",
                "last batch again": "another offset, stored twice",
                "compression: gzip": "decompressed",
                "base offset in responses": "where the batch is",
            },
        ),
        (ReturnsNoOffset(), None, {"base offset in responses": "-1"}),
        (AnswersOutOfOrder(), None, {"five requests sent at once": "returned in another order"}),
        (FewVersions(), OWN_IDS, {"unknown producer id from sequence 17": "taken"}),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Service) else "",
)
def test_services_are_told_apart(
    kafka: KraftCluster, probe: Probe, service: Service, form: str | None, rows: dict[str, str]
) -> None:
    with ServiceRelay(kafka.address(0), service) as relay:
        found = probe(relay.address)
    assert found.verdict == (0 if form else 1, form), found.found
    assert found.rows.items() >= rows.items(), found.rows
    assert found.err == ""
    assert found.found["topic_left"] is None
    because = found.found["because"]
    assert bool(because) == (form is None)
    if form is None:
        assert f"{next(iter(rows))}: {next(iter(rows.values()))}" in because
    assert_nothing_is_left(kafka.address(0))


@pytest.mark.parametrize("how", ["hangs", "closes", "garbage"])
@pytest.mark.parametrize(
    "api_key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.INIT_PRODUCER_ID], ids=["Produce", "Fetch", "InitProducerId"]
)
def test_a_service_that_fails_is_seen_in_time(
    kafka: KraftCluster, probe: Probe, monkeypatch: pytest.MonkeyPatch, api_key: ApiKey, how: str
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 2.0)
    began = time.monotonic()
    with ServiceRelay(kafka.address(0), Fails(api_key, how)) as relay:
        found = probe(relay.address)
    assert time.monotonic() - began < 60
    if api_key == ApiKey.INIT_PRODUCER_ID:
        assert found.verdict == (0, MARKED)
        assert found.rows["new producer ids"].startswith("InitProducerId is refused: no response (")
    else:
        assert found.verdict == (1, None)
        assert found.rows["message format that is stored"].startswith("not known: ")
    assert_nothing_is_left(kafka.address(0))


@pytest.mark.long
@pytest.mark.parametrize("how", ["hangs", "closes", "garbage"])
@pytest.mark.parametrize(
    "api_key",
    [API_VERSIONS, ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.LIST_OFFSETS],
    ids=["ApiVersions", "Metadata", "CreateTopics", "ListOffsets"],
)
def test_a_service_without_a_verdict_says_why_in_time(
    kafka: KraftCluster, probe: Probe, monkeypatch: pytest.MonkeyPatch, api_key: int, how: str
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 2.0)
    monkeypatch.setattr(limits, "TOPIC_SECONDS_MAX", 5.0)
    monkeypatch.setattr(limits, "RETRY_SECONDS_MAX", 5.0)
    monkeypatch.setattr(client_limits, "CONNECT_SECONDS_MAX", 2.0)
    began = time.monotonic()
    with ServiceRelay(kafka.address(0), Fails(api_key, how)) as relay:
        found = probe(relay.address)
    assert time.monotonic() - began < 60
    assert (found.status, found.found) == (1, {})
    assert len(found.err.splitlines()) == 1, found.err
    assert_nothing_is_left(kafka.address(0))


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 103))])
def test_no_damaged_response_is_an_error_of_the_probe(
    kafka: KraftCluster, probe: Probe, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(limits, "REQUEST_SECONDS_MAX", 1.0)
    monkeypatch.setattr(limits, "TOPIC_SECONDS_MAX", 5.0)
    monkeypatch.setattr(limits, "RETRY_SECONDS_MAX", 2.0)
    monkeypatch.setattr(limits, "READ_SECONDS_MAX", 2.0)
    monkeypatch.setattr(limits, "DELETION_SECONDS_MAX", 5.0)
    monkeypatch.setattr(client_limits, "CONNECT_SECONDS_MAX", 2.0)
    service = Damages(seed)
    with ServiceRelay(kafka.address(0), service) as relay:
        found = probe(relay.address)
    assert service.damaged
    assert found.status in (0, 1)
    left = [name for name in topics(kafka.address(0)) if name.startswith(TOPIC_PREFIX)]
    with RawClient(kafka.address(0)) as client:  # of some the response to CreateTopics was damaged
        client.ask(ApiKey.DELETE_TOPICS, 1, topic_names=left, timeout_ms=10_000)


# ---------------------------------------------------------------------- what makes a probe impossible
def test_a_topic_that_is_not_there_or_not_empty_is_refused(kafka: KraftCluster, probe: Probe) -> None:
    found = probe(kafka.address(0), "--topic", "none")
    assert (found.status, found.err) == (
        1,
        "idemproxy probe: there is no topic none, or Describe on it is missing: create it, or leave out --topic\n",
    )
    kafka.create_topic("full", 1)
    with RawClient(kafka.address(0)) as client:
        assert client.produce_one("full", 0, batch([b"v"])).error_code == 0
    found = probe(kafka.address(0), "--topic", "full")
    assert (found.status, found.err) == (
        1,
        "idemproxy probe: the topic full is not empty, it has offsets 0 to 0: name an empty one\n",
    )
    assert "full" in topics(kafka.address(0))


def test_a_topic_that_cannot_be_deleted_is_named(
    kafka: KraftCluster, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DELETION_SECONDS_MAX", 0.5)
    with ServiceRelay(kafka.address(0), Fails(ApiKey.DELETE_TOPICS, "closes")) as relay:
        found = probe(relay.address)
    topic = found.found["topic"]
    assert found.verdict == (0, OWN_IDS)
    assert found.err.startswith(f"idemproxy probe: the topic {topic} is still there, delete it: ")
    assert found.found["topic_left"]
    assert_nothing_is_left(kafka.address(0))  # the request did its work, only its response was lost


def test_nobody_at_the_address_is_said_so(probe: Probe) -> None:
    found = probe(("127.0.0.1", 1))
    assert found.status == 1
    assert "127.0.0.1:1" in found.err
    assert "Connection refused" in found.err


@contextmanager
def hanging(broker: tuple[str, int], at: ApiKey) -> Iterator[subprocess.Popen[str]]:
    """A probe that waits for a response that does not come."""
    with ServiceRelay(broker, Fails(at, "hangs")) as relay:
        command = [sys.executable, "-m", "idemproxy", "probe", relay.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: relay.requests[at] > 0, "the request is out")
            yield process
            process.kill()


@pytest.mark.parametrize("at", [ApiKey.PRODUCE, ApiKey.CREATE_TOPICS], ids=["Produce", "CreateTopics"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_deletes_the_topic(kafka: KraftCluster, at: ApiKey, number: int, status: int) -> None:
    with hanging(kafka.address(0), at) as process:
        wait_until(lambda: any(name.startswith(TOPIC_PREFIX) for name in topics(kafka.address(0))), "it is created")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (status, "", "")
    assert_nothing_is_left(kafka.address(0))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_the_deletion_names_the_topic(kafka: KraftCluster, number: int, status: int) -> None:
    with hanging(kafka.address(0), ApiKey.DELETE_TOPICS) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (status, "")
    said = rf"idemproxy probe: the topic {TOPIC_PREFIX}[0-9a-f]{{12}} is still there, delete it: interrupted\n"
    assert re.fullmatch(said, err)
    assert_nothing_is_left(kafka.address(0))


def test_a_reader_that_goes_away_ends_it_quietly(kafka: KraftCluster) -> None:
    command = [sys.executable, "-m", "idemproxy", "probe", kafka.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
    assert_nothing_is_left(kafka.address(0))
