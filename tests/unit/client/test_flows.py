"""What takes several steps, with servers that are functions: who is asked, what is tried again, when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.client import limits
from idemproxy.client.asking import EARLIEST, FETCH, LIST_OFFSETS, Ask, Servers
from idemproxy.client.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    OffsetOutOfRange,
    RequestRefused,
    UnsupportedServer,
)
from idemproxy.client.flows import (
    DESCRIBE_PRODUCERS,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Cursor,
    commit_offsets,
    committed_offsets,
    fetch_records,
    fetch_to_end,
    find_offset,
    find_partitions,
    find_topics,
    init_producer_id,
    where_it_stopped,
)
from idemproxy.client.records import CommittedOffset, Stopped
from idemproxy.client.settings import ClientSettings
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.producing.cluster import METADATA
from idemproxy.producing.limits import BACKOFF_SECONDS_MAX
from idemproxy.producing.numbered_batch import Place, ProducerId
from testkit.stage.client import ADDRESS, BROKERS, FlowRun, answer, metadata

OTHER = ("other", 9092)
PLACE = Place("t", 0)
SECONDS = 5.0


def servers() -> Servers:
    return Servers([ADDRESS, OTHER])


def producer_id(error_code: int = 0) -> Any:
    return answer(INIT_PRODUCER_ID, 0, error_code=error_code, producer_id=17, producer_epoch=3)


def fetched(records: bytes = b"", error_code: int = 0, high_watermark: int = 9) -> Any:
    partition = {"partition_index": 0, "error_code": error_code, "high_watermark": high_watermark, "records": records}
    return answer(FETCH, 3, responses=[{"topic": "t", "partitions": [partition]}])


def in_turn(*replies: Any) -> Callable[[Ask], Any]:
    """Answer one question after the other."""
    left = list(replies)
    return lambda _ask: left.pop(0)


def test_a_producer_id_comes_from_the_first_server_that_answers() -> None:
    run = FlowRun(in_turn(ConnectionFailed("away"), producer_id()))
    assert run.run(init_producer_id(servers(), SECONDS)) == ProducerId(17, 3)
    assert [one.address for one in run.asked] == [ADDRESS, OTHER]
    assert run.now == 0


def test_all_topics_are_listed_without_naming_one() -> None:
    run = FlowRun(in_turn(ConnectionFailed("away"), ConnectionFailed("away"), metadata({Place("t", 0): 0}, [("a", 5)])))
    assert run.run(find_topics(servers(), SECONDS)) == ("a", "t")
    assert {one.fields["topics"] for one in run.asked} == {None}
    assert {one.versions for one in run.asked} == {(1, 4)}, "in version 0 it means that none is asked for"


@pytest.mark.parametrize("code", [14, 15, 7])
def test_a_server_that_cannot_yet_is_asked_again_for_some_seconds(code: int) -> None:
    run = FlowRun(lambda _ask: producer_id(code))
    with pytest.raises(RequestRefused) as refused:
        run.run(init_producer_id(servers(), SECONDS))
    assert refused.value.code == code
    assert SECONDS - BACKOFF_SECONDS_MAX <= run.now < SECONDS
    assert 5 < len(run.asked) < 20
    assert FlowRun(in_turn(producer_id(code), producer_id())).run(init_producer_id(servers(), SECONDS)).number == 17


@pytest.mark.parametrize(
    "reply", [producer_id(53), producer_id(42), AuthenticationFailed("no"), UnsupportedServer("none")]
)
def test_a_refusal_is_not_tried_again(reply: Any) -> None:
    run = FlowRun(lambda _ask: reply)
    with pytest.raises((RequestRefused, AuthenticationFailed, UnsupportedServer)):
        run.run(init_producer_id(servers(), SECONDS))
    assert len(run.asked) == 1


def test_partitions_are_waited_for_and_their_topic_is_not_created() -> None:
    run = FlowRun(in_turn(metadata({}, [("t", 3)]), metadata({PLACE: 0})))
    assert run.run(find_partitions(servers(), "t", SECONDS)) == (0,)
    assert run.asked[0].fields["allow_auto_topic_creation"] is False
    with pytest.raises(RequestRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        FlowRun(lambda _ask: metadata({}, [("t", 3)])).run(find_partitions(servers(), "t", SECONDS))


def test_find_offset_asks_the_leader_and_after_a_move_the_next_one() -> None:
    def listed(error_code: int, offset: int = -1) -> Any:
        one = {"partition_index": 0, "error_code": error_code, "timestamp": -1, "offset": offset}
        return answer(LIST_OFFSETS, 1, topics=[{"name": "t", "partitions": [one]}])

    run = FlowRun(in_turn(metadata({PLACE: 0}), listed(6), metadata({PLACE: 1}), listed(0, 44)))
    assert run.run(find_offset(servers(), PLACE, EARLIEST, SECONDS)) == 44
    assert [one.address for one in run.asked] == [ADDRESS, BROKERS[0], ADDRESS, BROKERS[1]]


def test_the_oldest_layout_of_offsets_is_read_too() -> None:
    one = {"partition_index": 0, "error_code": 0, "old_style_offsets": [5]}
    listed = answer(LIST_OFFSETS, 0, topics=[{"name": "t", "partitions": [one]}])
    assert FlowRun(in_turn(metadata({PLACE: 0}), listed)).run(find_offset(servers(), PLACE, EARLIEST, SECONDS)) == 5


def test_a_reader_continues_after_what_it_has_read() -> None:
    cursor = Cursor(PLACE, 4)
    batch = encode_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")], base_offset=4)
    run = FlowRun(in_turn(metadata({PLACE: 0}), fetched(batch), fetched(high_watermark=6)))
    known = servers()
    assert [one.value for one in run.run(fetch_records(known, cursor, SECONDS))] == [b"a", b"b"]
    assert (cursor.offset, cursor.high_watermark) == (6, 9)
    assert run.run(fetch_records(known, cursor, SECONDS)) == []
    assert run.asked[-1].fields["topics"][0]["partitions"][0]["fetch_offset"] == 6


def test_an_answer_with_nothing_below_the_high_watermark_is_no_end() -> None:
    """All that the proxy was given is left out, for the third time; its next fetch begins after that."""
    batch = encode_batch([Record(0, 1, None, b"a")], base_offset=8)
    run = FlowRun(in_turn(metadata({PLACE: 0}), fetched(), fetched(), fetched(), fetched(batch)))
    cursor = Cursor(PLACE, 4)
    assert [one.offset for one in run.run(fetch_records(servers(), cursor, SECONDS))] == [8]
    run = FlowRun(in_turn(metadata({PLACE: 0}), fetched(), fetched(), fetched(), fetched(batch)))
    cursor = Cursor(PLACE, 4)
    assert [one.offset for one in run.run(fetch_to_end(servers(), cursor, SECONDS))] == [8]
    assert {one.fields["max_wait_ms"] for one in run.asked if one.api_key == FETCH} == {0}


def test_a_reader_waits_half_a_second_in_all() -> None:
    run = FlowRun(lambda ask: metadata({PLACE: 0}) if ask.api_key == METADATA else fetched())
    run.seconds_of_an_answer = 0.1
    assert run.run(fetch_records(servers(), Cursor(PLACE, 4), SECONDS)) == []
    assert limits.FETCH_WAIT_MS_MAX / 1000 <= run.now < 1


def test_the_end_is_certain_when_no_more_can_be_left_out() -> None:
    """Each answer leaves one offset out at least."""
    run = FlowRun(lambda ask: metadata({PLACE: 0}) if ask.api_key == METADATA else fetched())
    assert run.run(fetch_to_end(servers(), Cursor(PLACE, 4), SECONDS)) == []
    assert 9 - 4 < len(run.asked) < 20


def test_after_a_lost_connection_all_is_left_out_again() -> None:
    """The new one begins at the reader's offset again."""
    batch = encode_batch([Record(0, 1, None, b"a")], base_offset=8)
    replies = [*[fetched()] * 4, ConnectionFailed("lost"), metadata({PLACE: 0})] * 6
    run = FlowRun(in_turn(metadata({PLACE: 0}), *replies, *[fetched()] * 4, fetched(batch)))
    assert [one.offset for one in run.run(fetch_to_end(servers(), Cursor(PLACE, 4), SECONDS))] == [8]


