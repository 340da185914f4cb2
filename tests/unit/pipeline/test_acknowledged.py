"""What a journal says that clients were told; the proxy's own journal writes it, so that the two cannot drift apart."""

from __future__ import annotations

import pytest

from idemproxy.codecs.marker import Identity
from idemproxy.pipeline.audit.acknowledged import JournalProblem, acknowledged
from idemproxy.proxy import events
from idemproxy.proxy.telemetry.journal import Journal

PLACES = {("orders", 0): 4, ("orders", 1): 5}


def journal(*happened: object) -> list[bytes]:
    """Return the lines that the proxy writes of these events."""
    lines: list[bytes] = []
    write = Journal(lines.append, lambda: 77, lambda event: None)
    for event in happened:
        write(event)
    return lines


def sent(*identities: Identity, partition: int = 0) -> events.AppendSent:
    return events.AppendSent(1, "orders", partition, identities)


def answered(identity: Identity, code: int = 0, offset: int = 10, topic: str = "orders") -> events.BatchAnswered:
    return events.BatchAnswered("said", *identity[:3], topic, 0, code, offset)


def rows(lines: list[bytes]) -> list[tuple[int, ...]]:
    names = ("place", "producer_id", "epoch", "sequence", "offset", "last_offset", "size", "timestamp")
    found = [row for batch in acknowledged(lines, PLACES) for row in batch.to_pylist()]
    return [tuple(row[name] for name in names) for row in found]


def test_a_batch_is_as_long_as_it_was_when_it_was_sent() -> None:
    one, other = Identity(7, 0, 0, 5), Identity(7, 0, 5, 3)
    lines = journal(sent(one, other), answered(one, offset=10), answered(other, offset=15))
    assert rows(lines) == [(4, 7, 0, 0, 10, 14, 5, 77), (4, 7, 0, 5, 15, 17, 3, 77)]


def test_of_a_batch_that_another_proxy_sent_the_first_record_counts() -> None:
    assert rows(journal(answered(Identity(7, 0, 20, 5)))) == [(4, 7, 0, 20, 10, 10, 1, 77)]


def test_a_duplicate_is_acknowledged_too_and_failures_are_not() -> None:
    one = Identity(7, 0, 0, 5)
    lines = journal(answered(one, 46, -1), answered(one, 7), answered(one, 45), answered(one, 87))
    assert rows(lines) == [(4, 7, 0, 0, -1, -1, 1, 77)]


def test_other_topics_and_batches_without_a_producer_are_left_out() -> None:
    lines = journal(answered(Identity(7, 0, 0, 1), topic="else"), answered(Identity(-1, -1, -1, 1)))
    assert rows(lines) == []


def test_a_line_that_is_being_written_ends_the_journal_and_any_other_is_refused() -> None:
    lines = journal(answered(Identity(7, 0, 0, 1)), answered(Identity(7, 0, 1, 1)))
    assert len(rows([lines[0], lines[1][:-9]])) == 1
    with pytest.raises(JournalProblem, match="line 1 is not one of a journal"):
        rows([lines[0][:-9] + b"\n", lines[1]])
