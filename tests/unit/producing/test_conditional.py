"""A client that publishes conditionally: which numbers its batches have, and what their outcome is."""

from __future__ import annotations

import pytest

from idemproxy.client.records import Record, finish
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.codecs.record_batch import says_it_follows
from idemproxy.producing.errors import Conflict, Displaced, ProduceError, Refused, Undecided, Undeterminable
from idemproxy.producing.numbered_batch import CONDITIONAL, Place, ProducerId, Receipt
from idemproxy.producing.producer_core import ProducerCore, Timing
from testkit.stage.client import cluster_with_leader

PLACE = Place("wal", 0)
BATCH = finish([Record(b"a", timestamp_ms=1), Record(b"b", timestamp_ms=1)])
OFFSET = 2**31 + 5


class Writer:
    """One, at a leader that answers as the test says."""

    def __init__(self) -> None:
        self.core = ProducerCore(CONDITIONAL, {}, Timing(100.0, 30.0))
        self.now = 0.0

    def submit(self, expected: int | None) -> int:
        """The base sequence."""
        numbered = self.core.submit(PLACE, BATCH, self.now, None, expected)
        if topics := self.core.topics_to_ask_for(self.now):
            self.core.learned(topics, cluster_with_leader(PLACE), self.now)
        return numbered.header.base_sequence

    def in_flight(self, *codes: int, next_offset: int) -> list[Receipt | ProduceError]:
        """Send so many, and have each answered with its code; all outcomes."""
        self.now += 10.0
        requests = [self.core.take_request(0, self.now) for _ in codes]
        results: list[Receipt | ProduceError] = []
        for request, code in zip(requests, codes, strict=True):
            assert request is not None
            told = PartitionAnswer(*PLACE, code, -1, -1, next_offset)
            results += [one.result for one in self.core.answered(0, request, [told], 0.0, self.now)]
        return results

    def answered(self, code: int, base_offset: int = -1, next_offset: int = -1) -> Receipt | ProduceError | None:
        """The outcome, if there is one."""
        self.now += 10.0
        request = self.core.take_request(0, self.now)
        assert request is not None
        told = PartitionAnswer(*PLACE, code, base_offset, -1, next_offset)
        outcomes = self.core.answered(0, request, [told], 0.0, self.now)
        return outcomes[0].result if outcomes else None


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_the_sequence_is_the_offset_and_what_follows_follows(writer: Writer) -> None:
    assert writer.submit(OFFSET) == 5
    assert writer.submit(None) == 7
    assert writer.submit(OFFSET + 4) == 9, "directly behind those that are under way"
    with pytest.raises(ValueError, match="does not follow"):
        writer.submit(OFFSET)
    assert writer.answered(0, OFFSET) == Receipt(*PLACE, 5, 2, OFFSET)


def test_a_conflict_says_what_is_next_and_any_offset_may_be_tried_then(writer: Writer) -> None:
    writer.submit(OFFSET)
    outcome = writer.answered(45, next_offset=OFFSET + 3)
    assert isinstance(outcome, Conflict)
    assert (outcome.next_offset, outcome.in_log) == (OFFSET + 3, False)
    assert writer.submit(OFFSET + 3) == 8
    assert isinstance(writer.answered(0, OFFSET + 3), Receipt)
    assert writer.submit(3) == 3


@pytest.mark.parametrize(
    ("next_offset", "kind"), [(OFFSET + 1, Conflict), (OFFSET - 1, Undecided), (-1, Undecided), (OFFSET, Undecided)]
)
def test_an_unknown_outcome_is_decided_only_by_a_log_past_it(
    writer: Writer, next_offset: int, kind: type[ProduceError]
) -> None:
    writer.submit(OFFSET)
    assert writer.answered(7) is None
    assert isinstance(writer.answered(45, next_offset=next_offset), kind)


def test_without_an_unknown_outcome_a_server_that_does_not_tell_says_enough(writer: Writer) -> None:
    writer.submit(OFFSET)
    outcome = writer.answered(45)
    assert isinstance(outcome, Conflict)
    assert outcome.next_offset is None


def test_a_fenced_partition_refuses(writer: Writer) -> None:
    writer.submit(OFFSET)
    assert isinstance(writer.answered(17), Refused)


