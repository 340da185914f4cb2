"""How many produce connections a broker has, what a request takes, and that slow partitions keep nobody else waiting
(rules R5, R19): real produce connections and a broker's ends, on a virtual network."""

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.flow.outcome import Appended
from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.produce_connections import WIDE, ProduceConnections
from testkit.virtual.world import TOPIC

KIB = 1024
HUNDRED_KIB = 100 * KIB
TIMED_OUT = 7
LATE = 0.35
"""Seconds after which a request is late, where answers are fast."""


def answer_in_time(produce_connections: ProduceConnections, rounds: int = 5) -> None:
    """Let answers come as usual for a while."""
    for _ in range(rounds):
        produce_connections.append(90)
        produce_connections.run(0.01)
        produce_connections.answer_all()


# ---------------------------------------------------------------------- how many
@pytest.mark.parametrize("produce_connections_max", [1, 16])
def test_produce_connections_are_opened_as_appends_wait_up_to_the_setting(produce_connections_max: int) -> None:
    produce_connections = ProduceConnections(produce_connections_max=produce_connections_max)
    for number in range(20):
        assert len(produce_connections.out) == min(number, produce_connections_max)
        produce_connections.append(0)
        produce_connections.run(0.005)
    assert produce_connections.pool.waiting_appends == 20 - produce_connections_max


def test_one_produce_connection_serves_as_long_as_nothing_waits() -> None:
    produce_connections = ProduceConnections()
    for partition in range(20):
        produce_connections.append(partition)
        produce_connections.run(0.005)
        produce_connections.answer_all()
    assert len(produce_connections.ends) == 1


def test_produce_connections_that_are_idle_for_a_while_are_closed_but_for_one() -> None:
    produce_connections = ProduceConnections()
    for _ in range(6):
        produce_connections.append(0)
        produce_connections.run(0.005)
    produce_connections.answer_all()
    assert produce_connections.pool.idle_produce_connections == 6
    for _ in range(20):  # one of them has something to do
        produce_connections.run(limits.PRODUCE_CONNECTION_IDLE_SECONDS / 10)
        produce_connections.append(0)
        produce_connections.run(0.005)
        produce_connections.answer_all()
    assert produce_connections.pool.idle_produce_connections == 1
    assert sum(not end.is_lost for end in produce_connections.ends) == 1


def test_a_lower_setting_holds_for_what_comes_next() -> None:
    produce_connections = ProduceConnections()
    for _ in range(6):
        produce_connections.append(0)
        produce_connections.run(0.005)
    produce_connections.produce_connections_max = 2
    produce_connections.answer_all()
    for _ in range(6):
        produce_connections.append(0)
    produce_connections.run()
    assert produce_connections.pool.busy_produce_connections == 2


# ---------------------------------------------------------------------- what a request takes
def test_a_request_takes_little_while_there_are_produce_connections_enough() -> None:
    produce_connections = ProduceConnections(WIDE)
    for partition in range(8):
        produce_connections.append(partition, size=HUNDRED_KIB)
    produce_connections.run()
    assert sorted(produce_connections.out) == [[partition] for partition in range(8)]


def test_a_request_takes_more_when_produce_connections_are_scarce() -> None:
    produce_connections = ProduceConnections(WIDE, produce_connections_max=2)
    for partition in range(40):
        produce_connections.append(partition, size=HUNDRED_KIB)
    produce_connections.run()
    first, second = produce_connections.out
    assert len(first) == limits.PRODUCE_CONNECTION_REQUEST_BYTES_MAX // HUNDRED_KIB
    assert len(first) + len(second) == 40
    sizes = [sum(len(data) for _, _, data in end.produced) for end in produce_connections.ends]
    assert max(sizes) <= limits.PRODUCE_CONNECTION_REQUEST_BYTES_MAX