@pytest.mark.parametrize("flow", [fetch_records, fetch_to_end])
def test_a_reader_waits_for_its_quota(flow: Any) -> None:
    throttled = answer(FETCH, 4, throttle_time_ms=1200, responses=[])
    batch = encode_batch([Record(0, 1, None, b"a")], base_offset=4)
    run = FlowRun(in_turn(metadata({PLACE: 0}), throttled, throttled, fetched(batch)))
    assert [one.offset for one in run.run(flow(servers(), Cursor(PLACE, 4), SECONDS))] == [4]
    assert run.now == pytest.approx(2.4)
    assert [one.api_key for one in run.asked].count(METADATA) == 1, "its leader has not moved"
    with pytest.raises(RequestRefused, match=r"fetch of t-0: .*THROTTLING_QUOTA_EXCEEDED"):
        FlowRun(in_turn(metadata({PLACE: 0}), *[throttled] * 20)).run(flow(servers(), Cursor(PLACE, 4), SECONDS))


def test_a_message_that_is_cut_off_is_asked_for_with_more_room() -> None:
    batch = encode_batch([Record(0, 1, None, b"a" * 100)], base_offset=0)
    run = FlowRun(in_turn(metadata({PLACE: 0}), fetched(batch[:80]), fetched(batch[:90]), fetched(batch)))
    cursor = Cursor(PLACE, 0)
    assert len(run.run(fetch_records(servers(), cursor, SECONDS))) == 1
    asked = [one.fields["max_bytes"] for one in run.asked if one.api_key == FETCH]
    assert asked == [limits.FETCH_BYTES, 2 * limits.FETCH_BYTES, 4 * limits.FETCH_BYTES]
    assert cursor.fetch_bytes == limits.FETCH_BYTES
    with pytest.raises(RequestRefused, match="a message of t-0 above"):
        FlowRun(in_turn(metadata({PLACE: 0}), *[fetched(batch[:80])] * 20)).run(
            fetch_records(servers(), Cursor(PLACE, 0), SECONDS)
        )


