"""The proxy gives idempotence in front of Kafka 4: clients have the versions of its brokers, zstd, headers, topic ids
and the new protocol of groups, and what they send again is stored once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer

from idemproxy.client import Client, Fenced
from idemproxy.client import Record as Sent
from idemproxy.codecs import messages, produce_topic_ids
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.header_marker import read_header_marker
from idemproxy.codecs.logged import LoggedBatch, iterate_logged
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until

RECORDS = 300
SECONDS_MAX = 60
HEADERS = [("trace", b"1")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    with KraftCluster(tmp_path_factory.mktemp("kafka-4"), auto_create_topics=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxy(cluster: KraftCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredProxy]:
    settings = {"upstream": {"bootstrap": [cluster.bootstrap.split(",")[0]], "idempotence": "proxy"}}
    with ConfiguredProxy(tmp_path_factory.mktemp("proxy"), settings, listener={}) as proxy:
        yield proxy


@pytest.fixture
def raw(proxy: ConfiguredProxy) -> Iterator[RawClient]:
    host, port = proxy.address
    with RawClient((host, port + 1)) as client:
        yield client


def batches(cluster: KraftCluster, topic: str) -> list[LoggedBatch]:
    """What is stored in partition 0."""
    with RawClient(cluster.address(0)) as direct:
        found = list(iterate_logged(direct.fetch(topic, 0, version=10)))
    assert all(isinstance(one, LoggedBatch) for one in found)
    return [one for one in found if isinstance(one, LoggedBatch)]


def ready_topic(cluster: KraftCluster, raw: RawClient) -> str:
    """A topic with one record in partition 0: its leader can be asked where the log ends."""
    topic, records = fresh_topic(cluster), batch([b"first"], producer_id=raw.new_producer_id(), sequence=0)
    wait_until(lambda: raw.produce_one(topic, 0, records).error_code == 0, "a new topic is appended to")
    return topic


def topic_id_of(raw: RawClient, topic: str) -> str:
    (found,) = raw.ask(ApiKey.METADATA, 13, topics=[{"name": topic}], allow_auto_topic_creation=False).topics
    topic_id: str = found.topic_id.hex
    return topic_id


def produce_by_id(raw: RawClient, topic_id: str, records: bytes) -> PartitionAnswer:
    body = b"".join(produce_topic_ids.encode_request(-1, 30_000, [(topic_id, 0, records)]))
    answer = raw.call(ApiKey.PRODUCE, produce_topic_ids.VERSION, body)
    (found,), _ = produce_topic_ids.parse_response(answer)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_records_in_zstd_with_headers_come_to_a_group_and_are_marked_in_the_log(
    cluster: KraftCluster, proxy: ConfiguredProxy, protocol: str
) -> None:
    topic, (host, port) = fresh_topic(cluster), proxy.address
    producer = Producer(
        {"bootstrap.servers": f"{host}:{port}", "enable.idempotence": True, "compression.type": "zstd", "linger.ms": 5}
    )
    for number in range(RECORDS):
        producer.produce(topic, b"value-%d" % number, partition=0, headers=HEADERS)
    assert producer.flush(SECONDS_MAX) == 0
    settings = {"bootstrap.servers": f"{host}:{port}", "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "group.protocol": protocol})
    consumer.subscribe([topic])
    read: list[Message] = []
    while len(read) < RECORDS:
        more = consumer.consume(RECORDS, timeout=SECONDS_MAX)
        assert more, f"{len(read)} records came"
        read += more
    consumer.close()
    assert [one.value() for one in read] == [b"value-%d" % number for number in range(RECORDS)]
    assert all(one.headers() == HEADERS for one in read)
    stored = batches(cluster, topic)
    assert sum(one.record_count for one in stored) == RECORDS
    assert all(one.marker is not None and one.header.codec == Codec.ZSTD for one in stored)


def test_a_batch_for_a_topic_id_is_stored_once(cluster: KraftCluster, raw: RawClient) -> None:
    topic = ready_topic(cluster, raw)
    topic_id = topic_id_of(raw, topic)
    answer = raw.ask(ApiKey.INIT_PRODUCER_ID, 5, transactional_id=None, transaction_timeout_ms=0)
    assert answer.error_code == 0
    for sequence in (0, 0, 1, 1, 0):
        records = batch([b"value"], producer_id=answer.producer_id, sequence=sequence)
        found = produce_by_id(raw, topic_id, records)
        assert (found.error_code, found.base_offset) == (0, 1 + sequence), found.message
    stored = batches(cluster, topic)
    assert len(stored) == 3
    assert all(read_header_marker(one.header) == one.marker is not None for one in stored)


def test_a_topic_id_that_no_topic_has_is_unknown(raw: RawClient) -> None:
    records = batch([b"value"], producer_id=raw.new_producer_id(), sequence=0)
    found = produce_by_id(raw, "0123456789abcdef0123456789abcdef", records)
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_requests_of_all_kinds_are_answered_in_their_order(cluster: KraftCluster, raw: RawClient) -> None:
    topic = ready_topic(cluster, raw)
    producer_id = raw.new_producer_id()
    metadata = messages.encode_request(ApiKey.METADATA, 12, topics=[], allow_auto_topic_creation=False)
    requests = []
    for sequence in range(20):
        own = topic, 0, batch([b"own"], producer_id=producer_id, sequence=sequence)
        requests.append((ApiKey.PRODUCE, 8, RawClient.produce_body([own], version=8)))
        requests.append((ApiKey.METADATA, 12, metadata))
        if not sequence % 5:
            plain = topic, 0, batch([b"plain"])
            requests.append((ApiKey.PRODUCE, 8, RawClient.produce_body([plain], version=8)))
    raw.send_together(*requests)
    for _ in requests:
        raw.answer()
    stored = batches(cluster, topic)
    assert sum(one.record_count for one in stored if one.marker is not None) == 1 + 20
    assert sum(one.record_count for one in stored if one.marker is None) == 4


def test_a_batch_that_looks_like_a_stored_one_is_refused(cluster: KraftCluster, raw: RawClient) -> None:
    records = encode_batch([Record(0, 1, None, b"value")], producer_id=-1, producer_epoch=7, base_sequence=5)
    found = raw.produce_one(fresh_topic(cluster), 0, records, version=8)
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert "only idemproxy may store that" in (found.message or "")


@pytest.mark.promise("name-one-instance")
def test_a_newer_instance_of_a_producer_name_fences_the_older_and_learns_where_it_stopped(
    cluster: KraftCluster, proxy: ConfiguredProxy
) -> None:
    topic, bootstrap = fresh_topic(cluster), "{}:{}".format(*proxy.address)
    with Client(bootstrap) as client:
        mine = client.init_producer_id("orders-1")
        older = client.producer(mine)
        older.publish(topic, 0, [Sent(b"one"), Sent(b"two")])
        newer = client.init_producer_id("orders-1")
        stopped = client.where_producers_stopped(topic, 0)[mine.number]
        assert (newer.number, newer.epoch) == (mine.number, mine.epoch + 1)
        assert (stopped.producer_id, stopped.next_sequence) == (mine, 2)
        with pytest.raises(Fenced):
            older.publish(topic, 0, [Sent(b"late")])
        older.close()
    assert sum(one.record_count for one in batches(cluster, topic)) == 2
