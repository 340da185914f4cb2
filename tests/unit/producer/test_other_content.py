"""A batch that has the sequences of a stored one. By the digest of its content it is a duplicate, as some clients make
a batch again for each try, or another one, which gets OUT_OF_ORDER_SEQUENCE_NUMBER once that is certain (rules R9,
R11)."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from mutants.scenes import takes_no_more_than

from idemproxy.codecs.compression import Codec
from idemproxy.proxy.events import BatchAnswered, DuplicateAnswered
from idemproxy.proxy.flow.effects import Swap
from idemproxy.state.entry import NO_DIGEST, unpack
from testkit.stage.sequencer import KEY, Client, Request, Stage

TIMED_OUT, TOO_LARGE, OUT_OF_ORDER, INVALID = 7, 10, 45, 87
LONG_SECONDS = 60
LATER = 1_700_000_000_777


def with_a_batch(*values: bytes, keeps_batch_markers: bool = True) -> Stage:
    """The third batch of its producer is stored, its connection still open."""
    stage, client = Stage(keeps_batch_markers=keeps_batch_markers), Client()
    for sequence in range(2):
        stage.send(client, sequence)
        stage.run(1)
    request = stage.send(client, 2, *values)
    stage.run(1)
    assert request.offset == 2
    return stage


def told(stage: Stage, *values: bytes, **more: Any) -> tuple[int | None, int | None]:
    """The code and the offset of a batch with the numbers of the third one."""
    request = stage.send(Client(), 2, *values, **more)
    stage.run(LONG_SECONDS)
    assert stage.failures() == []
    return request.code, request.offset


def verdicts(stage: Stage) -> list[str]:
    return [event.verdict for event in stage.events if isinstance(event, BatchAnswered)]


@pytest.mark.parametrize("is_open", [True, False])
def test_the_numbers_of_a_stored_batch_with_other_records_are_out_of_order(is_open: bool) -> None:
    stage = with_a_batch(b"a", b"b")
    stage.produce_connection.is_open = is_open
    assert told(stage, b"a", b"another") == (OUT_OF_ORDER, -1)
    assert verdicts(stage)[-1] == "other_content"
    assert stage.stored_values() == [b"value 0", b"value 1", b"a", b"b"]
    assert not [event for event in stage.events if isinstance(event, DuplicateAnswered)]
    assert told(stage, b"a", b"b") == (0, 2), "its own retry is answered all the same"


@pytest.mark.promise("other-records")
@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(
    "more", [{"timestamp": LATER}, {"codec": Codec.GZIP}, {"headers": [("traceparent", b"00-1-2-01")]}]
)
@pytest.mark.parametrize("keeps_batch_markers", [True, False])
def test_a_batch_that_its_client_has_recreated_is_a_duplicate(
    keeps_batch_markers: bool, more: dict[str, Any], is_open: bool
) -> None:
    stage = with_a_batch(b"a", b"b", keeps_batch_markers=keeps_batch_markers)
    stage.produce_connection.is_open = is_open
    assert told(stage, b"a", b"b", **more) == (0, 2)
    assert len(stage.stored_values()) == 4


def test_another_batch_with_the_same_numbers_does_not_get_its_answer() -> None:
    """It waits while the first one is looked for."""
    stage = with_a_batch(b"a", b"b")
    stage.produce_connection.is_open, stage.log_seconds = False, 2.0
    own, other = stage.send(Client(), 2, b"a", b"b"), stage.send(Client(), 2, b"a", b"c")
    stage.run(LONG_SECONDS)
    assert (own.code, other.code) == (0, OUT_OF_ORDER)


def test_the_same_bytes_are_answered_without_a_look_while_the_connection_lives() -> None:
    stage = with_a_batch(b"a", b"b")
    stage.asked.clear()
    assert told(stage, b"a", b"b") == (0, 2)
    assert stage.asked == []


def test_where_the_log_has_no_batch_markers_either() -> None:
    stage = with_a_batch(b"a", b"b", keeps_batch_markers=False)
    assert told(stage, b"a", b"another") == (OUT_OF_ORDER, -1)


def test_where_no_digest_is_known_the_numbers_decide() -> None:
    """As at a broker: the entry was made of the batch markers in the log, which tell nothing of the content."""
    stage = with_a_batch(b"a", b"b")
    entry = stage.entry()
    unknown = tuple(replace(one, digest=NO_DIGEST) for one in entry.window)
    stage.put(replace(entry, version=entry.version + 1, window=unknown))
    stage.sequencer = stage.new_sequencer()
    assert told(stage, b"a", b"another") == (0, 2)
    assert len(stage.stored_values()) == 4


@pytest.mark.promise("other-records")
def test_an_unverified_entry_is_rebuilt_before_anything_is_out_of_order() -> None:
    stage = with_a_batch(b"a", b"b")
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    request = stage.send(Client(), 2, b"a", b"another")
    stage.run(LONG_SECONDS, until=lambda: request.code is not None)
    assert (request.code, stage.entry().data_generation) == (OUT_OF_ORDER, stage.context.instance.data_generation)
    assert told(stage, b"a", b"b") == (0, 2), "by what the log has"


def test_other_content_is_out_of_order_without_reading_the_log() -> None:
    stage = with_a_batch(b"a", b"b")
    stage.asked.clear()
    assert told(stage, b"a", b"another") == (OUT_OF_ORDER, -1)
    assert stage.asked == []


def test_before_it_is_out_of_order_the_entry_is_confirmed() -> None:
    """Rule R11: what was read may be out of date; here the store is away when that is asked."""
    stage = with_a_batch(b"a", b"b")
    stage.store_away = True
    request = stage.send(Client(), 2, b"a", b"another")
    stage.run(LONG_SECONDS)
    assert request.code == TIMED_OUT


def test_an_entry_that_was_rewritten_meanwhile_is_looked_at_again() -> None:
    """Another proxy has given the producer a newer epoch: it is fenced then."""
    stage = with_a_batch(b"a", b"b")

    def overtaken(_effect: Swap) -> None:
        stage.before.clear()
        entry = stage.entry()
        stage.put(replace(entry, version=entry.version + 1, producer_epoch=1, next_sequence=0, window=()))

    stage.before[Swap] = overtaken
    assert told(stage, b"a", b"another") == (47, -1)


# ---------------------------------------------------------------------- in parts
def in_parts(*values: bytes) -> Stage:
    """Each record is an append of its own, as the broker takes no more at a time."""
    stage = Stage()

    takes_no_more_than(stage, 2500)
    for sequence in range(2):
        stage.send(Client(), sequence)
        stage.run(1)
    assert send_all(stage, *values).code == 0
    assert len(stage.log.messages) == 2 + len(values)
    return stage


def send_all(stage: Stage, *values: bytes, **more: Any) -> Request:
    request = stage.send(Client(), 2, *values, **more)
    stage.run(LONG_SECONDS)
    return request


def test_a_batch_in_parts_keeps_the_digest_of_the_whole() -> None:
    values = [Random(number).randbytes(2000) for number in range(3)]
    stage = in_parts(*values)
    assert unpack(stage.values[KEY]).window[-1].digest != NO_DIGEST
    stage.asked.clear()
    assert send_all(stage, *values).code == 0


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_each_part_of_a_batch_is_compared(changed: int) -> None:
    values = [Random(number).randbytes(2000) for number in range(3)]
    stage = in_parts(*values)
    assert send_all(stage, *values, timestamp=LATER).code == 0
    values[changed] = b"another"
    assert send_all(stage, *values).code == OUT_OF_ORDER
    assert stage.failures() == []
