"""What a reader of whole logs asks, without sockets: who is asked, what is asked again, and what an answer means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from idemproxy.client import limits
from idemproxy.client.asking import EARLIEST, FETCH, LATEST, LIST_OFFSETS, Ask, CountedTries, Servers, find_leader
from idemproxy.client.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    OffsetOutOfRange,
    RequestRefused,
    TimesUnsupported,
    UnsupportedServer,
)
from idemproxy.client.log_flows import (
    HIGH_WATERMARK_REPLICA_ID,
    LOG_END_REPLICA_ID,
    Ends,
    fetch_stored,
    find_all_partitions,
    find_ends,
    find_offsets,
    has_holes,
    is_awake,
    led,
)
from idemproxy.producing.numbered_batch import Place
from testkit.stage.client import ADDRESS, BROKERS, FlowRun, answer, metadata

METADATA, DESCRIBE_CONFIGS = 3, 32
ONE, OTHER, THIRD, FOURTH = Place("a", 0), Place("a", 1), Place("b", 0), Place("c", 0)
LEADERS = {ONE: 0, OTHER: 1, THIRD: 0, FOURTH: 0}
NO_LONGER = 6
BROKER_VERSIONS = {FETCH: (0, 12), LIST_OFFSETS: (0, 5)}


def servers() -> Servers:
    return Servers([ADDRESS])


def offsets(found: Mapping[Place, int], codes: Mapping[Place, int] | None = None) -> Any:
    topics: dict[str, list[dict[str, int]]] = {}
    for place, offset in found.items():
        code = (codes or {}).get(place, 0)
        told = {"partition_index": place.partition, "error_code": code, "timestamp": -1, "offset": offset}
        topics.setdefault(place.topic, []).append(told)
    named = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return answer(LIST_OFFSETS, 1, topics=named)


def fetched(records: bytes, high_watermark: int, code: int = 0) -> Any:
    partition = {"partition_index": 0, "error_code": code, "high_watermark": high_watermark,
                 "last_stable_offset": -1, "aborted_transactions": None, "records": records}  # fmt: skip
    return answer(FETCH, 4, throttle_time_ms=0, responses=[{"topic": "a", "partitions": [partition]}])


def throttled(milliseconds: int) -> Any:
    return answer(FETCH, 4, throttle_time_ms=milliseconds, responses=[])


def run_of(*replies: Any, offered: dict[int, tuple[int, int]] | None = None) -> FlowRun:
    """Metadata is answered: broker 0 leads all but ``OTHER``, which broker 1 leads. The rest is answered in turn."""
    left = list(replies)

    def reply(ask: Ask) -> Any:
        if ask.api_key != METADATA:
            return left.pop(0)
        named = {topic["name"] for topic in ask.fields["topics"]}
        return metadata({place: leader for place, leader in LEADERS.items() if place.topic in named})

    run = FlowRun(reply)
    run.offered = BROKER_VERSIONS if offered is None else offered
    return run


def asked_of(run: FlowRun, api_key: int) -> list[Ask]:
    return [one for one in run.asked if one.api_key == api_key]


def test_a_topic_of_which_no_partition_can_be_seen_is_left_out() -> None:
    run = FlowRun(lambda _ask: metadata({ONE: 0, THIRD: 1}, [("hidden", 29)]))
    assert run.run(find_all_partitions(servers())) == {"a": [0], "b": [0]}


def test_a_broker_before_0_10_lists_all_topics_where_none_is_named() -> None:
    run = FlowRun(lambda ask: metadata({ONE: 0}) if ask.versions[0] == 0 else UnsupportedServer("it has 0 to 0"))
    assert run.run(find_all_partitions(servers())) == {"a": [0]}
    assert [(one.versions, one.fields["topics"]) for one in run.asked] == [((1, 4), None), ((0, 0), [])]


def test_each_leader_is_asked_once_for_offsets() -> None:
    run = run_of(offsets({ONE: 3, THIRD: 4}), offsets({OTHER: 5}))
    times = {ONE: EARLIEST, OTHER: LATEST, THIRD: 1234}
    assert run.run(find_offsets(servers(), times, CountedTries())) == {ONE: 3, OTHER: 5, THIRD: 4}
    assert [one.address for one in asked_of(run, LIST_OFFSETS)] == [BROKERS[0], BROKERS[1]]
    assert len(asked_of(run, METADATA)) == 2, "one for each topic"


def test_only_what_has_moved_is_asked_again() -> None:
    run = run_of(
        offsets({ONE: -1, THIRD: -1, FOURTH: 5}, {ONE: NO_LONGER, THIRD: NO_LONGER}), offsets({ONE: 3, THIRD: 4})
    )
    times = dict.fromkeys((ONE, THIRD, FOURTH), LATEST)
    assert run.run(find_offsets(servers(), times, CountedTries())) == {ONE: 3, THIRD: 4, FOURTH: 5}
    assert run.now == limits.READING_PAUSES_SECONDS[0]
    asked = [topic["name"] for one in asked_of(run, METADATA) for topic in one.fields["topics"]]
    assert asked == ["a", "b", "c", "a", "b"], "the leader of each that has moved is looked for again, at once"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (ConnectionFailed("away"), ConnectionFailed),
        (offsets({ONE: -1}, {ONE: NO_LONGER}), RequestRefused),
    ],
)
def test_find_offsets_fails_after_the_last_pause(reply: Any, error: type[Exception]) -> None:
    run = run_of(*[reply] * 6)
    with pytest.raises(error):
        run.run(find_offsets(servers(), {ONE: LATEST}, CountedTries()))
    assert run.now == sum(limits.READING_PAUSES_SECONDS)
    assert len(asked_of(run, METADATA)) == 6, "after each failure the leader is looked for"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (AuthenticationFailed("no"), AuthenticationFailed),
        (UnsupportedServer("none"), UnsupportedServer),
        (offsets({ONE: -1}, {ONE: 29}), RequestRefused),
        (offsets({ONE: -1}, {ONE: 43}), TimesUnsupported),
    ],
)
def test_what_no_other_try_can_change_is_not_tried_again(reply: Any, error: type[Exception]) -> None:
    run = run_of(reply)
    with pytest.raises(error):
        run.run(find_offsets(servers(), {ONE: LATEST}, CountedTries()))
    assert run.now == 0


def test_a_time_is_not_asked_of_a_broker_that_knows_those_of_segments_only() -> None:
    run = run_of(offered={FETCH: (0, 2), LIST_OFFSETS: (0, 0)})
    with pytest.raises(TimesUnsupported, match=r"before 0\.10\.1"):
        run.run(find_offsets(servers(), {ONE: 0}, CountedTries()))
    assert asked_of(run, LIST_OFFSETS) == []


def test_a_partition_without_a_leader_is_reported_with_its_topics_error() -> None:
    run = FlowRun(lambda _ask: metadata({ONE: 0}, [("secret", 29)]))
    assert run.run(led(servers(), [ONE, OTHER, Place("secret", 0)])) == [ONE]
    with pytest.raises(RequestRefused, match="leader of secret-0: code 29, TOPIC_AUTHORIZATION_FAILED"):
        run.run(find_leader(servers(), Place("secret", 0)))


@pytest.mark.parametrize(
    ("offered", "told", "expected"),
    [
        ({FETCH: (0, 5), DESCRIBE_CONFIGS: (0, 1)}, None, True),
        (BROKER_VERSIONS, "compact,delete", True),
        (BROKER_VERSIONS, "delete", False),
        (BROKER_VERSIONS, UnsupportedServer("it has none"), None),
    ],
    ids=["a proxy", "compacted", "deleted", "before 0.11"],
)
def test_offsets_may_be_missing(offered: dict[int, tuple[int, int]], told: Any, expected: bool | None) -> None:
    reply = told
    if isinstance(told, str):
        config = {"name": "cleanup.policy", "value": told, "read_only": False, "is_default": False,
                  "is_sensitive": False}  # fmt: skip
        result = {"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "a", "configs": [config]}
        reply = answer(DESCRIBE_CONFIGS, 0, throttle_time_ms=0, results=[result])
    assert run_of(reply, offered=offered).run(has_holes(servers(), "a", CountedTries())) is expected


def ends_of(others: Any) -> Ends:
    """Broker 0 leads, and broker 1 is the other replica."""
    partition = {"error_code": 0, "partition_index": 0, "leader_id": 0, "replica_nodes": [0, 1], "isr_nodes": [0]}
    brokers = [{"node_id": node, "host": host, "port": port, "rack": None} for node, (host, port) in BROKERS.items()]
    topic = {"error_code": 0, "name": "a", "is_internal": False, "partitions": [partition]}
    told = answer(METADATA, 1, brokers=brokers, controller_id=0, topics=[topic])

    def reply(ask: Ask) -> Any:
        if ask.api_key == METADATA:
            return told
        if ask.address == BROKERS[1]:
            return others
        return offsets({ONE: {LOG_END_REPLICA_ID: 9, HIGH_WATERMARK_REPLICA_ID: 7}[ask.fields["replica_id"]]})

    found: Ends = FlowRun(reply).run(find_ends(servers(), ONE, CountedTries()))
    return found


@pytest.mark.parametrize(
    ("others", "is_contested"),
    [
        (offsets({ONE: -1}, {ONE: NO_LONGER}), False),
        (ConnectionFailed("away"), False),
        (offsets({ONE: 8}), True),
    ],
)
def test_the_end_of_a_log_is_contested_where_another_replica_leads_too(others: Any, is_contested: bool) -> None:
    assert ends_of(others) == Ends(BROKERS[0], 9, 7, is_contested)


def test_a_broker_is_awake_that_answers_anything() -> None:
    assert run_of(offsets({ONE: -1}, {ONE: NO_LONGER})).run(is_awake(servers(), BROKERS[0], ONE))
    assert not run_of(ConnectionFailed("away")).run(is_awake(servers(), BROKERS[0], ONE))


def test_stored_bytes_come_as_they_are() -> None:
    found = run_of(fetched(b"stored", 8)).run(fetch_stored(servers(), ONE, 3, 100, CountedTries()))
    assert (bytes(found.records), found.high_watermark) == (b"stored", 8)


@pytest.mark.parametrize(
    ("offered", "fetches"),
    [(BROKER_VERSIONS, 2), ({FETCH: (0, 5)}, 1 + 2 * 5)],
    ids=["a broker", "a proxy that leaves records out"],
)
def test_nothing_below_the_high_watermark_is_believed_after_some_empty_fetches(
    offered: dict[int, tuple[int, int]], fetches: int
) -> None:
    run = run_of(*[fetched(b"", 8)] * fetches, offered=offered)
    assert bytes(run.run(fetch_stored(servers(), ONE, 3, 100, CountedTries())).records) == b""
    assert len(asked_of(run, FETCH)) == fetches


def test_a_fetch_of_what_is_not_there_is_not_tried_again() -> None:
    with pytest.raises(OffsetOutOfRange, match="fetch of a-0 from offset 3 on"):
        run_of(fetched(b"", -1, 1)).run(fetch_stored(servers(), ONE, 3, 100, CountedTries()))


def test_a_throttled_fetch_waits_and_asks_for_less_from_then_on() -> None:
    run, known = run_of(throttled(400), fetched(b"one", 8), fetched(b"two", 8)), servers()
    run.run(fetch_stored(known, ONE, 3, 1 << 20, CountedTries()))
    assert run.now == 0.4
    run.run(fetch_stored(known, ONE, 4, 1 << 20, CountedTries()))
    sizes = [one.fields["topics"][0]["partitions"][0]["partition_max_bytes"] for one in asked_of(run, FETCH)]
    assert sizes == [1 << 20, 1 << 19, 1 << 19]


def test_a_quota_that_lets_nothing_through_ends_the_fetch() -> None:
    run = run_of(*[throttled(1 << 30)] * 100)
    with pytest.raises(RequestRefused, match="THROTTLING_QUOTA_EXCEEDED"):
        run.run(fetch_stored(servers(), ONE, 3, 100, CountedTries()))
    assert run.now == limits.THROTTLED_FETCH_SECONDS_MAX + sum(limits.READING_PAUSES_SECONDS)
