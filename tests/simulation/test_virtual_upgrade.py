"""Virtual brokers of Kafka ≥ 0.11, spoken to with kafka-python's bytes: what they tell of themselves, what they know of
producers, and what becomes of either message format."""

from __future__ import annotations

import struct
import warnings
from typing import Any

import pytest

from idemproxy.codecs.batch_marker import Identity, parse_batch_marker
from idemproxy.codecs.record_batch import Record, encode_batch
from testkit.stage.logs import marked_batch
from testkit.virtual.client_bytes import batch_bytes
from testkit.virtual.kafka_bytes import DESCRIBE_PRODUCERS
from testkit.virtual.library_client import TOPIC, Client, World, fetched, produce_request, wrapper
from testkit.virtual.releases import KEEPS_2_8, KEEPS_3_9, RAISED_2_8, RAISED_3_9, RAISED_4_3, Release

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 warns of
    from kafka.protocol.admin import (
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        DescribeProducersRequest,
        DescribeProducersResponse,
    )
    from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
    from kafka.protocol.producer import (
        InitProducerIdRequest,
        InitProducerIdResponse,
        ProduceRequest,
        ProduceResponse,
    )
    from kafka.record.memory_records import MemoryRecords

FORMAT, PROTOCOL = "log.message.format.version", "inter.broker.protocol.version"
OUT_OF_ORDER, FENCED, OTHER_FORMAT, NOT_LEADER, UNKNOWN_TOPIC, INVALID_RECORD = 45, 47, 43, 6, 3, 87
_BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
PRODUCER = 4_000_000_000


def upgraded(release: Release = RAISED_2_8) -> tuple[World, Client]:
    """A world whose first broker, which leads partition 0, is of this release."""
    world = World()
    world.cluster.upgrade_broker(1, release, is_clean=False, down_seconds=0.1)
    world.cluster.move_leader(TOPIC, 0, 2, keep=True)
    world.network.run(1)
    world.cluster.move_leader(TOPIC, 0, 1, keep=True)
    return world, world.connect(1)


def batch(sequence: int, count: int = 1, *, epoch: int = 0, codec: int = 0, producer: int = PRODUCER) -> bytes:
    values = [b"%d" % number for number in range(sequence, sequence + count)]
    return batch_bytes(values, producer, epoch, sequence, 1_700_000_000_000, codec)


def produce(world: World, client: Client, data: bytes, version: int = 7) -> tuple[int, int] | None:
    """Error code and base offset."""
    request = produce_request([(0, data)])
    if version >= 3:
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1500, topic_data=request.topic_data)
    answer = world.ask(client, request, version, ProduceResponse)
    if answer is None:
        return None
    (partition,) = answer.responses[0].partition_responses
    return partition.error_code, partition.base_offset


def known(world: World, client: Client, topic: str = TOPIC, partition: int = 0) -> Any:
    """What the broker tells of the producers of a partition."""
    asked = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
    before = len(client.frames)
    client.send(DescribeProducersRequest(topics=[asked]), 0)
    assert world.network.run(5, lambda: len(client.frames) > before)
    assert client.frames[-1][4:5] == b"\0"  # the header's tagged fields
    answer = DescribeProducersResponse.decode(client.frames[-1][5:], version=0)
    (found,) = answer.topics[0].partitions
    return found


@pytest.mark.parametrize("version", [3, 5, 7, 8])
@pytest.mark.parametrize("release", [RAISED_2_8, RAISED_3_9])
def test_batches_are_appended_in_every_version_that_carries_them(version: int, release: Release) -> None:
    world, client = upgraded(release)
    assert produce(world, client, batch(0, 3), version) == (0, 0)
    assert produce(world, client, batch(3, 2), version) == (0, 3)
    assert world.log.end_offset == 5
    assert world.cluster.all_violations() == []