def test_a_reader_survives_lost_connections_and_moved_leaders_and_says_what_cannot_be() -> None:
    batch = encode_batch([Record(0, 1, None, b"a")])
    replies = [metadata({PLACE: 0}), ConnectionFailed("gone"), metadata({PLACE: 1}), fetched(error_code=6),
               metadata({}, [("t", 5)]), metadata({PLACE: 0}), fetched(batch)]  # fmt: skip
    assert len(FlowRun(in_turn(*replies)).run(fetch_records(servers(), Cursor(PLACE, 0), SECONDS))) == 1
    with pytest.raises(OffsetOutOfRange):
        FlowRun(in_turn(metadata({PLACE: 0}), fetched(error_code=1))).run(
            fetch_records(servers(), Cursor(PLACE, 99), SECONDS)
        )
    with pytest.raises(RequestRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        FlowRun(in_turn(metadata({PLACE: 0}), fetched(error_code=29))).run(
            fetch_records(servers(), Cursor(PLACE, 0), SECONDS)
        )


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("one:9092", [("one", 9092)]),
        ("one:9092, [::1]:9093", [("one", 9092), ("::1", 9093)]),
        (["one:1", "two:2"], [("one", 1), ("two", 2)]),
    ],
)
def test_bootstrap_addresses(given: str | list[str], addresses: list[tuple[str, int]]) -> None:
    assert ClientSettings(given).addresses() == addresses


@pytest.mark.parametrize("given", ["", "one", "one:", ":9092", "one:0", "one:65536", "one:x", []])
def test_what_is_no_address_is_refused(given: str | list[str]) -> None:
    with pytest.raises(ValueError, match="bootstrap"):
        ClientSettings(given).addresses()


# ---------------------------------------------------------------------- offsets of groups
COORDINATOR = ("coordinator", 9095)


def coordinator(error_code: int = 0) -> Any:
    return answer(FIND_COORDINATOR, 0, error_code=error_code, node_id=2, host=COORDINATOR[0], port=COORDINATOR[1])


def committed(*codes: int) -> Any:
    partitions = [{"partition_index": index, "error_code": code} for index, code in enumerate(codes)]
    return answer(OFFSET_COMMIT, 2, topics=[{"name": "t", "partitions": partitions}])


def found_offsets(error_code: int = 0, group_code: int = 0) -> Any:
    partitions = [
        {"partition_index": 0, "committed_offset": 5, "metadata": "text", "error_code": 0},
        {"partition_index": 1, "committed_offset": -1, "metadata": "", "error_code": error_code},
        {"partition_index": 2, "committed_offset": 0, "metadata": None, "error_code": 0},
    ]
    return answer(OFFSET_FETCH, 2, topics=[{"name": "t", "partitions": partitions}], error_code=group_code)


OFFSETS = {Place("t", 0): CommittedOffset(5, "text"), Place("u", 3): CommittedOffset(7)}


def test_offsets_are_committed_at_the_coordinator_which_is_remembered() -> None:
    run = FlowRun(in_turn(coordinator(), committed(0), committed(0)))
    asked = servers()
    run.run(commit_offsets(asked, "g", OFFSETS, SECONDS))
    run.run(commit_offsets(asked, "g", OFFSETS, SECONDS))
    assert [one.address for one in run.asked] == [ADDRESS, COORDINATOR, COORDINATOR]
    fields = run.asked[1].fields
    assert (fields["group_id"], fields["generation_id_or_member_epoch"], fields["member_id"]) == ("g", -1, "")
    assert fields["retention_time_ms"] == limits.OFFSETS_KEPT_MS
    assert [(topic["name"], topic["partitions"]) for topic in fields["topics"]] == [
        ("t", [{"partition_index": 0, "committed_offset": 5, "committed_metadata": "text"}]),
        ("u", [{"partition_index": 3, "committed_offset": 7, "committed_metadata": ""}]),
    ]