def test_what_is_larger_than_a_request_may_be_goes_alone() -> None:
    produce_connections = ProduceConnections(WIDE, produce_connections_max=1)
    for partition in range(3):
        produce_connections.append(partition, size=2 * limits.PRODUCE_CONNECTION_REQUEST_BYTES_MAX)
    seen = []
    for _ in range(3):
        produce_connections.run(0.5)
        seen += produce_connections.out
        produce_connections.answer_all()
    assert seen == [[0], [1], [2]]


# ---------------------------------------------------------------------- R5
@pytest.mark.promise("short-timeout")
def test_the_least_patient_client_does_not_shorten_the_time_of_others() -> None:
    produce_connections = ProduceConnections()
    for partition, timeout_ms in enumerate((30_000, 1000, 10_000, 1500, 5000, 30_000)):
        produce_connections.append(partition, timeout_ms=timeout_ms)
    produce_connections.run()
    given = {
        tuple(end.partitions): kafka.parse_produce(kafka.parse_request(end.frames[0]).body).timeout_ms
        for end in produce_connections.ends
    }
    assert given == {(0, 2, 5): 5000, (1, 3): 500, (4,): 2500}


# ---------------------------------------------------------------------- R19
@pytest.mark.promise("slow-partition")
def test_partitions_are_unverified_while_their_late_request_is_out() -> None:
    produce_connections = ProduceConnections()
    answer_in_time(produce_connections)
    for partition in (0, 1, 2):
        produce_connections.append(partition)
    produce_connections.run(LATE)
    assert produce_connections.out == [[0, 1, 2]]
    for partition in (0, 1, 2, 3, 4):
        produce_connections.append(partition)
    produce_connections.run()
    assert sorted(produce_connections.out) == [[0], [0, 1, 2], [1], [2], [3, 4]], "each shows alone whether it is slow"


def test_an_unverified_that_is_answered_in_time_goes_with_the_others_again() -> None:
    produce_connections = ProduceConnections()
    answer_in_time(produce_connections)
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run(LATE)
    first = produce_connections.end_with(0)
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run()
    (trial,) = [end for end in produce_connections.ends if end.partitions == [1]]
    trial.answer_produce()
    produce_connections.run(LATE)
    assert produce_connections.pool.slow_partitions == 1
    for partition in (1, 2):
        produce_connections.append(partition)
    produce_connections.run()
    assert [1, 2] in produce_connections.out
    assert first.partitions == [0, 1], "what it was caught in is still out"


def test_an_unverified_has_one_trial_at_a_time() -> None:
    produce_connections = ProduceConnections()
    answer_in_time(produce_connections)
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run(LATE)
    for _ in range(5):
        produce_connections.append(0)
    produce_connections.run()
    assert sorted(produce_connections.out) == [[0], [0, 1]]
    assert produce_connections.pool.waiting_appends == 4


def slow_ones(produce_connections: ProduceConnections, *partitions: int) -> None:
    """These are slow, and requests of each are out."""
    answer_in_time(produce_connections)
    for partition in partitions:
        produce_connections.append(partition)
        produce_connections.run(0.01)
    produce_connections.run(LATE)
    assert produce_connections.pool.slow_partitions == len(partitions)


def test_slow_partitions_go_together_in_two_produce_connections_at_most() -> None:
    produce_connections = ProduceConnections()
    slow_ones(produce_connections, 0, 1, 2)
    for _ in range(10):
        for partition in (0, 1, 2):
            produce_connections.append(partition)
    produce_connections.run()
    assert sorted(produce_connections.out) == [[0], [0, 1, 2], [0, 1, 2], [1], [2]]


@pytest.mark.promise("slow-partition")
def test_slow_partitions_take_no_produce_connection_of_the_others() -> None:
    produce_connections = ProduceConnections(produce_connections_max=3)
    slow_ones(produce_connections, 0, 1, 2)
    for _ in range(10):
        for partition in (0, 1, 2):
            produce_connections.append(partition)
    produce_connections.run()
    for _ in range(3):
        produce_connections.append(3)
        produce_connections.run(0.01)
    assert produce_connections.out.count([3]) == 3, (
        "three produce connections wait for answers, two are for slow ones, and three more are there"
    )
    produce_connections.append(3)
    produce_connections.run()
    assert produce_connections.out.count([3]) == 3