def test_sequences_are_judged_as_brokers_do_since_2_5() -> None:
    world, client = upgraded()
    assert produce(world, client, batch(7, 2)) == (0, 0)  # it is not known: any sequence
    assert produce(world, client, batch(9)) == (0, 2)
    assert produce(world, client, batch(7, 2)) == (0, 0)  # a duplicate
    assert produce(world, client, batch(11)) == (OUT_OF_ORDER, -1)
    assert produce(world, client, batch(7)) == (OUT_OF_ORDER, -1)
    assert produce(world, client, batch(3, epoch=1)) == (OUT_OF_ORDER, -1)
    assert produce(world, client, batch(0, epoch=1)) == (0, 3)
    assert produce(world, client, batch(10)) == (FENCED, -1)
    for sequence in range(1, 7):
        assert produce(world, client, batch(sequence, epoch=1)) == (0, 3 + sequence)
    assert produce(world, client, batch(2, epoch=1)) == (0, 5)  # the last five
    assert produce(world, client, batch(1, epoch=1)) == (OUT_OF_ORDER, -1)
    assert world.log.end_offset == 10


def test_what_brokers_know_of_producers_is_in_the_log_for_any_leader() -> None:
    world, client = upgraded()
    assert (found := known(world, client)).error_code == 0
    assert found.active_producers == []
    produce(world, client, batch(0, 4))
    produce(world, client, batch(5, producer=PRODUCER + 1, epoch=2))
    world.cluster.upgrade_broker(2, RAISED_2_8, is_clean=True, down_seconds=0.1)
    world.network.run(1)
    world.cluster.move_leader(TOPIC, 0, 2, keep=True)
    other = world.connect(2)
    rows = [(row.producer_id, row.producer_epoch, row.last_sequence) for row in known(world, other).active_producers]
    assert rows == [(PRODUCER, 0, 3), (PRODUCER + 1, 2, 5)]
    assert produce(world, other, batch(0, 4)) == (0, 0)
    assert known(world, client).error_code == NOT_LEADER
    assert known(world, client, "nobodys").error_code == UNKNOWN_TOPIC


def test_what_is_cut_off_is_not_known_any_more() -> None:
    world, client = upgraded()
    produce(world, client, batch(0))
    world.cluster.partitions[TOPIC, 0].stalled_until = world.network.now + 60
    assert produce(world, client, batch(1)) == (7, 1)  # it was not replicated in time
    world.cluster.move_leader(TOPIC, 0, 1, truncate_to=1)
    (row,) = known(world, client).active_producers
    assert row.last_sequence == 0
    assert produce(world, client, batch(1)) == (0, 1)


@pytest.mark.parametrize("release", [KEEPS_2_8, KEEPS_3_9])
def test_brokers_of_message_format_v1_give_no_idempotence_and_keep_batch_markers(release: Release) -> None:
    world, client = upgraded(release)
    assert produce(world, client, batch(0)) == (OTHER_FORMAT, -1)
    assert produce(world, client, wrapper([b"a", b"b"]), version=2) == (0, 0)
    assert parse_batch_marker(world.log.messages[0].message.key) is not None


def test_a_broker_with_its_own_format_drops_batch_markers() -> None:
    world, client = upgraded()
    assert produce(world, client, wrapper([b"a", b"b"]), version=2) == (0, 0)
    assert parse_batch_marker(world.log.messages[0].message.key) is None


def test_an_old_broker_does_not_take_batches() -> None:
    world = World()
    client = world.connect()
    assert produce(world, client, batch(0)) is None
    assert client.reason is not None


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_batches_are_read_as_they_are_or_in_message_format_v1(codec: int) -> None:
    world, client = upgraded()
    produce(world, client, wrapper([b"x", b"y"]), version=2)
    produce(world, client, batch(0, 3, codec=codec))
    produce(world, client, batch(3, 2, codec=codec))
    for version, magics in ((4, [2, 2]), (3, [1] * len(_batches(fetched(world, client, 2, version=3).records)))):
        found = _batches(fetched(world, client, 2, version=version).records)
        assert [magic for magic, _ in found] == magics
        assert [record for _, records in found for record in records] == [(2 + at, b"%d" % at) for at in range(5)]


