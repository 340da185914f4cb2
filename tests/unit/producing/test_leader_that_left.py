"""A broker that has left, and leads what another topic's Metadata did not mention."""

from __future__ import annotations

from idemproxy.client.records import Record, finish
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.producing.cluster import Cluster
from idemproxy.producing.numbered_batch import Place, ProducerId
from idemproxy.producing.producer_core import ProducerCore, Timing

BUSY, IDLE = Place("busy", 0), Place("idle", 0)
BATCH = finish([Record(b"v", timestamp_ms=1)])
BROKERS = {1: ("one", 9092), 2: ("two", 9092)}


def test_a_leader_that_is_not_listed_any_more_is_asked_for() -> None:
    core = ProducerCore(ProducerId(7), {}, Timing(100.0, 30.0))
    for place in (BUSY, IDLE):
        core.submit(place, BATCH, 0.0, None)
    assert core.topics_to_ask_for(0.0) == ["busy", "idle"]
    core.learned(["busy", "idle"], Cluster(BROKERS, {BUSY: 2, IDLE: 2}, {"busy": (0,), "idle": (0,)}, {}), 0.0)
    request = core.take_request(2, 0.0)
    assert request is not None
    core.answered(2, request, [PartitionAnswer(*place, 0, 0) for place in request.batches], 0.0, 0.1)
    # broker 2 dies while one of the topics has a batch there
    core.submit(BUSY, BATCH, 1.0, None)
    assert core.take_request(2, 1.0) is not None
    core.lost(2, 1.1)
    assert core.topics_to_ask_for(1.2) == ["busy"]
    core.learned(["busy"], Cluster({1: BROKERS[1]}, {BUSY: 1}, {"busy": (0,)}, {}), 1.2)
    # the other topic has a new leader as well, but nobody has asked
    core.submit(IDLE, BATCH, 2.0, None)
    where = core.cluster.leaders.get(IDLE)
    assert where in core.cluster.brokers or "idle" in core.topics_to_ask_for(2.0)


def test_a_batch_that_waits_for_an_unlisted_leader_asks_for_it() -> None:
    core = ProducerCore(ProducerId(7), {}, Timing(100.0, 30.0))
    core.submit(IDLE, BATCH, 0.0, None)
    assert core.topics_to_ask_for(0.0) == ["idle"]
    core.learned(["idle"], Cluster(BROKERS, {IDLE: 2}, {"idle": (0,)}, {}), 0.0)
    core.submit(BUSY, BATCH, 0.0, None)  # before broker 2 is connected to
    assert core.topics_to_ask_for(0.2) == ["busy"]
    core.learned(["busy"], Cluster({1: BROKERS[1]}, {BUSY: 1}, {"busy": (0,)}, {}), 0.2)
    assert core.topics_to_ask_for(1.0) == ["idle"]


def test_a_leader_is_asked_for_again_though_the_batch_before_expired() -> None:
    core = ProducerCore(ProducerId(7), {}, Timing(10.0, 30.0))
    core.submit(IDLE, BATCH, 0.0, None)
    core.topics_to_ask_for(0.0)
    core.learned(["idle"], Cluster(BROKERS, {IDLE: 2}, {"idle": (0,)}, {}), 0.0)
    core.submit(BUSY, BATCH, 0.0, None)
    core.topics_to_ask_for(0.2)
    core.learned(["busy"], Cluster({1: BROKERS[1]}, {BUSY: 1}, {"busy": (0,)}, {}), 0.2)
    for life in range(3):  # broker 2 is back for long, or another one leads: nobody asks
        now = 20.0 * (life + 1)
        core.expire(now)
        core.start_at(IDLE, 0)
        core.submit(IDLE, BATCH, now, None)
        assert core.topics_to_ask_for(now) == ["idle"], life
        core.not_learned(now)
