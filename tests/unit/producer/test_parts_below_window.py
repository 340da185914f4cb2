"""Batches in parts of which the window remembers the last parts or none: only the log tells whether they are there
(rules R9, R11)."""

import os

import pytest
from mutants.scenes import foreign, takes_no_more_than

from idemproxy.proxy.bridge.asks import FetchAnswer, FetchRecords
from idemproxy.proxy.flow.effects import Append, Unanswered
from idemproxy.proxy.flow.outcome import InDoubt, Outcome, Refused
from idemproxy.state.entry import NO_ANCHOR, Entry, WindowBatch
from idemproxy.state.sequence import SEQUENCE_MODULUS
from testkit.stage.sequencer import DATA_GENERATION, Client, Stage
from testkit.virtual.log import PartitionLog

TOO_LARGE, OUT_OF_ORDER, DUPLICATE, INVALID_RECORD = 10, 45, 46, 87
RECORD_BYTES, PART_BYTES_MAX = 2000, 2500
Batches = dict[int, list[bytes]]
"""Values by base sequence."""


def records(count: int) -> list[bytes]:
    """Values that no codec makes smaller: each record is a part of its own."""
    return [os.urandom(RECORD_BYTES) for _ in range(count)]


def takes_one_record_at_a_time() -> Stage:
    stage = Stage()
    takes_no_more_than(stage, PART_BYTES_MAX)
    return stage


def all_sent(stage: Stage, batches: Batches) -> list[int | None]:
    """The codes of the answers to these batches, all sent at once over a new connection."""
    client = Client()
    requests = [stage.send(client, sequence, *values) for sequence, values in batches.items()]
    stage.run(60)
    return [request.code for request in requests]


def machine_goes_down(stage: Stage) -> None:
    """Proxy and store end, what the store knew is gone, and no client has heard an answer."""
    stage.die()
    stage.values.clear()


def one_message(stage: Stage, offset: int) -> FetchAnswer:
    """What a broker answers that gives one message at a time."""
    up_to = stage.log.high_watermark
    return FetchAnswer(0, up_to, memoryview(stage.log.read(offset, 1, whole_first=True, up_to=up_to)))


# ---------------------------------------------------------------------- rebuilt windows
@pytest.mark.promise("parts-after-redis-loss")
def test_a_rebuilt_window_with_only_a_batchs_last_part_detects_the_duplicate() -> None:
    stage = takes_one_record_at_a_time()
    batches: Batches = {0: records(2)} | {sequence: [b"%d" % sequence] for sequence in range(2, 6)}
    assert all_sent(stage, batches) == [0] * 5
    stored = stage.stored_values()
    machine_goes_down(stage)
    assert all_sent(stage, batches) == [DUPLICATE, 0, 0, 0, 0]
    assert stage.stored_values() == stored


def test_a_part_pushed_out_of_a_rebuilt_window_makes_no_gap() -> None:
    """A new batch is due, so it is appended before the others are looked at."""
    stage = takes_one_record_at_a_time()
    batches: Batches = {0: records(2)} | {sequence: [b"%d" % sequence] for sequence in range(2, 5)}
    assert all_sent(stage, batches) == [0] * 4
    stored = stage.stored_values()
    machine_goes_down(stage)
    assert all_sent(stage, batches | {5: [b"5"]}) == [DUPLICATE, 0, 0, 0, 0]
    assert stage.stored_values() == [*stored, b"5"]


@pytest.mark.promise("parts-after-redis-loss")
def test_a_batch_of_more_parts_than_a_rebuilt_window_holds_is_a_duplicate() -> None:
    stage = takes_one_record_at_a_time()
    batches: Batches = {0: records(6)}
    assert all_sent(stage, batches) == [0]
    stored = stage.stored_values()
    machine_goes_down(stage)
    stage.reply = lambda _broker, asked: one_message(stage, asked.offset) if isinstance(asked, FetchRecords) else None
    assert all_sent(stage, batches) == [DUPLICATE]
    assert stage.stored_values() == stored


# ---------------------------------------------------------------------- brokers that have lost a part
def test_a_batch_whose_last_parts_brokers_lost_is_not_out_of_order() -> None:
    """After that error its client would send all of it again under a new epoch, also what is there."""
    stage = takes_one_record_at_a_time()
    values = records(6)
    assert all_sent(stage, {0: values[:4]}) == [0]
    stage.log.truncate(3, unclean=True)
    assert all_sent(stage, {0: values}) == [INVALID_RECORD]
    assert stage.stored_values() == values[:3]


def test_nor_is_it_a_duplicate() -> None:
    stage = takes_one_record_at_a_time()
    values = records(4)
    assert all_sent(stage, {0: values}) == [0]
    stage.log.truncate(3, unclean=True)
    stage.produce_connection.is_open = False
    assert all_sent(stage, {0: values}) == [INVALID_RECORD]
    assert stage.stored_values() == values[:3]


