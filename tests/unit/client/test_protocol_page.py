"""wire-protocol.md against the client: every byte that it shows, and every row of its table of answers."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from idemproxy.client.asking import Ask, Servers
from idemproxy.client.flows import INIT_PRODUCER_ID, init_producer_id, where_they_stopped
from idemproxy.client.leader_session import LeaderSession
from idemproxy.client.link import Link
from idemproxy.client.records import Record, Stopped, finish
from idemproxy.codecs import messages
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.framing import frame
from idemproxy.codecs.produce import FLEXIBLE_VERSION, SENT_VERSION_MAX
from idemproxy.producing import limits
from idemproxy.producing.cluster import METADATA, metadata_fields
from idemproxy.producing.errors import Conflict
from idemproxy.producing.numbered_batch import CONDITIONAL, Place, ProducerId, Receipt
from idemproxy.producing.producer_core import ProducerCore, Timing
from idemproxy.producing.reactions import REACTIONS, Meaning
from testkit.stage.client import ADDRESS, FlowRun, ask_of, cluster_with_leader, metadata, ready_link

DOCS = Path(__file__).resolve().parents[3] / "docs"
PRODUCER, PLACE = ProducerId(4711, 0), Place("orders", 0)
BATCH = finish([Record(b"v", key=b"k", timestamp_ms=1_700_000_000_000), Record(b"w", timestamp_ms=1_700_000_000_001)])
DO = {
    Meaning.STORED: "stored:",
    Meaning.AGAIN: "again",
    Meaning.GAP: ("gap:", "again if a batch before it is open"),
    Meaning.FENCED: "the producer ends:",
    Meaning.FINAL: "the partition ends",
}


Shown = Callable[[str], bytes]


@pytest.fixture
def page() -> str:
    return (DOCS / "reference/wire-protocol.md").read_text()


@pytest.fixture
def shown(page: str) -> Shown:
    """Returns the bytes below a heading."""

    def below(title: str) -> bytes:
        block = re.search(rf"^### {re.escape(title)}\n.*?^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        assert block is not None, title
        return bytes.fromhex("".join(line[:48] for line in block[1].splitlines()))

    return below


def producing() -> tuple[Link, ProducerCore, LeaderSession]:
    """A producer at sequence 5 whose link has been asked for three answers, as on the page."""
    core = ProducerCore(PRODUCER, {PLACE: 5}, Timing())
    link = ready_link({0: (0, 3), 3: (0, 4), 22: (0, 0)}, client_id="example")
    link.request(METADATA, 4)
    link.request(INIT_PRODUCER_ID, 0)
    core.submit(PLACE, BATCH, 0.0, None)
    core.learned(["orders"], cluster_with_leader(PLACE), 0.0)
    return link, core, LeaderSession(core, 0, link)


def test_the_questions_are_those_of_the_client(shown: Shown) -> None:
    link = Link("example", None)
    assert link.start() == shown("Request: ApiVersions 0")
    assert link.request(METADATA, 4, messages.encode_request(METADATA, 4, **metadata_fields(["orders"])))[1] == shown(
        "Request: Metadata 4"
    )
    ask = ask_of(init_producer_id)
    body = messages.encode_request(INIT_PRODUCER_ID, 0, **ask.fields)
    assert (ask.api_key, ask.versions[0]) == (INIT_PRODUCER_ID, 0)
    assert link.request(INIT_PRODUCER_ID, 0, body)[1] == shown("Request: InitProducerId 0")


def test_the_batch_and_the_produce_are_those_of_the_client(shown: Shown) -> None:
    _, core, session = producing()
    request = session.next_frame(0.0)
    assert request == shown("Request: Produce 3")
    assert shown("Bytes: record batch") in request
    assert core.next_sequence(PLACE) == 7
    assert (limits.REQUEST_SECONDS_MAX, limits.DELIVERY_SECONDS_MAX) == (30.0, 120.0)


@pytest.mark.parametrize("version", range(4, SENT_VERSION_MAX + 1))
def test_later_versions_have_the_same_request(version: int, shown: Shown) -> None:
    core = ProducerCore(PRODUCER, {PLACE: 5}, Timing())
    link = ready_link({0: (3, version)}, client_id="example")
    link.request(METADATA, 4)
    link.request(INIT_PRODUCER_ID, 0)
    core.submit(PLACE, BATCH, 0.0, None)
    core.learned(["orders"], cluster_with_leader(PLACE), 0.0)
    expected = bytearray(shown("Request: Produce 3"))
    expected[7] = version
    assert LeaderSession(core, 0, link).next_frame(0.0) == bytes(expected)
    assert version < FLEXIBLE_VERSION


def test_the_answers_are_read_by_the_client(shown: Shown) -> None:
    link = Link("example", None)
    for number in (1, 2):
        link.request(METADATA, 4)
        link.received(frame(number.to_bytes(4, "big")))
    link.request(INIT_PRODUCER_ID, 0)
    (answered,) = link.received(shown("Response: InitProducerId 0"))
    answer = messages.decode_response(INIT_PRODUCER_ID, 0, answered.body)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 4711, 0)

    link, _, session = producing()
    session.next_frame(0.0)
    for number in (2, 3):
        link.received(frame(number.to_bytes(4, "big")))
    (outcome,) = session.received(shown("Response: Produce 3"), 0.0)
    assert outcome.result == Receipt("orders", 0, 5, 2, 1234)


def test_the_question_where_a_producer_stopped_is_the_clients_and_its_answer_is_read(shown: Shown) -> None:
    asked: list[bytes] = []

    def reply(ask: Ask) -> Any:
        if ask.api_key == METADATA:
            return metadata({PLACE: 0})
        link = ready_link({61: (0, 0)}, client_id="example")
        for number in (2, 3):
            link.request(METADATA, 4)
            link.received(frame(number.to_bytes(4, "big")))
        asked.append(link.request(61, 0, messages.encode_request(61, 0, **ask.fields))[1])
        (answered,) = link.received(shown("Response: DescribeProducers 0"))
        return messages.decode_response(61, 0, answered.body)

    run = FlowRun(reply)
    (stopped,) = run.run(where_they_stopped(Servers([ADDRESS]), PLACE, 1.0))
    assert asked == [shown("Request: DescribeProducers 0")]
    assert (stopped, stopped.next_sequence) == (Stopped(ProducerId(4711, 1), 6), 7)


def test_a_conditional_batch_is_numbered_and_its_conflict_is_read(shown: Shown) -> None:
    core = ProducerCore(CONDITIONAL, {}, Timing())
    link = ready_link({0: (3, 5)}, client_id="example")
    for _ in range(3):
        link.request(METADATA, 4)
    core.learned(["orders"], cluster_with_leader(PLACE), 0.0)
    core.submit(PLACE, BATCH, 0.0, None, 2**31 + 1234)
    core.learned(["orders"], cluster_with_leader(PLACE), 0.0)
    session = LeaderSession(core, 0, link)
    request = session.next_frame(0.0)
    assert request is not None
    assert shown("Bytes: conditional batch") in request
    for number in (2, 3, 4):
        link.received(frame(number.to_bytes(4, "big")))
    (outcome,) = session.received(shown("Response: Produce 5"), 0.0)
    assert isinstance(outcome.result, Conflict)
    assert (outcome.result.next_offset, outcome.result.in_log) == (1240, False)


def test_every_error_is_in_the_table_with_what_the_client_does(page: str) -> None:
    rows = re.findall(r"^\| (?:-?\d+ \| )?`?([A-Z_]+)`? \| (.*?) \| (\w*) *\|$", page, re.MULTILINE)
    assert {ErrorCode[name] for name, *_ in rows} == set(REACTIONS)
    assert len(rows) == len(REACTIONS)
    for name, do, doubtful in rows:
        reaction = REACTIONS[ErrorCode[name]]
        assert do.startswith(DO[reaction.meaning]), name
        assert bool(re.search("who leads|the leader first", do)) == reaction.moves, name
        assert doubtful == (
            "" if reaction.meaning is Meaning.STORED else "yes" if reaction.is_outcome_unknown else "no"
        ), name
    assert ("again, three in a row are final" in page, limits.CORRUPT_TRIES_MAX) == (True, 3)


def test_what_the_client_sends_again_is_what_kafka_calls_retriable() -> None:
    own = {
        ErrorCode.UNKNOWN_SERVER_ERROR,  # no client of Kafka's; the same batch again is always safe here
    }
    again = {code for code, reaction in REACTIONS.items() if reaction.meaning is Meaning.AGAIN}
    assert {code for code in again if not ErrorCode(code).retriable} == own
    assert [code for code in set(REACTIONS) - again if ErrorCode(code).retriable] == []
