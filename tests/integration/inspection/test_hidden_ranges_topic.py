"""Hidden ranges that were found by others, and their copy in a compacted topic, from which Redis is filled again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idemproxy.client import Client
from idemproxy.codecs.batch_marker import Identity
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.events import DuplicateFound
from idemproxy.proxy.telemetry.journal import Journal
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.scenes.hidden_ranges import append, hide, read, records_of, rows
from testkit.real.store.inspecting import Place, idemproxy
from testkit.real.store.two_proxies_redis import ExternalRedis

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture(scope="module")
def topic(legacy_broker: LegacyCluster) -> str:
    """The topic of the hidden ranges."""
    return fresh_topic(legacy_broker, 1, config=COMPACTED)


def settings(broker: LegacyCluster, url: str, topic: str, **more: Any) -> dict[str, Any]:
    host, port = broker.address(0)
    return {
        "upstream": {"bootstrap": [f"{host}:{port}"]},
        "redis": {"url": url},
        "hidden_ranges": {"topic": topic},
        **more,
    }


@pytest.fixture(scope="module")
def keeper(
    legacy_broker: LegacyCluster, url: str, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConfiguredProxy]:
    """A proxy that keeps a copy in the topic."""
    folder = tmp_path_factory.mktemp("keeper")
    given = settings(legacy_broker, url, topic, journal=str(folder / "journal.jsonl"))
    with ConfiguredProxy(folder, given, listener={}) as running:
        yield running


@pytest.fixture
def log(legacy_broker: LegacyCluster) -> Place:
    return fresh_topic(legacy_broker, 1), 0


def told(broker: LegacyCluster, topic: str, log: Place) -> list[dict[str, Any]]:
    """What the topic says of a partition, in order, as a consumer that asks the broker reads it."""
    host, port = broker.address(0)
    with Client(f"{host}:{port}") as client, client.reader(topic, 0) as reader:
        found = [(one.key, one.value) for one in reader.read_to_end()]
    start = f"{log[0]}/{log[1]}/".encode()
    return [json.loads(value) for key, value in found if key is not None and key.startswith(start) and value]


def last_words(broker: LegacyCluster, topic: str, log: Place) -> dict[int, str]:
    """What the topic says last of each range, by its first offset."""
    return {one["first"]: one["state"] for one in told(broker, topic, log)}


def wait_for_state(broker: LegacyCluster, topic: str, log: Place, state: str) -> dict[str, Any]:
    wait_until(lambda: [one["state"] for one in told(broker, topic, log)][-1:] == [state], f"it is {state} there", 60)
    return told(broker, topic, log)[-1]


def test_what_is_added_and_removed_is_in_the_topic(
    keeper: ConfiguredProxy, legacy_broker: LegacyCluster, url: str, topic: str, log: Place
) -> None:
    with RawClient(keeper.address) as client:
        append(client, log, b"a0", b"a1")
        append(client, log, b"a0", b"a1")
    hide(url, log, 2, 3, "--reason", "ticket 4711")
    active = wait_for_state(legacy_broker, topic, log, "active")
    assert (active["format"], active["topic"], active["partition"]) == (1, log[0], 0)
    assert (active["first"], active["last"], active["reason"]) == (2, 3, "ticket 4711")
    assert active["by"].startswith("proxy ")
    assert len(active["messages"]) == 2
    assert idemproxy("hide", "remove", *log, 2, 3, "--redis", url).returncode == 0
    removed = wait_for_state(legacy_broker, topic, log, "removed")
    assert removed["at_ms"] > active["at_ms"]
    assert "messages" not in removed
    assert "is not compacted" not in keeper.log


@pytest.mark.promise("hidden-ranges")
def test_after_flushall_redis_is_filled_from_the_topic(
    keeper: ConfiguredProxy, legacy_broker: LegacyCluster, redis: ExternalRedis, url: str, topic: str, log: Place
) -> None:
    with RawClient(keeper.address) as client:
        for _ in range(3):
            append(client, log, b"a0")
        hide(url, log, 1, 1)
        hide(url, log, 2, 2)
        assert idemproxy("hide", "remove", *log, 2, 2, "--redis", url).returncode == 0
        wanted = {1: "active", 2: "removed"}
        wait_until(lambda: last_words(legacy_broker, topic, log) == wanted, "all is in the topic", 60)
    keeper.stop()
    redis.call("FLUSHALL")
    keeper.start()
    with RawClient(keeper.address) as client:
        assert len(records_of(client.fetch(*log, 0))) == 3, "nobody knows better"
        keeper.wait_for_log("until `idemproxy hide restore` has written them there", 60)
        tried = idemproxy("hide", "restore", "--config", keeper.file, "--dry-run")
        assert (tried.returncode, tried.stderr) == (0, "")
        assert "ranges would be written into Redis; nothing was changed" in tried.stdout
        assert rows(url, log) == []
        done = idemproxy("hide", "restore", "--config", keeper.file)
        assert "ranges were written into Redis" in done.stdout, done.stderr
        assert [(row["first"], row["state"]) for row in rows(url, log)] == [(1, "active"), (2, "removed")]
        wait_until(lambda: len(records_of(client.fetch(*log, 0))) == 2, "the duplicate is left out again", 30)
        assert read(client, log, 2) == [b"a0", b"a0"]
    again = idemproxy("hide", "restore", "--config", keeper.file)
    assert (again.returncode, "nothing to restore" in again.stdout) == (0, True)


@pytest.mark.promise("hidden-ranges")
def test_a_later_word_in_redis_stays(
    keeper: ConfiguredProxy, legacy_broker: LegacyCluster, redis: ExternalRedis, url: str, topic: str, log: Place
) -> None:
    with RawClient(keeper.address) as client:
        append(client, log, b"a0")
        append(client, log, b"a0")
    hide(url, log, 1, 1)
    wait_for_state(legacy_broker, topic, log, "active")
    keeper.stop()
    try:
        assert idemproxy("hide", "remove", *log, 1, 1, "--redis", url).returncode == 0
        done = idemproxy("hide", "restore", "--config", keeper.file)
        assert (done.returncode, "nothing to restore" in done.stdout) == (0, True)
        assert [row["state"] for row in rows(url, log)] == ["removed"]
    finally:
        keeper.start()
    wait_for_state(legacy_broker, topic, log, "removed")


def test_what_an_audit_has_found_is_added_at_once(
    keeper: ConfiguredProxy, legacy_broker: LegacyCluster, url: str, topic: str, log: Place, tmp_path: Path
) -> None:
    with RawClient(keeper.address) as client:
        for _ in range(3):
            append(client, log, b"a0", b"a1")
    common = {"topic": log[0], "partition": 0, "first_copy": 0}
    copies = [common | {"first": first, "last": first + 1} for first in (2, 4, 60)]
    file = tmp_path / "duplicates.json"
    file.write_text(json.dumps({"format": 1, "is_whole": True, "duplicates": copies}))
    command = ("hide", "add", "--from-audit", str(tmp_path), "--redis", url)
    unsure = idemproxy(*command, typed="2\n")
    assert (unsure.returncode, "3 ranges, 6 records, found by the audit" in unsure.stdout) == (1, True)
    assert rows(url, log) == []
    done = idemproxy(*command, typed="6\n")
    assert done.returncode == 1
    assert f"not hidden: offsets 60 to 61 of {log[0]}/0: the log has offsets 0 to 5" in done.stdout
    assert "every proxy hides 2 ranges from fetches" in done.stdout
    assert [(row["first"], row["last"], row["state"]) for row in rows(url, log)] == [
        (2, 3, "active"),
        (4, 5, "active"),
        (60, 61, "refused"),
    ]
    assert rows(url, log)[0]["reason"] == "duplicate of the offsets from 0 on, found by the audit"
    wait_until(lambda: len(told(legacy_broker, topic, log)) == 2, "both are in the topic", 60)
    with RawClient(keeper.address) as client:
        assert read(client, log, 2) == [b"a0", b"a1"]
    other = idemproxy("hide", "add", "nothing-of-it", *command[2:])
    assert (other.returncode, "nothing to add" in other.stdout) == (0, True)


def test_what_a_proxy_has_found_is_added_out_of_its_journal(
    keeper: ConfiguredProxy, legacy_broker: LegacyCluster, url: str, log: Place
) -> None:
    """The audit of rule R14 comes minutes later: its event is written here as the proxy does it."""
    journal = Path(keeper.configuration["journal"])
    with RawClient(keeper.address) as client, RawClient(legacy_broker.address(0)) as direct:
        producer_id = client.new_producer_id()
        records = batch([b"a0", b"a1", b"a2"], producer_id=producer_id)
        assert client.produce_one(*log, records).error_code == 0
        stored = direct.fetch(*log, 0, 3)
        direct.send_produce([(*log, stored)], version=2)
        (answer,) = direct.produce_answer()
        assert (answer.error_code, answer.base_offset) == (0, 3)
        append(client, log, b"b0")
        with journal.open("ab") as file:
            found = DuplicateFound(*Identity(producer_id, 0, 0, 3)[:3], *log, (0, 3))
            Journal(file.write, lambda: 0, lambda event: None)(found)
        done = idemproxy("hide", "add", "--from-journal", journal, "--yes", "--redis", url)
        assert (done.returncode, "1 ranges, 3 records, found by the proxy" in done.stdout) == (0, True), done
        assert read(client, log, 4) == [b"a0", b"a1", b"a2", b"b0"]
    again = idemproxy("hide", "add", "--from-journal", journal, "--yes", "--redis", url)
    assert (again.returncode, "nothing to add" in again.stdout) == (0, True)


def test_a_topic_that_is_missing_or_not_compacted_is_reported(
    legacy_broker: LegacyCluster, redis: ExternalRedis, url: str, log: Place, tmp_path: Path
) -> None:
    plain = fresh_topic(legacy_broker, 1)
    given = settings(legacy_broker, url, plain, cluster_name="plain")
    with ConfiguredProxy(tmp_path / "plain", given, listener={}) as proxy, RawClient(proxy.address) as client:
        append(client, log, b"a0")
        append(client, log, b"a0")
        hide(url, log, 1, 1, "--cluster-name", "plain")
        proxy.wait_for_log(rf"topic {plain} \(hidden_ranges\.topic\): it is not compacted", 60)
        assert told(legacy_broker, plain, log) == []
    given = settings(legacy_broker, url, "absent", cluster_name="absent")
    with ConfiguredProxy(tmp_path / "absent", given, listener={}) as proxy:
        proxy.wait_for_log(r"topic absent \(hidden_ranges\.topic\): it does not exist", 60)
        done = idemproxy("hide", "restore", "--config", proxy.file)
        assert (done.returncode, "topic absent: it does not exist at the brokers" in done.stderr) == (2, True)
        host, port = legacy_broker.address(0)
        with Client(f"{host}:{port}") as client_of_broker:
            assert "absent" not in client_of_broker.topics(), "asking creates none"


def test_what_is_given_wrongly_ends_with_a_sentence(keeper: ConfiguredProxy, url: str, tmp_path: Path) -> None:
    for command, said in (
        (("add", "orders", 3), "add needs TOPIC PARTITION FIRST LAST, or --from-audit DIR, or --from-journal FILE"),
        (("add", "orders", 3, 1, 2, "--from-audit", tmp_path), "one of the two"),
        (("add", "--from-audit", tmp_path), "run the audit again"),
        (("restore",), "no topic to restore from"),
    ):
        upstream = ("--upstream", "127.0.0.1:1") if command == ("restore",) else ()
        done = idemproxy("hide", *command, "--redis", url, *upstream)
        assert (done.returncode, said in done.stderr) == (2, True), done
