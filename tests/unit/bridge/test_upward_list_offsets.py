"""ListOffsets 0 from one to three requests of version 1; the library decodes both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import LimitExceeded, WireError
from idemproxy.proxy.bridge.upward.layouts import ENTRIES_PER_STEP
from idemproxy.proxy.bridge.upward.list_offsets import REQUEST_BYTES_MAX

from .upwards import answered, raised, sent, steps_of

LATEST, EARLIEST = -1, -2
TIME = 1_600_000_000_000
Place = tuple[str, int]


def request(*asked: tuple[str, int, int, int], replica_id: int = -1) -> bytes:
    """Topic, partition, time stamp and number of offsets of each partition."""
    topics: dict[str, list[dict[str, int]]] = {}
    for topic, partition, timestamp, count in asked:
        entry = {"partition_index": partition, "timestamp": timestamp, "max_num_offsets": count}
        topics.setdefault(topic, []).append(entry)
    named = [{"name": name, "partitions": entries} for name, entries in topics.items()]
    return messages.encode_request(2, 0, replica_id=replica_id, topics=named)


def asked_of_broker(body: bytes) -> list[tuple[str, int, int]]:
    """Topic, partition and time stamp of each partition in a request of version 1."""
    decoded = messages.decode_request(2, 1, body)
    return [(topic.name, one.partition_index, one.timestamp) for topic in decoded.topics for one in topic.partitions]


def answer(offsets: Mapping[Place, int], codes: Mapping[Place, int] | None = None) -> bytes:
    """An answer of version 1."""
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, partition), offset in offsets.items():
        code = (codes or {}).get((topic, partition), 0)
        entry = {"partition_index": partition, "error_code": code, "timestamp": 77, "offset": offset}
        topics.setdefault(topic, []).append(entry)
    return messages.encode_response(2, 1, topics=[{"name": name, "partitions": e} for name, e in topics.items()])


def lists(body: bytes) -> dict[Place, tuple[int, list[int]]]:
    """Error code and offsets of each partition in an answer of version 0."""
    return {
        (topic.name, one.partition_index): (one.error_code, one.old_style_offsets)
        for topic in messages.decode_response(2, 0, body).topics
        for one in topic.partitions
    }


def one_list(timestamp: int, count: int, *offsets: int, codes: tuple[int, ...] = (0, 0, 0)) -> tuple[int, list[int]]:
    """What the client gets for one partition when the broker answers its requests with these offsets."""
    one = raised(2, 0)
    bodies = sent(one, request(("t", 0, timestamp, count)))
    assert len(bodies) == len(offsets)
    place = ("t", 0)
    answers = [answer({place: offset}, {place: code}) for offset, code in zip(offsets, codes, strict=False)]
    return lists(answered(one, *answers))[place]


@pytest.mark.parametrize(
    ("timestamp", "count", "also"),
    [
        (LATEST, 1, []),
        (EARLIEST, 1, []),
        (EARLIEST, 9, []),
        (LATEST, 0, []),
        (LATEST, 2, [EARLIEST]),
        (TIME, 1, [LATEST]),
        (TIME, 2, [EARLIEST, LATEST]),
        (TIME, 0, []),
    ],
)
def test_as_many_requests_leave_as_the_list_needs(timestamp: int, count: int, also: list[int]) -> None:
    bodies = sent(raised(2, 0), request(("t", 5, timestamp, count), replica_id=-2))
    assert [asked_of_broker(body) for body in bodies] == [[("t", 5, one)] for one in (timestamp, *also)]
    assert {messages.decode_request(2, 1, body).replica_id for body in bodies} == {-2}


@pytest.mark.parametrize(
    ("timestamp", "count", "offsets", "expected"),
    [
        (LATEST, 1, (42,), [42]),
        (EARLIEST, 1, (7,), [7]),
        (EARLIEST, 9, (7,), [7]),
        (LATEST, 2, (42, 7), [42, 7]),
        (LATEST, 2, (7, 7), [7]),
        (LATEST, 0, (42,), []),
        (LATEST, -1, (42,), []),
        (TIME, 1, (20, 42), [20]),
        (TIME, 2, (20, 7, 42), [20, 7]),
        (TIME, 1, (-1, 42), [42]),
        (TIME, 2, (-1, 7, 42), [42, 7]),
        (TIME, 2, (-1, 0, 0), [0]),
    ],
)
def test_the_list_is_what_was_asked_for_then_the_first(
    timestamp: int, count: int, offsets: tuple[int, ...], expected: list[int]
) -> None:
    assert one_list(timestamp, count, *offsets) == (0, expected)


@pytest.mark.parametrize(("code", "reported"), [(3, 3), (6, 6), (43, 43), (35, 35), (78, 5), (74, 6), (56, 6)])
def test_an_error_has_no_offsets_and_a_code_of_0_10(code: int, reported: int) -> None:
    assert one_list(LATEST, 2, -1, 7, codes=(code, 0)) == (reported, [])


def test_an_offset_that_can_not_be_had_is_left_out() -> None:
    assert one_list(LATEST, 2, 42, -1, codes=(0, 6)) == (0, [42])
    assert one_list(TIME, 1, -1, -1, codes=(0, 6)) == (0, [])


def test_each_partition_gets_its_own_list() -> None:
    one = raised(2, 0)
    bodies = sent(one, request(("a", 0, LATEST, 1), ("a", 1, LATEST, 2), ("b", 0, TIME, 1), ("b", 1, EARLIEST, 5)))
    assert list(map(asked_of_broker, bodies)) == [
        [("a", 0, LATEST), ("a", 1, LATEST), ("b", 0, TIME), ("b", 1, EARLIEST)],
        [("a", 1, EARLIEST)],
        [("b", 0, LATEST)],
    ]
    asked = answer({("b", 1): 4, ("b", 0): -1, ("a", 1): 31, ("a", 0): 30})
    body = answered(one, asked, answer({("a", 1): 3}), answer({("b", 0): 50}))
    assert lists(body) == {("a", 0): (0, [30]), ("a", 1): (0, [31, 3]), ("b", 0): (0, [50]), ("b", 1): (0, [4])}


def test_a_topic_without_partitions_stays() -> None:
    body = messages.encode_request(2, 0, replica_id=-1, topics=[{"name": "t", "partitions": []}])
    one = raised(2, 0)
    (asked,) = sent(one, body)
    assert messages.decode_request(2, 1, asked).topics[0].name == "t"
    empty = messages.encode_response(2, 1, topics=[{"name": "t", "partitions": []}])
    assert answered(one, empty) == messages.encode_response(2, 0, topics=[{"name": "t", "partitions": []}])


def test_an_answer_about_another_partition_is_a_wire_error() -> None:
    for place in (("t", 1), ("u", 0)):
        one = raised(2, 0)
        sent(one, request(("t", 0, LATEST, 1)))
        with pytest.raises(WireError, match="was not asked about"):
            answered(one, answer({place: 5}))


def test_hostile_bytes_are_only_ever_wire_errors() -> None:
    body = request(("a", 0, TIME, 2), ("b", 1, LATEST, 2))
    answers = [answer({("a", 0): 5, ("b", 1): 6}), answer({("a", 0): 1, ("b", 1): 2}), answer({("a", 0): 9})]
    for cut in range(len(body)):
        with pytest.raises(WireError):
            sent(raised(2, 0), body[:cut])
    for number, whole in enumerate(answers):
        for cut in range(len(whole)):
            one = raised(2, 0)
            sent(one, body)
            with pytest.raises(WireError):
                answered(one, *answers[:number], whole[:cut], *answers[number + 1 :])
    with pytest.raises(WireError, match="after the last field"):
        sent(raised(2, 0), body + b"\0")


def test_a_large_request_is_read_in_steps_and_a_larger_one_refused() -> None:
    count = 10 * ENTRIES_PER_STEP
    one = raised(2, 0)
    body = request(*(("t", number, TIME, 2) for number in range(count)))
    assert steps_of(one.requests(body)) > 3 * 10
    full: Any = answer({("t", number): number for number in range(count)})
    assert steps_of(one.response([full, full, full])) > 3 * 10
    with pytest.raises(LimitExceeded, match="1048576 bytes"):
        sent(raised(2, 0), bytes(REQUEST_BYTES_MAX + 1))


def test_many_empty_topics_are_read_in_steps() -> None:
    topics = [{"name": str(number), "partitions": []} for number in range(10 * ENTRIES_PER_STEP)]
    body = messages.encode_request(2, 0, replica_id=-1, topics=topics)
    assert steps_of(raised(2, 0).requests(body)) > 10
