"""A client of the engine in front of brokers that store format v2: the order of answers where some are the engine's,
what passes and what does not, and what becomes of requests at the end."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from idemproxy.codecs import messages, produce_topic_ids
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.header_marker import may_be_marker
from idemproxy.codecs.produce import CONDITIONAL_PUBLISH, PartitionAnswer, encode_response
from idemproxy.proxy import limits
from idemproxy.proxy.native.engine_session import EngineSession, serving
from idemproxy.proxy.native.raising import RaisingSession
from idemproxy.proxy.session.conditional_topics import ConditionalTopics
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.hidden_ranges import HiddenRange, OffsetRange, State
from idemproxy.state.names import is_named
from testkit.real.clients.raw_client import batch
from testkit.virtual.engine_scene import INIT, EngineScene, plain, produce, without_id
from testkit.virtual.line import request
from testkit.virtual.raising_scene import KAFKA_4, fetch
from testkit.virtual.releases import OLD, RAISED_3_9
from testkit.virtual.wire import VirtualWire
from testkit.virtual.world import TOPIC, World, WorldSettings

FETCH = 11
TOPIC_ID = "0123456789abcdef0123456789abcdef"


def answer_all(scene: EngineScene, body: bytes = b"x" * 20) -> None:
    """The broker answers all that waits at the newest end with this body."""
    end = scene.ends[-1]
    while end.keys:
        end.answer(body)
    scene.run()


def wire_of(scene: EngineScene) -> VirtualWire:
    wire = scene.line.wire
    assert isinstance(wire, VirtualWire)
    return wire


# ---------------------------------------------------------------------- order
def test_answers_of_the_broker_wait_for_an_earlier_one_of_the_engine() -> None:
    scene = EngineScene()
    scene.slow(3)
    scene.send(fetch(1, FETCH), produce(2, scene.own()), fetch(3, FETCH), produce(4, scene.own(1)), fetch(5, FETCH))
    assert scene.keys() == [[ApiKey.FETCH] * 3]
    answer_all(scene)
    assert scene.line.answers == [1]
    scene.run(10)
    assert scene.line.answers == [1, 2, 3, 4, 5]
    assert scene.stored() == 2
    scene.assert_nothing_stays()


def test_an_answer_of_the_engine_waits_for_earlier_ones_of_the_broker() -> None:
    scene = EngineScene()
    scene.send(fetch(1, FETCH), produce(2, scene.own()), produce(3, scene.own(1)))
    scene.run(2)
    assert (scene.line.answers, scene.stored()) == ([], 2)
    answer_all(scene)
    assert scene.line.answers == [1, 2, 3]
    assert scene.codes() == [0, 0]
    scene.assert_nothing_stays()


def test_a_refusal_waits_for_an_answer_of_the_engine_before_it() -> None:
    scene = EngineScene()
    scene.slow(3)
    scene.send(produce(1, scene.own()), request(2, ApiKey.FETCH, 16, b""), produce(3, scene.own(1)))
    assert scene.line.answers == []
    scene.run(10)
    assert scene.line.answers == [1, 2, 3]


def test_five_requests_in_flight_are_appended_together_and_answered_in_order() -> None:
    scene = EngineScene()
    scene.send(*[produce(number, scene.own(number)) for number in range(5)])
    scene.run(3)
    assert scene.line.answers == [0, 1, 2, 3, 4]
    assert scene.codes() == [0] * 5


def test_hundreds_of_requests_in_one_read_are_taken_in_turns_and_all_answered() -> None:
    scene = EngineScene()
    scene.send(b"".join(produce(number, scene.own(number)) + fetch(number, FETCH) for number in range(300)))
    for _ in range(100):
        scene.run(0.2)
        answer_all(scene)
    assert scene.line.answers == [number for number in range(300) for _ in range(2)]
    assert scene.stored() == 300
    scene.assert_nothing_stays()


def test_a_request_that_comes_byte_by_byte_is_collected() -> None:
    scene = EngineScene()
    whole = fetch(1, FETCH) + produce(2, scene.own()) + fetch(3, FETCH)
    for at in range(len(whole)):
        wire_of(scene).send(whole[at : at + 1])
        scene.run(0.01)
    answer_all(scene)
    scene.run(2)
    assert scene.line.answers == [1, 2, 3]
    scene.assert_nothing_stays()


def test_a_large_answer_that_waits_is_left_at_the_broker() -> None:
    scene = EngineScene()
    scene.slow(5)
    scene.send(produce(1, scene.own()), fetch(2, FETCH))
    body = bytes(range(256)) * 40_000
    scene.ends[-1].answer(body)
    scene.run(1)
    kept = len(scene.session._answers.rest)
    assert 0 < kept <= 2 * limits.STREAM_BYTES_MAX
    assert scene.line.data == b""
    scene.run(20)
    assert scene.line.answers == [1, 2]
    assert scene.line.data.endswith(body)
    scene.assert_nothing_stays()


# ---------------------------------------------------------------------- producer ids
def test_a_producer_id_is_the_engines_and_one_for_transactions_the_brokers() -> None:
    scene = EngineScene()
    scene.send(INIT, init_named(2, 60_000))
    assert scene.keys() == [[ApiKey.INIT_PRODUCER_ID]]
    assert scene.line.answers == [1]
    assert scene.session.is_idempotent
    answer_all(scene)
    assert scene.line.answers == [1, 2]


def init_named(number: int, timeout_ms: int) -> bytes:
    return request(number, ApiKey.INIT_PRODUCER_ID, 4, b"\x03tx" + struct.pack(">iqh", timeout_ms, -1, -1) + b"\0")


@pytest.mark.promise("name-one-instance")
def test_a_name_without_a_timeout_for_transactions_is_a_producer_name() -> None:
    scene = EngineScene()
    scene.send(init_named(1, 0))
    scene.run(2)
    error_code, producer_id, first = struct.unpack_from(">hqh", scene.line.data, 13)
    assert (error_code, is_named(producer_id)) == (0, True)
    del scene.line.data[:]
    scene.send(init_named(2, 0))
    scene.run(2)
    assert struct.unpack_from(">hqh", scene.line.data, 13) == (0, producer_id, first + 1)
    assert scene.keys() == []


@pytest.mark.parametrize(("topic", "is_engines"), [(TOPIC, True), ("of-the-brokers", False)])
def test_where_producers_stopped_the_engine_tells_of_its_topics(topic: str, is_engines: bool) -> None:
    scene = EngineScene([TOPIC])
    scene.send(produce(1, scene.own()))
    scene.run(2)
    del scene.line.data[:]
    body = b"\x02" + bytes([len(topic) + 1]) + topic.encode() + b"\x02" + struct.pack(">i", 0) + b"\0\0"
    scene.send(request(2, ApiKey.DESCRIBE_PRODUCERS, 0, body))
    scene.run(2)
    assert scene.keys() == ([] if is_engines else [[ApiKey.DESCRIBE_PRODUCERS]])
    if is_engines:
        told = messages.decode_response(ApiKey.DESCRIBE_PRODUCERS, 0, bytes(scene.line.data)[9:])
        (partition,) = told.topics[0].partitions
        stopped = [(one.producer_id, one.producer_epoch, one.last_sequence) for one in partition.active_producers]
        assert (partition.error_code, stopped) == (0, [(scene.producer_id, 0, 0)])


# ---------------------------------------------------------------------- what passes
@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_batches_without_a_producer_id_pass_as_they_are(version: int) -> None:
    scene = EngineScene()
    sent = produce(1, plain(), plain(partition=1), version=version)
    scene.send(sent)
    assert bytes(scene.ends[-1].data) == sent
    answer_all(scene, struct.pack(">ii", 0, 0) if version < 9 else b"\x01" + struct.pack(">i", 0) + b"\0")
    assert scene.line.answers == [1]
    assert scene.stored() == 0


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, -1), (0, 0), (-1, 0)])
def test_what_clients_without_idempotence_send_is_never_a_marker(epoch: int, sequence: int) -> None:
    assert not may_be_marker(epoch)
    scene = EngineScene()
    records = without_id(epoch, sequence)
    scene.send(produce(1, (TOPIC, 0, records)))
    assert scene.keys() == [[ApiKey.PRODUCE]]


def test_a_batch_that_looks_like_a_marked_one_is_refused() -> None:
    scene = EngineScene()
    records = without_id(7, 5)
    scene.send(produce(1, (TOPIC, 0, records)))
    assert scene.codes() == [ErrorCode.INVALID_RECORD]
    assert scene.keys() == []
    assert b"only idemproxy may store that" in scene.line.data


def test_plain_batches_among_those_of_the_engine_go_in_a_request_of_their_own() -> None:
    scene = EngineScene()
    scene.send(fetch(1, FETCH), produce(2, scene.own(), plain(partition=1)), fetch(3, FETCH))
    end = scene.ends[-1]
    assert end.keys == [ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.FETCH]
    scene.run(2)
    assert scene.stored() == 1
    end.answer(b"first")
    scene.run()
    assert scene.line.answers == [1]
    end.answer(encode_response(8, [PartitionAnswer(TOPIC, 1, 0, 77)]))
    end.answer(b"last")
    scene.run()
    assert scene.line.answers == [1, 2, 3]
    assert struct.pack(">ihq", 1, 0, 77) in scene.line.data
    scene.assert_nothing_stays()


def test_a_request_for_topics_of_both_kinds_is_split() -> None:
    scene = EngineScene([TOPIC])
    other = "native", 0, batch([b"value"], producer_id=5, sequence=3)
    scene.send(produce(1, other, scene.own()))
    end = scene.ends[-1]
    assert other[2] in bytes(end.data)
    assert len(end.frames) == 1
    end.answer(encode_response(8, [PartitionAnswer("native", 0, 0, 31)]))
    scene.run(2)
    assert scene.line.answers == [1]
    assert struct.pack(">ihq", 0, 0, 31) in scene.line.data
    assert scene.codes() == [0]


@pytest.mark.parametrize("transactional_id", [None, "tx"])
def test_a_request_for_topics_of_the_brokers_passes(transactional_id: str | None) -> None:
    scene = EngineScene(["others"])
    sent = produce(1, scene.own(), transactional_id=transactional_id)
    scene.send(sent)
    assert bytes(scene.ends[-1].data) == sent


@pytest.mark.parametrize(
    ("engine_topics", "code"),
    [(None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED), ([TOPIC], ErrorCode.INVALID_TOPIC_EXCEPTION)],
)
def test_a_transactional_batch_for_a_topic_of_the_engine_is_refused(
    engine_topics: list[str] | None, code: ErrorCode
) -> None:
    scene = EngineScene(engine_topics)
    scene.send(produce(1, ("native", 0, scene.own()[2]), scene.own(), transactional_id="tx"))
    assert scene.codes() == [code]
    assert scene.keys() == []


# ---------------------------------------------------------------------- versions
@pytest.mark.parametrize("version", [9, 10, 12])
def test_the_engine_answers_in_flexible_versions(version: int) -> None:
    scene = EngineScene()
    scene.send(produce(1, scene.own(), version=version))
    scene.run(2)
    assert (scene.line.answers, scene.stored()) == ([1], 1)


def test_topics_named_by_ids_are_appended_to_by_name() -> None:
    scene = EngineScene()
    scene.engine.topic_names._known[TOPIC_ID] = TOPIC
    scene.send(produce(1, scene.own(topic=TOPIC_ID), version=13))
    scene.run(2)
    (answer,), _ = produce_topic_ids.parse_response(bytes(scene.line.data)[9:])
    assert (answer.topic, answer.error_code, answer.base_offset) == (TOPIC_ID, 0, 0)
    assert scene.stored() == 1


def test_produce_of_a_later_version_is_refused() -> None:
    scene = EngineScene()
    scene.send(request(1, ApiKey.PRODUCE, 14, b"\0"))
    assert scene.line.is_lost or scene.line.answers == [1]
    assert scene.keys() == []


@pytest.mark.parametrize("patterns", [(), ("wal-*",)])
def test_conditional_publish_is_listed_where_a_topic_has_it(patterns: tuple[str, ...]) -> None:
    scene = EngineScene()
    scene.engine.conditional_topics = ConditionalTopics(patterns)
    scene.send(request(1, ApiKey.API_VERSIONS, 0))
    listed = [(key, *versions) for key, versions in KAFKA_4.ranges.items()]
    scene.answer(ApiKey.API_VERSIONS, b"\0\0" + struct.pack(">i", len(listed)) + b"".join(map(_packed, listed)))
    answer = messages.decode_response(ApiKey.API_VERSIONS, 0, bytes(scene.line.data)[8:])
    told = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert told.get(CONDITIONAL_PUBLISH) == ((0, 0) if patterns else None)
    assert told[ApiKey.PRODUCE] == (0, 13)
    assert told[ApiKey.FETCH][1] == 15
    assert told[ApiKey.DESCRIBE_PRODUCERS] == (0, 0)


def _packed(listed: tuple[int, int, int]) -> bytes:
    return struct.pack(">hhh", *listed)


# ---------------------------------------------------------------------- the end
def test_after_the_fin_of_a_producer_with_an_id_nothing_is_begun() -> None:
    scene = EngineScene()
    scene.slow(3)
    scene.send(produce(1, scene.own()))
    many = [produce(number, scene.own(number)) for number in range(1, 30)]
    wire_of(scene).send(*many)
    wire_of(scene).half_close()
    scene.run(20)
    assert scene.line.is_lost
    assert scene.line.answers == []
    assert scene.stored() < 30
    assert scene.world.errors() == []
    assert scene.engine.memory.bytes_held == 0


def test_a_client_without_an_id_gets_all_answers_after_its_fin() -> None:
    scene = EngineScene()
    scene.send(fetch(1, FETCH), produce(2, plain()), fetch(3, FETCH)[:-1])
    wire_of(scene).half_close()
    scene.run()
    assert scene.ends[-1].keys == [ApiKey.FETCH, ApiKey.PRODUCE]
    answer_all(scene)
    scene.run(2)
    assert scene.line.answers == [1, 2]
    assert scene.line.is_lost
    scene.assert_nothing_stays()


def test_after_a_reset_only_requests_that_want_no_answer_pass() -> None:
    scene = EngineScene()
    session = scene.session
    silent = produce(3, plain(b"silent"), acks=0)
    session._keep(b"".join((produce(1, scene.own()), produce(2, plain()), silent, fetch(4, FETCH))))
    wire_of(scene).reset()
    scene.run(2)
    assert bytes(scene.ends[-1].data) == silent
    assert scene.stored() == 0
    assert scene.engine.memory.bytes_held == 0


def test_what_came_before_garbage_is_answered() -> None:
    scene = EngineScene()
    scene.slow(2)
    scene.send(produce(1, scene.own()), b"GET / HTTP/1.1\r\n\r\n")
    assert not scene.line.is_lost
    scene.run(5)
    assert scene.line.answers == [1]
    assert scene.line.is_lost
    scene.assert_nothing_stays()


def test_a_produce_request_that_cannot_be_read_ends_the_connection_after_what_came_before() -> None:
    scene = EngineScene()
    scene.slow(2)
    broken = produce(2, scene.own(1))
    broken = (len(broken) - 8).to_bytes(4, "big") + broken[4:-4]
    scene.send(produce(1, scene.own()), broken, produce(3, scene.own(2)))
    scene.run(5)
    assert scene.line.answers == [1]
    assert scene.line.is_lost
    scene.assert_nothing_stays()


def test_a_drain_waits_for_the_engine_and_reads_nothing_more() -> None:
    scene = EngineScene()
    scene.slow(3)
    scene.send(produce(1, scene.own()))
    drained: list[bool] = []
    scene.engine.drain(lambda: drained.append(True))
    scene.send(produce(2, scene.own(1)))
    scene.run(1)
    assert not drained
    scene.run(5)
    assert scene.line.answers == [1]
    assert drained


def test_a_fetch_that_waits_does_not_hold_up_a_drain() -> None:
    scene = EngineScene()
    scene.send(fetch(1, FETCH))
    drained: list[bool] = []
    scene.engine.drain(lambda: drained.append(True))
    scene.run(1)
    assert drained


# ---------------------------------------------------------------------- the broker's side
def test_a_producer_stays_when_the_broker_closes_the_idle_connection() -> None:
    scene = EngineScene()
    scene.send(fetch(1, FETCH))
    answer_all(scene)
    scene.slow(3)
    scene.send(produce(2, scene.own()))
    (end,) = scene.ends
    assert end.wire is not None
    end.wire.close()
    scene.run(6)
    assert scene.line.answers == [1, 2]
    scene.send(fetch(3, FETCH))
    assert scene.connects == 2
    answer_all(scene)
    assert scene.line.answers == [1, 2, 3]
    scene.assert_nothing_stays()


def test_the_client_goes_with_the_broker_that_owes_it_an_answer() -> None:
    scene = EngineScene()
    scene.slow(3)
    scene.send(produce(1, scene.own()), fetch(2, FETCH))
    (end,) = scene.ends
    assert end.wire is not None
    end.wire.close()
    scene.run(1)
    assert scene.line.is_lost
    scene.run(6)
    assert scene.stored() == 1
    scene.assert_nothing_stays()


# ---------------------------------------------------------------------- memory
def test_a_large_request_is_counted_while_it_comes_and_while_it_is_at_work() -> None:
    scene = EngineScene()
    scene.slow(3)
    whole = produce(1, scene.own(0, bytes(500_000)))
    scene.send(whole[:300_000])
    assert scene.engine.memory.unfinished_bytes >= 290_000
    scene.send(whole[300_000:])
    assert scene.engine.memory.unfinished_bytes == 0
    scene.run(10)
    assert scene.line.answers == [1]
    scene.assert_nothing_stays()


def test_what_is_unfinished_is_let_go_of_when_the_client_leaves() -> None:
    scene = EngineScene()
    scene.send(produce(1, scene.own(0, bytes(500_000)))[:300_000])
    wire_of(scene).reset()
    scene.run(1)
    scene.assert_nothing_stays()


def test_what_a_client_does_not_read_stays_at_the_broker() -> None:
    scene = EngineScene()
    wire_of(scene).pause()
    scene.send(fetch(1, FETCH), produce(2, scene.own()))
    scene.ends[-1].answer(bytes(30_000_000))
    scene.run(20)
    assert scene.engine.memory.answer_bytes_held < 1_000_000
    wire_of(scene).resume()
    scene.run(60)
    assert scene.line.answers == [1, 2]
    scene.assert_nothing_stays()


# ---------------------------------------------------------------------- versions that the broker lacks
def test_an_old_request_is_raised_among_those_of_the_engine() -> None:
    scene = EngineScene()
    scene.engine.old_client_settings = replace(scene.engine.old_client_settings, translate="always")
    old = request(2, ApiKey.LIST_OFFSETS, 0, struct.pack(">ii", -1, 0))
    scene.slow(3)
    scene.send(produce(1, scene.own()), old, produce(3, scene.own(1)), fetch(4, FETCH), old)
    assert scene.keys() == [], "what came before it is not answered yet"
    scene.run(5)
    assert scene.line.answers == [1]
    scene.answer(ApiKey.LIST_OFFSETS, struct.pack(">i", 0))
    scene.run(5)
    assert scene.line.answers == [1, 2, 3]
    answer_all(scene)
    scene.answer(ApiKey.LIST_OFFSETS, struct.pack(">i", 0))
    assert scene.line.answers == [1, 2, 3, 4, 2]
    scene.send(produce(5, scene.own(2)))
    scene.run(5)
    assert scene.line.answers[-1] == 5
    (connection,) = scene.engine.sessions
    assert connection.is_idempotent
    assert connection.has_produced
    scene.assert_nothing_stays()


def test_an_old_request_comes_behind_many_of_the_engine() -> None:
    scene = EngineScene()
    scene.engine.old_client_settings = replace(scene.engine.old_client_settings, translate="always")
    old = request(99, ApiKey.LIST_OFFSETS, 0, struct.pack(">ii", -1, 0))
    many = [produce(number, scene.own(number)) for number in range(12)]
    scene.send(b"".join((*many, old, *(produce(12 + number, scene.own(12 + number)) for number in range(12)), old)))
    scene.run(5)
    scene.answer(ApiKey.LIST_OFFSETS, struct.pack(">i", 0))
    scene.run(5)
    scene.answer(ApiKey.LIST_OFFSETS, struct.pack(">i", 0))
    assert scene.line.answers == [*range(12), 99, *range(12, 24), 99]
    scene.assert_nothing_stays()


# ---------------------------------------------------------------------- who gets this handler
def test_a_client_that_fetches_while_hidden_ranges_are_active_is_sent_to_another_handler() -> None:
    scene = EngineScene()
    hidden = HiddenRange(State.ACTIVE, 1, messages=((0, 5, 1),))
    scene.engine.hidden_ranges.take_list({OffsetRange(TOPIC, 0, 0, 6): hidden})
    assert scene.engine.hidden_ranges.is_any
    scene.send(produce(1, scene.own()), fetch(2, FETCH))
    scene.run(3)
    assert scene.line.answers == [1]
    assert scene.line.is_lost


@pytest.mark.parametrize(
    ("forms", "broker_id", "is_passed"),
    [
        ((2, 2), 0, True),
        ((2, 2), None, True),
        ((1, 2), 0, False),
        ((1, 2), 1, True),
        ((1, 2), None, False),
        ((1, 1), None, False),
    ],
)
def test_the_broker_of_the_listener_says_which_handler_a_client_gets(
    forms: tuple[int, int], broker_id: int | None, is_passed: bool
) -> None:
    world = World(1, WorldSettings(brokers=2))
    for broker, form in zip(world.cluster.brokers.values(), forms, strict=True):
        broker.release = broker.next_release = RAISED_3_9 if form == 2 else OLD
    world.start()
    world.network.run(3)
    (proxy,) = world.proxies
    numbers = sorted(world.cluster.brokers)
    place: Any = lambda *_: ("proxy", 9092)  # noqa: E731
    make: Any = partial(serving, proxy.host, RaisingSession)
    shell = proxy.engine.accept(None if broker_id is None else numbers[broker_id], place, make=make)
    assert shell is not None
    assert isinstance(shell.handler, EngineSession if is_passed else Session)
    if 2 in forms:
        ranges = proxy.engine.engine_ranges()
        assert ranges[ApiKey.INIT_PRODUCER_ID] == ((0, 5) if 1 not in forms else (0, 4))
        assert ranges[ApiKey.FETCH][1] == (15 if 1 not in forms else 5)