def _batches(data: bytes) -> list[tuple[int, list[tuple[int, bytes]]]]:
    found, batches = [], MemoryRecords(data)
    while batches.has_next():
        one = batches.next_batch()
        found.append((one.magic, [(record.offset, record.value) for record in one]))
    return found


@pytest.mark.parametrize(
    ("release", "told"),
    [
        (KEEPS_2_8, {FORMAT: "0.10.2", PROTOCOL: "2.8"}),
        (RAISED_2_8, {FORMAT: "2.8", PROTOCOL: "2.8"}),
        (RAISED_3_9, {FORMAT: "0.10.2", PROTOCOL: "3.9"}),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_broker_tells_its_own_settings(release: Release, told: dict[str, str], version: int) -> None:
    world, client = upgraded(release)
    resource = DescribeConfigsRequest.DescribeConfigsResource
    asked = resource(resource_type=4, resource_name="1", configuration_keys=[FORMAT, PROTOCOL, "nothing"])
    request = DescribeConfigsRequest(resources=[asked], include_synonyms=False)
    answer = world.ask(client, request, version, DescribeConfigsResponse)
    (result,) = answer.results
    assert (result.error_code, result.resource_type, result.resource_name) == (0, 4, "1")
    assert {config.name: config.value for config in result.configs} == told


def test_ranges_ids_and_metadata() -> None:
    world, client = upgraded(RAISED_3_9)
    ranges = world.ask(client, ApiVersionsRequest(), 0, ApiVersionsResponse)
    told = {row.api_key: (row.min_version, row.max_version) for row in ranges.api_keys}
    assert told == dict(RAISED_3_9.ranges)
    assert told[DESCRIBE_PRODUCERS] == (0, 0)
    ids = {
        world.ask(client, InitProducerIdRequest(transaction_timeout_ms=1), 1, InitProducerIdResponse).producer_id
        for _ in range(3)
    }
    assert len(ids) == 3
    for version in (3, 4):
        topics = [MetadataRequest.MetadataRequestTopic(name=TOPIC)]
        answer = world.ask(client, MetadataRequest(topics=topics), version, MetadataResponse)
        assert [row.partition_index for row in answer.topics[0].partitions] == [0, 1]


def test_an_upgrade_waits_for_the_next_life() -> None:
    world = World()
    broker = world.cluster.brokers[1]
    world.cluster.upgrade_broker(1, KEEPS_2_8, is_clean=True, down_seconds=1.0)
    assert world.cluster.partitions[TOPIC, 0].leader == 2, "it has given its partition away first"
    assert not broker.is_up
    world.cluster.upgrade_broker(1, RAISED_2_8, is_clean=True)
    world.network.run(2)
    assert (broker.is_up, broker.release, broker.lives) == (True, RAISED_2_8, 2)


def test_another_format_than_the_version_carries_is_a_violation() -> None:
    world, client = upgraded()
    produce(world, client, batch(0), version=2)
    assert world.cluster.all_violations() == [f"Produce 2 with another format for {TOPIC}-0"]


def test_a_topic_with_message_format_v1_keeps_it_at_every_broker() -> None:
    world, client = upgraded()
    world.log.keeps_old_format = True
    assert produce(world, client, batch(0)) == (OTHER_FORMAT, -1)
    assert produce(world, client, wrapper([b"a"]), version=2) == (0, 0)
    assert parse_batch_marker(world.log.messages[0].message.key) is not None
    world.log.keeps_old_format = False
    assert produce(world, client, batch(0)) == (0, 1)


# ---------------------------------------------------------------------- batches without a producer id
MARKER = 0x1234, 0x12345678
"""Producer epoch and base sequence: nobody checks them."""


def marked(count: int, *, codec: int = 0, first: int = 0) -> bytes:
    values = [b"%d" % number for number in range(first, first + count)]
    return batch_bytes(values, -1, *MARKER, 1_700_000_000_000, codec)


def headers(world: World, client: Client, version: int) -> list[tuple[int, int, int, int, int, int]]:
    """Of what is read there: base offset, last offset delta, codec, and the fields of the producer."""
    data, found = fetched(world, client, world.log.start_offset, version=version).records, []
    while data:
        base, size, _, _, _, attributes, last, _, _, *producer = _BATCH_HEADER.unpack_from(data)
        found.append((base, last, attributes & 7, *producer[:3]))
        data = data[12 + size :]
    return found


@pytest.mark.parametrize("version", [3, 7])
@pytest.mark.parametrize("release", [RAISED_2_8, RAISED_3_9, RAISED_4_3])
def test_a_batch_without_a_producer_id_is_appended_each_time_it_comes(version: int, release: Release) -> None:
    world, client = upgraded(release)
    assert [produce(world, client, marked(3), version) for _ in range(2)] == [(0, 0), (0, 3)]
    expected = [(0, 2, 0, -1, *MARKER), (3, 2, 0, -1, *MARKER)]
    assert headers(world, client, 4) == headers(world, client, 10) == expected
    assert world.log.producers == {}
    world.log.truncate(3, unclean=True)
    assert headers(world, client, 10) == expected[:1]


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_a_topics_compression_packs_a_batch_again_and_keeps_its_header(codec: int) -> None:
    world, client = upgraded()
    world.log.compression = codec
    for own in range(4):
        assert produce(world, client, marked(3, codec=own)) == (0, 3 * own)
    assert headers(world, client, 4) == [(3 * number, 2, codec, -1, *MARKER) for number in range(4)]
    found = _batches(fetched(world, client, 0, version=4).records)
    assert [[value for _, value in records] for _, records in found] == [[b"0", b"1", b"2"]] * 4


@pytest.mark.parametrize("codec", [0, 1])
def test_compaction_takes_records_of_a_batch_and_leaves_its_header(codec: int) -> None:
    world, client = upgraded()
    for first in (0, 4, 8):
        produce(world, client, marked(4, codec=codec, first=first))
    world.log.advance(12)
    assert world.log.compact(1, [0, 3])
    assert world.log.compact(0, [0, 1, 2, 3])
    assert headers(world, client, 4) == [(4, 3, codec, -1, *MARKER), (8, 3, codec, -1, *MARKER)]
    for version in (3, 4):
        found = _batches(fetched(world, client, 0, version=version).records)
        assert [record for _, records in found for record in records][:3] == [(5, b"5"), (6, b"6"), (8, b"8")]


@pytest.mark.parametrize("codec", [0, 1])
def test_a_broker_of_message_format_v1_stores_such_a_batch_without_its_marker(codec: int) -> None:
    world, client = upgraded(KEEPS_2_8)
    assert produce(world, client, marked(3, codec=codec)) == (0, 0)
    assert {stored.message.magic for stored in world.log.messages} == {1}
    assert {stored.message.key for stored in world.log.messages} <= {None, b"key"}
    found = _batches(fetched(world, client, 0).records)
    assert [record for _, records in found for record in records] == [(at, b"%d" % at) for at in range(3)]


def test_from_version_3_on_there_has_to_be_a_batch() -> None:
    world, client = upgraded(RAISED_3_9)
    assert produce(world, client, b"", version=3) == (INVALID_RECORD, -1)
    assert produce(world, client, b"", version=2) == (0, -1)


def test_what_was_sent_tells_what_a_marker_stands_for() -> None:
    world, client = upgraded()
    world.network.sent.note(PRODUCER, 1, 7, 3)
    sent = encode_batch(
        [Record(delta, 0, None, b"v") for delta in range(3)], producer_id=PRODUCER, producer_epoch=1, base_sequence=7
    )
    produce(world, client, bytes(marked_batch(memoryview(sent), Identity(PRODUCER, 1, 7, 3))))
    produce(world, client, bytes(marked_batch(memoryview(sent), Identity(PRODUCER, 1, 8, 3))))
    assert [stored.message.marked_as for stored in world.log.messages] == [(PRODUCER, 1, 7, 3), None]
