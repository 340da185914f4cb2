"""The virtual cluster, spoken to with kafka-python's bytes: what it stores and answers, and what its faults do."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from idemproxy.codecs.batch_marker import Identity, parse_batch_marker
from idemproxy.codecs.message_set import encode_message
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates
from testkit.virtual.cluster import ClusterSettings, VirtualCluster
from testkit.virtual.library_client import (
    TOPIC,
    World,
    fetched,
    list_offsets_request,
    produce_request,
    wrapper,
)
from testkit.virtual.network import Network

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 warns of
    from kafka.protocol.consumer import ListOffsetsResponse
    from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
    from kafka.protocol.producer import ProduceResponse
    from kafka.record.memory_records import MemoryRecords


def test_wrappers_keep_their_key_and_readers_find_every_record_at_its_offset() -> None:
    world = World()
    client = world.connect()
    assert world.produce(client, wrapper([b"a", b"b"])) == (0, 0)
    assert world.produce(client, wrapper([b"c"], 2)) == (0, 2)
    assert world.produce(client, wrapper([b"d", b"e", b"f"], 3)) == (0, 3)
    assert [parse_batch_marker(stored.message.key) for stored in world.log.messages] == [
        (Identity(5, 0, 0, 2),),
        (Identity(5, 0, 2, 1),),
        (Identity(5, 0, 3, 3),),
    ]
    partition = fetched(world, client, 0)
    assert partition.high_watermark == 6
    found = []
    batches = MemoryRecords(partition.records)
    while batches.has_next():
        found += [(record.offset, record.value, record.timestamp) for record in batches.next_batch()]
    assert [(offset, value) for offset, value, _ in found] == list(enumerate([b"a", b"b", b"c", b"d", b"e", b"f"]))
    assert found[1][2] == 1001
    assert world.cluster.all_violations() == []


def test_plain_messages_are_stored_as_well() -> None:
    world = World()
    client = world.connect()
    plain = encode_message(b"k", b"v", magic=1, offset=0, timestamp=5) + encode_message(
        b"k", b"w", magic=1, offset=1, timestamp=6
    )
    assert world.produce(client, plain) == (0, 0)
    assert world.log.end_offset == 2
    at = world.log.at(1)
    assert at is not None
    assert at[1].value == b"w"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_produce_is_answered_in_its_layout(version: int) -> None:
    world = World()
    assert world.produce(world.connect(), wrapper([b"a"]), version=version) == (0, 0)


def test_what_is_not_appended_has_base_offset_minus_one() -> None:
    world = World()
    client = world.connect()
    broken = bytearray(wrapper([b"a"]))
    broken[-1] ^= 1
    assert world.produce(client, bytes(broken)) == (2, -1)
    assert world.produce(client, b"") == (0, -1)
    assert world.produce(world.connect(2), wrapper([b"a"])) == (6, -1)
    world.log.message_bytes_max = 50
    assert world.produce(client, wrapper([b"a" * 100])) == (10, -1)
    assert world.log.end_offset == 0


def test_the_high_watermark_lags_and_acks_wait_for_it() -> None:
    world = World(settings=ClusterSettings(replication_lag=(0.5, 0.5)))
    client = world.connect()
    started = world.network.now
    client.send(produce_request([(0, wrapper([b"a"]))]), 2)
    world.network.run(0.2)
    assert (world.log.end_offset, world.log.high_watermark) == (1, 0)
    other = world.connect()
    for replica, expected in ((-1, 0), (-3, 1), (-2, 1)):
        answer = world.ask(other, list_offsets_request(replica), 1, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].offset == expected
    assert len(fetched(world, other, 0).records or b"") == 0
    assert world.network.run(1, lambda: bool(client.frames))
    assert world.network.now - started > 0.5
    assert world.log.high_watermark == 1


def test_acks_that_do_not_come_in_time_give_code_7_with_the_base_offset() -> None:
    world = World(settings=ClusterSettings(replication_lag=(5, 5)))
    assert world.produce(world.connect(), wrapper([b"a"])) == (7, 0)
    assert world.log.end_offset == 1


def test_list_offsets_of_a_follower_is_refused_but_for_the_debugging_replica() -> None:
    world = World()
    world.produce(world.connect(), wrapper([b"a"]))
    follower = world.connect(2)
    for replica, code in ((-1, 6), (-3, 6), (-2, 0)):
        answer = world.ask(follower, list_offsets_request(replica), 1, ListOffsetsResponse)
        assert answer.topics[0].partitions[0].error_code == code
    answer = world.ask(world.connect(), list_offsets_request(-1, -2), 0, ListOffsetsResponse)
    assert list(answer.topics[0].partitions[0].old_style_offsets) == [0]


def test_fetch_cuts_a_message_before_version_3_and_never_gives_nothing_from_it_on() -> None:
    world = World()
    client = world.connect()
    world.produce(client, wrapper([b"a" * 500]))
    assert len(fetched(world, client, 0, 2, partition_bytes=100).records) == 100
    assert len(fetched(world, client, 0, 3, partition_bytes=100).records) > 500
    assert fetched(world, client, 9).error_code == 1
    started = world.network.now
    assert len(fetched(world, client, 1, wait_ms=300).records or b"") == 0
    assert world.network.now - started >= 0.3


def test_metadata_and_api_versions_are_those_of_0_10_2() -> None:
    world = World()
    client = world.connect()
    for version in (0, 1, 2):
        topics: list[Any] | None = [] if version == 0 else None
        answer = world.ask(client, MetadataRequest(topics=topics), version, MetadataResponse)
        assert [(broker.node_id, broker.host) for broker in answer.brokers] == [(1, "kafka-1"), (2, "kafka-2")]
        assert [(part.partition_index, part.leader_id) for part in answer.topics[0].partitions] == [(0, 1), (1, 2)]
    assert answer.cluster_id == "virtual-cluster"
    assert not world.ask(client, MetadataRequest(topics=[]), 1, MetadataResponse).topics
    ranges = {
        row.api_key: row.max_version for row in world.ask(client, ApiVersionsRequest(), 0, ApiVersionsResponse)[1]
    }
    assert (ranges[0], ranges[1], ranges[19], 22 in ranges) == (2, 3, 1, False)


def test_an_unknown_version_closes_the_connection() -> None:
    world = World()
    client = world.connect()
    client.send(produce_request([(0, b"")]), 3)
    world.network.run(1)
    assert client.reason is not None
    assert world.log.end_offset == 0


def test_two_wrappers_in_one_set_and_a_partition_twice_are_violations() -> None:
    world = World()
    client = world.connect()
    world.produce(client, wrapper([b"a"]) + wrapper([b"b"]))
    assert any("2 wrappers" in what for what in world.cluster.all_violations())
    client.send(produce_request([(0, wrapper([b"c"])), (0, wrapper([b"d"]))]), 2)
    world.network.run(1)
    assert any("twice" in what for what in world.cluster.all_violations())
    last = world.log.messages[-1].message.records[-1]
    assert last.value == b"d", "the last one wins"
    assert world.log.end_offset == 3


def test_a_second_produce_before_the_answer_is_a_violation_and_waits_its_turn() -> None:
    world = World(settings=ClusterSettings(replication_lag=(0.2, 0.2)))
    client = world.connect()
    client.send(produce_request([(0, wrapper([b"a"]))]), 2, 1)
    client.send(produce_request([(0, wrapper([b"b"]))]), 2, 2)
    world.network.run(0.1)
    assert world.log.end_offset == 1
    world.network.run(1)
    assert [frame[:4] for frame in client.frames] == [b"\0\0\0\1", b"\0\0\0\2"]
    assert any("R3" in what for what in world.cluster.all_violations())


def test_acks_0_has_no_answer_and_is_no_violation_when_pipelined() -> None:
    world = World()
    client = world.connect()
    for value in (b"a", b"b", b"c"):
        client.send(produce_request([(0, wrapper([value]))], acks=0), 2)
    world.network.run(1)
    assert (world.log.end_offset, client.frames) == (3, [])
    assert world.cluster.all_violations() == []


@pytest.mark.parametrize(
    ("fault", "appended", "answered"),
    [
        (BrokerFault.LOST_REQUEST, False, False),
        (BrokerFault.LOST_ANSWER, True, False),
        (BrokerFault.STRAGGLER, True, False),
        (BrokerFault.SLOW, True, True),
        (BrokerFault.LATE_ANSWER, True, True),
        (BrokerFault.REFUSED, False, True),
        (BrokerFault.ERROR_AFTER_APPEND, True, True),
    ],
)
def test_a_fault_does_what_its_name_says(fault: BrokerFault, appended: bool, answered: bool) -> None:
    world = World()
    world.fault(fault)
    client = world.connect()
    answer = world.produce(client, wrapper([b"a"]))
    assert (answer is not None) == answered
    assert (client.reason is None) == answered
    world.network.run(5)
    assert (world.log.end_offset == 1) == appended
    if fault is BrokerFault.REFUSED:
        assert answer[0] != 0
        assert answer[1] == -1
    if fault is BrokerFault.ERROR_AFTER_APPEND:
        assert answer[0] in (3, 6, 7, 20)
        assert answer[1] == 0


def test_a_straggler_is_appended_within_the_quiescence_check_of_its_lost_connection() -> None:
    world = World(rates=BrokerFaultRates(straggle=(0.7, 0.7)))
    world.fault(BrokerFault.STRAGGLER)
    client = world.connect()
    client.send(produce_request([(0, wrapper([b"a"]))]), 2)
    assert world.network.run(0.1, lambda: client.reason is not None)
    assert world.log.end_offset == 0
    world.network.run(0.6)
    assert world.log.end_offset == 0
    world.network.run(0.2)
    assert world.log.end_offset == 1


def test_a_request_that_has_arrived_is_executed_though_its_connection_died() -> None:
    world = World(rates=BrokerFaultRates(slow=(0.5, 0.5)))
    world.fault(BrokerFault.SLOW)
    client = world.connect()
    client.send(produce_request([(0, wrapper([b"a"]))]), 2)
    world.network.run(0.1)
    assert client.wire is not None
    client.wire.reset()
    world.network.run(1)
    assert world.log.end_offset == 1


def test_a_moved_leader_returns_not_leader_with_offset_and_may_lose_records() -> None:
    ends = set()
    for seed in range(12):
        world = World(settings=ClusterSettings(replication_lag=(0.2, 0.2)))
        world.network.random.seed(seed)
        client = world.connect()
        world.produce(client, wrapper([b"a"]))
        client.send(produce_request([(0, wrapper([b"b", b"c"], 1))]), 2)
        world.network.run(0.1)
        assert world.log.end_offset == 3
        world.cluster.move_leader(TOPIC, 0, 2)
        world.network.run(1)
        partition = ProduceResponse.decode(client.frames[-1][4:], version=2).responses[0].partition_responses[0]
        assert (partition.error_code, partition.base_offset) == (6, 1)
        assert world.log.high_watermark == world.log.end_offset
        ends.add(world.log.end_offset)
    assert ends == {1, 3}


def test_a_broker_that_crashes_comes_back_and_its_partitions_have_a_leader_again() -> None:
    world = World()
    client = world.connect()
    world.produce(client, wrapper([b"a"]))
    world.cluster.crash_broker(1)
    world.network.run(10)
    assert all(partition.leader is not None for partition in world.cluster.partitions.values())
    assert all(broker.is_up for broker in world.cluster.brokers.values())
    assert world.log.messages[0].message.records[0].value == b"a"


def test_a_lone_broker_keeps_its_log_over_a_crash() -> None:
    network = Network(3)
    cluster = VirtualCluster(network, {TOPIC: 1}, broker_count=1)
    log = cluster.log(TOPIC, 0)
    log.append(wrapper([b"a"]), 0.0)
    cluster.crash_broker(1, down_seconds=1.0)
    network.run(5)
    assert cluster.partitions[TOPIC, 0].leader == 1
    assert (log.end_offset, log.high_watermark) == (1, 1)


def test_a_topic_that_recompresses_loses_the_batch_marker_and_keeps_the_records() -> None:
    world = World()
    world.log.keeps_wrapper_keys = False
    client = world.connect()
    assert world.produce(client, wrapper([b"a", b"b"])) == (0, 0)
    assert world.log.messages[0].message.key is None
    batches = MemoryRecords(fetched(world, client, 0).records)
    assert [record.value for record in batches.next_batch()] == [b"a", b"b"]
