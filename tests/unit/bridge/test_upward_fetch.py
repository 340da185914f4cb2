"""A Fetch of v0 to v3 at a broker that has v4: its request, its answer, and when the broker is asked again."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.errors import LimitExceeded, Malformed, WireError
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.codecs.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.upward.error_codes import OF_0_10_2, known_code
from idemproxy.proxy.bridge.upward.fetch import BROKER_VERSIONS, FETCH_BYTES_MAX, FurtherFetch, RaisedFetch
from idemproxy.proxy.bridge.upward.list_offsets import REQUEST_BYTES_MAX
from idemproxy.proxy.bridge.upward.positions import KEPT_BYTES_MAX, POSITIONS_MAX, FetchPositions, ReadPosition
from idemproxy.proxy.versions import ApiKey
from testkit.stage.stored_batches import StoredRecord, header, numbered, stored_batch

from .upwards import steps_of

VERSIONS = range(4)
MB = 1_000_000


def request(
    version: int, partitions: Mapping[int, tuple[int, int]], *, max_bytes: int = 10 * MB, **fields: Any
) -> bytes:
    """A fetch of topic "t": partition -> (offset, limit)."""
    if version >= 3:
        fields["max_bytes"] = max_bytes
    wanted = [
        {"partition": number, "fetch_offset": offset, "partition_max_bytes": limit}
        for number, (offset, limit) in partitions.items()
    ]
    topics = [{"topic": "t", "partitions": wanted}]
    fixed = {"replica_id": -1, "max_wait_ms": 500, "min_bytes": 1, "topics": topics}
    return messages.encode_request(ApiKey.FETCH, version, **{**fixed, **fields})


def part(
    number: int = 0, records: bytes | None = b"", *, end: int = 100, error: int = 0, **more: Any
) -> dict[str, Any]:
    """A partition of the broker's answer."""
    fixed = {"high_watermark": end, "last_stable_offset": end, "aborted_transactions": None}
    return {"partition_index": number, "error_code": error, "records": records, **fixed, **more}


def answer(*parts: dict[str, Any], version: int = 10, error: int = 0) -> bytes:
    """The broker's answer."""
    fields = {"error_code": error, "session_id": 0} if version == 10 else {}
    entries = [{"log_start_offset": 0, **one} if version == 10 else one for one in parts]
    return messages.encode_response(
        ApiKey.FETCH, version, throttle_time_ms=7, responses=[{"topic": "t", "partitions": entries}], **fields
    )


class Client:
    """One connection's fetches of a version."""

    def __init__(self, version: int = 1, **options: Any) -> None:
        self.version = version
        self.positions = FetchPositions()
        self.options = options
        self.raised = RaisedFetch(version, self.positions, **options)

    def ask(self, partitions: Mapping[int, tuple[int, int]], **fields: Any) -> Any:
        """Begin a new fetch; return what the broker is asked."""
        self.raised = RaisedFetch(self.version, self.positions, **self.options)
        (body,) = at_once(self.raised.requests(request(self.version, partitions, **fields)))
        return self.decoded(body)

    def decoded(self, body: Any) -> Any:
        """What the broker is asked."""
        return messages.decode_request(ApiKey.FETCH, self.raised.broker_version, bytes(body))

    def get(self, *parts: dict[str, Any], elapsed_ms: int = 0) -> Any:
        """Return the client's answer to the broker's, decoded: partition -> its entry. Or what the broker is asked."""
        made = at_once(self.raised.response([answer(*parts, version=self.raised.broker_version)], elapsed_ms))
        if isinstance(made, FurtherFetch):
            (body,) = made.bodies
            asked = self.decoded(body)
            assert asked.max_wait_ms == made.max_wait_ms
            return asked
        (topic,) = messages.decode_response(ApiKey.FETCH, self.version, bytes(made)).responses
        return {one.partition_index: one for one in topic.partitions}


def asked_of(sent: Any) -> list[tuple[int, int, int]]:
    """(partition, offset, limit) in the order in which the broker is asked."""
    assert not isinstance(sent, dict), "the client is answered"
    return [
        (one.partition, one.fetch_offset, one.partition_max_bytes) for topic in sent.topics for one in topic.partitions
    ]


