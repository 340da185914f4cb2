"""Fetches of which hidden ranges are left out, as bytes, in every version of Fetch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.errors import LimitExceeded
from idemproxy.codecs.message_set import encode_message, encode_set, inner_messages, iterate_shallow
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.fetch import Fetch
from idemproxy.proxy.hidden_ranges.fetch import FetchWithoutHiddenRanges
from idemproxy.proxy.hidden_ranges.known import KnownHiddenRanges, Skips
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.hidden_ranges import HiddenRange, OffsetRange, State

VERSIONS = range(7)
OUT_OF_RANGE, NOT_LEADER = 1, 6
HIDDEN = OffsetRange("t", 0, 3, 6)
LOG = [encode_message(b"k", b"v%d" % offset, magic=1, offset=offset, timestamp=7) for offset in range(10)]


def crc_of(stored: bytes) -> int:
    (message,) = iterate_shallow(stored)
    return message.crc


def checksum(offset: int) -> int:
    return crc_of(LOG[offset])


class Scene:
    """Offsets 3 to 5 of t/0 are left out; t/1 has no hidden range. One client fetches."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.now = 0.0
        self.log = LOG
        self.known = KnownHiddenRanges(lambda: self.now)
        self.skips = Skips(lambda: self.now)
        hidden = tuple((offset, checksum(offset), offset) for offset in (3, 4, 5))
        self.known.take_list({HIDDEN: HiddenRange(State.ACTIVE, 1, messages=hidden)})

    def asked(self, offset: int, max_bytes: int = 1000) -> tuple[FetchWithoutHiddenRanges, Any]:
        """A fetch of both partitions at this offset, and how it reaches the broker."""
        partitions = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": max_bytes} for number in (0, 1)
        ]
        fields: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 5, "min_bytes": 1, "max_bytes": 9000}
        topics = [{"topic": "t", "partitions": partitions}]
        body = messages.encode_request(ApiKey.FETCH, self.version, **fields, topics=topics)
        fetch = FetchWithoutHiddenRanges(Fetch(self.version, self.version), self.version, self.known, self.skips)
        chunks = fetch.request(memoryview(body))
        assert not hasattr(chunks, "error_code")
        return fetch, messages.decode_request(ApiKey.FETCH, self.version, b"".join(chunks))

    def answered(self, fetch: FetchWithoutHiddenRanges, first: int, last: int, error_code: int = 0) -> list[list[int]]:
        """The offsets of each partition that the client gets, where the broker answers with these."""
        return [offsets for _, offsets in self.answers(fetch, first, last, error_code)]

    def answers(
        self, fetch: FetchWithoutHiddenRanges, first: int, last: int, error_code: int = 0
    ) -> list[tuple[int, list[int]]]:
        records = b"".join(self.log[first : last + 1]) + LOG[0][:20]
        partitions = [
            {"partition_index": number, "error_code": error_code, "high_watermark": 10, "records": records}
            for number in (0, 1)
        ]
        body = messages.encode_response(
            ApiKey.FETCH, self.version, responses=[{"topic": "t", "partitions": partitions}]
        )
        answer = messages.decode_response(ApiKey.FETCH, self.version, b"".join(fetch.response(memoryview(body))))
        return [
            (one.error_code, [message.offset for message in iterate_shallow(one.records or b"")])
            for one in answer.responses[0].partitions
        ]