def test_a_broker_that_stands_still_has_no_more_than_so_many_requests() -> None:
    produce_connections = ProduceConnections(produce_connections_max=3)
    answer_in_time(produce_connections)
    for partition in range(40):
        produce_connections.append(partition)
        produce_connections.run(0.05)
    produce_connections.run(1)
    assert produce_connections.pool.busy_produce_connections == 2 * 3
    for _ in range(5):
        produce_connections.append(0)
        produce_connections.run(0.05)
    produce_connections.run(1)
    assert produce_connections.pool.busy_produce_connections == 2 * 3 + limits.SLOW_PRODUCE_CONNECTIONS_PER_BROKER


def test_only_those_of_which_the_broker_says_so_stay_slow() -> None:
    produce_connections = ProduceConnections()
    answer_in_time(produce_connections)
    for partition in (0, 1, 2):
        produce_connections.append(partition)
    produce_connections.run(LATE)
    end = produce_connections.end_with(0)
    rows = [(TOPIC, partition, TIMED_OUT if partition == 1 else 0, 7) for partition in (0, 1, 2)]
    end.answer(kafka.produce_answer(2, rows))
    produce_connections.run()
    for partition in (0, 1, 2):
        produce_connections.append(partition)
    produce_connections.run()
    assert sorted(produce_connections.out) == [[0, 2], [1]]


def test_a_slow_partition_that_answers_in_time_is_slow_no_longer() -> None:
    produce_connections = ProduceConnections()
    slow_ones(produce_connections, 0)
    produce_connections.answer_all()
    outcomes = produce_connections.append(0)
    produce_connections.run()
    produce_connections.answer_all()
    assert [type(outcome) for outcome in outcomes] == [Appended]
    assert produce_connections.pool.slow_partitions == 0
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run()
    assert produce_connections.out == [[0, 1]]


def test_a_slow_partition_that_was_quiet_is_tried_alone() -> None:
    produce_connections = ProduceConnections()
    slow_ones(produce_connections, 0)
    produce_connections.answer_all()
    produce_connections.run(limits.SLOW_PARTITION_SECONDS + 1)
    produce_connections.append(1)
    produce_connections.append(0)
    produce_connections.append(0)
    produce_connections.run()
    assert sorted(produce_connections.out) == [[0], [1]]


def test_what_is_late_is_measured_by_how_long_answers_take_at_this_broker() -> None:
    produce_connections = ProduceConnections()
    for _ in range(5):
        produce_connections.append(0)
        produce_connections.run(0.15)
        produce_connections.answer_all()
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run(0.9)
    assert produce_connections.pool.slow_partitions == 0
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run(0.05)
    assert produce_connections.out == [[0, 1], [0, 1]], "nobody is a suspect yet"


def test_a_trial_whose_connection_is_lost_has_shown_nothing() -> None:
    produce_connections = ProduceConnections()
    answer_in_time(produce_connections)
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run(LATE)
    for _ in range(2):
        produce_connections.append(0)
    produce_connections.run()
    (trial,) = [end for end in produce_connections.ends if end.partitions == [0]]
    assert trial.wire is not None
    trial.wire.reset()
    produce_connections.run()
    assert [0] in [end.partitions for end in produce_connections.ends if end.frames and not end.is_lost], (
        "the next one is tried"
    )


def test_a_throttling_broker_has_no_slow_partitions() -> None:
    produce_connections = ProduceConnections()
    produce_connections.append(0)
    produce_connections.run()
    produce_connections.ends[0].answer_produce(throttle_ms=1000)
    produce_connections.run()
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run(3)
    produce_connections.ends[0].answer_produce(throttle_ms=3000)
    produce_connections.run()
    for partition in (0, 1):
        produce_connections.append(partition)
    produce_connections.run()
    assert produce_connections.out == [[0, 1]]