def offsets(entry: Any) -> list[int]:
    return [one.offset for one in iterate_shallow(entry.records)]


def control(offset: int) -> bytes:
    marker = [StoredRecord(0, key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")]
    return stored_batch(marker, base_offset=offset, attributes=CONTROL_FLAG | TRANSACTIONAL_FLAG, producer_id=1)


@pytest.mark.parametrize("broker_version", BROKER_VERSIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_is_asked_as_a_consumer_without_a_session(version: int, broker_version: int) -> None:
    sent = Client(version, broker_version=broker_version).ask({3: (5, 1_000), 1: (0, 2_000)}, replica_id=7)
    if broker_version == 10:
        assert (sent.session_id, sent.session_epoch, sent.forgotten_topics_data) == (0, -1, [])
        of_partition = sent.topics[0].partitions[0]
        assert (of_partition.current_leader_epoch, of_partition.log_start_offset) == (-1, -1)
    assert (sent.replica_id, sent.max_wait_ms, sent.min_bytes, sent.isolation_level) == (-1, 500, 1, 0)
    assert sent.max_bytes == (10 * MB if version == 3 else FETCH_BYTES_MAX)
    assert asked_of(sent) == [(3, 5, 1_000), (1, 0, 2_000)]
    assert Client(3).ask({0: (0, 1)}, max_bytes=2**31 - 1).max_bytes == FETCH_BYTES_MAX
    assert Client(version, committed=True).ask({0: (0, 1)}).isolation_level == 1


@pytest.mark.parametrize("broker_version", BROKER_VERSIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_in_the_format_of_the_version(version: int, broker_version: int) -> None:
    client = Client(version, broker_version=broker_version)
    client.ask({0: (1, 1_000), 1: (0, 1_000)})
    data = stored_batch([StoredRecord(0), StoredRecord(1, headers=(header(b"h", b"x"),))])
    answered = client.get(part(0, data, end=2), part(1, None))
    assert [(m.offset, m.magic) for m in iterate_shallow(answered[0].records)] == [(1, 0 if version < 2 else 1)]
    assert (answered[0].error_code, answered[0].high_watermark) == (0, 2)
    assert answered[1].records == b""
    assert client.raised.messages_without_headers == {"t": 1}
    whole = at_once(client.raised.response([answer(version=broker_version)], 0))
    assert not isinstance(whole, FurtherFetch)
    throttle = getattr(messages.decode_response(ApiKey.FETCH, version, bytes(whole)), "throttle_time_ms", None)
    assert (throttle == 7) is (version > 0)


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_no_code_is_newer_than_the_client(code: ErrorCode) -> None:
    client = Client(0)
    client.ask({0: (0, 1_000)})
    answered = client.get(part(error=code, records=None))
    assert answered[0].error_code == known_code(code, OF_0_10_2) <= 44
    assert not answered[0].records


def test_an_error_of_the_whole_fetch_is_one_of_each_partition() -> None:
    client = Client(1)
    client.ask({0: (0, MB), 5: (0, MB)})
    made = at_once(client.raised.response([answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)], 0))
    assert not isinstance(made, FurtherFetch)
    (topic,) = messages.decode_response(ApiKey.FETCH, 1, bytes(made)).responses
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (number, ErrorCode.REQUEST_TIMED_OUT) for number in (0, 5)
    ]


def test_after_a_control_batch_at_the_end_the_broker_waits_for_records_and_is_asked_once_a_wait() -> None:
    client = Client()
    assert asked_of(client.ask({0: (23, MB)})) == [(0, 23, MB)]
    further = client.get(part(0, control(23), end=24), elapsed_ms=120)
    assert (asked_of(further), further.max_wait_ms) == ([(0, 24, MB)], 380)
    assert not client.get(part(0, end=24), elapsed_ms=500)[0].records
    for _ in range(3):
        assert asked_of(client.ask({0: (23, MB)})) == [(0, 24, MB)]
        assert client.get(part(0, end=24), elapsed_ms=500)[0].high_watermark == 24
    assert asked_of(client.ask({0: (23, MB)})) == [(0, 24, MB)]
    assert offsets(client.get(part(0, stored_batch(numbered(2), base_offset=24), end=26))[0]) == [24, 25]
    assert asked_of(client.ask({0: (26, MB)})) == [(0, 26, MB)]
    assert len(client.positions) == 0


def test_what_follows_the_last_record_is_known_before_it_is_asked_for() -> None:
    client = Client()
    client.ask({0: (0, MB)})
    data = stored_batch(numbered(10), last_offset_delta=19) + control(20)
    assert offsets(client.get(part(0, data, end=21))[0]) == list(range(10))
    assert asked_of(client.ask({0: (10, MB)})) == [(0, 21, MB)]
    assert asked_of(client.ask({0: (12, MB)})) == [(0, 12, MB)]  # it seeks


def test_a_compacted_tail_is_passed_within_one_fetch() -> None:
    client = Client()
    client.ask({0: (10, 200)})
    further = client.get(part(0, stored_batch(numbered(10), last_offset_delta=19)))
    assert asked_of(further) == [(0, 20, 200)]
    answered = client.get(part(0, stored_batch(numbered(3), base_offset=20)), elapsed_ms=3)
    assert offsets(answered[0]) == [20, 21, 22]


def test_without_time_left_the_client_is_answered_and_the_next_fetch_is_further_on() -> None:
    client = Client()
    client.ask({0: (23, MB)})
    assert not client.get(part(0, control(23)), elapsed_ms=500)[0].records
    assert asked_of(client.ask({0: (23, MB)})) == [(0, 24, MB)]
    client.ask({0: (23, MB)}, max_wait_ms=-5)
    assert not client.get(part(0, control(24)))[0].records


def test_no_partition_waits_for_another_that_has_nothing_to_read() -> None:
    client = Client()
    client.ask({0: (23, MB), 1: (0, MB), 2: (0, MB)})
    answered = client.get(part(0, control(23)), part(1, stored_batch(numbered(1))), part(2, error=3))
    assert [len(answered[number].records or b"") > 0 for number in range(3)] == [False, True, False]
    assert asked_of(client.ask({0: (23, MB)})) == [(0, 24, MB)]


def test_an_error_forgets_the_place() -> None:
    client = Client()
    client.ask({0: (23, MB)})
    assert asked_of(client.get(part(0, control(23)))) == [(0, 24, MB)]
    assert client.get(part(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))[0].error_code == 6
    assert asked_of(client.ask({0: (23, MB)})) == [(0, 23, MB)]


def test_a_log_that_ends_before_the_place_is_read_as_the_client_asked() -> None:
    """A client that gets OFFSET_OUT_OF_RANGE begins from the first record, or the last."""
    client = Client()
    client.ask({0: (23, MB)})
    client.get(part(0, control(23)), elapsed_ms=500)
    client.ask({0: (23, MB)})
    assert asked_of(client.get(part(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))) == [(0, 23, MB)]
    assert client.get(part(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))[0].error_code == 1
    assert client.ask({0: (23, MB)})


def test_committed_records_end_at_the_last_stable_offset_and_none_is_aborted() -> None:
    data = b"".join(
        stored_batch(numbered(2), base_offset=offset, attributes=TRANSACTIONAL_FLAG, producer_id=producer)
        for offset, producer in ((0, 5), (2, 6), (4, 5))
    )
    fields: dict[str, Any] = {"last_stable_offset": 6, "aborted_transactions": [{"producer_id": 6, "first_offset": 2}]}
    for committed, expected in ((True, [0, 1, 4, 5]), (False, [0, 1, 2, 3, 4, 5])):
        client = Client(committed=committed)
        client.ask({0: (0, MB)})
        answered = client.get(part(0, data, end=9, **fields))
        assert offsets(answered[0]) == expected
        assert answered[0].high_watermark == (6 if committed else 9)


def test_what_had_no_room_comes_first_the_next_time() -> None:
    """A batch above its partition's limit is sent for the first partition of a request alone."""
    client = Client()
    client.ask({number: (0, 1_000) for number in range(3)})
    answered = client.get(part(0, stored_batch(numbered(1)), end=1), part(1, end=5), part(2, end=0))
    assert not answered[1].records
    assert [one[0] for one in asked_of(client.ask({0: (1, 1_000), 1: (0, 1_000), 2: (0, 1_000)}))] == [1, 0, 2]
    client.get(part(1, stored_batch(numbered(1, bytes(9_000)))), part(0, end=1), part(2, end=0))
    assert [one[0] for one in asked_of(client.ask({0: (1, 1_000), 1: (1, 1_000), 2: (0, 1_000)}))] == [0, 1, 2]


def test_what_comes_first_takes_its_topic_along_and_no_topic_is_named_twice() -> None:
    topics = [
        {"topic": name, "partitions": [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 9} for n in range(2)]}
        for name in ("a", "b", "c")
    ]
    client = Client()
    for number in (("b", 1), ("c", 0)):
        client.positions.note((b"\0\1" + number[0].encode(), number[1]), ReadPosition(0, 0, is_first=True))
    sent = client.ask({}, topics=topics)
    assert [(topic.topic, [one.partition for one in topic.partitions]) for topic in sent.topics] == [
        ("b", [1, 0]),
        ("c", [0, 1]),
        ("a", [0, 1]),
    ]


def test_an_answer_ends_at_the_limit_of_all_its_partitions() -> None:
    client = Client(3)
    client.ask({number: (0, MB) for number in range(3)}, max_bytes=1_000)
    data = stored_batch(numbered(100, bytes(100)))
    answered = client.get(*(part(number, data) for number in range(3)))
    assert [len(answered[number].records or b"") > 0 for number in range(3)] == [True, True, False]
    assert 1_000 < sum(len(one.records or b"") for one in answered.values()) < 1_200
    assert [one[0] for one in asked_of(client.ask({number: (7, MB) for number in range(3)}))] == [0, 1, 2]
    assert [one[0] for one in asked_of(client.ask({number: (0, MB) for number in range(3)}))] == [2, 0, 1]
    client.ask({0: (0, MB)}, max_bytes=0)
    assert offsets(client.get(part(0, data))[0]) == [0]


@pytest.mark.parametrize("other", ["t", "u", None])
def test_a_batch_that_is_taken_in_many_pieces_is_sent_by_the_broker_once(other: str | None) -> None:
    """Next to partitions of the same topic, of another one, and alone."""
    data = stored_batch(numbered(50, bytes(66)), base_offset=10)
    wanted = [{"topic": "t", "partitions": [{"partition": 3, "fetch_offset": 10, "partition_max_bytes": 1_100}]}]
    if other is not None:
        wanted.append(
            {"topic": other, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_100}]}
        )
    client = Client(2)
    client.ask({}, topics=wanted)
    client.get(part(3, data, end=60))
    found = list(range(10, 20))
    while found[-1] < 59:
        wanted[0]["partitions"][0]["fetch_offset"] = found[-1] + 1  # type: ignore[index]
        sent = client.ask({}, topics=wanted)
        assert (sent.max_wait_ms, [topic.topic for topic in sent.topics]) == (0, [] if other is None else [other])
        listed = [] if other is None else [{"topic": other, "partitions": [{"log_start_offset": 0, **part(0)}]}]
        body = messages.encode_response(
            ApiKey.FETCH, 10, throttle_time_ms=7, error_code=0, session_id=0, responses=listed
        )
        made = at_once(client.raised.response([body], 0))
        assert not isinstance(made, FurtherFetch)
        answered = messages.decode_response(ApiKey.FETCH, 2, bytes(made)).responses
        assert [topic.topic for topic in answered] == sorted({"t", other or "t"}, reverse=True)
        (one,) = (one for topic in answered for one in topic.partitions if one.partition_index == 3)
        assert (one.error_code, one.high_watermark) == (0, 60)
        found += offsets(one)
    assert found == list(range(10, 60))
    assert client.positions.kept is None


