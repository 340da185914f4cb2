"""What happens to a virtual log by other hands, read back with kafka-python's bytes."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from idemproxy.codecs.batch_marker import parse_batch_marker
from testkit.virtual.broker_faults import BrokerFault
from testkit.virtual.cluster import ClusterSettings
from testkit.virtual.kafka_bytes import Reader
from testkit.virtual.library_client import TOPIC, Client, World, fetched, list_offsets_request, produce_request, wrapper

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 warns of
    from kafka.protocol.consumer import ListOffsetsResponse
    from kafka.protocol.producer import ProduceResponse
    from kafka.record.memory_records import MemoryRecords

EARLIEST = -2


def filled() -> tuple[World, Client]:
    """A log with three messages: a, b | c | d, e, f."""
    world = World()
    client = world.connect()
    for values, sequence in (([b"a", b"b"], 0), ([b"c"], 2), ([b"d", b"e", b"f"], 3)):
        assert world.produce(client, wrapper(values, sequence))[0] == 0
    return world, client


def records_at(world: World, client: Client, offset: int) -> list[tuple[int, bytes]]:
    """What a consumer reads from there on: (offset, value)."""
    found = []
    batches = MemoryRecords(fetched(world, client, offset).records)
    while batches.has_next():
        found += [(record.offset, record.value) for record in batches.next_batch()]
    return found


def earliest(world: World, client: Client) -> int:
    answer: Any = world.ask(client, list_offsets_request(-1, EARLIEST), 1, ListOffsetsResponse)
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def test_retention_deletes_whole_messages_from_the_start_and_reading_there_is_out_of_range() -> None:
    world, client = filled()
    world.log.retain(3)
    assert earliest(world, client) == 3
    assert records_at(world, client, 3) == [(3, b"d"), (4, b"e"), (5, b"f")]
    assert fetched(world, client, 0).error_code == 1
    assert world.produce(client, wrapper([b"g"], 6)) == (0, 6)
    assert [stored.first_offset for stored in world.log.history] == [0, 2, 3, 6]


def test_compaction_leaves_the_other_records_at_their_offsets_without_a_batch_marker() -> None:
    world, client = filled()
    assert world.log.compact(0, [0])
    assert world.log.compact(1, [0])
    assert not world.log.compact(1, [0, 1, 2]), "the active segment is not compacted"
    assert records_at(world, client, 0) == [(1, b"b"), (3, b"d"), (4, b"e"), (5, b"f")]
    assert [parse_batch_marker(stored.message.key) is not None for stored in world.log.messages] == [False, True]
    assert (world.log.at(0), world.log.at(2)) == (None, None)
    was = world.log.was_at(0)
    assert was is not None
    assert was[1].value == b"a"


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_a_topic_with_its_own_codec_recompresses_batches_of_another_codec(codec: int) -> None:
    world = World()
    world.log.compression = codec
    client = world.connect()
    assert world.produce(client, wrapper([b"a", b"b"])) == (0, 0)
    assert world.produce(client, wrapper([b"c"], 2)) == (0, 2)
    assert records_at(world, client, 0) == [(0, b"a"), (1, b"b"), (2, b"c")]
    keeps = codec == 1  # what the proxy packs for a producer without compression is gzip
    assert [parse_batch_marker(stored.message.key) is not None for stored in world.log.messages] == (
        [keeps] * (3 if codec == 0 else 2)
    )
    assert all(parse_batch_marker(stored.message.key) for stored in world.log.history)


@pytest.mark.parametrize("compression", [None, 0, 1, 2])
def test_a_topic_of_format_0_keeps_records_and_offsets_and_no_batch_markers(compression: int | None) -> None:
    world = World()
    world.log.message_format, world.log.compression = 0, compression
    client = world.connect()
    assert world.produce(client, wrapper([b"a", b"b"])) == (0, 0)
    assert world.produce(client, wrapper([b"c"], 2)) == (0, 2)
    assert records_at(world, client, 0) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert {stored.message.magic for stored in world.log.messages} == {0}
    assert not any(stored.message.inner and stored.message.key for stored in world.log.messages)
    assert {stored.message.magic for stored in world.log.history} == {1}, "what was sent is still known"


def test_an_unclean_election_takes_what_was_replicated_and_it_is_known_what() -> None:
    world, client = filled()
    with pytest.raises(AssertionError, match="unclean"):
        world.cluster.move_leader(TOPIC, 0, 2, truncate_to=2)
    world.cluster.move_leader(TOPIC, 0, 2, truncate_to=2, unclean=True)
    world.network.run(1.0)
    assert world.produce(client, wrapper([b"g"], 6)) == (6, -1)
    assert world.produce(world.connect(2), wrapper([b"g"], 6)) == (0, 2)
    assert [stored.first_offset for stored in world.log.lost] == [3, 2]
    assert world.log.truncated == []


def test_a_topic_that_is_deleted_is_unknown_and_comes_back_empty() -> None:
    world, client = filled()
    world.cluster.delete_topic(TOPIC, 1.0)
    assert world.produce(client, wrapper([b"g"], 6)) == (3, -1)
    assert fetched(world, client, 0).error_code == 3
    world.network.run(2.0)
    leader = world.cluster.partitions[TOPIC, 0].leader
    assert leader is not None
    assert world.produce(world.connect(leader), wrapper([b"g"], 6)) == (0, 0)
    assert len(world.log.lost) == 3


def test_a_produce_that_waits_for_replication_learns_that_its_topic_is_deleted() -> None:
    world = World(settings=ClusterSettings(replication_lag=(0.5, 0.5)))
    client = world.connect()
    client.send(produce_request([(0, wrapper([b"a"]))]), 2)
    world.network.run(0.2)
    world.cluster.delete_topic(TOPIC, 1.0)
    world.network.run(0.2)
    answer = ProduceResponse.decode(client.frames[-1][4:], version=2)
    assert answer.responses[0].partition_responses[0].error_code == 3


def test_quotas_hold_an_answer_and_all_after_it_and_name_the_duration() -> None:
    world = World()
    client = world.connect()
    world.cluster.throttle = 10.0, 2.0
    client.send(produce_request([(0, wrapper([b"a"]))]), 2)
    client.send(list_offsets_request(-1), 1)
    world.network.run(1.5)
    assert client.frames == []
    assert world.log.end_offset == 1
    world.network.run(1.5)
    assert len(client.frames) == 2
    assert Reader(client.frames[0][-4:]).int32() == 2000


@pytest.mark.parametrize("seed", range(8))
def test_a_torn_answer_is_of_a_batch_that_was_appended(seed: int) -> None:
    world = World()
    world.network.random.seed(seed)
    world.fault(BrokerFault.TORN_ANSWER)
    client = world.connect()
    client.send(produce_request([(0, wrapper([b"a"]))]), 2)
    world.network.run(2.0)
    assert client.reason is not None
    assert client.frames == []
    assert world.log.end_offset == 1


def test_an_incomplete_answer_is_of_a_batch_that_was_appended_and_names_no_partition() -> None:
    world = World()
    world.fault(BrokerFault.INCOMPLETE_ANSWER)
    client = world.connect()
    client.send(produce_request([(0, wrapper([b"a"]))]), 2)
    world.network.run(2.0)
    assert ProduceResponse.decode(client.frames[0][4:], version=2).responses == []
    assert world.log.end_offset == 1
