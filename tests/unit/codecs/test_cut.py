from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest

from idemproxy.codecs import steps
from idemproxy.codecs.batch_marker import content_digest
from idemproxy.codecs.convert import HeaderPolicy, Inner, border_of_halves, cutting, digesting_batch
from idemproxy.codecs.errors import LimitExceeded, WireError
from idemproxy.codecs.message_set import encode_set, iterate_shallow, verify_crc
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.codecs.steps import at_once
from testkit.stage.either_way import either_way  # noqa: F401
from testkit.stage.wrappers import to_inner

NO_LIMIT = 100_000_000


def inner_of(records: Sequence[Record]) -> Inner:
    return to_inner([memoryview(encode_batch(records))], policy=HeaderPolicy(), output_bytes_max=NO_LIMIT)


def sized(*sizes: int) -> Inner:
    return inner_of([Record(index, 1, None, b"v" * size) for index, size in enumerate(sizes)])


@pytest.mark.parametrize("borders", [[], [1], [9], [3, 4], [1, 2, 3, 4, 5, 6, 7, 8, 9]])
def test_pieces_are_message_sets_that_follow_each_other(borders: list[int]) -> None:
    records = [Record(i, 1000 + i * 7 % 4, b"%d" % i, b"v" * (i * 37 % 11)) for i in range(10)]

    pieces = at_once(cutting(inner_of(records), borders))

    assert [piece.record_count for piece in pieces] == [
        end - start for start, end in zip([0, *borders], [*borders, 10], strict=True)
    ]
    read: list[Record] = []
    for piece in pieces:
        messages = list(iterate_shallow(piece.message_set))
        for message in messages:
            verify_crc(piece.message_set, message)
        assert [message.offset for message in messages] == list(range(piece.record_count))
        assert piece.max_timestamp == max(message.timestamp for message in messages)
        assert piece.first_content == content_digest(messages[0].key, messages[0].value)
        for message in messages:
            assert message.key is not None
            assert message.value is not None
            read.append(Record(len(read), message.timestamp, bytes(message.key), bytes(message.value)))
    assert read == records


@pytest.mark.parametrize(
    ("sizes", "border"),
    [
        ([10, 10], 1),
        ([10, 10, 10, 10], 2),
        ([10_000, 10, 10, 10, 10, 5_000, 5_000], 3),
        ([10, 10, 50_000, 10], 2),
        ([50_000, 10], 1),
        ([10, 50_000], 1),
        ([10, 10, 10, 50_000], 3),
    ],
)
def test_halves_are_about_equal_in_bytes(sizes: list[int], border: int) -> None:
    found = at_once(border_of_halves(sized(*sizes)))

    assert 0 < found < len(sizes)
    totals = list(accumulate(sizes))
    assert abs(2 * totals[found - 1] - totals[-1]) <= abs(2 * totals[border - 1] - totals[-1]) + 200


def test_halving_again_and_again_ends_with_single_records() -> None:
    todo, done = [sized(*range(0, 2000, 50))], []
    while todo:
        head = todo.pop()
        if head.record_count == 1:
            done.append(head)
        else:
            todo.extend(reversed(at_once(cutting(head, [at_once(border_of_halves(head))]))))
    assert [len(next(iterate_shallow(one.message_set)).value or b"") for one in done] == list(range(0, 2000, 50))


def test_digests_are_those_of_the_stored_records() -> None:
    large = bytes(3 * steps.STEP_BYTES)
    rows = [(b"k", b"v"), (None, b""), (b"", None), (None, None), (None, large), (large, None), (b"k", large)]
    batch = memoryview(encode_batch([Record(index, 5, *row) for index, row in enumerate(rows)]))
    header = parse_single_batch(batch)
    expected = [content_digest(*row) for row in rows]
    stored = iterate_shallow(encode_set([(*row, 5) for row in rows], magic=1))

    assert at_once(digesting_batch(batch, header, NO_LIMIT)) == expected
    assert [content_digest(message.key, message.value) for message in stored] == expected
    for first in range(len(rows)):
        assert at_once(digesting_batch(batch, header, NO_LIMIT, first=first, count=2)) == expected[first : first + 2]


def test_of_a_batch_that_can_not_be_read_there_is_no_digest() -> None:
    damaged = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    damaged[61] ^= 0x7F
    batch = memoryview(damaged)

    with pytest.raises(WireError):
        at_once(digesting_batch(batch, parse_single_batch(batch), NO_LIMIT))
    whole = memoryview(encode_batch([Record(0, 1, None, bytes(1000))]))
    with pytest.raises(LimitExceeded):
        at_once(digesting_batch(whole, parse_single_batch(whole), 999))
