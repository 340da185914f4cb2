"""Trials of the adversarial reading."""

from __future__ import annotations

import pytest
from simulation.test_own_ids import INVALID_RECORD, PLACE, RETRIABLE, OwnScene, codes

from simulation.test_forms import Scene

from testkit.virtual.broker_faults import BrokerFault
from testkit.virtual.releases import KEEPS_2_8, RAISED_2_8, Release
from testkit.virtual.world import World, WorldSettings


def test_an_old_offset_with_an_error_code_is_compared_too() -> None:
    """F: duplicate answer of the broker (old offset, other content), with code 7/20/6/3: acknowledged, never stored."""
    scene = OwnScene()
    scene.send()
    scene.write_past(1, b"somebody else")
    scene.world.clients[1].send(*PLACE)
    scene.run(2.0)
    scene.fail_next(BrokerFault.ERROR_AFTER_APPEND)
    refused = scene.send(seconds=30.0)
    assert 0 not in codes(refused), (codes(refused), scene.named())


def test_an_old_offset_with_an_error_code_in_the_place_of_an_unrecoverable_batch() -> None:
    """Only through proxies: A is unrecoverable, as the log could not be read; then it can be. B has its numbers."""
    scene = OwnScene()
    scene.send()
    scene.fail_next(BrokerFault.LOST_ANSWER)
    lost = scene.client.send(*PLACE)
    scene.run(0.1)
    kept = list(scene.log.messages)
    start = scene.log.start_offset
    scene.log.messages.clear()
    scene.log.start_offset = scene.log.end_offset
    scene.run(30.0)
    assert INVALID_RECORD in codes(lost)
    scene.log.messages[:] = kept
    scene.log.start_offset = start
    identity = lost.answers[0].identity
    scene.fail_next(BrokerFault.ERROR_AFTER_APPEND)
    scene.world.double.produce(scene.world.proxies[0].address, PLACE, identity)
    scene.run(30.0)
    (answer,) = scene.world.double.answers
    assert answer[2] in (*RETRIABLE, INVALID_RECORD), (answer, scene.named())


def unreadable_then_readable(scene: OwnScene) -> object:
    """A is in the log and known to the broker, and its client was told that it is not known whether it is stored."""
    scene.send()
    scene.fail_next(BrokerFault.LOST_ANSWER)
    lost = scene.client.send(*PLACE)
    scene.run(0.1)
    kept, start = list(scene.log.messages), scene.log.start_offset
    scene.log.messages.clear()
    scene.log.start_offset = scene.log.end_offset
    scene.run(30.0)
    assert INVALID_RECORD in codes(lost)
    scene.log.messages[:] = kept
    scene.log.start_offset = start
    return lost.answers[0].identity


def test_a_second_try_in_the_place_of_an_unrecoverable_batch_is_compared_too() -> None:
    """B's first try is refused with a retriable code; the memory of A is gone then."""
    scene = OwnScene()
    identity = unreadable_then_readable(scene)
    scene.world.cluster.rates = type(scene.world.cluster.rates)(refusals=(19,))
    scene.fail_next(BrokerFault.REFUSED)
    address = scene.world.proxies[0].address
    scene.world.double.produce(address, PLACE, identity)
    scene.run(5.0)
    scene.world.double.produce(address, PLACE, identity)
    scene.run(30.0)
    found = [answer[2] for answer in scene.world.double.answers]
    print(scene.world.double.answers, scene.named(), scene.log.producers)
    assert 0 not in found, (scene.world.double.answers, scene.named())


