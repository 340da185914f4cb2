"""Produce 0 to 2 through the proxy: what becomes of the client, its connections and the memory when answers are late,
lost or unwanted."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import partial

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.record_batch import iterate_records, iterate_stored
from idemproxy.codecs.steps import Steps
from idemproxy.producing.numbered_batch import Place
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity
from idemproxy.proxy.events import ClientRefused
from idemproxy.proxy.session.conditional_topics import ConditionalTopics
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.raising_scene import RaisingScene, fetch, message_set, metadata, produce
from testkit.virtual.world import TOPIC

OK, NOT_LEADER, TIMED_OUT = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT
ONE = message_set(b"value")


def begun(scene: RaisingScene, *requests: bytes) -> None:
    """Of the first Produce a batch is out."""
    scene.send(*requests)
    scene.give_id()
    assert scene.waiting(ApiKey.PRODUCE)


def test_a_set_is_written_over_a_connection_of_its_own() -> None:
    scene = RaisingScene()
    begun(scene, produce(1, ONE))
    scene.answer_produce()
    assert scene.line.answers == [1]
    assert scene.code() == OK
    assert len(scene.ends) == 1
    scene.assert_nothing_stays()


def test_without_a_descriptor_for_its_connection_a_set_gets_an_error_at_which_clients_ask_again() -> None:
    scene = RaisingScene()
    scene.send(metadata(1))
    scene.answer_metadata(1, scene.broker.number)
    scene.why_no_room = "all file descriptors are in use"
    scene.send(produce(2, ONE))
    assert scene.line.answers == [1, 2]
    assert scene.code() == NOT_LEADER
    scene.why_no_room = None
    begun(scene, produce(3, ONE))
    scene.answer_produce()
    assert scene.code() == OK
    scene.assert_nothing_stays()


def test_a_broker_that_closes_the_idle_connection_does_not_end_the_client() -> None:
    scene = RaisingScene()
    scene.send(metadata(1))
    scene.answer_metadata(1, 0)
    begun(scene, produce(2, ONE))
    assert scene.ends[0].wire is not None
    scene.ends[0].wire.close()
    scene.run()
    assert not scene.line.is_lost
    scene.answer_produce()
    assert scene.line.answers == [1, 2]
    scene.send(metadata(3))
    scene.answer_metadata(1, 0)
    assert scene.line.answers == [1, 2, 3]
    scene.assert_nothing_stays()


def test_a_broker_that_is_lost_with_a_batch_out_gets_it_again_and_the_client_one_answer() -> None:
    scene = RaisingScene()
    scene.send(metadata(1))
    scene.answer_metadata(1, 0)
    begun(scene, produce(2, ONE))
    first = scene.waiting(ApiKey.PRODUCE).frames[0]
    for end in scene.ends:
        assert end.wire is not None
        end.wire.reset()
        end.data.clear()
    scene.run(0.05)
    assert not scene.line.is_lost
    scene.run(1)
    scene.answer_metadata(4, scene.broker.number)
    scene.run(1)
    again = scene.waiting(ApiKey.PRODUCE).frames[0]
    assert again[-len(ONE) :] == first[-len(ONE) :]
    scene.answer_produce(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert scene.line.answers == [1, 2]
    assert scene.code() == OK
    scene.assert_nothing_stays()


def test_a_broker_that_goes_while_it_owes_an_answer_to_another_request_takes_the_client_along() -> None:
    scene = RaisingScene()
    begun(scene, produce(1, ONE))
    scene.answer_produce()
    scene.send(fetch(2, wait_ms=5000))
    end = scene.waiting(ApiKey.FETCH)
    assert end.wire is not None
    end.wire.close()
    scene.run()
    assert scene.line.is_lost
    scene.assert_nothing_stays()


def test_a_request_whose_time_is_over_before_its_turn_leaves_nothing_of_it_in_memory() -> None:
    scene = RaisingScene()
    is_over = False

    def endless() -> Steps[None]:
        while not is_over:
            scene.engine.loop_budget.began_at = scene.proxy.host.now() - 1  # enough for this pass
            yield

    for _ in range(20):
        scene.engine.long_work.add(endless, "another", lambda _: None)
    scene.run(0.1)
    big = message_set(bytes(1 << 20)) * 16
    assert scene.line.wire is not None
    scene.line.wire.send(produce(1, big, timeout_ms=1000))
    scene.run(3)
    assert scene.line.answers == [1]
    assert scene.code() in (NOT_LEADER, TIMED_OUT)
    scene.assert_nothing_stays()
    gc.collect()
    assert not any(isinstance(one, memoryview) and one.nbytes >= len(big) for one in gc.get_objects())
    is_over = True
    scene.run(1)
    assert scene.world.errors() == []


def test_a_thousand_requests_at_once_that_no_broker_sees_are_answered_in_turns() -> None:
    for acks in (0, -1, 5):
        scene = RaisingScene()
        scene.send(*(produce(number, b"", acks=acks) for number in range(1, 1001)), metadata(1001))
        scene.run(2)
        assert scene.keys() == [[ApiKey.METADATA]], acks
        assert len(scene.line.answers) == (0 if acks == 0 else 1000), acks
        assert not scene.line.is_lost
        assert scene.world.errors() == []


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_client_that_leaves_with_a_batch_out_leaves_nothing_once_that_has_an_outcome(acks: int) -> None:
    scene = RaisingScene()
    begun(scene, produce(1, ONE, acks=acks))
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run()
    assert not scene.engine.sessions
    scene.answer_produce()
    scene.assert_nothing_stays()
    assert all(end.is_lost for end in scene.ends)


def test_a_drain_does_not_wait_for_a_fetch_but_for_a_batch() -> None:
    scene = RaisingScene()
    scene.send(fetch(1, wait_ms=60_000))
    (session,) = scene.engine.sessions
    assert not session.has_produce_in_flight
    scene = RaisingScene()
    begun(scene, produce(1, ONE))
    (session,) = scene.engine.sessions
    assert session.has_produce_in_flight
    drained: list[bool] = []
    scene.engine.drain(lambda: drained.append(True))
    scene.run(2)
    assert not drained
    scene.answer_produce()
    scene.run(2)
    assert drained
    assert scene.line.answers == [1]


def test_a_drain_waits_for_what_a_client_without_acks_has_left() -> None:
    scene = RaisingScene()
    scene.send(produce(1, ONE, acks=0))
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run()
    assert not scene.engine.sessions
    drained: list[bool] = []
    scene.engine.drain(lambda: drained.append(True))
    scene.run()
    scene.give_id()
    assert not drained
    scene.answer_produce()
    scene.run(1)
    assert drained
    scene.assert_nothing_stays()


def test_a_drain_waits_for_what_wants_no_answer_and_was_queued_after_a_fetch() -> None:
    scene = RaisingScene()
    scene.send(fetch(1, wait_ms=60_000), produce(2, message_set(b"2"), acks=0))
    drained: list[bool] = []
    scene.engine.drain(lambda: drained.append(True))
    scene.run()
    assert not drained
    scene.give_id()
    assert values_that_follow(scene) == [b"2"]
    scene.run()
    assert drained
    scene.assert_nothing_stays()


# ---------------------------------------------------------------------- clients that authenticate at their broker
def test_a_client_that_authenticates_writes_over_its_own_connection() -> None:
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    for number in (3, 4):
        scene.send(produce(number, ONE))
        if number == 3:
            scene.give_id()
        scene.answer_produce()
    scene.send(metadata(5))
    scene.answer_metadata(1, 0)
    assert scene.line.answers == [1, 2, 3, 4, 5]
    assert scene.connects == 1
    scene.assert_nothing_stays()


def test_what_the_broker_owes_for_a_set_comes_before_the_next_request_on_the_same_connection() -> None:
    """One of two partitions has moved, so it is asked who leads; meanwhile the other one is written."""
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    scene.send(produce(3, ONE, ONE), metadata(4))
    scene.give_id()
    end = scene.waiting(ApiKey.PRODUCE)
    both = bytearray(scene.produce_answer(end.frames[0]))
    at = both.index(b"\0\0\0\0\0\0", both.index(b"t") + 5)
    both[at + 4 : at + 6] = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND).to_bytes(2, "big")
    end.answer(bytes(both))
    scene.run(3)
    assert not scene.line.is_lost
    keys = [key for end in scene.ends for key in end.keys]
    assert keys, "the batch is out again, or who leads is asked"
    while scene.ends[0].keys and scene.line.answers == [1, 2]:
        if scene.ends[0].keys[0] == ApiKey.METADATA:
            scene.answer_metadata(4, scene.broker.number)
        else:
            scene.answer_produce()
        scene.run(1)
    assert scene.line.answers[:3] == [1, 2, 3]
    scene.answer_metadata(1, 0)
    assert scene.line.answers == [1, 2, 3, 4]
    scene.assert_nothing_stays()


def test_a_silent_broker_costs_an_authenticated_client_its_connection_after_its_answer() -> None:
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    scene.send(produce(3, ONE, timeout_ms=4000), metadata(4))
    scene.give_id()
    assert scene.world.network.run(10, partial(getattr, scene.line, "is_lost"))
    assert scene.line.answers == [1, 2, 3]
    assert scene.code() == TIMED_OUT
    scene.assert_nothing_stays()


@pytest.mark.parametrize("acks", [-1, 0])
def test_the_connection_of_an_authenticated_client_that_leaves_is_kept_for_the_outcome(acks: int) -> None:
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    begun(scene, produce(3, ONE, acks=acks))
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run()
    assert not scene.ends[0].is_lost
    assert scene.engine.old_producers.departed._open
    scene.answer_produce()
    scene.run()
    assert scene.ends[0].is_lost
    scene.assert_nothing_stays()


def test_an_authenticated_client_without_acks_may_leave_before_its_batch_is_out() -> None:
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    scene.send(produce(3, ONE, acks=0))
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run()
    scene.give_id()
    scene.answer_produce()
    scene.run()
    scene.assert_nothing_stays()
    assert scene.ends[0].is_lost


def test_a_client_that_reads_no_answers_gets_its_batch_written_all_the_same() -> None:
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    (session,) = scene.engine.sessions
    scene.send(produce(3, ONE))
    scene.give_id()
    session.handler.hold_upstream(True)
    scene.answer_produce()
    assert scene.line.answers == [1, 2, 3]


def test_an_answer_of_the_broker_that_cannot_be_read_ends_the_connection_and_is_named() -> None:
    scene = RaisingScene()
    scene.send(fetch(1))
    scene.answer(ApiKey.FETCH, b"\xff" * 20)
    scene.run()
    assert scene.line.is_lost
    (refused,) = [event for _, _, event in scene.proxy.events if isinstance(event, ClientRefused)]
    assert refused.what.startswith("the broker's answer cannot be read: ")
    scene.assert_nothing_stays()


def test_behind_a_load_balancer_one_address_may_have_all_producer_ids() -> None:
    scene = RaisingScene()
    client, place = ClientIdentity("10.0.0.1", "old"), Place(TOPIC, 0)

    def asked_for() -> int:
        (pool, _), asked = scene.engine.old_producers.pools, 0
        while pool.ask_or_wait(client, [place], client, lambda: None):
            asked += 1
        return asked

    assert asked_for() == limits.OLD_PRODUCER_IDS_PER_IP_MAX
    scene.engine.set_caps(replace(scene.engine.caps, connections_per_ip_max=0))
    assert limits.OLD_PRODUCER_IDS_PER_IP_MAX + asked_for() == limits.OLD_PRODUCER_IDS_MAX


# ---------------------------------------------------------------------- clients that leave
def leave(scene: RaisingScene) -> None:
    """Reset the connection."""
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run()
    assert not scene.engine.sessions


def values_that_follow(scene: RaisingScene) -> list[bytes | None]:
    """Of what is out, and of what follows as it is answered."""
    found: list[bytes | None] = []
    while any(end.keys[:1] == [ApiKey.PRODUCE] for end in scene.ends):
        frame = scene.waiting(ApiKey.PRODUCE).frames[0]
        for part in scene.parts(frame):
            (stored,) = iterate_stored(part.records or b"")
            found += [one.value for one in iterate_records(stored.records, stored.header, 1 << 20, is_stored=True)]
        scene.answer_produce()
    return found


@pytest.mark.parametrize("acks", [-1, 0])
def test_what_wants_no_answer_is_written_though_its_client_left_before_its_turn(acks: int) -> None:
    scene = RaisingScene()
    queued = [produce(number, message_set(b"%d" % number), acks=0) for number in (2, 3)]
    begun(scene, produce(1, message_set(b"1"), acks=acks), *queued)
    leave(scene)
    assert values_that_follow(scene) == [b"1", b"2", b"3"]
    scene.assert_nothing_stays()
    assert all(end.is_lost for end in scene.ends)


def test_nothing_else_of_a_client_that_left_goes_on() -> None:
    scene = RaisingScene()
    others = [produce(2, message_set(b"2")), fetch(3), metadata(4), produce(5, message_set(b"5"), acks=0)]
    begun(scene, produce(1, message_set(b"1"), acks=0), *others, produce(6, message_set(b"6"), acks=0)[:-1])
    leave(scene)
    assert values_that_follow(scene) == [b"1", b"5"]
    assert not any(end.keys for end in scene.ends)
    scene.assert_nothing_stays()


def test_what_wants_no_answer_is_written_though_another_request_was_under_way() -> None:
    scene = RaisingScene()
    scene.send(fetch(1, wait_ms=60_000), produce(2, message_set(b"2"), acks=0))
    leave(scene)
    scene.give_id()
    assert values_that_follow(scene) == [b"2"]
    scene.assert_nothing_stays()


def test_after_a_request_that_fails_nothing_more_of_a_client_without_acks_is_written() -> None:
    """A broker closes the connection of such a client, and drops what it has read of it."""
    scene = RaisingScene()
    begun(scene, *[produce(number, message_set(b"%d" % number), acks=0) for number in (1, 2)])
    leave(scene)
    scene.answer_produce(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    assert values_that_follow(scene) == []
    scene.assert_nothing_stays()


def test_what_a_client_has_left_is_begun_within_a_bounded_time() -> None:
    scene = RaisingScene()
    begun(scene, *[produce(number, message_set(b"%d" % number), acks=0, timeout_ms=120_000) for number in (1, 2)])
    leave(scene)
    scene.run(limits.LEFT_REQUESTS_SECONDS_MAX + 1)
    assert values_that_follow(scene) == [b"1"]
    scene.assert_nothing_stays()


def test_what_a_client_has_left_takes_no_pass_for_itself_and_a_drain_waits_for_all_of_it() -> None:
    scene = RaisingScene()
    budget, now = scene.engine.loop_budget, scene.proxy.host.now
    in_long_passes: list[bool] = []
    long_ago = now() - 1

    def wall_clock_ms() -> int:
        in_long_passes.append(budget.began_at == long_ago)
        budget.began_at = long_ago
        return 0

    scene.send(fetch(1, wait_ms=60_000), *(produce(number, acks=0) for number in range(2, 12)))
    scene.engine.old_producers.wall_clock_ms = wall_clock_ms
    assert scene.line.wire is not None
    scene.line.wire.reset()
    assert scene.world.network.run(1, lambda: bool(in_long_passes))
    assert not scene.engine.sessions
    drained: list[int] = []
    scene.engine.drain(lambda: drained.append(len(in_long_passes)))
    scene.run()
    assert in_long_passes == [False] * 10
    assert drained == [10]
    scene.assert_nothing_stays()


def test_an_authenticated_client_without_acks_may_leave_with_several_batches_queued() -> None:
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    scene.send(*[produce(number, message_set(b"%d" % number), acks=0) for number in (3, 4)])
    leave(scene)
    scene.give_id()
    assert values_that_follow(scene) == [b"3", b"4"]
    scene.run()
    assert scene.ends[0].is_lost
    scene.assert_nothing_stays()


def test_an_authenticated_client_that_left_while_its_broker_owes_an_answer_has_nothing_written() -> None:
    scene = RaisingScene(requires_login=True)
    scene.log_in()
    scene.send(fetch(3, wait_ms=60_000), produce(4, message_set(b"4"), acks=0))
    leave(scene)
    assert scene.ends[0].is_lost
    assert values_that_follow(scene) == []
    scene.assert_nothing_stays()


def test_what_clients_have_left_is_counted_in_the_memory_of_all() -> None:
    scene = RaisingScene()
    large = message_set(bytes(20_000))
    begun(scene, produce(1, ONE, acks=0), produce(2, large, acks=0))
    leave(scene)
    assert scene.engine.memory.bytes_held > len(large)
    scene.answer_produce()
    scene.run()
    scene.answer_produce()
    scene.assert_nothing_stays()


def test_a_conditional_topic_takes_no_message_set_and_its_broker_is_not_asked() -> None:
    scene = RaisingScene()
    scene.engine.conditional_topics = ConditionalTopics([TOPIC])
    scene.send(produce(1, ONE, ONE), metadata(3))
    assert scene.line.answers == [1]
    assert scene.code() == ErrorCode.POLICY_VIOLATION
    assert scene.keys() == [[ApiKey.METADATA]]
    scene.answer_metadata(1, 0)
    assert scene.line.answers == [1, 3]
    scene.assert_nothing_stays()
