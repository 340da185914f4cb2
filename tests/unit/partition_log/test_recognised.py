"""Which batches of a log are a producer's: by name in format v1, by a supposed identity in format v2."""

import gc
import time
from collections.abc import Iterator

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.logged import LoggedBatch, anchor_of, anchor_of_own_ids, iterate_logged
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.asks import FetchAnswer
from idemproxy.proxy.limits import QUEUED_BATCHES_MAX
from idemproxy.proxy.partition_log.log_chunk import taking_apart
from idemproxy.proxy.partition_log.recognised import AHEAD_MAX, Recogniser
from idemproxy.state.commit import Stored
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.logs import marked_batch
from testkit.virtual.library_client import wrapper

PRODUCER, WRAPPED = 42, 5


def log_of(*identities: Identity) -> Iterator[LoggedBatch]:
    """Batches with markers, one after the other from offset 0 on."""
    offset = 0
    for identity in identities:
        records = [Record(at, 1, None, b"v") for at in range(identity.record_count)]
        marked = marked_batch(memoryview(encode_batch(records)), identity)
        marked[:8] = offset.to_bytes(8, "big")
        (logged,) = iterate_logged(marked)
        assert isinstance(logged, LoggedBatch)
        yield logged
        offset += identity.record_count


def ours(epoch: int, *counts: int, base: int = 0) -> list[Identity]:
    found = []
    for count in counts:
        found.append(Identity(PRODUCER, epoch, base, count))
        base = (base + count) % 2**31
    return found


def found_in(recogniser: Recogniser, *identities: Identity) -> list[Stored]:
    return [piece for logged in log_of(*identities) if (piece := recogniser.is_it(logged)) is not None]


def test_a_batch_that_is_looked_for_is_found_by_its_identity_alone() -> None:
    log = [Identity(7, 0, 3, 2), *ours(0, 3, 2, 2), Identity(PRODUCER, 1, 3, 2)]
    assert found_in(Recogniser(PRODUCER, [BatchIdentity(0, 3, 2)]), *log) == [Stored(0, 3, 2, 5)]
    assert found_in(Recogniser(PRODUCER, [BatchIdentity(0, 3, 3)]), *log) == []
    assert found_in(Recogniser(PRODUCER), *log) == []


def test_from_a_joint_the_log_is_walked_to_its_end() -> None:
    log = [*ours(0, 3, 2), Identity(7, 0, 5, 1), *ours(0, 4, 1, base=5)]
    whole = [Stored(0, 0, 3, 0), Stored(0, 3, 2, 3), Stored(0, 5, 4, 6), Stored(0, 9, 1, 10)]
    assert found_in(Recogniser(PRODUCER, joints=[(0, 0)]), *log) == whole
    assert found_in(Recogniser(PRODUCER, joints=[(0, 3)]), *log) == whole
    assert found_in(Recogniser(PRODUCER, joints=[(0, 5)]), *log) == whole[1:]
    assert found_in(Recogniser(PRODUCER, joints=[(0, 4), (1, 0)]), *log) == []


def test_newer_epochs_are_recognised_as_far_as_their_number_is_near_to_a_known_one() -> None:
    log = [*ours(4, 2), *ours(6, 1, 1), *ours(8, 3), *ours(11, 1)]
    found = [Stored(4, 0, 2, 0), Stored(6, 0, 1, 2), Stored(6, 1, 1, 3), Stored(8, 0, 3, 4)]
    assert found_in(Recogniser(PRODUCER, joints=[(4, 0)]), *log) == found
    assert found_in(Recogniser(PRODUCER, joints=[(3, 7)]), *log) == found
    assert found_in(Recogniser(PRODUCER, joints=[(1, 0)]), *log) == []


def test_the_batch_before_the_first_that_waits_is_recognised_by_where_it_ends() -> None:
    log = ours(2, 5, 5, 5, base=2**31 - 7)
    assert found_in(Recogniser(PRODUCER, joints=[(2, 8)]), *log) == [Stored(2, 3, 5, 10)]


def test_a_conditional_batch_is_recognised_where_it_lies_in_place() -> None:
    log = [Identity(CONDITIONAL_ID, 0, 0, 2), Identity(CONDITIONAL_ID, 0, 3, 1), Identity(CONDITIONAL_ID, 0, 3, 1)]
    assert found_in(Recogniser(CONDITIONAL_ID), *log) == [Stored(0, 0, 2, 0), Stored(0, 3, 1, 3)]


