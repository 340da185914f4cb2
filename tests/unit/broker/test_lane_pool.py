"""How many lanes a broker has, what a request takes, and that slow partitions keep nobody else waiting (rules R5,
R19): real lanes and a broker's ends, on a virtual network."""

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.flow.outcome import Appended
from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.lanes import WIDE, Lanes
from testkit.virtual.world import TOPIC

KIB = 1024
HUNDRED_KIB = 100 * KIB
TIMED_OUT = 7
LATE = 0.35
"""Seconds after which a request is late, where answers are fast."""


def answer_in_time(lanes: Lanes, rounds: int = 5) -> None:
    """Let answers come as usual for a while."""
    for _ in range(rounds):
        lanes.append(90)
        lanes.run(0.01)
        lanes.answer_all()


# ---------------------------------------------------------------------- how many
@pytest.mark.parametrize("lanes_max", [1, 16])
def test_lanes_are_opened_as_appends_wait_up_to_the_setting(lanes_max: int) -> None:
    lanes = Lanes(lanes_max=lanes_max)
    for number in range(20):
        assert len(lanes.out) == min(number, lanes_max)
        lanes.append(0)
        lanes.run(0.005)
    assert lanes.pool.waiting_appends == 20 - lanes_max


def test_one_lane_serves_as_long_as_nothing_waits() -> None:
    lanes = Lanes()
    for partition in range(20):
        lanes.append(partition)
        lanes.run(0.005)
        lanes.answer_all()
    assert len(lanes.ends) == 1


def test_lanes_that_are_idle_for_a_while_are_closed_but_for_one() -> None:
    lanes = Lanes()
    for _ in range(6):
        lanes.append(0)
        lanes.run(0.005)
    lanes.answer_all()
    assert lanes.pool.idle_lanes == 6
    for _ in range(20):  # one of them has something to do
        lanes.run(limits.LANE_IDLE_SECONDS / 10)
        lanes.append(0)
        lanes.run(0.005)
        lanes.answer_all()
    assert lanes.pool.idle_lanes == 1
    assert sum(not end.is_lost for end in lanes.ends) == 1


def test_a_lower_setting_holds_for_what_comes_next() -> None:
    lanes = Lanes()
    for _ in range(6):
        lanes.append(0)
        lanes.run(0.005)
    lanes.lanes_max = 2
    lanes.answer_all()
    for _ in range(6):
        lanes.append(0)
    lanes.run()
    assert lanes.pool.busy_lanes == 2


# ---------------------------------------------------------------------- what a request takes
def test_a_request_takes_little_while_there_are_lanes_enough() -> None:
    lanes = Lanes(WIDE)
    for partition in range(8):
        lanes.append(partition, size=HUNDRED_KIB)
    lanes.run()
    assert sorted(lanes.out) == [[partition] for partition in range(8)]


def test_a_request_takes_more_when_lanes_are_scarce() -> None:
    lanes = Lanes(WIDE, lanes_max=2)
    for partition in range(40):
        lanes.append(partition, size=HUNDRED_KIB)
    lanes.run()
    first, second = lanes.out
    assert len(first) == limits.LANE_REQUEST_BYTES_MAX // HUNDRED_KIB
    assert len(first) + len(second) == 40
    sizes = [sum(len(data) for _, _, data in end.produced) for end in lanes.ends]
    assert max(sizes) <= limits.LANE_REQUEST_BYTES_MAX


def test_what_is_larger_than_a_request_may_be_goes_alone() -> None:
    lanes = Lanes(WIDE, lanes_max=1)
    for partition in range(3):
        lanes.append(partition, size=2 * limits.LANE_REQUEST_BYTES_MAX)
    seen = []
    for _ in range(3):
        lanes.run(0.5)
        seen += lanes.out
        lanes.answer_all()
    assert seen == [[0], [1], [2]]


# ---------------------------------------------------------------------- R5
@pytest.mark.promise("short-timeout")
def test_the_least_patient_client_does_not_shorten_the_time_of_others() -> None:
    lanes = Lanes()
    for partition, timeout_ms in enumerate((30_000, 1000, 10_000, 1500, 5000, 30_000)):
        lanes.append(partition, timeout_ms=timeout_ms)
    lanes.run()
    given = {
        tuple(end.partitions): kafka.parse_produce(kafka.parse_request(end.frames[0]).body).timeout_ms
        for end in lanes.ends
    }
    assert given == {(0, 2, 5): 5000, (1, 3): 500, (4,): 2500}


# ---------------------------------------------------------------------- R19
@pytest.mark.promise("slow-partition")
def test_partitions_are_suspects_while_their_request_is_out() -> None:
    lanes = Lanes()
    answer_in_time(lanes)
    for partition in (0, 1, 2):
        lanes.append(partition)
    lanes.run(LATE)
    assert lanes.out == [[0, 1, 2]]
    for partition in (0, 1, 2, 3, 4):
        lanes.append(partition)
    lanes.run()
    assert sorted(lanes.out) == [[0], [0, 1, 2], [1], [2], [3, 4]], "each shows alone whether it is slow"


