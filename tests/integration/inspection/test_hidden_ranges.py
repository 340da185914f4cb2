"""``idemproxy hide``: what fetches through the proxy leave out, on a real broker, with real consumers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import consume, fresh_topic, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.scenes.hidden_ranges import append, hide, read, records_of, rows
from testkit.real.store.inspecting import Place, idemproxy
from testkit.real.store.two_proxies_redis import ExternalRedis

VERSIONS = (2, 3, 4)


@pytest.fixture
def log(legacy_broker: LegacyCluster) -> Place:
    return fresh_topic(legacy_broker, 1), 0


@pytest.mark.promise("hidden-ranges")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_a_duplicate_is_left_out_for_every_consumer_and_stays_in_the_log(
    producer: RawClient, proxy: ProxyProcess, legacy_broker: LegacyCluster, url: str, log: Place, codec: Codec
) -> None:
    append(producer, log, b"a0", b"a1", b"a2", codec=codec)
    append(producer, log, b"b0", b"b1", codec=codec)
    assert append(producer, log, b"a0", b"a1", b"a2", codec=codec) == 5
    append(producer, log, b"c0", codec=codec)
    hide(url, log, 5, 7, "--reason", "sent twice on Tuesday")
    wanted = [b"a0", b"a1", b"a2", b"b0", b"b1", b"c0"]
    proxy.wait_for_log(rf"offsets 5 to 7 of {log[0]}/0 are hidden from fetches \(sent twice on Tuesday\)")
    assert [read(producer, log, 6, version) for version in VERSIONS] == [wanted] * 3
    assert consume(f"{proxy.address[0]}:{proxy.address[1]}", log[0], f"of {log[0]}", 6) == wanted
    assert len(stored_values(legacy_broker, log)) == 9
    (row,) = rows(url, log)
    assert (row["first"], row["last"], row["state"], row["reason"]) == (5, 7, "active", "sent twice on Tuesday")


@pytest.mark.promise("hidden-ranges")
def test_a_consumer_before_a_hidden_log_end_reads_what_is_appended_next(
    producer: RawClient, url: str, log: Place
) -> None:
    append(producer, log, b"a0")
    append(producer, log, b"a0")
    append(producer, log, b"a0")
    hide(url, log, 1, 2)
    for version in VERSIONS:
        assert read(producer, log, 1, version) == [b"a0"]
        assert records_of(producer.fetch(*log, 1, version)) == []
    append(producer, log, b"b0")
    assert [read(producer, log, 2, version) for version in VERSIONS] == [[b"a0", b"b0"]] * 3


@pytest.mark.promise("hidden-ranges")
def test_of_a_wrapper_a_part_is_left_out(producer: RawClient, url: str, log: Place) -> None:
    producer_id = producer.new_producer_id()
    records = batch([b"%d" % number for number in range(5)], producer_id=producer_id)
    assert producer.produce_one(*log, records).error_code == 0
    hide(url, log, 1, 2)
    hide(url, log, 4, 4)
    append(producer, log, b"5")
    assert [read(producer, log, 3, version) for version in VERSIONS] == [[b"0", b"3", b"5"]] * 3


def test_what_is_removed_is_shown_again(producer: RawClient, url: str, log: Place) -> None:
    append(producer, log, b"a0")
    append(producer, log, b"a0")
    hide(url, log, 1, 1)
    assert read(producer, log, 1) == [b"a0"]
    done = idemproxy("hide", "remove", *log, 1, 1, "--redis", url)
    assert (done.returncode, "every proxy shows them again" in done.stdout) == (0, True)
    wait_until(lambda: len(records_of(producer.fetch(*log, 0))) == 2, "both records are shown", 30)
    assert [row["state"] for row in rows(url, log)] == ["removed"]
    again = idemproxy("hide", "remove", *log, 1, 1, "--redis", url)
    assert (again.returncode, "no such hidden range" in again.stdout) == (1, True)


def test_what_the_log_does_not_have_is_refused_with_a_sentence(producer: RawClient, url: str, log: Place) -> None:
    append(producer, log, b"a0", b"a1")
    done = idemproxy("hide", "add", *log, 1, 2, "--yes", "--redis", url)
    assert done.returncode == 1
    assert "not hidden: the log has offsets 0 to 1" in done.stdout
    assert len(read(producer, log, 2)) == 2
    unsure = idemproxy("hide", "add", *log, 0, 0, "--redis", url, typed="no\n")
    assert (unsure.returncode, "nothing was changed" in unsure.stdout) == (1, True)
    hide(url, log, 0, 1)
    met = idemproxy("hide", "add", *log, 1, 5, "--yes", "--redis", url)
    assert (met.returncode, "offsets 0 to 1" in met.stderr) == (2, True)
    backwards = idemproxy("hide", "add", *log, 3, 2, "--yes", "--redis", url)
    assert (backwards.returncode, "the last one is below the first one" in backwards.stderr) == (2, True)


def test_hiding_in_an_unknown_topic_is_refused_soon_and_stores_nothing(
    proxy: ProxyProcess, redis: ExternalRedis, url: str, log: Place
) -> None:
    for topic, partition in ((f"no-{log[0]}", 0), (log[0], 7), ("no topic has this name", 0)):
        begun = time.monotonic()
        done = idemproxy("hide", "add", topic, partition, 0, 0, "--yes", "--redis", url)
        assert (done.returncode, done.stderr) == (1, "")
        assert "not hidden: the cluster has no such topic, or no such partition of it" in done.stdout
        assert time.monotonic() - begun < 20, "it has not waited for a proxy in vain"
        time.sleep(5)
        assert rows(url, (topic, partition)) == [], "no proxy has written it back"


def test_what_is_left_out_already_is_not_shown_meanwhile(producer: RawClient, url: str, log: Place) -> None:
    append(producer, log, b"a0")
    append(producer, log, b"a0")
    hide(url, log, 1, 1, "--reason", "first")
    before = rows(url, log)
    again = idemproxy("hide", "add", *log, 1, 1, "--reason", "second", "--redis", url)
    assert (again.returncode, "are hidden already" in again.stdout) == (0, True)
    assert rows(url, log) == before, "no proxy has to look into the log again, which takes as long as its leader does"
    removed = idemproxy("hide", "remove", *log, 1, 1, "--redis", url)
    assert removed.returncode == 0
    hide(url, log, 1, 1, "--reason", "third")
    assert [(row["state"], row["reason"]) for row in rows(url, log)] == [("active", "third")]


@pytest.mark.promise("hidden-ranges")
def test_a_topic_that_was_recreated_loses_nothing(
    producer: RawClient, legacy_broker: LegacyCluster, url: str, log: Place
) -> None:
    append(producer, log, b"a0")
    append(producer, log, b"a0")
    hide(url, log, 1, 1)
    legacy_broker.delete_topic(log[0])
    legacy_broker.create_topic(log[0])
    wait_until(lambda: producer.produce_one(*log, batch([b"n0"])).error_code == 0, "the topic is there again", 60)
    append(producer, log, b"n1")
    assert read(producer, log, 2)[-1] == b"n1"


@pytest.mark.promise("hidden-ranges")
def test_what_redis_loses_is_given_back(
    producer: RawClient, redis: ExternalRedis, proxy: ProxyProcess, url: str, log: Place
) -> None:
    append(producer, log, b"a0")
    append(producer, log, b"a0")
    hide(url, log, 1, 1)
    assert read(producer, log, 1) == [b"a0"]
    redis.call("FLUSHALL")
    wait_until(lambda: [row["state"] for row in rows(url, log)] == ["active"], "a proxy has given it back", 60)
    append(producer, log, b"b0")
    assert read(producer, log, 2) == [b"a0", b"b0"]


def test_where_no_proxy_would_leave_anything_out_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "duplicates.json").write_text(json.dumps({"format": 1, "is_whole": True, "duplicates": []}))
    with ExternalRedis() as empty:
        url = f"redis://{empty.address[0]}:{empty.address[1]}"
        for what in (("orders", 0, 0, 1), ("--from-audit", tmp_path)):
            done = idemproxy("hide", "add", *what, "--yes", "--redis", url)
            assert done.returncode == 2
            assert "no proxy with the cluster name 'default' uses this Redis" in done.stderr
        assert empty.call("KEYS", "*") == []
