"""Producers with a name on a real broker and a real Redis, with two proxies that die: who is older is fenced
everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from random import Random

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from idemproxy.client import (
    BehindFailed,
    Client,
    ClientError,
    Fenced,
    Producer,
    ProducerId,
    Receipt,
    Record,
    RequestRefused,
    Stopped,
)
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.names import is_named
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.store.inspecting import idemproxy, objects_of

PARTITIONS = 24
TOPIC = "named"
FENCED, NOT_ALLOWED, PRODUCER_FENCED = 47, 53, 90
INSTANCES, BATCHES = 4, 30
Place = tuple[str, int]


@pytest.fixture(scope="module")
def pair(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProxies]:
    legacy_broker.create_topic(TOPIC, PARTITIONS)
    with TwoProxies(tmp_path_factory.mktemp("names"), legacy_broker, settings="producers: {names: [job-*]}") as running:
        yield running
        assert running.errors_of_ours() == []


@pytest.fixture(scope="module")
def url(pair: TwoProxies) -> str:
    return pair.redis_url


_partitions = iter(range(PARTITIONS))


@pytest.fixture
def places() -> list[Place]:
    """Partitions that no other test uses."""
    return [(TOPIC, next(_partitions)) for _ in range(3)]


def bootstrap_of(pair: TwoProxies, index: int) -> str:
    return "{}:{}".format(*pair.addresses[index])


class Instance:
    """One instance of a name, by one proxy."""

    def __init__(self, stack: ExitStack, bootstrap: str, name: str, number: int) -> None:
        client = stack.enter_context(Client(bootstrap))
        self.number = number
        self.id = client.init_producer_id(name)
        self.producer: Producer = client.producer(self.id, delivery_seconds_max=90.0)
        stack.callback(self.producer.close)
        self.sent: dict[bytes, tuple[Place, Future[Receipt]]] = {}

    def send(self, place: Place) -> Future[Receipt]:
        value = b"%d/%d" % (self.number, len(self.sent))
        future = self.producer.send(*place, [Record(value)])
        self.sent[value] = place, future
        return future

    def publish(self, place: Place) -> Receipt:
        return self.send(place).result()

    def receipts(self) -> dict[bytes, tuple[Place, Receipt]]:
        """The stored values, by its receipts."""
        return {
            value: (place, future.result())
            for value, (place, future) in self.sent.items()
            if future.done() and future.exception() is None
        }


def check(stored: Mapping[Place, Sequence[tuple[int, bytes]]], instances: Sequence[Instance]) -> None:
    """Nothing twice, nothing lost, each in its order and older ones before newer ones."""
    for place, records in stored.items():
        names = [tuple(map(int, value.split(b"/"))) for _, value in records]
        assert names == sorted(set(names)), place
    for instance in instances:
        for value, (place, receipt) in instance.receipts().items():
            assert (receipt.base_offset, value) in stored[place]


@pytest.mark.promise("name-one-instance")
def test_an_older_instance_is_fenced_at_both_proxies_and_in_every_partition(
    pair: TwoProxies, places: list[Place]
) -> None:
    with ExitStack() as stack:
        older = Instance(stack, bootstrap_of(pair, 0), "everywhere", 0)
        assert is_named(older.id.number)
        older.publish(places[0])
        newer = Instance(stack, bootstrap_of(pair, 1), "everywhere", 1)
        assert newer.id == ProducerId(older.id.number, older.id.epoch + 1)
        with pytest.raises(Fenced, match="INVALID_PRODUCER_EPOCH"):
            older.publish(places[1])
        newer.publish(places[0])
        with RawClient(pair.addresses[1]) as raw:
            late = batch([b"late"], producer_id=older.id.number, epoch=older.id.epoch, sequence=0)
            assert raw.produce_one(*places[2], late).error_code == FENCED
        stored = pair.stored(places)
        assert [len(stored[place]) for place in places] == [2, 0, 0]
        check(stored, [older, newer])


@pytest.mark.promise("name-one-instance")
def test_instances_follow_one_another_while_proxies_are_killed(pair: TwoProxies, places: list[Place]) -> None:
    random = Random(21)
    instances: list[Instance] = []
    with ExitStack() as stack:
        for number in range(INSTANCES):
            index = number % 2
            instance = Instance(stack, bootstrap_of(pair, index), "killed", number)
            if instances:
                assert instance.id == ProducerId(instances[-1].id.number, instances[-1].id.epoch + 1)
            futures = [instance.send(random.choice(places)) for _ in range(BATCHES)]
            futures[random.randrange(BATCHES // 2)].result()
            for older in instances[-1:]:  # it has not ended, and works next to the newer one
                with pytest.raises((Fenced, BehindFailed)):
                    older.publish(places[0])
                with pytest.raises(Fenced):
                    older.publish(places[1])
            pair.proxies[index].kill()
            pair.proxies[index].start()
            instances.append(instance)
        for future in instances[-1].sent.values():
            future[1].result()
        check(pair.stored(places), instances)
        assert len(instances[-1].receipts()) == BATCHES


@pytest.mark.promise("name-one-instance")
def test_instances_survive_a_new_data_generation_and_the_next_gets_another_id(
    pair: TwoProxies, places: list[Place]
) -> None:
    with ExitStack() as stack:
        older = Instance(stack, bootstrap_of(pair, 0), "lives", 0)
        older.publish(places[0])
        pair.redis.kill()
        pair.redis.start()
        older.publish(places[0])
        older.publish(places[1])
        newer = Instance(stack, bootstrap_of(pair, 1), "lives", 1)
        assert (newer.id.number == older.id.number, newer.id.epoch) == (False, 0)
        newer.publish(places[0])
        with pytest.raises(Fenced):
            older.publish(places[2])
        check(pair.stored(places), [older, newer])


@pytest.mark.promise("name-last-batch")
def test_a_program_that_saves_no_sequences_resumes_where_it_stopped(pair: TwoProxies, places: list[Place]) -> None:
    """As docs/how-to/fence-by-name.md says it: each run saves its id, its epoch and its position in the input."""
    random, place, lives, ahead = Random(5), places[0], 8, 40
    rows = [b"row %d" % number for number in range(lives * ahead)]
    position, saved = 0, ProducerId(0)
    for life in range(lives):
        with Client(bootstrap_of(pair, life % 2)) as client:
            mine = client.init_producer_id("resumes")
            stopped = client.where_producers_stopped(*place).get(saved.number)
            if stopped is not None and stopped.producer_id == saved:
                position += stopped.next_sequence
            assert [value for _, value in pair.stored([place])[place]] == rows[:position]
            saved = mine
            with suppress(ClientError), client.producer(mine, delivery_seconds_max=90.0) as producer:
                futures = [producer.send(*place, [Record(row)]) for row in rows[position : position + ahead]]
                if life < lives - 1:
                    futures[random.randrange(ahead)].result()
                    if life == 3:
                        pair.redis.kill()
                        pair.redis.start()
                    else:
                        pair.proxies[life % 2].kill()
                        pair.proxies[life % 2].start()
                    producer.close()
                producer.flush()
    assert [value for _, value in pair.stored([place])[place]] == rows[: position + ahead]


@pytest.mark.promise("name-last-batch")
def test_a_foreign_admin_client_sees_where_producers_stopped(pair: TwoProxies, places: list[Place]) -> None:
    with ExitStack() as stack:
        instance = Instance(stack, bootstrap_of(pair, 0), "told", 0)
        for _ in range(3):
            instance.publish(places[0])
        admin = KafkaAdminClient(bootstrap_servers=bootstrap_of(pair, 1))
        stack.callback(admin.close)
        told = admin.describe_producers([TopicPartition(*places[0])])
        assert str(instance.id.number) in str(told), told
        with Client(bootstrap_of(pair, 1)) as client:
            assert client.where_producers_stopped(*places[0])[instance.id.number] == Stopped(instance.id, 2)
            assert client.where_producers_stopped(*places[1]) == {}


@pytest.mark.promise("name-one-instance")
def test_a_client_id_that_fits_the_setting_is_a_name(pair: TwoProxies, places: list[Place]) -> None:
    def producer() -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=bootstrap_of(pair, 0), client_id="job-1", enable_idempotence=True, acks="all", retries=5
        )

    topic, partition = places[0]
    older, other = producer(), places[1][1]
    assert older.send(topic, b"one", partition=partition).get(30).offset == 0
    newer = producer()
    assert newer.send(topic, b"two", partition=partition).get(30).offset == 1
    with pytest.raises(Exception, match=r"Fenced|InvalidProducerEpoch|fatal|epoch"):
        older.send(topic, b"three", partition=other).get(30)
    assert newer.send(topic, b"four", partition=partition).get(30).offset == 2
    stored = pair.stored(places[:2])
    assert [[value for _, value in stored[place]] for place in places[:2]] == [[b"one", b"two", b"four"], []]
    for one in (older, newer):
        one.close(0)


def test_a_higher_epoch_is_asked_for_and_asked_for_again(pair: TwoProxies, places: list[Place]) -> None:
    with RawClient(pair.addresses[0]) as raw, RawClient(pair.addresses[1]) as other:
        error, producer_id, epoch = raw.init_producer_id(4, "asks", -1, -1)
        assert (error, epoch) == (0, 0)
        assert raw.init_producer_id(4, "asks", producer_id, 0) == (0, producer_id, 1)
        assert other.init_producer_id(4, "asks", producer_id, 0) == (0, producer_id, 1), "the answer was lost"
        assert other.init_producer_id(4, "asks", producer_id, 1) == (0, producer_id, 2)
        assert raw.init_producer_id(4, "asks", producer_id, 0) == (PRODUCER_FENCED, -1, -1)
        assert raw.init_producer_id(3, "asks", producer_id, 0) == (FENCED, -1, -1)
        assert raw.init_producer_id(0, "asks") == (0, producer_id, 3)
        assert raw.init_producer_id(4, "asks", producer_id, 2) == (PRODUCER_FENCED, -1, -1)


def test_names_are_shown_and_forgotten(pair: TwoProxies, places: list[Place], url: str) -> None:
    with ExitStack() as stack:
        older = Instance(stack, bootstrap_of(pair, 0), "shown {1} *", 0)
        older.publish(places[0])
        older.publish(places[1])
        (row,) = (row for row in objects_of("names", "--redis", url) if row["name"] == "shown {1} *")
        assert (row["producer_id"], row["producer_epoch"], row["partitions"]) == (str(older.id.number), 0, 2)
        assert row["is_present_data_generation"]
        (overview,) = objects_of("--redis", url)
        assert overview["names"] >= 1
        assert overview["unknown_keys"] == 0
        kept = idemproxy("forget", "name", "shown {1} *", "--redis", url, typed="something else\n")
        assert (kept.returncode, "nothing was forgotten" in kept.stdout) == (1, True)
        older.publish(places[0])
        done = idemproxy("forget", "name", "shown {1} *", "--redis", url, typed="shown {1} *\n")
        assert done.returncode == 0, done.stdout + done.stderr
        with pytest.raises(Fenced):
            older.publish(places[0])
        newer = Instance(stack, bootstrap_of(pair, 1), "shown {1} *", 1)
        assert newer.id.number != older.id.number
        newer.publish(places[0])
        (row,) = objects_of("producer", older.id.number, "--topic", TOPIC, "--partition", places[1][1], "--redis", url)
        assert row["expires_in_seconds"] is not None
        assert json.loads(json.dumps(row))["producer_id"] == str(older.id.number)


def test_what_is_no_name_is_refused(pair: TwoProxies) -> None:
    for name in ("", "n" * 250, "two\nlines"):
        with Client(bootstrap_of(pair, 0)) as client, pytest.raises(RequestRefused, match="INVALID_REQUEST"):
            client.init_producer_id(name)