def test_a_displaced_batch_and_an_undeterminable_one_end_for_good(writer: Writer) -> None:
    """A program that repeats what is undecided would repeat these for ever."""
    writer.submit(OFFSET)
    displaced = writer.answered(87, OFFSET + 3)
    assert isinstance(displaced, Displaced)
    assert displaced.base_offset == OFFSET + 3
    writer.submit(OFFSET)
    unknown = writer.answered(87)
    assert isinstance(unknown, Undeterminable)
    assert unknown.in_log is None
    assert not isinstance(displaced, Undecided)
    assert not isinstance(unknown, Undecided)


def test_all_that_is_in_flight_after_a_conflict_is_a_conflict(writer: Writer) -> None:
    writer.submit(OFFSET)
    for _ in range(4):
        writer.submit(None)
    assert isinstance(writer.answered(0, OFFSET), Receipt)
    outcomes = writer.in_flight(45, 45, 45, 45, next_offset=OFFSET + 3)
    assert [type(one) for one in outcomes] == [Conflict] * 4
    assert {one.next_offset for one in outcomes if isinstance(one, Conflict)} == {OFFSET + 3}
    assert writer.submit(OFFSET + 3) == 8


def test_a_batch_says_whether_it_follows_one_that_has_no_outcome(writer: Writer) -> None:
    writer.submit(OFFSET)
    writer.submit(None)
    sent = []
    for base_offset in (OFFSET, OFFSET + 2):
        request = writer.core.take_request(0, writer.now)
        assert request is not None
        sent += [says_it_follows(data) for _, _, data in request.parts()]
        told = PartitionAnswer(*PLACE, 0, base_offset, -1, -1)
        writer.core.answered(0, request, [told], 0.0, writer.now)
    writer.submit(None)
    request = writer.core.take_request(0, writer.now)
    assert request is not None
    assert [*sent, *(says_it_follows(data) for _, _, data in request.parts())] == [False, True, False]


@pytest.mark.parametrize(("told_at", "kind"), [(OFFSET + 1, Displaced), (OFFSET - 2**31, Displaced), (-1, Undecided)])
@pytest.mark.parametrize("code", [0, 46])
def test_a_success_elsewhere_than_expected_is_no_receipt(
    writer: Writer, told_at: int, code: int, kind: type[ProduceError]
) -> None:
    """As of a server that takes the numbers for those of any producer, and the batch for a retry of another one."""
    writer.submit(OFFSET)
    outcome = writer.answered(code, told_at)
    assert type(outcome) is kind
    assert outcome.in_log is None
    assert getattr(outcome, "base_offset", told_at) == told_at
    with pytest.raises(kind):
        writer.submit(None)
    writer.submit(OFFSET)
    assert isinstance(writer.answered(0, OFFSET), Receipt)


def test_a_batch_that_follows_is_compared_by_its_sequence(writer: Writer) -> None:
    for expected in (OFFSET, None, None):
        writer.submit(expected)
    assert isinstance(writer.answered(0, OFFSET), Receipt)
    assert isinstance(writer.answered(0, OFFSET + 2), Receipt)
    assert isinstance(writer.answered(0, OFFSET + 5), Displaced)


def test_an_expected_offset_needs_the_producer_id_of_all(writer: Writer) -> None:
    with pytest.raises(ValueError, match="expected offset"):
        writer.submit(-1)
    core = ProducerCore(ProducerId(7), {}, Timing(100.0, 30.0))
    with pytest.raises(ValueError, match="CONDITIONAL"):
        core.submit(PLACE, BATCH, 0.0, None, 5)


def test_an_unknown_outcome_outlives_the_outcome_that_tells_it(writer: Writer) -> None:
    """The same batch is sent again after its time was over, as the page says: the earlier try may still be at another
    proxy, which appends it once the log has come so far."""
    writer.submit(OFFSET)
    assert writer.answered(7) is None
    (given_up,) = writer.core.expire(writer.now + 1000.0)
    assert isinstance(given_up.result, Undecided)
    writer.now += 1000.0
    writer.submit(OFFSET)
    outcome = writer.answered(45, next_offset=OFFSET - 1)
    assert isinstance(outcome, Undecided), outcome
    writer.submit(OFFSET)
    assert isinstance(writer.answered(45, next_offset=OFFSET + 1), Conflict), "the log has come past it"
    writer.submit(OFFSET)
    assert isinstance(writer.answered(45, next_offset=OFFSET - 1), Conflict), "that settled it"