def test_a_batch_is_kept_only_for_who_asks_for_its_next_message_and_if_it_is_small() -> None:
    client = Client(2)
    client.ask({0: (0, 200)})
    client.get(part(0, stored_batch(numbered(9, bytes(100)))))
    assert client.positions.kept is not None
    assert asked_of(client.ask({0: (5, 200)})) == [(0, 5, 200)]
    client.get(part(0, stored_batch(numbered(9, bytes(KEPT_BYTES_MAX // 9)))))
    assert client.positions.kept is not None
    client.positions.kept = None
    client.ask({0: (0, 200)})
    client.get(part(0, stored_batch(numbered(9, bytes(KEPT_BYTES_MAX // 9)))))
    assert client.positions.kept is None


def test_a_part_of_a_batch_is_asked_for_whole() -> None:
    whole = stored_batch(numbered(3, bytes(2_000)))
    client = Client()
    client.ask({0: (0, 1_000), 1: (0, 1_000)})
    further = client.get(part(0, end=0), part(1, whole[:1_000]))
    assert asked_of(further) == [(1, 0, len(whole)), (0, 0, 1_000)]
    assert offsets(client.get(part(1, whole), part(0, end=0))[1]) == [0]
    client.ask({0: (0, 1_000)})
    client.get(part(0, whole[:1_000]))
    refused = client.get(part(0, whole[:1_000]))
    assert refused[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


WRONG = {
    ErrorCode.MESSAGE_TOO_LARGE: stored_batch(numbered(3, bytes(9_000)), codec=Codec.GZIP),
    ErrorCode.CORRUPT_MESSAGE: stored_batch(numbered(3))[:-1] + b"!",
}


@pytest.mark.parametrize("code", WRONG)
def test_records_that_can_not_be_lowered_are_an_error_of_their_partition(code: ErrorCode) -> None:
    client = Client(unpacked_bytes_max=20_000)
    client.ask({0: (0, MB), 1: (0, MB)})
    answered = client.get(part(0, WRONG[code]), part(1, stored_batch(numbered(2))))
    assert (answered[0].error_code, answered[0].high_watermark, answered[0].records) == (code, 100, b"")
    assert offsets(answered[1]) == [0, 1]
    ((topic, number, offset, reason),) = client.raised.refused
    assert (topic, number, offset) == ("t", 0, 0)
    assert reason


def test_positions_are_bounded_and_the_oldest_is_forgotten() -> None:
    positions = FetchPositions()
    for number in range(POSITIONS_MAX + 2):
        positions.note((b"\0\1t", number), ReadPosition(5, 6))
    assert len(positions) == POSITIONS_MAX
    assert positions.of((b"\0\1t", 1), 5).next_offset == 5
    assert positions.of((b"\0\1t", 2), 5).next_offset == 6
    assert positions.of((b"\0\1t", 2), 7).next_offset == 7


def test_garbage_is_a_wire_error() -> None:
    whole = request(3, {0: (0, 1), 1: (0, 1)})
    for size in range(len(whole)):
        with pytest.raises(WireError):
            at_once(RaisedFetch(3, FetchPositions()).requests(whole[:size]))
    with pytest.raises(LimitExceeded):
        at_once(RaisedFetch(0, FetchPositions()).requests(bytes(REQUEST_BYTES_MAX + 1)))
    told = answer(part(0, stored_batch(numbered(2))), part(1))
    for size in range(len(told)):
        client = Client()
        client.ask({0: (0, MB), 1: (0, MB)})
        with pytest.raises(WireError):
            at_once(client.raised.response([told[:size]], 0))
    client = Client()
    client.ask({0: (0, MB)})
    with pytest.raises(Malformed):
        client.get(part(1))


def test_many_partitions_take_many_steps() -> None:
    many = range(20_000)
    raised = RaisedFetch(1, FetchPositions())
    assert steps_of(raised.requests(request(1, dict.fromkeys(many, (0, 1))))) > 70
    assert steps_of(raised.response([answer(*(part(number) for number in many))], 0)) > 35


def test_fifty_megabytes_are_held_once_more_than_they_came() -> None:
    batch = stored_batch(numbered(9_000, bytes(90)))
    batches: Sequence[bytes] = [
        (9_000 * i).to_bytes(8, "big") + batch[8:] for i in range(FETCH_BYTES_MAX // len(batch))
    ]
    body = answer(part(0, b"".join(batches)))
    del batches
    client = Client(1)
    client.ask({0: (0, FETCH_BYTES_MAX)})
    tracemalloc.start()
    try:
        made = at_once(client.raised.response([body], 0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not isinstance(made, FurtherFetch)
    assert FETCH_BYTES_MAX - 200 < len(made) <= FETCH_BYTES_MAX + 50
    assert peak < 1.2 * FETCH_BYTES_MAX
