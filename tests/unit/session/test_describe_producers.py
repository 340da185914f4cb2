"""Where producers stopped (DescribeProducers): what is reported of them, and what is found out before that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.messages import decode_response, encode_request
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.describe_producers import (
    PARTITIONS_MAX,
    ActiveProducer,
    DescribedPartition,
    Place,
    encode_describe_producers,
    parse_describe_producers,
)
from idemproxy.state.commit import fresh
from idemproxy.state.entry import NO_PRINCIPAL, WindowBatch, principal_of, unpack
from idemproxy.state.store import entry_key, partition_index_key
from testkit.virtual.broker_faults import BrokerFault
from testkit.virtual.client import VirtualClient
from testkit.virtual.log import PartitionLog
from testkit.virtual.named_scene import NamedScene
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.world import TOPIC

PLACE = (TOPIC, 0)
INDEX = partition_index_key(CLUSTER_NAME, *PLACE)


class Asking:
    """A question to one of the proxies."""

    def __init__(self, scene: NamedScene, proxy: int, places: Sequence[Place], principal: bytes) -> None:
        self.answers: list[Sequence[DescribedPartition]] = []
        scene.world.proxies[proxy].engine.describe_producers(places, principal, self.answers.append)


def described(
    scene: NamedScene, proxy: int = 0, *places: Place, principal: bytes = NO_PRINCIPAL, seconds_max: float = 30.0
) -> Sequence[DescribedPartition]:
    asking = Asking(scene, proxy, places or [PLACE], principal)
    assert scene.network.run(seconds_max, lambda: bool(asking.answers)), "no answer"
    (answer,) = asking.answers
    return answer


def rows(scene: NamedScene, proxy: int = 0, principal: bytes = NO_PRINCIPAL) -> list[tuple[int, int, int]]:
    (one,) = described(scene, proxy, principal=principal)
    assert (one.error_code, one.message) == (ErrorCode.NONE, None)
    return [(row.producer_id, row.producer_epoch, row.last_sequence) for row in one.producers]


@pytest.fixture
def scene() -> NamedScene:
    return NamedScene()


def test_a_producer_with_a_name_is_reported_by_every_proxy(scene: NamedScene) -> None:
    client = scene.instance()
    scene.send(client)
    scene.send(client)
    sent = scene.send(client, 1).sent_as[-1]
    expected = [(client.producer.producer_id, 0, 1)]
    assert rows(scene, 0) == rows(scene, 1) == expected
    first, second = described(scene, 1, PLACE, (TOPIC, 1))
    assert (first.partition, second.partition) == (0, 1)
    assert second.producers == (ActiveProducer(sent.producer_id, 0, sent.base_sequence + sent.record_count - 1),)


def test_a_producer_without_a_name_is_reported_where_it_was_at_work(scene: NamedScene) -> None:
    client = VirtualClient(scene.network, "no-name", [scene.world.proxies[0].address])
    scene.send(client)
    assert rows(scene, 0) == [(client.producer.producer_id, 0, 0)]
    assert rows(scene, 1) == []


@pytest.mark.promise("name-last-batch")
def test_what_a_dead_proxy_has_left_open_is_found_out_first(scene: NamedScene) -> None:
    client = scene.instance()
    scene.send(client)
    proxy = scene.world.proxies[0]
    batch = client.send(TOPIC, 0)
    assert scene.network.run(5.0, lambda: len(scene.stored()) == 2), "it is in the log"
    client.close()
    proxy.crash(down_seconds=None)
    assert not batch.is_done
    producer_id = client.producer.producer_id
    stored = scene.world.redis.get(entry_key(CLUSTER_NAME, producer_id, *PLACE))
    assert stored is not None
    assert unpack(stored).has_open_intent
    assert rows(scene, 1) == [(producer_id, 0, 1)]


def test_an_open_batch_that_is_not_in_the_log_is_not_reported(scene: NamedScene) -> None:
    client = scene.instance()
    scene.send(client)
    scene.world.cluster.choose_fault = lambda _seen: BrokerFault.LOST_REQUEST
    client.send(TOPIC, 0)
    producer_id = client.producer.producer_id
    key = entry_key(CLUSTER_NAME, producer_id, *PLACE)
    assert scene.network.run(5.0, lambda: unpack(scene.world.redis.get(key) or b"").has_open_intent)
    scene.world.proxies[0].crash(down_seconds=None)
    client.close()
    scene.world.cluster.choose_fault = lambda _seen: BrokerFault.NONE
    assert rows(scene, 1) == [(producer_id, 0, 0)]
    assert len(scene.stored()) == 1


@pytest.mark.promise("name-last-batch")
def test_after_a_loss_of_redis_the_log_is_read_first(scene: NamedScene) -> None:
    client = scene.instance()
    scene.send(client)
    key = entry_key(CLUSTER_NAME, client.producer.producer_id, *PLACE)
    scene.network.run(1.0)
    before = scene.world.redis.get(key)
    scene.send(client)
    scene.network.run(1.0)
    scene.world.redis.put(key, before)
    scene.world.redis.restart()
    scene.network.run(15.0)
    assert rows(scene, 1) == [(client.producer.producer_id, 0, 1)]


def test_what_a_demoted_redis_master_says_is_not_reported(scene: NamedScene) -> None:
    client = scene.instance()
    scene.send(client)
    scene.network.run(1.0)
    redis = scene.world.redis
    redis.demote(2.0)
    (one,) = described(scene, 1)
    assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER or redis.server.role == "master"
    scene.network.run(20.0)
    assert rows(scene, 1) == [(client.producer.producer_id, 0, 0)]


def test_a_report_costs_an_entry_one_version_and_its_producer_no_error(scene: NamedScene) -> None:
    client = scene.instance()
    scene.send(client)
    scene.network.run(1.0)
    key = entry_key(CLUSTER_NAME, client.producer.producer_id, *PLACE)
    before = unpack(scene.world.redis.get(key) or b"")
    assert rows(scene, 1) == [(client.producer.producer_id, 0, 0)]
    assert unpack(scene.world.redis.get(key) or b"") == replace(before, version=before.version + 1)
    assert [answer.error_code for answer in scene.send(client).answers] == [ErrorCode.NONE]
    assert len(scene.stored()) == 2


def test_a_busy_producer_is_reported_with_what_is_committed(scene: NamedScene) -> None:
    client = scene.instance()
    batches = [client.send(TOPIC, 0) for _ in range(200)]
    assert scene.network.run(10.0, lambda: batches[20].is_done)
    asking = Asking(scene, 1, [PLACE], NO_PRINCIPAL)
    assert scene.network.run(30.0, lambda: bool(asking.answers))
    ((one,),) = asking.answers
    ((row,),) = (one.producers,)
    assert 0 < row.last_sequence < 200


def test_producers_of_another_principal_are_not_reported() -> None:
    scene = NamedScene(has_principals=True)
    client = scene.instance()
    scene.send(client)
    assert rows(scene) == rows(scene, principal=principal_of("CN=somebody")) == []
    assert [row[0] for row in rows(scene, principal=principal_of("CN=instance-1"))] == [client.producer.producer_id]


def test_an_id_that_its_name_no_longer_has_is_reported_until_expiry() -> None:
    scene = NamedScene(by_client_id=True, expiry_seconds=100.0)
    for number in range(2):
        scene.send(scene.instance(number))
    (first, _), (second, _) = scene.began()
    assert [row[0] for row in rows(scene)] == sorted((first, second))
    scene.network.run(110.0)
    assert [row[0] for row in rows(scene)] == [second]
    scene.send(scene.instance())
    scene.network.run(1.0)
    assert f"{first:016x}".encode() not in (scene.world.redis.get(INDEX) or b""), "it has left the index"
    assert f"{second:016x}".encode() in (scene.world.redis.get(INDEX) or b"")


def test_partitions_created_a_moment_ago_are_reported(scene: NamedScene) -> None:
    scene.network.run(5.0)
    partitions = scene.world.cluster.partitions
    for place in ((TOPIC, 2), ("new", 0), ("new", 1)):
        partitions[place] = replace(partitions[PLACE], log=PartitionLog())
    answers = described(scene, 0, PLACE, (TOPIC, 2), ("new", 1), ("new", 2))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.error_code for one in answers] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, unknown]


def test_what_cannot_be_reported_now_gets_the_error_that_admin_clients_retry(
    scene: NamedScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = scene.instance()
    scene.send(client)
    (unknown,) = described(scene, 0, ("nowhere", 0))
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    monkeypatch.setattr(limits, "DESCRIBED_PRODUCERS_MAX", 0)
    (many,) = described(scene)
    assert many.error_code == ErrorCode.INVALID_REQUEST
    monkeypatch.undo()
    busy = [Asking(scene, 0, [PLACE], NO_PRINCIPAL) for _ in range(limits.DESCRIBES_AT_WORK_MAX + 1)]
    assert [one.answers[0][0].error_code for one in busy if one.answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert scene.network.run(5.0, lambda: all(one.answers for one in busy))
    scene.world.redis.host.crash()
    scene.network.run(1.0)
    (away,) = described(scene)
    assert away.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "Redis" in (away.message or "")


def test_what_somebody_else_has_put_into_the_index_is_named(scene: NamedScene) -> None:
    scene.send(scene.instance())
    known = scene.world.redis.get(INDEX)
    assert known is not None
    for foreign in (b"{", known.split()[-1][:-1], known.split()[-1] + b"0", b"x:00000000000000G0"):
        scene.world.redis.put(INDEX, known + b"\n1.0 " + foreign)
        (told,) = described(scene)
        assert told.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert repr(foreign) in (told.message or "")
    scene.world.redis.put(INDEX, known)
    assert len(rows(scene)) == 1


def test_an_unknown_outcome_that_lasts_is_said(scene: NamedScene) -> None:
    client = scene.instance()
    scene.send(client)
    client.send(TOPIC, 0)
    assert scene.network.run(5.0, lambda: len(scene.stored()) == 2)
    scene.world.proxies[0].crash(down_seconds=None)
    client.close()
    scene.world.cluster.crash_broker(next(iter(scene.world.cluster.brokers)), down_seconds=60.0)
    (told,) = described(scene, 1)
    assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert str(client.producer.producer_id) in (told.message or "")


def test_an_answer_takes_no_longer_with_many_producers(scene: NamedScene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        scene.send(VirtualClient(scene.network, f"client {number}", [scene.world.proxies[0].address]))
    scene.network.run(1.0)
    began = scene.network.now
    assert len(rows(scene)) == 12
    seconds = scene.network.now - began
    monkeypatch.setattr(limits, "DESCRIBE_SECONDS", seconds / 2)
    began = scene.network.now
    (told,) = described(scene)
    assert scene.network.now - began < 0.7 * seconds
    assert (told.error_code, told.producers) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ())
    assert "of its 12 producers could not be looked at in time" in (told.message or "")


# ---------------------------------------------------------------------- bodies
def request(places: dict[str, list[int]]) -> bytes:
    topics = [{"name": name, "partition_indexes": partitions} for name, partitions in places.items()]
    return encode_request(61, 0, topics=topics)


def test_bodies_are_those_of_the_protocol_library() -> None:
    assert parse_describe_producers(request({"a": [1, 2], "b": []})) == [("a", 1), ("a", 2)]
    body = encode_describe_producers(
        [
            DescribedPartition("a", 1, producers=(ActiveProducer(2**62, 5, 7), ActiveProducer(3, 0, -1))),
            DescribedPartition("b", 0, ErrorCode.INVALID_REQUEST, "why"),
            DescribedPartition("a", 2),
        ]
    )
    answer = decode_response(61, 0, body)
    one, two = answer.topics
    assert [(topic.name, [part.partition_index for part in topic.partitions]) for topic in (one, two)] == [
        ("a", [1, 2]),
        ("b", [0]),
    ]
    found = [
        (row.producer_id, row.producer_epoch, row.last_sequence, row.last_timestamp, row.current_txn_start_offset)
        for row in one.partitions[0].active_producers
    ]
    assert found == [(2**62, 5, 7, -1, -1), (3, 0, -1, -1, -1)]
    assert (two.partitions[0].error_code, two.partitions[0].error_message) == (42, "why")


@pytest.mark.parametrize("cut", range(0, len(request({"a": [1, 2]}))))
def test_a_request_that_is_cut_is_garbage(cut: int) -> None:
    with pytest.raises(WireError):
        parse_describe_producers(request({"a": [1, 2]})[:cut])


def test_a_request_has_a_limit() -> None:
    assert len(parse_describe_producers(request({"a": list(range(PARTITIONS_MAX))}))) == PARTITIONS_MAX
    with pytest.raises(WireError, match="more than"):
        parse_describe_producers(request({"a": list(range(PARTITIONS_MAX)), "b": [0]}))
    with pytest.raises(WireError):
        parse_describe_producers(b"\xff\xff\xff\xff\x0f")


def test_the_last_sequence_wraps() -> None:
    entry = fresh(bytes(16), NO_PRINCIPAL, 0, 0)
    assert entry.last_sequence == -1
    wrapped = replace(entry, window=(WindowBatch(2**31 - 1, 1, 0),))
    assert wrapped.last_sequence == 2**31 - 1


def test_a_producer_is_not_reported_to_stop_before_an_unrecoverable_batch(scene: NamedScene) -> None:
    """The topic keeps no batch markers, so nobody can tell what became of the batch that a dead proxy left open.
    A client that resumed after what is reported would store its record a second time."""
    scene.world.cluster.log(TOPIC, 0).compression = 0
    client = scene.instance()
    scene.send(client)
    batch = client.send(TOPIC, 0)
    assert scene.network.run(5.0, lambda: len(scene.stored()) == 2), "it is in the log"
    client.close()
    scene.world.proxies[0].crash(down_seconds=None)
    assert not batch.is_done
    producer_id = client.producer.producer_id
    newer = scene.instance(1)
    scene.send(newer, 1)
    for _ in range(10):
        (one,) = described(scene, 1)
        if one.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            break
    entry = unpack(scene.world.redis.get(entry_key(CLUSTER_NAME, producer_id, *PLACE)) or b"")
    assert entry.intent is not None
    assert entry.intent.is_unrecoverable
    assert one.producers == ()
    assert one.error_code != ErrorCode.NONE


def test_a_batch_that_was_unrecoverable_of_a_producer_without_a_name_hides_nobody(scene: NamedScene) -> None:
    """The answer has one code for a partition, and anybody can send a batch under an id that nobody issued. What became
    of such a producer's next batch is unknown as before."""
    scene.world.cluster.log(TOPIC, 0).compression = 0
    named = scene.instance(1)
    scene.send(named)
    unnamed = VirtualClient(scene.network, "no-name", [scene.world.proxies[0].address])
    scene.send(unnamed)
    batch = unnamed.send(TOPIC, 0)
    assert scene.network.run(5.0, lambda: len(scene.stored()) == 3), "it is in the log"
    scene.world.proxies[0].crash(down_seconds=None)
    assert not batch.is_done
    unnamed.addresses = [scene.world.proxies[1].address]
    assert scene.network.run(120.0, lambda: batch.is_done)
    assert batch.answers[-1].error_code == ErrorCode.INVALID_RECORD
    assert rows(scene, 1) == [(named.producer.producer_id, 0, 0)]