def test_a_suspect_that_is_answered_in_time_goes_with_the_others_again() -> None:
    lanes = Lanes()
    answer_in_time(lanes)
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run(LATE)
    first = lanes.end_with(0)
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run()
    (trial,) = [end for end in lanes.ends if end.partitions == [1]]
    trial.answer_produce()
    lanes.run(LATE)
    assert lanes.pool.slow_partitions == 1
    for partition in (1, 2):
        lanes.append(partition)
    lanes.run()
    assert [1, 2] in lanes.out
    assert first.partitions == [0, 1], "what it was caught in is still out"


def test_a_suspect_has_one_trial_at_a_time() -> None:
    lanes = Lanes()
    answer_in_time(lanes)
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run(LATE)
    for _ in range(5):
        lanes.append(0)
    lanes.run()
    assert sorted(lanes.out) == [[0], [0, 1]]
    assert lanes.pool.waiting_appends == 4


def slow_ones(lanes: Lanes, *partitions: int) -> None:
    """These are slow, and requests of each are out."""
    answer_in_time(lanes)
    for partition in partitions:
        lanes.append(partition)
        lanes.run(0.01)
    lanes.run(LATE)
    assert lanes.pool.slow_partitions == len(partitions)


def test_slow_partitions_go_together_in_two_lanes_at_most() -> None:
    lanes = Lanes()
    slow_ones(lanes, 0, 1, 2)
    for _ in range(10):
        for partition in (0, 1, 2):
            lanes.append(partition)
    lanes.run()
    assert sorted(lanes.out) == [[0], [0, 1, 2], [0, 1, 2], [1], [2]]


@pytest.mark.promise("slow-partition")
def test_slow_partitions_take_no_lane_of_the_others() -> None:
    lanes = Lanes(lanes_max=3)
    slow_ones(lanes, 0, 1, 2)
    for _ in range(10):
        for partition in (0, 1, 2):
            lanes.append(partition)
    lanes.run()
    for _ in range(3):
        lanes.append(3)
        lanes.run(0.01)
    assert lanes.out.count([3]) == 3, "three lanes wait for answers, two are for slow ones, and three more are there"
    lanes.append(3)
    lanes.run()
    assert lanes.out.count([3]) == 3


def test_a_broker_that_stands_still_has_no_more_than_so_many_requests() -> None:
    lanes = Lanes(lanes_max=3)
    answer_in_time(lanes)
    for partition in range(40):
        lanes.append(partition)
        lanes.run(0.05)
    lanes.run(1)
    assert lanes.pool.busy_lanes == 2 * 3
    for _ in range(5):
        lanes.append(0)
        lanes.run(0.05)
    lanes.run(1)
    assert lanes.pool.busy_lanes == 2 * 3 + limits.SLOW_LANES_PER_BROKER


def test_only_those_of_which_the_broker_says_so_stay_slow() -> None:
    lanes = Lanes()
    answer_in_time(lanes)
    for partition in (0, 1, 2):
        lanes.append(partition)
    lanes.run(LATE)
    end = lanes.end_with(0)
    rows = [(TOPIC, partition, TIMED_OUT if partition == 1 else 0, 7) for partition in (0, 1, 2)]
    end.answer(kafka.produce_answer(2, rows))
    lanes.run()
    for partition in (0, 1, 2):
        lanes.append(partition)
    lanes.run()
    assert sorted(lanes.out) == [[0, 2], [1]]


def test_a_slow_partition_that_answers_in_time_is_slow_no_longer() -> None:
    lanes = Lanes()
    slow_ones(lanes, 0)
    lanes.answer_all()
    outcomes = lanes.append(0)
    lanes.run()
    lanes.answer_all()
    assert [type(outcome) for outcome in outcomes] == [Appended]
    assert lanes.pool.slow_partitions == 0
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run()
    assert lanes.out == [[0, 1]]


def test_a_slow_partition_that_was_quiet_is_tried_alone() -> None:
    lanes = Lanes()
    slow_ones(lanes, 0)
    lanes.answer_all()
    lanes.run(limits.SLOW_PARTITION_SECONDS + 1)
    lanes.append(1)
    lanes.append(0)
    lanes.append(0)
    lanes.run()
    assert sorted(lanes.out) == [[0], [1]]


def test_what_is_late_is_measured_by_how_long_answers_take_at_this_broker() -> None:
    lanes = Lanes()
    for _ in range(5):
        lanes.append(0)
        lanes.run(0.15)
        lanes.answer_all()
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run(0.9)
    assert lanes.pool.slow_partitions == 0
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run(0.05)
    assert lanes.out == [[0, 1], [0, 1]], "nobody is a suspect yet"


def test_a_trial_whose_connection_is_lost_has_shown_nothing() -> None:
    lanes = Lanes()
    answer_in_time(lanes)
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run(LATE)
    for _ in range(2):
        lanes.append(0)
    lanes.run()
    (trial,) = [end for end in lanes.ends if end.partitions == [0]]
    assert trial.wire is not None
    trial.wire.reset()
    lanes.run()
    assert [0] in [end.partitions for end in lanes.ends if end.frames and not end.is_lost], "the next one is tried"


def test_a_throttling_broker_has_no_slow_partitions() -> None:
    lanes = Lanes()
    lanes.append(0)
    lanes.run()
    lanes.ends[0].answer_produce(throttle_ms=1000)
    lanes.run()
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run(3)
    lanes.ends[0].answer_produce(throttle_ms=3000)
    lanes.run()
    for partition in (0, 1):
        lanes.append(partition)
    lanes.run()
    assert lanes.out == [[0, 1]]