def offsets_of(request: Any) -> list[int]:
    return [one.fetch_offset for one in request.topics[0].partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_only_in_the_partition_with_a_hidden_range_records_are_left_out(version: int) -> None:
    scene = Scene(version)
    fetch, request = scene.asked(0)
    assert offsets_of(request) == [0, 0]
    assert scene.answered(fetch, 0, 8) == [[0, 1, 2, 6, 7, 8], [*range(9)]]


@pytest.mark.promise("hidden-ranges")
@pytest.mark.parametrize("version", VERSIONS)
def test_where_all_is_left_out_the_next_fetch_begins_after_it(version: int) -> None:
    scene = Scene(version)
    fetch, _ = scene.asked(3)
    assert scene.answered(fetch, 3, 4) == [[], [3, 4]]
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [5, 3]
    assert scene.answered(fetch, 5, 5) == [[], [5]]
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [6, 3]
    assert scene.answered(fetch, 6, 7) == [[6, 7], [6, 7]]
    scene.now += limits.HIDDEN_RANGES_SKIP_SECONDS
    assert offsets_of(scene.asked(3)[1]) == [3, 3], "it is looked at again"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_shorter_than_a_skip_does_not_invalidate_the_clients_offset(version: int) -> None:
    scene = Scene(version)
    scene.answered(scene.asked(3)[0], 3, 5)
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [6, 3]
    assert scene.answers(fetch, 9, 8, OUT_OF_RANGE) == [(0, []), (OUT_OF_RANGE, [])]
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [3, 3]
    assert scene.answers(fetch, 9, 8, OUT_OF_RANGE) == [(OUT_OF_RANGE, [])] * 2, "now it is of its own"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_after_the_last_hidden_range_is_not_looked_into(version: int) -> None:
    scene = Scene(version)
    fetch, request = scene.asked(6, 100 << 20)
    assert [one.partition_max_bytes for one in request.topics[0].partitions] == [100 << 20] * 2
    body = memoryview(b"not even an answer")
    assert tuple(fetch.response(body)) == (body,)


@pytest.mark.parametrize(("version", "limited"), [(2, 100 << 20), (3, limits.HIDDEN_RANGES_FETCH_BYTES_MAX)])
def test_so_many_bytes_are_looked_into_where_a_large_message_comes_whole(version: int, limited: int) -> None:
    _, request = Scene(version).asked(0, 100 << 20)
    assert [one.partition_max_bytes for one in request.topics[0].partitions] == [limited, 100 << 20]


def test_partitions_share_the_bytes_that_are_looked_into() -> None:
    """What does not fit would be fetched again and again."""
    scene = Scene(4)
    (hidden_range,) = scene.known.listed.values()
    scene.known.take_list({HIDDEN: hidden_range, OffsetRange("t", 1, 3, 6): hidden_range})
    _, request = scene.asked(0, 100 << 20)
    assert [one.partition_max_bytes for one in request.topics[0].partitions] == [
        limits.HIDDEN_RANGES_FETCH_BYTES_MAX // 2
    ] * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_of_more_partitions_than_one_step_looks_for_is_refused(version: int) -> None:
    scene = Scene(version)
    fetch = FetchWithoutHiddenRanges(Fetch(version, version), version, scene.known, scene.skips)
    with pytest.raises(LimitExceeded, match="while there are hidden ranges"):
        fetch.request(memoryview(b"\xff" * (limits.HIDDEN_RANGES_FETCH_REQUEST_BYTES_MAX + 1)))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_cut_off_is_fetched_next(version: int) -> None:
    """All that is looked at is left out: its client continues after that, and not after all that the broker sent."""
    scene = Scene(version)
    large = [encode_message(None, bytes(400 << 10), magic=1, offset=at, timestamp=7) for at in range(4)]
    place = OffsetRange("t", 0, 0, 4)
    scene.known.take_list(
        {place: HiddenRange(State.ACTIVE, 1, messages=tuple((at, crc_of(large[at]), at) for at in range(4)))}
    )
    scene.log = [*large, encode_message(b"k", b"v4", magic=1, offset=4, timestamp=7)]
    assert scene.answered(scene.asked(0)[0], 0, 4) == [[], [0, 1, 2, 3, 4]]
    fetch, request = scene.asked(0)
    assert offsets_of(request) == [2, 0]
    assert scene.answered(fetch, 2, 4) == [[4], [2, 3, 4]]


@pytest.mark.parametrize("version", VERSIONS)
def test_no_partition_waits_for_another_one(version: int) -> None:
    """Clients name them in the same order each time, and each has more than an answer takes."""
    scene = Scene(version)
    (hidden_range,) = scene.known.listed.values()
    far = replace(hidden_range, messages=((99, 1, 99),))
    scene.known.take_list({OffsetRange("t", number, 99, 100): far for number in (0, 1)})
    scene.log = [encode_message(None, bytes(600 << 10), magic=1, offset=at, timestamp=7) for at in range(6)]
    got = [scene.answered(scene.asked(0)[0], 0, 5) for _ in range(4)]
    assert sorted(map(str, got)) == ["[[0], []]"] * 2 + ["[[], [0]]"] * 2


def test_without_active_hidden_ranges_there_are_none() -> None:
    known = KnownHiddenRanges(lambda: 0.0)
    known.take_list({OffsetRange("t", 0, 3, 6): HiddenRange(State.ASKED, 1)})
    assert (known.is_any, known.ranges_of("t", 0), known.records_left_out) == (False, (), 0)


def test_answers_of_which_something_was_left_out_are_counted() -> None:
    scene = Scene(4)
    scene.answered(scene.asked(0)[0], 0, 2)
    assert scene.known.applied == 0
    scene.answered(scene.asked(0)[0], 0, 4)
    scene.answered(scene.asked(3)[0], 3, 4)
    assert scene.known.applied == 2


# ---------------------------------------------------------------------- whose skip it is, and for how long (R24)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_one_client_has_seen_is_not_believed_for_another(version: int) -> None:
    """The topic may have been recreated since."""
    scene = Scene(version)
    scene.answered(scene.asked(3)[0], 3, 5)
    scene.skips = Skips(lambda: scene.now)
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [3, 3]
    scene.log = [encode_message(b"k", b"new", magic=1, offset=offset, timestamp=8) for offset in range(10)]
    assert scene.answered(fetch, 3, 7) == [[3, 4, 5, 6, 7]] * 2


def test_an_error_ends_a_skip() -> None:
    scene = Scene(4)
    scene.answered(scene.asked(3)[0], 3, 5)
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [6, 3]
    assert scene.answers(fetch, 9, 8, NOT_LEADER) == [(NOT_LEADER, [])] * 2
    assert offsets_of(scene.asked(3)[1]) == [3, 3]


@pytest.mark.parametrize("elsewhere", [1, 8])
def test_who_stood_elsewhere_meanwhile_is_not_moved(elsewhere: int) -> None:
    scene = Scene(4)
    scene.answered(scene.asked(3)[0], 3, 5)
    scene.asked(elsewhere)
    assert offsets_of(scene.asked(3)[1]) == [3, 3]


def test_a_skip_ends_with_its_range_and_not_with_another() -> None:
    scene = Scene(4)
    known = scene.known.listed
    scene.answered(scene.asked(3)[0], 3, 5)
    other = HiddenRange(State.ACTIVE, 2, messages=((7, checksum(7), 7),))
    scene.known.take_list({**known, OffsetRange("t", 1, 7, 8): other})
    assert offsets_of(scene.asked(3)[1]) == [6, 3]
    scene.known.take_list({**known, OffsetRange("t", 0, 7, 8): other})
    assert offsets_of(scene.asked(3)[1]) == [3, 3]


# ---------------------------------------------------------------------- wrappers
def wrapper(first: int, count: int) -> bytes:
    inside = b"".join(encode_set([(None, b"v%d" % at, 7)], magic=1, first_offset=at) for at in range(count))
    packed = compress(Codec.GZIP, inside, magic=1)
    return encode_message(b"m", packed, magic=1, offset=first + count - 1, timestamp=7, codec=Codec.GZIP)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_a_client_that_had_a_wrappers_first_records_continues_after_the_wrapper(version: int) -> None:
    """The broker gives the wrapper again, as it has the offset; of it only what the client had is left."""
    scene = Scene(version)
    stored = wrapper(0, 6)
    (message,) = iterate_shallow(stored)
    scene.known.take_list({HIDDEN: HiddenRange(State.ACTIVE, 1, messages=((5, message.crc, 0),))})
    scene.log = [stored, encode_message(b"k", b"v6", magic=1, offset=6, timestamp=7)]
    body = scene.asked(0)[0].response(memoryview(answer_of(version, stored)))
    (left,) = iterate_shallow(records_of(version, b"".join(body)))
    assert [one.offset for one in inner_messages(left, 1000)] == [0, 1, 2]
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [3, 3]
    assert scene.answered(fetch, 0, 0) == [[], [5]]
    fetch, request = scene.asked(3)
    assert offsets_of(request) == [6, 3]
    assert scene.answered(fetch, 1, 1) == [[6], [6]]


def answer_of(version: int, records: bytes) -> bytes:
    row = {"partition_index": 0, "error_code": 0, "high_watermark": 10, "records": records}
    return messages.encode_response(ApiKey.FETCH, version, responses=[{"topic": "t", "partitions": [row]}])


def records_of(version: int, body: bytes) -> bytes:
    answer = messages.decode_response(ApiKey.FETCH, version, body)
    return bytes(answer.responses[0].partitions[0].records)


# ---------------------------------------------------------------------- logs that a partition has had
def noted(place: OffsetRange, message: bytes, first: int) -> dict[OffsetRange, HiddenRange]:
    (shallow,) = iterate_shallow(message)
    return {place: HiddenRange(State.ACTIVE, 1, messages=((shallow.offset, shallow.crc, first),))}


def inside(scene: Scene, fetch: FetchWithoutHiddenRanges, stored: bytes) -> list[int]:
    """Offsets of the records that a client gets of one message."""
    body = b"".join(fetch.response(memoryview(answer_of(scene.version, stored))))
    return [
        one.offset
        for message in iterate_shallow(records_of(scene.version, body))
        for one in (inner_messages(message, 1000) if message.is_wrapper else [message])
    ]


def test_an_earlier_logs_range_does_not_count_in_a_later_logs_wrapper() -> None:
    scene, stored = Scene(4), wrapper(0, 6)
    old, new = OffsetRange("t", 0, 1, 2), OffsetRange("t", 0, 4, 6)
    scene.known.take_list({**noted(old, LOG[1], 1), **noted(new, stored, 0)})
    assert inside(scene, scene.asked(0)[0], stored) == [0, 1, 2, 3]
    assert inside(scene, scene.asked(0)[0], LOG[0] + LOG[1] + LOG[2]) == [0, 2]


def test_two_ranges_in_one_wrapper_count_both() -> None:
    scene, stored = Scene(4), wrapper(0, 6)
    scene.known.take_list(
        {**noted(OffsetRange("t", 0, 1, 2), stored, 0), **noted(OffsetRange("t", 0, 4, 6), stored, 0)}
    )
    assert len(scene.known.ranges_of("t", 0)) == 1
    assert inside(scene, scene.asked(0)[0], stored) == [0, 2, 3]


def test_a_range_after_another_counts_in_its_wrapper_only_if_seen_there() -> None:
    scene, stored = Scene(4), wrapper(0, 6)
    later, earlier = OffsetRange("t", 0, 1, 3), OffsetRange("t", 0, 4, 5)
    scene.known.take_list({**noted(later, stored, 0), **noted(earlier, LOG[4], 4)})
    assert inside(scene, scene.asked(0)[0], stored) == [0, 3, 4, 5]
    assert inside(scene, scene.asked(0)[0], LOG[4] + LOG[5]) == [5]


def test_ranges_of_one_wrapper_count_though_one_is_in_an_earlier_log() -> None:
    scene, stored = Scene(4), wrapper(6, 4)
    cut = OffsetRange("t", 0, 3, 8)
    both = noted(cut, wrapper(2, 4), 2)[cut].messages + noted(cut, stored, 6)[cut].messages
    hidden_ranges = {cut: HiddenRange(State.ACTIVE, 1, messages=both)}
    hidden_ranges |= {
        **noted(OffsetRange("t", 0, 1, 2), wrapper(0, 4), 0),
        **noted(OffsetRange("t", 0, 9, 10), stored, 6),
    }
    scene.known.take_list(hidden_ranges)
    assert inside(scene, scene.asked(0)[0], stored) == [8]


def test_a_range_counts_only_in_the_messages_that_it_was_seen_in() -> None:
    scene, stored, longer = Scene(4), wrapper(4, 2), wrapper(4, 4)
    wide, narrow = OffsetRange("t", 0, 3, 8), OffsetRange("t", 0, 5, 6)
    both = noted(wide, LOG[3], 3)[wide].messages + noted(wide, longer, 4)[wide].messages
    scene.known.take_list({wide: HiddenRange(State.ACTIVE, 1, messages=both), **noted(narrow, stored, 4)})
    assert inside(scene, scene.asked(0)[0], LOG[3] + stored) == [4]


def test_ranges_beyond_the_limit_of_logs_per_partition_are_not_left_out() -> None:
    scene = Scene(4)
    logs = limits.HIDDEN_RANGES_LOGS_MAX
    hidden_ranges: dict[OffsetRange, HiddenRange] = {}
    for number in range(logs + 1):
        message = encode_message(b"k", b"log %d" % number, magic=1, offset=9, timestamp=7)
        hidden_ranges |= noted(OffsetRange("t", 0, 9, 10 + number), message, 9)
    scene.known.take_list(hidden_ranges)
    assert len(scene.known.ranges_of("t", 0)) == logs


def test_a_message_with_another_checksum_is_another_one() -> None:
    """The log was cut off, or the topic was recreated."""
    scene = Scene(4)
    scene.log = [*LOG[:4], *(encode_message(b"k", b"new", magic=1, offset=at, timestamp=8) for at in range(4, 10))]
    assert scene.answered(scene.asked(0)[0], 0, 9)[0] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