def test_a_second_try_soon_after_is_compared_too() -> None:
    """The same within ten seconds of the producer's last append: the bound is the end of that."""
    scene = OwnScene()
    scene.send(seconds=0.5)
    scene.fail_next(BrokerFault.LOST_ANSWER)
    lost = scene.client.send(*PLACE)
    scene.run(0.1)
    kept = list(scene.log.messages)
    del scene.log.messages[1:]
    for _ in range(300):
        scene.run(0.1)
        if INVALID_RECORD in codes(lost):
            break
    assert INVALID_RECORD in codes(lost)
    scene.log.messages[:] = kept
    identity = lost.answers[0].identity
    scene.world.cluster.rates = type(scene.world.cluster.rates)(refusals=(19,))
    scene.fail_next(BrokerFault.REFUSED)
    address = scene.world.proxies[0].address
    scene.world.double.produce(address, PLACE, identity)
    scene.run(0.5)
    scene.world.double.produce(address, PLACE, identity)
    scene.run(30.0)
    found = [answer[2] for answer in scene.world.double.answers]
    print(lost.answers, scene.world.double.answers, scene.named())
    assert 0 not in found, (scene.world.double.answers, scene.named())


def test_a_retry_of_what_a_broker_has_converted_up_is_found_by_its_content() -> None:
    """A topic of format v1 is raised to v2: wrappers that came until that was seen are batches without a marker."""
    scene = Scene(keeps=RAISED_2_8)
    scene.log.keeps_old_format = True
    for _ in range(3):
        assert codes(scene.send()) == [0]
    scene.log.keeps_old_format = False
    batch = scene.send()
    assert codes(batch) == [0]
    assert scene.log.messages[-1].message.producer_id == -1
    scene.restart(1, RAISED_2_8)
    scene.world.double.produce(scene.world.proxies[0].address, PLACE, batch.answers[0].identity, batch.values)
    scene.run(30.0)
    (answer,) = scene.world.double.answers
    print(answer, [(s.message.magic, s.message.marked_as, s.message.producer_epoch) for s in scene.log.messages])
    assert answer[2:] == (0, batch.acknowledged[1])


def test_another_batch_with_the_same_numbers_is_not_committed_by_a_takeover() -> None:
    """A is in the log and unrecoverable. B, with its numbers, is reserved and sent; its proxy dies before the answer."""
    scene = OwnScene(proxies=2)
    scene.send(seconds=0.5)
    scene.fail_next(BrokerFault.LOST_ANSWER)
    lost = scene.client.send(*PLACE)
    scene.run(0.1)
    kept = list(scene.log.messages)
    del scene.log.messages[1:]
    for _ in range(300):
        scene.run(0.1)
        if INVALID_RECORD in codes(lost):
            break
    assert INVALID_RECORD in codes(lost)
    scene.log.messages[:] = kept
    identity = lost.answers[0].identity


    scene.fail_next(BrokerFault.LATE_ANSWER)
    values = [b"another"] * identity.record_count
    alive = [0, 1]
    for number in alive:
        scene.world.double.produce(scene.world.proxies[number].address, PLACE, identity, values)
        scene.run(0.05)
        break
    scene.world.proxies[0].crash()
    scene.run(5.0)
    for _ in range(4):
        scene.world.double.produce(scene.world.proxies[1].address, PLACE, identity, values)
        scene.run(10.0)
    found = [answer[2] for answer in scene.world.double.answers]
    print(scene.world.double.answers, scene.named(), [type(e).__name__ for _, _, e in scene.world.proxies[1].events if 'Taken' in type(e).__name__ or 'Unknown' in type(e).__name__])
    assert 0 not in found


