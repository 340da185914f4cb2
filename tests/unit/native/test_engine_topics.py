"""A client where the brokers give idempotence, but on some topics: what passes while it comes, what is split, and what
becomes of the brokers' producer ids."""

from __future__ import annotations

import struct
from functools import partial

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.produce import PartitionAnswer, encode_response
from idemproxy.proxy import limits
from idemproxy.proxy.session.conditional_topics import ConditionalTopics
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.names import FIRST_NAMED_ID
from idemproxy.state.producer_ids import CONDITIONAL_ID, unpack_block
from idemproxy.state.store import issued_key
from testkit.real.clients.raw_client import batch
from testkit.virtual.engine_scene import INIT, EngineScene, plain, produce
from testkit.virtual.world import TOPIC

OTHER = "other"
ID = 77
TOPIC_ID, OTHER_ID = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"


def other(sequence: int = 0, *values: bytes, topic: str = OTHER, partition: int = 0) -> tuple[str, int, bytes]:
    """A batch for a topic of the brokers."""
    return topic, partition, batch(list(values or (b"other",)), producer_id=ID, sequence=sequence)


def give(scene: EngineScene, producer_id: int, error_code: int = 0) -> None:
    """The broker answers InitProducerId 4."""
    scene.ends[-1].answer(struct.pack(">ihqh", 0, error_code, producer_id, 0) + b"\0")
    scene.run()


def seconds_left(scene: EngineScene, key: bytes) -> float:
    """Until a key in Redis expires."""
    expires_at = scene.world.redis.data[key].expires_at
    assert expires_at is not None
    return expires_at - scene.world.network.now


@pytest.fixture
def scene() -> EngineScene:
    return EngineScene([TOPIC])


# ---------------------------------------------------------------------- what passes
@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_request_for_another_topic_passes_while_it_comes(scene: EngineScene, version: int) -> None:
    sent = produce(1, other(0, bytes(300_000)), version=version)
    scene.send(sent[:150_000])
    assert bytes(scene.ends[-1].data) == sent[:150_000]
    scene.send(sent[150_000:])
    assert bytes(scene.ends[-1].data) == sent


def test_a_topic_id_that_is_known_passes_while_it_comes(scene: EngineScene) -> None:
    scene.engine.topic_names._known.update({OTHER_ID: OTHER, TOPIC_ID: TOPIC})
    sent = produce(1, (OTHER_ID, 0, other(0, bytes(300_000))[2]), version=13)
    scene.send(sent[:150_000])
    assert bytes(scene.ends[-1].data) == sent[:150_000]
    scene.send(sent[150_000:], produce(2, (TOPIC_ID, 0, scene.own()[2]), version=13))
    assert bytes(scene.ends[-1].data) == sent
    assert scene.stored() == 1


@pytest.mark.parametrize("version", [8, 9])
def test_requests_for_both_kinds_in_any_pieces_go_their_ways(version: int) -> None:
    for size in (1, 7, 61):
        scene = EngineScene([TOPIC])
        theirs = [produce(number, other(number), other(number, topic="third"), version=version) for number in range(3)]
        ours = [produce(number, scene.own(number), version=version) for number in range(3)]
        whole = b"".join(one for pair in zip(theirs, ours, strict=True) for one in pair)
        for start in range(0, len(whole), size):
            scene.line.wire.send(whole[start : start + size])  # type: ignore[union-attr]
            scene.run(0.001)
        scene.run()
        assert bytes(scene.ends[-1].data) == b"".join(theirs)
        assert scene.stored() == 3


@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_request_is_not_taken_for_one_that_begins_like_it(version: int) -> None:
    """The name of the topic is among the bytes of the timeout (30,000 ms)."""
    scene = EngineScene(["u0-ours", "u"])
    scene.send(produce(1, other(topic="u0"), version=version), produce(2, other(topic="u0-ours"), version=version))
    scene.send(produce(3, other(1, topic="u0"), version=version), produce(4, other(topic="u"), version=version))
    both = other(2, topic="u0"), other(1, topic="u0-ours")
    scene.send(produce(5, *both, version=version))
    (end,) = scene.ends
    assert end.keys == [ApiKey.PRODUCE] * 3
    assert b"u0-ours" not in end.data


def test_a_transaction_for_other_topics_passes(scene: EngineScene) -> None:
    sent = produce(1, other(), other(topic="third"), transactional_id="tx")
    scene.send(sent)
    assert bytes(scene.ends[-1].data) == sent


def test_a_batch_without_a_producer_id_passes_on_every_topic(scene: EngineScene) -> None:
    sent = produce(1, plain(), plain(topic=OTHER))
    scene.send(sent)
    assert bytes(scene.ends[-1].data) == sent


@pytest.mark.parametrize("acks", [0, -1])
def test_a_client_stays_without_its_broker_unless_it_sent_what_wants_no_answer(scene: EngineScene, acks: int) -> None:
    scene.send(produce(1, other(), acks=acks))
    end = scene.ends[-1]
    if acks:
        end.answer(encode_response(8, [PartitionAnswer(OTHER, 0, 0, 0)]))
        scene.run()
    assert end.wire is not None
    end.wire.close()
    scene.run()
    assert bool(scene.engine.sessions) == bool(acks), "or nobody would learn that it is lost"


