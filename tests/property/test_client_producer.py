"""The client's producer core in random worlds: answers that fail, come late or never, brokers that move.

The brokers decide as Kafka's do (``testkit.virtual.kafka_reference``); ``ClientWorld`` checks all that is sent."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.producing.errors import NotAppended, ProduceError, Undecided
from idemproxy.producing.numbered_batch import SEQUENCE_MODULUS, Place, Receipt, sequence_after
from idemproxy.state.sequence import SEQUENCE_MODULUS as STORED_MODULUS
from idemproxy.state.sequence import advance
from testkit.virtual.client_world import ClientWorld, Troubles

seeds = st.integers(0, 2**32)
BAD = Troubles(refusal=0.25, failed_append=0.25, loss=0.4, move=0.2, throttle=0.1)


def run(world: ClientWorld, steps: int, submit_chance: float = 0.3) -> None:
    for _ in range(steps):
        place = world.random.choice(world.places)
        if world.random.random() < submit_chance:
            with suppress(ProduceError):  # the partition's failure
                world.submit(place)
        world.step()


@pytest.mark.promise("saved-numbers")
@settings(max_examples=150)
@given(seeds, st.sampled_from([Troubles(), BAD]))
def test_every_batch_is_stored_once_and_in_order_and_its_receipt_is_true(seed: int, troubles: Troubles) -> None:
    world = ClientWorld(Random(seed), troubles=troubles)
    run(world, 300)
    world.settle()
    for place in world.places:
        mine = sorted(number for (where, _), number in world.numbers.items() if where == place)
        assert world.logs[place] == mine
        for number in mine:
            receipt = world.results[number]
            assert isinstance(receipt, Receipt), receipt
            assert receipt.base_offset == mine.index(number)
            assert world.numbers[place, receipt.base_sequence] == number
    assert world.core.buffered_bytes == 0


@pytest.mark.promise("saved-numbers")
@settings(max_examples=150)
@given(seeds, st.sampled_from([Troubles(), BAD]))
def test_what_is_unrecoverable_is_said_to_be_absent_only_where_it_is(seed: int, troubles: Troubles) -> None:
    world = ClientWorld(Random(seed), troubles=troubles, delivery_seconds_max=4.0)
    run(world, 400)
    world.settle()
    for place in world.places:
        log = world.logs[place]
        assert log == sorted(set(log)), "twice, or out of order"
        mine = [number for (where, _), number in world.numbers.items() if where == place]
        results = {number: world.results[number] for number in mine}
        receipts = {number: one for number, one in results.items() if isinstance(one, Receipt)}
        assert [log.index(number) for number in receipts] == [one.base_offset for one in receipts.values()]
        absent = [number for number, one in results.items() if isinstance(one, NotAppended)]
        assert set(absent).isdisjoint(log)
        assert all(isinstance(one, Receipt | NotAppended | Undecided) for one in results.values()), results
    assert world.core.buffered_bytes == 0


@pytest.mark.promise("saved-numbers")
@settings(max_examples=150)
@given(seeds, st.integers(0, 8), st.sampled_from([0, 7, SEQUENCE_MODULUS - 4]))
def test_a_restarted_producer_sends_the_same_batches_and_each_is_stored_once(
    seed: int, before: int, start: int
) -> None:
    """The first run ends at any moment. The next one begins with the oldest batch that has no receipt, or before that
    where the server finds what is older than the last five."""
    world = ClientWorld(Random(seed), partitions=1, next_sequences={Place("t", 0): start}, troubles=BAD)
    run(world, 200)
    sent = [number for key, number in world.numbers.items() if key in world.sent]
    without_receipt = next((index for index, number in enumerate(sent) if number not in world.results), None)
    if without_receipt is None:
        return  # nothing to be done again
    saved = max(0, without_receipt - before)
    later = world.second_life(sent[saved], troubles=BAD, finds_old_ones=before > 0)
    for _ in range(100):
        later.step()
    later.settle()
    assert later.logs[Place("t", 0)] == sent
    for index, number in enumerate(sent[saved:], saved):
        receipt = later.results[number]
        assert isinstance(receipt, Receipt), receipt
        assert receipt.base_offset == (None if receipt.is_old_duplicate else index)


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_sequences_wrap_as_the_proxys_do(sequence: int, records: int) -> None:
    assert SEQUENCE_MODULUS == STORED_MODULUS
    assert sequence_after(sequence, records) == advance(sequence, records)
