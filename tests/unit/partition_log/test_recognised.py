"""Which batches of a log of format v2 are a producer's, for a rebuild (rule R10)."""

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.header_marker import marked_batch
from idemproxy.codecs.logged import LoggedBatch, iterate_logged
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.asks import FetchAnswer
from idemproxy.proxy.partition_log.log_chunk import taking_apart
from idemproxy.proxy.partition_log.recognised import Recogniser
from idemproxy.state.commit import Stored
from testkit.virtual.library_client import wrapper

PRODUCER = 5


def stored(offset: int, sequence: int, count: int, *, epoch: int = 0, producer: int = PRODUCER) -> LoggedBatch:
    records = [Record(delta, 1, b"k", b"v") for delta in range(count)]
    data = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    marked = marked_batch(memoryview(data), Identity(producer, epoch, sequence, count))
    marked[:8] = offset.to_bytes(8, "big")
    (logged,) = iterate_logged(bytes(marked))
    assert isinstance(logged, LoggedBatch)
    return logged


def test_batches_are_known_one_after_the_other_from_where_the_first_one_begins() -> None:
    known = Recogniser(PRODUCER, joints=[(0, 7)])
    assert known.is_it(stored(3, 5, 2)) == Stored(0, 5, 2, 3)  # it ends there
    assert known.is_it(stored(5, 7, 1, producer=6)) is None
    assert known.is_it(stored(6, 7, 1)) == Stored(0, 7, 1, 6)
    assert known.is_it(stored(7, 8, 4)) == Stored(0, 8, 4, 7)
    assert known.is_it(stored(11, 13, 1)) is None
    assert known.is_it(stored(12, 0, 1, epoch=1)) is None


def test_a_batch_of_v2_follows_what_a_wrapper_of_v1_names() -> None:
    known = Recogniser(PRODUCER, joints=[(0, 0)])
    old = wrapper([b"a", b"b", b"c"])
    old = (2).to_bytes(8, "big") + old[8:]
    first = at_once(taking_apart(0, FetchAnswer(0, 10, memoryview(old))))
    assert [piece for piece, _ in first.pieces_from(known, 0)] == [Stored(0, 0, 3, 0)]
    new = bytes(stored(3, 3, 2).records) + bytes(stored(5, 5, 1).records)
    then = at_once(taking_apart(3, FetchAnswer(0, 10, memoryview(new))))
    assert [piece for piece, _ in then.pieces_from(known, 3)] == [Stored(0, 3, 2, 3), Stored(0, 5, 1, 5)]


def test_a_long_log_needs_no_more_joints_than_at_first() -> None:
    known = Recogniser(PRODUCER, joints=[(0, 0)])
    for sequence in range(200):
        assert known.is_it(stored(sequence, sequence, 1)) is not None
    assert len(known._begins) == 1