def test_offsets_are_read_and_partitions_without_one_are_left_out() -> None:
    run = FlowRun(in_turn(coordinator(), found_offsets()))
    places = [Place("t", 0), Place("t", 1), Place("t", 2)]
    assert run.run(committed_offsets(servers(), "g", places, SECONDS)) == {
        Place("t", 0): CommittedOffset(5, "text"),
        Place("t", 2): CommittedOffset(0),
    }
    assert run.asked[1].fields["topics"] == [{"name": "t", "partition_indexes": [0, 1, 2]}]


@pytest.mark.parametrize("trouble", [committed(0, 16), committed(14), committed(15), ConnectionFailed("away")])
def test_another_coordinator_is_looked_for_when_this_one_is_none_any_more(trouble: Any) -> None:
    run = FlowRun(in_turn(coordinator(), trouble, coordinator(15), coordinator(), committed(0)))
    run.run(commit_offsets(servers(), "g", OFFSETS, SECONDS))
    assert [one.address for one in run.asked] == [ADDRESS, COORDINATOR, ADDRESS, ADDRESS, COORDINATOR]


def test_an_error_of_the_group_or_of_a_partition_is_no_missing_offset() -> None:
    for reply in (found_offsets(group_code=30), found_offsets(error_code=29)):
        run = FlowRun(in_turn(coordinator(), reply))
        with pytest.raises(RequestRefused):
            run.run(committed_offsets(servers(), "g", [Place("t", 0)], SECONDS))


@pytest.mark.parametrize("code", [12, 25, 30])
def test_a_commit_that_is_refused_is_not_tried_again(code: int) -> None:
    run = FlowRun(in_turn(coordinator(), committed(0, code)))
    with pytest.raises(RequestRefused, match="OffsetCommit of group 'g'"):
        run.run(commit_offsets(servers(), "g", OFFSETS, SECONDS))


def test_a_group_without_a_coordinator_is_an_error_when_the_time_is_over() -> None:
    run = FlowRun(lambda _ask: coordinator(15))
    with pytest.raises(RequestRefused, match="coordinator of group"):
        run.run(committed_offsets(servers(), "g", [Place("t", 0)], SECONDS))
    assert SECONDS - BACKOFF_SECONDS_MAX <= run.now < SECONDS


def described(*partitions: tuple[int, int, int]) -> Any:
    """``partitions``: index, error code, last sequence of producer 17 in epoch 3; another producer is there, too."""
    told = [
        {"partition_index": index, "error_code": code, "error_message": None,
         "active_producers": [] if code else [producer(16, 5), producer(17, last)]}
        for index, code, last in partitions
    ]  # fmt: skip
    return answer(DESCRIBE_PRODUCERS, 0, throttle_time_ms=0, topics=[{"name": "t", "partitions": told}])


def producer(number: int, last_sequence: int) -> dict[str, int]:
    return {"producer_id": number, "producer_epoch": 3, "last_sequence": last_sequence, "last_timestamp": -1,
            "coordinator_epoch": -1, "current_txn_start_offset": -1}  # fmt: skip


@pytest.mark.promise("sink-starts-again")
def test_each_leader_is_asked_once_where_a_producer_stopped_on_all_its_partitions() -> None:
    places = [Place("t", number) for number in range(4)]
    leaders = metadata({places[0]: 0, places[1]: 1, places[2]: 0})
    run = FlowRun(in_turn(leaders, described((0, 0, 7), (2, 6, 0)), described((1, 0, 9))))
    found = run.run(where_it_stopped(servers(), 17, places))
    assert found == {places[0]: Stopped(ProducerId(17, 3), 7), places[1]: Stopped(ProducerId(17, 3), 9)}
    assert [one.fields["topics"] for one in run.asked[1:]] == [
        [{"name": "t", "partition_indexes": [0, 2]}],
        [{"name": "t", "partition_indexes": [1]}],
    ]


@pytest.mark.parametrize("error", [UnsupportedServer("none"), ConnectionFailed("away")])
def test_a_leader_that_does_not_tell_leaves_its_partitions_out(error: Exception) -> None:
    places = [Place("t", 0), Place("t", 1)]
    run = FlowRun(in_turn(metadata({places[0]: 0, places[1]: 1}), error, described((1, 0, 9))))
    assert run.run(where_it_stopped(servers(), 17, places)) == {places[1]: Stopped(ProducerId(17, 3), 9)}