def test_a_batch_whose_first_part_brokers_lost_is_not_out_of_order() -> None:
    """Its second part lies where the first one lay, and the connection breaks with the answer to it."""
    stage, client, values = Stage(), Client(), records(3)
    assert all_sent(stage, {0: [b"before"]}) == [0]
    stored = 0

    def judge(effect: Append) -> Outcome:
        nonlocal stored
        stage.outcomes.append(judge)
        if len(effect.message_set) > PART_BYTES_MAX:
            return stage.refuses(TOO_LARGE)(effect)
        stored, outcome = stored + 1, stage.succeeds(effect)
        if stored == 1:
            stage.log.truncate(1, unclean=True)
        elif stored == 2:
            client.is_closed = True
            return InDoubt("the answer is lost", effect.broker_id)
        return outcome

    stage.outcomes.append(judge)
    stage.send(client, 1, *values)
    stage.run(60)
    assert stage.stored_values() == [b"before", values[1]]
    assert all_sent(stage, {1: values}) == [INVALID_RECORD]
    assert stage.stored_values() == [b"before", values[1]]


@pytest.mark.promise("older-duplicate")
@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_batch_of_which_brokers_lost_everything_is_not_out_of_order(is_recreated: bool) -> None:
    """Nothing tells that other records were sent under its sequences. After OUT_OF_ORDER_SEQUENCE_NUMBER a client would
    try it again and again, or send also what comes after it under a new epoch."""
    stage, values = takes_one_record_at_a_time(), records(4)
    assert all_sent(stage, {0: values[:2]}) == [0]
    stage.log = PartitionLog()
    if not is_recreated:
        foreign(stage, *[b"another one's"] * 6)
    stored = stage.stored_values()
    assert all_sent(stage, {0: values}) == [INVALID_RECORD]
    assert stage.stored_values() == stored


def test_a_batch_that_overlaps_with_an_earlier_one_is_out_of_order() -> None:
    stage = Stage()
    assert all_sent(stage, {0: [b"one", b"two", b"three"]}) == [0]
    assert all_sent(stage, {1: [b"zwei", b"drei", b"vier"]}) == [OUT_OF_ORDER]


def test_a_batch_before_its_epochs_first_sequence_is_out_of_order() -> None:
    """Though the log has the rest of it."""
    stage, values = Stage(), [b"%d" % number for number in range(6)]
    assert all_sent(stage, {0: values[:3]}) + all_sent(stage, {3: values[3:5]}) == [0, 0]
    assert all_sent(stage, {SEQUENCE_MODULUS - 1: [b"before", *values]}) == [OUT_OF_ORDER]
    assert all_sent(stage, {5: values[5:]}) == [0]


def test_other_first_records_mean_out_of_order_though_brokers_lost_the_last() -> None:
    stage = Stage()
    assert all_sent(stage, {0: [b"one"]}) + all_sent(stage, {1: [b"two"]}) == [0, 0]
    stage.log.truncate(1, unclean=True)
    assert all_sent(stage, {0: [b"eins", b"two"]}) == [OUT_OF_ORDER]


# ---------------------------------------------------------------------- while the log is read
def test_a_batch_in_parts_is_found_though_the_leader_moves_meanwhile() -> None:
    """What was read in the first leader's log, here other records under its numbers, does not count."""
    stage, values, deposed = takes_one_record_at_a_time(), records(2), takes_one_record_at_a_time()
    assert all_sent(stage, {0: values}) == all_sent(deposed, {0: records(2)}) == [0]
    for sequence in range(2, 8):
        assert all_sent(stage, {sequence: [b"%d" % sequence]}) == [0]
    fetches = 0

    def moves_between_two_reads(_broker: int, question: object) -> FetchAnswer | Unanswered | None:
        nonlocal fetches
        if not isinstance(question, FetchRecords):
            return None
        fetches += 1
        if fetches == 2:
            stage.leader = 2
            return Unanswered("broker 1 has died")
        return one_message(deposed if fetches == 1 else stage, question.offset)

    stage.reply = moves_between_two_reads
    assert all_sent(stage, {0: values}) == [DUPLICATE]
    assert fetches > 3


@pytest.mark.parametrize("base", [1_000, SEQUENCE_MODULUS - 2])
def test_stored_parts_that_brokers_have_lost_are_no_gap_where_sequences_come_round(base: int) -> None:
    """The producer's state had expired, and it resumed in the middle of its epoch: what is known of that begins there,
    and has fewer records than a round."""
    stage, client = takes_one_record_at_a_time(), Client()
    window = (WindowBatch(base - 1, 1, 0, digest=b"digest-7"),)
    stage.put(Entry(1, DATA_GENERATION, client.principal, 0, base, window, 0, 1, NO_ANCHOR))
    foreign(stage, b"before")
    values, taken = records(4), 0

    def takes_three(effect: Append) -> Outcome:
        nonlocal taken
        if len(effect.message_set) > PART_BYTES_MAX:
            return Refused(TOO_LARGE)
        taken += 1
        return stage.succeeds(effect) if taken <= 3 else Refused(19)

    stage.outcomes.extend([takes_three] * 20)
    first = stage.send(client, base, *values)
    stage.run(60)
    assert first.code == 19
    assert stage.entry().next_sequence == (base + 3) % SEQUENCE_MODULUS
    stage.log.truncate(1, unclean=True)
    again = stage.send(client, base, *values)
    stage.run(60)
    assert again.code == INVALID_RECORD
