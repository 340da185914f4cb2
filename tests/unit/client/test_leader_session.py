"""A producer's answers over one connection, where one of them is no answer."""

from __future__ import annotations

import pytest

from idemproxy.client.errors import ConnectionFailed, UnsupportedServer
from idemproxy.client.leader_session import LeaderSession
from idemproxy.client.records import Record, finish
from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_response_header
from idemproxy.codecs.produce import CONDITIONAL_PUBLISH
from idemproxy.producing.numbered_batch import CONDITIONAL, Place, ProducerId, Receipt
from idemproxy.producing.producer_core import ProducerCore, Timing
from testkit.stage.client import cluster_with_leader, ready_link

PLACES = [Place("t", 0), Place("t", 1)]
BATCH = finish([Record(b"v", timestamp_ms=1)])
VERSION = 3


def answer_to(number: int, place: Place, error_code: int = 0) -> bytes:
    partition = {"index": place.partition, "error_code": error_code, "base_offset": 40}
    topics = [{"name": place.topic, "partition_responses": [partition]}]
    return frame(encode_response_header(0, VERSION, number), messages.encode_response(0, VERSION, responses=topics))


def producing() -> tuple[ProducerCore, LeaderSession]:
    """Two requests are out, numbers 2 and 3, of one partition each."""
    core = ProducerCore(ProducerId(7), {}, Timing())
    session = LeaderSession(core, 0, ready_link({0: (0, VERSION)}))
    for place in PLACES:
        core.submit(place, BATCH, 0.0, place)
        if place is PLACES[0]:
            assert core.topics_to_ask_for(0.0) == ["t"]
            core.learned(["t"], cluster_with_leader(*PLACES), 0.0)
        assert session.next_frame(0.0) is not None
    assert session.next_frame(0.0) is None
    return core, session


BAD = frame(encode_response_header(0, VERSION, 3), b"\x7f\xff\xff\xff")


def test_a_decided_outcome_is_reported_although_the_next_answer_is_unreadable() -> None:
    core, session = producing()
    outcomes = session.received(answer_to(2, PLACES[0]) + BAD, 1.0)
    assert [(one.batch.token, type(one.result)) for one in outcomes] == [(PLACES[0], Receipt)]
    assert not session.is_quiet, "the second batch has no answer"
    with pytest.raises(ConnectionFailed, match="the answer to a produce cannot be read"):
        session.next_frame(1.0)
    assert core.lost(0, 1.0) == []
    assert not core.is_idle, "it goes again"


def test_nothing_after_an_answer_that_cannot_be_read_is_believed() -> None:
    _, session = producing()
    session.received(answer_to(2, PLACES[0]) + BAD, 1.0)
    with pytest.raises(ConnectionFailed, match="the answer to a produce cannot be read"):
        session.received(answer_to(3, PLACES[1]), 1.0)


def test_where_nothing_was_decided_the_connection_ends_at_once() -> None:
    for before in (b"", answer_to(2, PLACES[0], 6)):
        _, session = producing()
        bad = BAD if before else frame(encode_response_header(0, VERSION, 2), b"\x7f\xff\xff\xff")
        with pytest.raises(ConnectionFailed, match="the answer to a produce cannot be read"):
            session.received(before + bad, 1.0)


def test_who_publishes_conditionally_sends_nothing_to_a_server_that_has_transactions() -> None:
    core = ProducerCore(CONDITIONAL, {}, Timing())
    with pytest.raises(UnsupportedServer, match="no conditional publish"):
        LeaderSession(core, 0, ready_link({0: (0, VERSION), 24: (0, 0)}))
    LeaderSession(core, 0, ready_link({0: (0, VERSION), 24: (0, 0), CONDITIONAL_PUBLISH: (0, 0)}))
    LeaderSession(core, 0, ready_link({0: (0, VERSION), 22: (0, 4)}))