# ---------------------------------------------------------------------- what is split
@pytest.mark.parametrize("version", [3, 8, 9])
def test_a_request_for_both_kinds_gets_one_answer_in_its_turn(scene: EngineScene, version: int) -> None:
    scene.send(produce(1, scene.own(), other(), version=version), produce(2, other(1), version=version))
    end = scene.ends[-1]
    scene.run(2)
    assert (scene.line.answers, scene.stored()) == ([], 1)
    end.answer(encode_response(min(version, 8), [PartitionAnswer(OTHER, 0, 0, 31)]))
    scene.run()
    assert scene.line.answers == [1]
    assert struct.pack(">hq", 0, 31) in scene.line.data
    end.answer(encode_response(version, [PartitionAnswer(OTHER, 0, 0, 32)]))
    scene.run()
    assert scene.line.answers == [1, 2]
    scene.assert_nothing_stays()


def test_a_request_for_both_kinds_that_wants_no_answer_is_split(scene: EngineScene) -> None:
    scene.send(produce(1, plain(), ("wal", 0, plain()[2]), plain(topic=OTHER), acks=0))
    assert scene.keys() == [[ApiKey.PRODUCE]]
    assert scene.line.answers == []
    scene.assert_nothing_stays()


def test_a_conditional_batch_for_another_topic_is_refused_alone() -> None:
    scene = EngineScene([TOPIC, "wal"])
    scene.engine.conditional_topics = ConditionalTopics(["wal"])
    conditional = partial(batch, [b"value"], producer_id=CONDITIONAL_ID, sequence=0)
    scene.send(produce(1, (OTHER, 0, conditional()), scene.own()))
    scene.run(2)
    assert scene.line.answers == [1]
    assert struct.pack(">h", len(OTHER)) + OTHER.encode() + struct.pack(">iih", 1, 0, 17) in scene.line.data
    assert (scene.codes(), scene.keys()) == ([0], [])
    scene.send(produce(2, (OTHER, 0, conditional())))
    assert scene.line.answers == [1, 2]
    assert scene.keys() == []
    scene.assert_nothing_stays()


# ---------------------------------------------------------------------- producer ids
def test_the_id_of_a_broker_is_noted_before_its_client_has_it(scene: EngineScene) -> None:
    key = issued_key(scene.engine.context.instance.cluster, ID)
    scene.send(INIT)
    assert scene.keys() == [[ApiKey.INIT_PRODUCER_ID]]
    assert scene.world.redis.get(key) is None
    give(scene, ID)
    assert scene.line.answers == [1]
    noted = unpack_block(scene.world.redis.get(key) or b"")
    assert noted is not None
    assert noted.data_generation == scene.engine.context.instance.data_generation
    assert 0 < seconds_left(scene, key) <= limits.ISSUED_ID_SECONDS


def test_a_new_producer_appends_without_a_look_into_the_log(scene: EngineScene) -> None:
    scene.send(INIT)
    give(scene, ID)
    scene.send(produce(2, (TOPIC, 0, other()[2])))
    assert scene.codes() == [0]
    assert scene.stored() == 1


def test_an_id_that_is_in_use_stays_known(scene: EngineScene) -> None:
    scene.send(INIT)
    give(scene, ID)
    first = None
    for number in range(10):  # a client that is idle for ten minutes is disconnected
        scene.send(produce(number, (TOPIC, 0, other(number)[2])))
        scene.run(limits.NAME_RENEW_SECONDS / 8)
        first = first or scene.engine.context.instance.renewed_at_ms[ID]
    assert scene.engine.context.instance.renewed_at_ms[ID] - first >= 1000 * limits.NAME_RENEW_SECONDS
    key = issued_key(scene.engine.context.instance.cluster, ID)
    assert seconds_left(scene, key) > limits.ISSUED_ID_SECONDS - limits.NAME_RENEW_SECONDS / 2


def test_an_id_passes_though_redis_is_away_and_its_first_batch_waits_for_the_log(scene: EngineScene) -> None:
    scene.world.redis.restart(down_seconds=5)
    scene.run(1)
    scene.send(INIT)
    give(scene, ID)
    assert scene.line.answers == [1]
    scene.run(60)
    scene.send(produce(2, (TOPIC, 0, other()[2])))
    scene.run(30)
    assert scene.codes() == [0]
    assert scene.stored() == 1


def test_an_error_of_the_broker_passes_and_nothing_is_noted(scene: EngineScene) -> None:
    before = dict(scene.world.redis.data)
    scene.send(INIT)
    give(scene, -1, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert scene.line.answers == [1]
    assert scene.world.redis.data.keys() == before.keys()


def test_an_id_that_answers_another_request_ends_the_connection(scene: EngineScene) -> None:
    scene.send(INIT)
    scene.ends[-1].answer(struct.pack(">ihqh", 0, 0, ID, 0) + b"\0", correlation_shift=1)
    scene.run()
    assert scene.line.answers == []
    assert not scene.engine.sessions


def test_the_id_of_a_producer_name_is_the_engines(scene: EngineScene) -> None:
    scene.engine.names.set_patterns(["client"])
    scene.send(INIT)
    scene.run(5)
    assert scene.keys() == []
    (producer_id,) = struct.unpack_from(">q", scene.line.data, 15)
    assert producer_id >= FIRST_NAMED_ID