@pytest.mark.parametrize("release", [KEEPS_2_8, RAISED_2_8])
@pytest.mark.parametrize("fault", [BrokerFault.LOST_REQUEST, BrokerFault.LATE_ANSWER])
def test_the_same_in_the_other_forms(release: Release, fault: BrokerFault) -> None:
    """B is never appended (LOST_REQUEST), or appended (LATE_ANSWER), and its proxy dies."""
    scene = Scene(keeps=release, proxies=2)
    scene.send(seconds=0.5)

    def next_fault(one: BrokerFault) -> None:
        def once(_seen: object) -> BrokerFault:
            scene.world.cluster.choose_fault = lambda _seen: BrokerFault.NONE
            return one

        scene.world.cluster.choose_fault = once

    next_fault(BrokerFault.LOST_ANSWER)
    lost = scene.client.send(*PLACE)
    scene.run(0.1)
    kept = list(scene.log.messages)
    del scene.log.messages[1:]
    for _ in range(300):
        scene.run(0.1)
        if INVALID_RECORD in codes(lost):
            break
    assert INVALID_RECORD in codes(lost)
    scene.log.messages[:] = kept
    identity = lost.answers[0].identity
    next_fault(fault)
    values = [b"another"] * identity.record_count
    scene.world.double.produce(scene.world.proxies[0].address, PLACE, identity, values)
    scene.run(0.05)
    scene.world.proxies[0].crash()
    scene.run(5.0)
    for _ in range(4):
        scene.world.double.produce(scene.world.proxies[1].address, PLACE, identity, values)
        scene.run(10.0)
    print([a[2:] for a in scene.world.double.answers], [(s.first_offset, s.message.magic, s.message.records) for s in scene.log.messages])
    assert 0 not in [answer[2] for answer in scene.world.double.answers] or len(scene.log.messages) > 2


@pytest.mark.parametrize(("first", "then"), [(KEEPS_2_8, RAISED_2_8), (RAISED_2_8, KEEPS_2_8)], ids=["up", "down"])
@pytest.mark.parametrize("has_pass_through", [False, True])
def test_a_group_that_waited_for_redis_is_not_sent_in_a_form_that_its_broker_has_left(
    has_pass_through: bool, first: Release, then: Release
) -> None:
    """Redis stays away while it is reserved, and the broker comes back with another format meanwhile."""
    how = WorldSettings(clocks=((0.0, 1.0),), brokers=1, clients=1, has_pass_through=has_pass_through)
    world = World(1, how)
    for broker in world.cluster.brokers.values():
        broker.release = broker.next_release = first
    log = world.cluster.log(*PLACE)
    world.start()
    batch = world.clients[0].send(*PLACE)
    world.network.run(5.0)
    assert 0 in codes(batch)
    world.redis.restart(down_seconds=3.0)
    late = world.clients[0].send(*PLACE)
    world.network.run(0.05)
    world.cluster.upgrade_broker(1, then, is_clean=True, down_seconds=0.3)
    world.network.run(0.5)
    world.cluster.move_leader(*PLACE, 1, keep=True)
    world.network.run(40.0)
    print(codes(late), [(s.message.magic, s.message.marked_as, s.message.producer_id) for s in log.messages])
    kept = [(s.message.magic == 2) == (then.message_format == 2) for s in log.messages[1:]]
    assert kept and all(kept)
    if then.message_format == 2:
        assert all(s.message.marked_as is not None for s in log.messages[1:])


@pytest.mark.parametrize("delay", [0.002, 0.005, 0.01, 0.02])
def test_a_comparison_that_fails_for_a_moment_is_no_proof_of_other_records(delay: float) -> None:
    """The batch is in the log already, below the bound, with the same content; its broker dies before it is read."""
    scene = OwnScene(brokers=2)
    scene.send()
    scene.write_past(1, b"client-1/t-0/1")
    scene.world.clients[1].send(*PLACE)
    scene.run(2.0)
    cluster = scene.world.cluster
    leader = cluster.leader_of(*PLACE) if hasattr(cluster, "leader_of") else 1

    def once(_seen: object) -> BrokerFault:
        cluster.choose_fault = lambda _seen: BrokerFault.NONE
        scene.world.network.schedule(delay, lambda: cluster.crash_broker(leader))
        return BrokerFault.NONE

    cluster.choose_fault = once
    batch = scene.send(seconds=40.0)
    print(codes(batch), scene.named())
    assert INVALID_RECORD not in codes(batch)