def test_a_batch_with_a_brokers_own_producer_id_is_its_producers() -> None:
    records = [Record(0, 1, None, b"v")]
    (logged,) = iterate_logged(encode_batch(records, producer_id=PRODUCER, producer_epoch=4, base_sequence=6))
    assert isinstance(logged, LoggedBatch)
    known = Recogniser(PRODUCER)
    assert known.is_it(logged) == Stored(4, 6, 1, 0)
    assert Recogniser(7).is_it(logged) is None
    assert found_in(known, *ours(4, 2, 1, base=7)) == [Stored(4, 7, 2, 0), Stored(4, 9, 1, 2)]


def test_a_batch_of_v2_follows_what_a_wrapper_of_v1_names() -> None:
    known = Recogniser(WRAPPED, joints=[(0, 0)])
    old = wrapper([b"a", b"b", b"c"])
    old = (2).to_bytes(8, "big") + old[8:]
    first = at_once(taking_apart(0, FetchAnswer(0, 10, memoryview(old))))
    assert [piece for piece, _ in at_once(first.pieces_from(known, 0))] == [Stored(0, 0, 3, 0)]
    rest = log_of(Identity(7, 0, 0, 3), Identity(WRAPPED, 0, 3, 2), Identity(WRAPPED, 0, 5, 1))
    new = b"".join(bytes(logged.records) for logged in rest)
    then = at_once(taking_apart(3, FetchAnswer(0, 10, memoryview(new))))
    assert [piece for piece, _ in at_once(then.pieces_from(known, 3))] == [Stored(0, 3, 2, 3), Stored(0, 5, 1, 5)]


def test_each_batch_of_a_long_log_costs_few_hashes() -> None:
    recogniser = Recogniser(PRODUCER, joints=[(0, number) for number in range(100)])
    assert len(found_in(recogniser, *ours(0, *[1] * 1000))) == 1000
    assert recogniser.work <= 1000 * (1 + AHEAD_MAX) + 300


@pytest.mark.parametrize("is_own", [False, True])
def test_the_longest_chunk_of_the_smallest_batches_is_examined_in_short_steps(is_own: bool) -> None:
    """Of so many lengths as fit, and for as many waiting batches as there may be."""
    data, base, offset = bytearray(), 0, 0
    while len(data) < 3 << 20:  # more of the smallest than one chunk notes
        count = 1 if is_own else 1 + offset % 1000
        marked = marked_batch(memoryview(encode_batch([Record(0, 1, None, None)])), Identity(PRODUCER, 0, base, count))
        marked[:8] = offset.to_bytes(8, "big")
        marked[23:27] = (count - 1).to_bytes(4, "big")
        data += marked
        base, offset = base + count + (not is_own), offset + count
    chunk = at_once(taking_apart(0, FetchAnswer(0, offset, memoryview(data))))
    joints = [(0, 2 * number) for number in range(3 * QUEUED_BATCHES_MAX)]
    gc.collect()
    gc.disable()
    longest, steps = 0.0, chunk.pieces_from(Recogniser(PRODUCER, joints=joints), 0)
    try:
        while True:
            started = time.process_time()
            try:
                next(steps)
            except StopIteration as end:
                found = end.value
                break
            finally:
                longest = max(longest, time.process_time() - started)
    finally:
        gc.enable()
    assert len(found) == len(chunk.messages) if is_own else found
    assert longest < 0.025


def test_a_batch_with_its_own_producer_id_is_known_without_supposing_anything() -> None:
    own = encode_batch([Record(0, 1, None, b"v")], producer_id=PRODUCER, producer_epoch=3, base_sequence=17)
    others = encode_batch([Record(0, 1, None, b"v")], producer_id=7, producer_epoch=3, base_sequence=17)
    end_of_transaction = encode_batch([Record(0, 1, b"\0\0", b"v")], producer_id=PRODUCER, producer_epoch=4)
    logged = [one for data in (own, others, end_of_transaction) for one in iterate_logged(data)]
    found = [Recogniser(PRODUCER).is_it(one) for one in logged if isinstance(one, LoggedBatch)]
    assert found == [Stored(3, 17, 1, 0), None, None]


def test_the_anchor_of_a_batch_with_a_producer_id_holds_whatever_its_broker_makes_of_it() -> None:
    records = [Record(0, 1, None, b"v"), Record(1, 1, None, b"v")]
    (sent,), (packed,), (next_one,) = (
        list(
            iterate_logged(
                encode_batch(records, producer_id=PRODUCER, producer_epoch=3, base_sequence=sequence, codec=codec)
            )
        )
        for sequence, codec in ((17, Codec.NONE), (17, Codec.GZIP), (19, Codec.NONE))
    )
    assert isinstance(sent, LoggedBatch)
    assert anchor_of(sent) == anchor_of(packed) == anchor_of_own_ids(sent.header) != anchor_of(next_one)
