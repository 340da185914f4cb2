"""A producer over several partitions and leaders: what goes into a request, and when."""

from __future__ import annotations

import pytest

from idemproxy.client.records import Record, finish
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.producing import limits
from idemproxy.producing.errors import BehindFailed, Fenced, OutOfOrder, Undecided
from idemproxy.producing.numbered_batch import Place, ProducerId, Receipt
from idemproxy.producing.producer_core import ProducerCore, Request, Timing
from testkit.stage.client import cluster_with_leader

PLACES = [Place("t", number) for number in range(4)]
BATCH = finish([Record(b"v", timestamp_ms=1)])
LARGE = finish([Record(bytes(limits.REQUEST_BYTES_MAX // 2), timestamp_ms=1)])


def core_of(*, delivery_seconds_max: float = 100.0) -> ProducerCore:
    core = ProducerCore(ProducerId(7), {}, Timing(delivery_seconds_max, 30.0))
    core.submit(PLACES[0], BATCH, 0.0, None)  # whose leaders are asked for
    assert core.topics_to_ask_for(0.0) == ["t"]
    core.learned(["t"], cluster_with_leader(*PLACES), 0.0)
    return core


def taken(core: ProducerCore, now: float = 0.0, broker: int = 0) -> Request:
    request = core.take_request(broker, now)
    assert request is not None
    return request


def all_stored(request: Request, offset: int = 0) -> list[PartitionAnswer]:
    return [PartitionAnswer(*place, 0, offset) for place in request.batches]


def test_one_request_has_a_batch_of_each_partition() -> None:
    core = core_of()
    for place in PLACES:
        core.submit(place, BATCH, 0.0, place)
    assert list(taken(core).batches) == PLACES
    assert core.take_request(0, 0.0) is None, "the first one of each goes alone"
    assert core.take_request(1, 0.0) is None


def test_a_request_has_a_limit_and_the_rest_comes_next() -> None:
    core = core_of()
    for place in PLACES[1:]:
        core.submit(place, LARGE, 0.0, None)
    first = taken(core)
    assert list(first.batches) == PLACES[:2]
    assert [list(taken(core).batches) for _ in range(2)] == [[PLACES[2]], [PLACES[3]]]
    assert core.take_request(0, 0.0) is None


def test_five_requests_are_in_flight() -> None:
    core = core_of()
    core.answered(0, taken(core), [PartitionAnswer(*PLACES[0], 0, 0)], 0.0, 0.0)
    for _ in range(8):
        core.submit(PLACES[0], BATCH, 0.0, None)
    core.answered(0, taken(core), [PartitionAnswer(*PLACES[0], 0, 1)], 0.0, 0.0)
    requests = [taken(core) for _ in range(5)]
    assert core.take_request(0, 0.0) is None
    core.answered(0, requests[0], all_stored(requests[0]), 0.0, 0.0)
    taken(core)


def test_a_throttled_client_waits() -> None:
    core = core_of()
    request = taken(core)
    core.submit(PLACES[1], BATCH, 0.0, None)
    core.answered(0, request, all_stored(request), 2.0, 10.0)
    assert core.take_request(0, 11.9) is None
    assert core.broker_wakes_at(0, 11.9) == 12.0
    taken(core, 12.0)


def test_what_has_to_go_again_waits_longer_each_time() -> None:
    core = core_of()
    now, pauses = 0.0, []
    for _ in range(7):
        request = taken(core, now)
        core.answered(0, request, [PartitionAnswer(*PLACES[0], 19, -1)], 0.0, now)
        assert core.take_request(0, now) is None
        wakes_at = core.broker_wakes_at(0, now)
        assert wakes_at is not None
        pauses.append(round(wakes_at - now, 3))
        now = wakes_at
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]


def test_an_answer_that_lacks_a_partition_leaves_it_in_doubt_and_it_goes_again() -> None:
    core = core_of(delivery_seconds_max=5.0)
    assert core.answered(0, taken(core), [], 0.0, 0.0) == []
    assert core.topics_to_ask_for(1.0) == ["t"]
    (outcome,) = core.expire(5.0)
    assert isinstance(outcome.result, Undecided)


def test_a_leader_that_moves_gets_nothing_while_the_old_one_has_a_batch() -> None:
    core = core_of()
    request = taken(core)
    core.submit(PLACES[0], BATCH, 0.0, None)
    core.learned(["t"], cluster_with_leader(*PLACES, leader=1), 0.0)
    assert core.take_request(1, 0.0) is None
    assert core.brokers() == [0, 1]
    core.answered(0, request, [PartitionAnswer(*PLACES[0], 6, -1)], 0.0, 0.0)
    assert core.take_request(0, 9.0) is None
    assert list(taken(core, 9.0, broker=1).batches) == PLACES[:1]
    assert core.brokers() == [1]


def test_an_overdue_answer_is_seen() -> None:
    core = core_of()
    taken(core, 1.0)
    assert not core.is_overdue(0, 30.9)
    assert core.broker_wakes_at(0, 30.9) == 31.0
    assert core.is_overdue(0, 31.0)
    assert core.lost(0, 31.0) == []
    assert not core.is_overdue(0, 31.0)


def test_who_leads_is_asked_again_with_pauses_until_it_is_known() -> None:
    core = ProducerCore(ProducerId(7), {}, Timing(100.0, 30.0))
    core.submit(PLACES[0], BATCH, 0.0, None)
    assert core.topics_to_ask_for(0.0) == ["t"]
    assert core.topics_to_ask_for(0.0) == [], "that answer is not here yet"
    assert core.wakes_at(0.0) == 100.0
    core.not_learned(0.0)
    assert core.topics_to_ask_for(0.05) == []
    wakes_at = core.wakes_at(0.05)
    assert wakes_at == limits.METADATA_SECONDS_MIN
    assert core.topics_to_ask_for(wakes_at) == ["t"]
    core.learned(["t"], cluster_with_leader(Place("t", 9)), wakes_at)
    assert core.topics_to_ask_for(wakes_at) == []
    assert core.topics_to_ask_for(9.0) == ["t"]
    core.learned(["t"], cluster_with_leader(*PLACES), 9.0)
    assert core.topics_to_ask_for(99.0) == []
    taken(core, 9.0)


def test_a_fenced_producer_ends_on_every_partition() -> None:
    core = core_of()
    core.submit(PLACES[1], BATCH, 0.0, None)
    request = taken(core)
    core.submit(PLACES[2], BATCH, 0.0, None)
    answers = [PartitionAnswer(*PLACES[0], 47, -1), PartitionAnswer(*PLACES[1], 0, 5)]
    outcomes = {one.batch.place: one.result for one in core.answered(0, request, answers, 0.0, 0.0)}
    assert isinstance(outcomes[PLACES[0]], Fenced)
    assert isinstance(outcomes[PLACES[1]], Receipt)
    assert isinstance(outcomes[PLACES[2]], BehindFailed)
    with pytest.raises(Fenced):
        core.submit(PLACES[3], BATCH, 0.0, None)
    with pytest.raises(Fenced):
        core.start_at(PLACES[0], 0)
    assert core.is_idle


def test_a_failed_partition_takes_nothing_until_it_has_a_start_sequence() -> None:
    core = core_of()
    core.answered(0, taken(core), [PartitionAnswer(*PLACES[0], 45, -1)], 0.0, 0.0)
    with pytest.raises(OutOfOrder):
        core.submit(PLACES[0], BATCH, 0.0, None)
    core.submit(PLACES[1], BATCH, 0.0, None)
    assert [type(one) for one in core.failures] == [OutOfOrder]
    core.start_at(PLACES[0], 5)
    assert core.submit(PLACES[0], BATCH, 0.0, None).header.base_sequence == 5
    with pytest.raises(ValueError, match="without an outcome"):
        core.start_at(PLACES[0], 6)
    assert core.next_sequences() == {PLACES[0]: 6, PLACES[1]: 1}


def test_the_buffer_is_counted_until_the_outcome() -> None:
    core = core_of()
    assert core.buffered_bytes == len(BATCH)
    request = taken(core)
    core.answered(0, request, all_stored(request), 0.0, 0.0)
    assert core.buffered_bytes == 0


def test_an_answer_that_only_makes_room_leaves_nothing_else_to_do() -> None:
    core = core_of()
    first = taken(core)
    core.answered(0, first, all_stored(first), 0.0, 0.0)
    assert not core.take_unfinished()
    for _ in range(2):
        core.submit(PLACES[0], BATCH, 0.0, None)
    second = taken(core)
    core.answered(0, second, [PartitionAnswer(*PLACES[0], 6, -1)], 0.0, 0.0)
    assert core.take_unfinished(), "its leader is to be asked for"
    assert not core.take_unfinished()
    third = taken(core, 9.0)
    core.learned(["t"], cluster_with_leader(*PLACES, leader=1), 9.0)
    core.answered(0, third, all_stored(third, 1), 0.0, 9.0)
    assert core.take_unfinished(), "what waits may go to another leader now"
    taken(core, 9.0, broker=1)
    core.lost(1, 9.0)
    assert core.take_unfinished()
