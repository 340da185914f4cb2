"""Conditional publish on real brokers and a real Redis, with two proxies: a batch is appended where the log ends, or
not at all (rule R23)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from itertools import cycle
from random import Random
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import PolicyViolationError

from idemproxy.client import CONDITIONAL, Client, Displaced, Record, Refused
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.real.brokers.kraft_cluster import cluster_class
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.scenes.kv_store import write_past
from testkit.real.store.inspecting import idemproxy, objects_of

VERSIONS = ["0.10.2.2", *(pytest.param(version, marks=pytest.mark.long) for version in ("2.8.2", "3.9.1")), "4.3.1"]
"""Of the brokers: the first stores message format v1, all others v2."""
SETTINGS = "topics: {conditional: [shar*]}\nupstream: {idempotence: proxy}\n"
PARTITIONS = 24
TOPIC, OTHER_TOPIC = "shards", "no-shards"
CONFLICT, FENCED_EPOCH, CONFLICT_BY_HEADER, DISPLACED, PARTITION_FENCED = 45, 47, 44, 87, 17
INVALID = UNDECIDED = 87
RETRIABLE = (7, 19)
EXPLAINED = 8
"""The first version of Produce whose answers have a message."""
Place = tuple[str, int]


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    directory = tmp_path_factory.mktemp("kafka")
    with cluster_class(request.param)(directory, version=request.param, auto_create_topics=False) as running:
        running.create_topic(TOPIC, PARTITIONS)
        running.create_topic(OTHER_TOPIC, 1)
        yield running


@pytest.fixture(scope="module")
def pair(cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProxies]:
    with TwoProxies(tmp_path_factory.mktemp("conditional"), cluster, settings=SETTINGS) as running:
        yield running
        assert running.errors_of_ours() == []


@pytest.fixture(scope="module")
def url(pair: TwoProxies) -> str:
    return pair.redis_url


_partitions = cycle(range(PARTITIONS))


@pytest.fixture
def place() -> Place:
    """A partition that no other test uses."""
    return TOPIC, next(_partitions)


@pytest.fixture
def writers(pair: TwoProxies) -> Iterator[tuple[RawClient, RawClient]]:
    with RawClient(pair.addresses[0]) as one, RawClient(pair.addresses[1]) as other:
        yield one, other


def publish(client: RawClient, place: Place, expected: int, *values: bytes, epoch: int = 0) -> PartitionAnswer:
    return told(client, place, batch(values, producer_id=CONDITIONAL_ID, epoch=epoch, sequence=expected))


def by_header(client: RawClient, place: Place, expected: bytes, *values: bytes, **numbers: Any) -> PartitionAnswer:
    return told(client, place, batch(values, headers=(("expected-offset", expected),), **numbers))


def told(client: RawClient, place: Place, records: bytes) -> PartitionAnswer:
    """Send it until there is an outcome."""
    for _ in range(20):
        answer = client.produce_one(*place, records, version=EXPLAINED)
        if answer.error_code not in RETRIABLE:
            return answer
    raise AssertionError(answer)


def outcome(answer: PartitionAnswer) -> tuple[int, int]:
    return answer.error_code, answer.base_offset


def next_offset(answer: PartitionAnswer) -> int:
    """What a refusal says about where the log ends."""
    assert (answer.error_code, answer.base_offset) in ((CONFLICT, -1), (CONFLICT_BY_HEADER, -1))
    found = re.search(r": the next offset is (\d+)$", answer.message or "")
    assert found is not None, answer.message
    return int(found[1])


def stored(pair: TwoProxies, place: Place) -> list[tuple[int, bytes]]:
    return list(pair.stored([place])[place])


@pytest.mark.promise("conditional")
def test_two_writers_by_two_proxies_append_where_the_log_ends_or_not_at_all(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient]
) -> None:
    one, other = writers
    assert outcome(publish(one, place, 0, b"a", b"b")) == (0, 0)
    assert outcome(publish(other, place, 2, b"c")) == (0, 2)
    assert next_offset(publish(one, place, 2, b"x")) == 3, "the other one has it"
    assert next_offset(publish(one, place, 4, b"x")) == 3, "a gap"
    assert next_offset(publish(other, place, 1, b"x", b"y", b"z")) == 3, "across the end"
    assert next_offset(publish(other, place, 0, b"x")) == 3, "long ago"
    assert outcome(publish(one, place, 3, b"d")) == (0, 3)
    assert stored(pair, place) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


@pytest.mark.promise("conditional")
def test_a_retried_batch_gets_its_offset_unlike_anothers_of_equal_size(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient]
) -> None:
    one, other = writers
    for number in range(8):
        assert outcome(publish(one, place, 2 * number, b"%d" % number, b"-")) == (0, 2 * number)
    for again in (7, 0, 3):
        assert outcome(publish(other, place, 2 * again, b"%d" % again, b"-")) == (0, 2 * again)
        assert next_offset(publish(other, place, 2 * again, b"%d" % again, b"+")) == 16
    assert next_offset(publish(other, place, 3, b"-", b"2")) == 16, "the same records, and no such batch"
    assert len(stored(pair, place)) == 16


def test_a_log_that_others_have_begun_is_gone_on_with_at_its_end(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient], cluster: LegacyCluster
) -> None:
    write_past(cluster, place, b"first", b"second")
    assert next_offset(publish(writers[0], place, 0, b"x")) == 2
    assert publish(writers[0], place, 0, b"first").error_code == UNDECIDED, "no batch marker tells whose it is"
    assert outcome(publish(writers[1], place, 2, b"third")) == (0, 2)
    assert [value for _, value in stored(pair, place)] == [b"first", b"second", b"third"]


@pytest.mark.promise("conditional")
def test_who_writes_past_the_rules_fences_the_conditional_partition_until_an_operator_has_looked(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient], cluster: LegacyCluster, url: str
) -> None:
    one, other = writers
    assert outcome(publish(one, place, 0, b"a")) == (0, 0)
    write_past(cluster, place, b"foreign")
    displaced = publish(one, place, 1, b"b")
    assert displaced.error_code == DISPLACED
    assert "in the log at offset 2, and was to be at 1" in (displaced.message or "")
    assert publish(other, place, 1, b"b").error_code == DISPLACED, "the same batch by the other proxy"
    for expected in (1, 2, 3):
        assert publish(other, place, expected, b"c").error_code == PARTITION_FENCED
    assert stored(pair, place) == [(0, b"a"), (1, b"foreign"), (2, b"b")]
    told_by = [proxy for proxy in pair.proxies if f"{TOPIC}-{place[1]} is fenced" in proxy.log]
    assert told_by == [pair.proxies[0]]
    arguments = (str(CONDITIONAL_ID), "--topic", TOPIC, "--partition", str(place[1]), "--redis", url)
    (row,) = objects_of("producer", *arguments)
    assert row["expires_in_seconds"] is None
    done = idemproxy("forget", "producer", *arguments, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcome(publish(other, place, 3, b"c")) == (0, 3)
    assert publish(one, place, 1, b"b").error_code == DISPLACED, "it lies there still"
    assert next_offset(publish(one, place, 1, b"d")) == 4


@pytest.mark.promise("conditional")
def test_a_fence_and_the_end_of_the_log_outlive_redis(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient], cluster: LegacyCluster
) -> None:
    fenced: Place = (TOPIC, next(_partitions))
    assert outcome(publish(writers[0], place, 0, b"a")) == (0, 0)
    assert outcome(publish(writers[0], fenced, 0, b"a")) == (0, 0)
    write_past(cluster, fenced, b"foreign")
    assert publish(writers[0], fenced, 1, b"b").error_code == DISPLACED
    assert outcome(publish(writers[1], place, 0, b"a")) == (0, 0)
    pair.redis.kill()
    pair.redis.start()
    assert all(one.is_closed() for one in writers), "both proxies have seen that the state has a new data generation"
    with RawClient(pair.addresses[1], 40.0) as client:
        assert outcome(publish(client, place, 0, b"a")) == (0, 0)
        assert next_offset(publish(client, place, 0, b"b")) == 1
        assert outcome(publish(client, place, 1, b"b")) == (0, 1)
        assert publish(client, fenced, 3, b"c").error_code == PARTITION_FENCED


def test_clients_that_number_their_batches_themselves_say_it_in_a_header(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient]
) -> None:
    one, other = writers
    assert outcome(by_header(one, place, b"0", b"a")) == (0, 0)
    assert outcome(by_header(other, place, b"1", b"b", producer_id=17, sequence=5)) == (0, 1)
    assert outcome(by_header(one, place, b"1", b"b", producer_id=17, sequence=9)) == (0, 1), "the same batch again"
    assert outcome(publish(one, place, 2, b"c")) == (0, 2)
    assert next_offset(by_header(other, place, b"2", b"x")) == 3
    assert next_offset(by_header(other, place, b"%d" % (3 + 2**31), b"x")) == 3, "all 64 bits are compared"
    for wrong in (b"", b"-1", b"03", b"3.0", b"9" * 19, b"x"):
        assert by_header(one, place, wrong, b"x").error_code == INVALID
    assert by_header(one, place, b"3", b"x", b"y").error_code == INVALID, "both say 3"
    assert stored(pair, place) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_producer_of_another_library_publishes_by_header(pair: TwoProxies, place: Place) -> None:
    topic, partition = place
    producer = KafkaProducer(
        bootstrap_servers="{}:{}".format(*pair.addresses[0]), enable_idempotence=False, acks="all", retries=5
    )

    def send(expected: int, value: bytes) -> int:
        headers = [("expected-offset", b"%d" % expected)]
        return int(producer.send(topic, value, partition=partition, headers=headers).get(30).offset)

    assert [send(expected, b"%d" % expected) for expected in range(3)] == [0, 1, 2]
    with pytest.raises(PolicyViolationError):
        send(1, b"late")
    assert send(3, b"3") == 3
    producer.close()
    assert [value for _, value in stored(pair, place)] == [b"0", b"1", b"2", b"3"]


def test_who_is_not_conditional_is_refused_and_who_is_elsewhere_too(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient]
) -> None:
    one, _ = writers
    for records in (batch([b"x"]), batch([b"x"], producer_id=one.new_producer_id())):
        answer = one.produce_one(*place, records, version=EXPLAINED)
        assert (answer.error_code, "topics.conditional" in (answer.message or "")) == (CONFLICT_BY_HEADER, True)
    assert publish(one, place, 0, b"x", epoch=1).error_code == FENCED_EPOCH
    assert publish(one, (OTHER_TOPIC, 0), 0, b"x").error_code == PARTITION_FENCED
    assert stored(pair, place) == []
    assert stored(pair, (OTHER_TOPIC, 0)) == []


def test_a_batch_that_is_too_large_is_refused_as_a_whole(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient]
) -> None:
    one, _ = writers
    values = [Random(number).randbytes(300_000) for number in range(6)]
    assert publish(one, place, 0, *values).error_code == 10
    assert outcome(publish(one, place, 0, *values[:2])) == (0, 0)
    assert publish(one, place, 2, *values).error_code == 10
    assert len(stored(pair, place)) == 2


def test_a_writer_may_have_several_batches_under_way(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient]
) -> None:
    one, other = writers
    for expected in range(10):
        one.send_produce([(*place, batch([b"%d" % expected], producer_id=CONDITIONAL_ID, sequence=expected))])
    assert [one.produce_answer()[0].base_offset for _ in range(10)] == list(range(10))
    assert next_offset(publish(other, place, 9, b"x")) == 10


@pytest.mark.promise("conditional")
def test_a_killed_proxy_leaves_no_unknown_outcome(
    pair: TwoProxies, place: Place, writers: tuple[RawClient, RawClient]
) -> None:
    one, other = writers
    assert outcome(publish(one, place, 0, b"a")) == (0, 0)
    pair.proxies[0].kill()
    assert outcome(publish(other, place, 0, b"a")) == (0, 0)
    assert next_offset(publish(other, place, 0, b"b")) == 1
    assert outcome(publish(other, place, 1, b"b")) == (0, 1)
    pair.proxies[0].start()


def test_a_batch_after_a_foreign_record_ends_as_displaced(
    pair: TwoProxies, place: Place, cluster: LegacyCluster
) -> None:
    host, port = pair.addresses[0]
    with Client(f"{host}:{port}") as client, contextlib.closing(client.producer(CONDITIONAL)) as producer:
        producer.publish(*place, [Record(b"a")], expected_offset=0)
        write_past(cluster, place, b"foreign")
        with pytest.raises(Displaced, match="expected at offset 1, and the server says that it is at 2") as displaced:
            producer.publish(*place, [Record(b"b")], expected_offset=1)
        assert displaced.value.base_offset == 2
        with pytest.raises(Refused):
            producer.publish(*place, [Record(b"c")], expected_offset=3)
