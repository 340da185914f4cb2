"""Merging several producers into one wrapper (DESIGN section 7; rules R5, R6, R9, R10, R19) in whole worlds: one
producer's trouble stays its own, and each finds what is its own in a wrapper that others share."""

import pytest
from simulation.log_records import records_of

from idemproxy.proxy.events import BatchAnswered, DoubtResolved
from idemproxy.proxy.flow.outcome import Appended
from testkit.stage.crowd import Crowd, first_time, resolved
from testkit.stage.sequencer import Client, Stage
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates
from testkit.virtual.world import TOPIC

CORRUPT, NOT_LEADER = 2, 6


def test_producers_that_send_at_the_same_time_share_a_wrapper() -> None:
    crowd = Crowd()
    batches = crowd.send()
    crowd.finish()
    assert [sorted(producers) for producers in crowd.seen] == [sorted(crowd.ids)]
    assert sorted(batch.acknowledged[1] for batch in batches if batch.acknowledged) == [4, 6, 8, 10]
    crowd.check()


def test_without_the_setting_nobody_shares() -> None:
    crowd = Crowd()
    crowd.world.proxies[0].engine.context.options.merges_producers = False
    crowd.send()
    crowd.finish()
    assert sorted(len(producers) for producers in crowd.seen) == [1, 1, 1, 1]
    crowd.check()


def test_a_content_error_costs_nobody_but_the_one_who_is_at_fault() -> None:
    crowd = Crowd()
    bad = crowd.ids[1]
    crowd.world.cluster.rates = BrokerFaultRates(refusals=(CORRUPT,))
    crowd.fault = lambda producers: BrokerFault.REFUSED if bad in producers else BrokerFault.NONE
    batches = crowd.send()
    crowd.finish(2)
    assert [batch.acknowledged is not None for batch in batches] == [True, False, True, True]
    assert [len(producers) for producers in crowd.seen[:5]] == [4, 1, 1, 1, 1], "then one producer at a time"
    crowd.fault = lambda _producers: BrokerFault.NONE
    crowd.send()
    crowd.finish()
    assert max(len(producers) for producers in crowd.seen[5:]) > 1, "what comes later is merged again"
    log, _ = records_of(crowd.world.cluster.log(TOPIC, 0).messages)
    for client in crowd.world.clients:
        values = [value for batch in client.batches if batch.acknowledged for value in batch.values]
        assert [record.value for record in log if record.value in values] == values
    assert crowd.world.errors() == []


def test_a_wrapper_that_is_too_large_is_sent_apart_and_none_as_large_is_made_again() -> None:
    crowd = Crowd()
    crowd.world.cluster.log(TOPIC, 0).message_bytes_max = 330
    crowd.send()
    crowd.finish()
    assert [len(producers) for producers in crowd.seen[:5]] == [4, 1, 1, 1, 1]
    before = len(crowd.seen)
    crowd.send()
    crowd.finish()
    assert max(len(producers) for producers in crowd.seen[before:]) < 4
    crowd.check()


@pytest.mark.parametrize("fault", [BrokerFault.LOST_ANSWER, BrokerFault.WRONG_CORRELATION, BrokerFault.STRAGGLER])
def test_each_finds_its_own_batch_when_the_answer_is_lost(fault: BrokerFault) -> None:
    crowd = Crowd()
    crowd.fault = first_time([fault])
    crowd.send()
    crowd.finish()
    assert [event.result for event in resolved(crowd)] == ["found"] * 4
    assert [len(producers) for producers in crowd.seen] == [4]
    crowd.check()


def test_what_was_lost_is_sent_again_by_each_alone() -> None:
    crowd = Crowd()
    crowd.fault = first_time([BrokerFault.LOST_REQUEST])
    crowd.send()
    crowd.finish()
    assert [len(producers) for producers in crowd.seen] == [4, 1, 1, 1, 1]
    crowd.check()


def test_the_next_doubt_is_resolved_from_the_merged_wrapper_on() -> None:
    crowd = Crowd()
    crowd.send()
    crowd.finish()
    crowd.fault = first_time([BrokerFault.LOST_ANSWER])
    before = sum(event.bytes_read for event in resolved(crowd))
    crowd.send()
    crowd.finish()
    assert before == 0
    wrapper = len(crowd.world.cluster.log(TOPIC, 0).messages[-1].message.data)
    for event in resolved(crowd):
        assert event.bytes_read <= 3 * wrapper, "the anchor holds: the log is not searched from its start"
    crowd.check()


def test_an_error_with_an_offset_is_believed_when_the_whole_wrapper_lies_there() -> None:
    crowd = Crowd()
    crowd.fault = first_time([BrokerFault.ERROR_AFTER_APPEND])
    batches = crowd.send()
    crowd.finish()
    assert [len(producers) for producers in crowd.seen] == [4]
    assert sorted(batch.acknowledged[1] for batch in batches if batch.acknowledged) == [4, 6, 8, 10]
    crowd.check()


def test_an_error_with_an_offset_is_not_believed_when_another_wrapper_lies_there() -> None:
    stage = Stage()
    stage.outcomes.append(lambda append: Appended(stage.take(append), NOT_LEADER, -1, stage.lane, anchor=b"another."))
    request = stage.send(Client(), 0)
    stage.run(10)
    assert [event.result for event in stage.events if isinstance(event, DoubtResolved)] == ["found"]
    assert request.offset == 0
    assert len(stage.sent) == 1


def test_another_proxy_finds_each_producer_in_the_wrapper_of_the_one_that_died() -> None:
    crowd = Crowd(proxies=2)
    first, second = crowd.world.proxies

    def die(_producers: list[int]) -> BrokerFault:
        crowd.fault = lambda _producers: BrokerFault.NONE
        crowd.world.network.schedule(0.002, lambda: first.crash(down_seconds=None))
        return BrokerFault.LATE_ANSWER

    crowd.fault = die
    crowd.send()
    for client in crowd.world.clients:
        client.addresses = [second.address]
    crowd.finish()
    assert [len(producers) for producers in crowd.seen] == [4]
    assert [event.result for event in resolved(crowd)] == ["found"] * 4
    crowd.check()


def test_everybody_is_rebuilt_from_merged_wrappers_when_redis_has_lost_everything() -> None:
    crowd = Crowd()
    crowd.send()
    crowd.finish()
    crowd.world.redis.flush()
    assert not [key for key in crowd.world.redis.data if b"{" in key]
    batches = crowd.send()
    crowd.finish()
    assert not any(batch.was_renumbered or batch.failed for batch in batches), "its sequences go on where they were"
    assert len(crowd.seen[0]) == len(crowd.world.clients), "what was read was merged"
    crowd.check()


def test_a_duplicate_is_looked_up_in_the_middle_of_a_wrapper() -> None:
    crowd = Crowd(proxies=2)
    _, second = crowd.world.proxies
    for client in crowd.world.clients:
        client.read_nothing(30)
    batches = crowd.send()
    crowd.world.network.run(1)
    for client in crowd.world.clients:
        client.addresses = [second.address]
        client.disconnect()
    crowd.finish()
    answered = [event for _, _, event in second.events if isinstance(event, BatchAnswered)]
    assert [event.verdict for event in answered] == ["duplicate"] * 4
    assert sorted(batch.acknowledged[1] for batch in batches if batch.acknowledged) == [4, 6, 8, 10]
    assert [len(producers) for producers in crowd.seen] == [4]
    crowd.check()
