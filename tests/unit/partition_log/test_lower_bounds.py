"""Lower bounds and what others have stored below them (rule R8)."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from idemproxy.codecs.batch_marker import anchor_of
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, iterate_shallow
from idemproxy.proxy.bridge.asks import FetchRecords
from idemproxy.proxy.flow.effects import Append, Ask, Unanswered, Wait
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from idemproxy.proxy.partition_log.log_chunk import ReadLog
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.state.commit import fresh
from idemproxy.state.entry import NO_ANCHOR, NO_PRINCIPAL, NOBODY
from idemproxy.state.producer_ids import pack_block
from testkit.stage.sequencer import BLOCK_KEY, DATA_GENERATION, PARTITION, TOPIC, Client, Stage
from testkit.virtual.log import Message, Stored

pytestmark = pytest.mark.promise("truncated-same-records")


def store(stage: Stage, data: bytes, *, records: int = 1, magic: int = 1, codec: int = 0) -> None:
    """Something that a foreign writer has stored, whatever it is."""
    first = stage.log.end_offset
    stage.log.end_offset += records
    data = struct.pack(">q", stage.log.end_offset - 1) + data[8:]
    inner = tuple(Message(0, magic, 0, -1, None, None, b"") for _ in range(records)) if codec else ()
    stage.log.messages.append(Stored(first, Message(0, magic, codec, -1, None, None, data, inner), stage.now))
    stage.log.advance(stage.log.end_offset)


def test_a_foreign_message_that_cannot_be_opened_does_not_keep_producers_away() -> None:
    stage = Stage()
    store(stage, encode_message(None, b"no lz4 at all", magic=1, codec=Codec.LZ4), records=5, codec=3)
    request = stage.send(Client(), 0)
    stage.run(1)
    assert (request.code, request.offset) == (0, 5)


def test_a_foreign_message_of_another_format_does_not_keep_producers_away() -> None:
    stage = Stage()
    newer = bytearray(encode_set([(None, b"value", 0)], magic=1))
    newer[16] = 2
    store(stage, bytes(newer), magic=2)
    request = stage.send(Client(), 0)
    stage.run(1)
    assert (request.code, request.offset) == (0, 1)


def test_an_unknown_outcome_above_a_foreign_message_that_cannot_be_opened_is_resolved() -> None:
    stage = Stage()
    store(stage, encode_message(None, b"no lz4 at all", magic=1, codec=Codec.LZ4), records=5, codec=3)
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(Client(), 0)
    stage.run(10)
    assert (request.code, request.offset) == (0, 5)


def test_a_batch_is_found_again_at_the_offset_that_gave_its_bound() -> None:
    stage = Stage()
    stage.send(Client(), 0)
    stage.run(1)
    assert stage.context.bounds.known[TOPIC, PARTITION][1].offset == 1
    stage.log.truncate(0, unclean=True)
    stage.values.clear()
    stage.values[BLOCK_KEY] = pack_block(DATA_GENERATION, 0)
    stage.sequencer = stage.new_sequencer()
    stage.outcomes.append(stage.loses_answer)
    again = stage.send(Client(), 0)
    stage.run(10)
    assert again.offset == 0
    assert stage.stored_values() == [b"value 0"]


def test_a_batch_that_was_stored_below_the_epochs_first_one_is_a_duplicate() -> None:
    stage = Stage()
    client = Client()
    stage.log.append(encode_set([(None, b"foreign", 0)] * 5, magic=1), stage.now)
    stage.log.advance(stage.log.end_offset)
    stage.send(client, 0)
    stage.run(1)
    stage.log.truncate(2, unclean=True)
    for sequence in range(1, 14):
        assert stage.send(client, sequence).offset == sequence + 1
        stage.run(1)
    below = stage.send(Client(), 1)
    stage.run(20)
    assert below.code == 46


# ---------------------------------------------------------------------- which of two is taken
FEW, MANY = 5, 7
A_RECORD, ANOTHER = b"a record", b"another."


def chosen(own: Position, newest: Position) -> Position:
    """Of the producer's last commit and the newest position of the partition."""
    stage = Stage()
    stage.context.bounds.note(TOPIC, PARTITION, newest)
    entry = replace(fresh(DATA_GENERATION, NO_PRINCIPAL, 0, 1), end_offset=own.offset, anchor=own.anchor)
    found: list[Any] = []
    stage.runner.start(stage.context.bounds.lower_bound(TOPIC, PARTITION, entry), found.append)
    (position,) = found
    assert isinstance(position, Position)
    return position


def test_of_two_bounds_the_one_that_is_recognised_is_taken_wherever_it_is() -> None:
    """The other one may be of a log that is no more, and what is looked for may lie below it."""
    for recognised in (Position(FEW, A_RECORD), Position(MANY, A_RECORD), Position(0, NO_ANCHOR)):
        for other in (Position(FEW, NO_ANCHOR), Position(MANY, NO_ANCHOR)):
            assert chosen(own=recognised, newest=other) == recognised
            assert chosen(own=other, newest=recognised) == recognised


def test_of_two_bounds_that_are_recognised_the_later_is_taken_and_else_the_lower() -> None:
    few, many = Position(FEW, A_RECORD), Position(MANY, ANOTHER)
    assert chosen(own=few, newest=many) == many
    assert chosen(own=many, newest=few) == many
    assert chosen(own=Position(0, NO_ANCHOR), newest=few) == few
    assert chosen(own=few, newest=Position(0, NO_ANCHOR)) == few
    few, many = Position(FEW, NO_ANCHOR), Position(MANY, NO_ANCHOR)
    assert chosen(own=few, newest=many) == few
    assert chosen(own=many, newest=few) == few


def test_the_message_below_a_bound_is_not_the_same_where_it_lies_elsewhere() -> None:
    """The topic is recreated after the bound was learned; the batch is stored at its start, and after it the message
    that lay below the bound: the offset is in the middle of it now."""
    stage = Stage()
    inner = b"".join(encode_message(None, b"%d" % at, magic=1, offset=at) for at in range(3))
    others = encode_message(None, compress(Codec.GZIP, inner), magic=1, offset=2, codec=Codec.GZIP)
    (message,) = iterate_shallow(others)
    stage.log.append(others, stage.now)
    stage.log.advance(3)
    stage.context.bounds.known[TOPIC, PARTITION] = (stage.now, Position(3, anchor_of(message)))

    def comes_before_it(effect: Append) -> Outcome:
        stage.log.begin_again()
        lost = stage.loses_answer(effect)
        stage.log.append(others, stage.now)
        stage.log.advance(stage.log.end_offset)
        return lost

    stage.outcomes.append(comes_before_it)
    request = stage.send(Client(), 0)
    stage.run(10)
    assert (request.code, request.offset) == (0, 0)
    assert len(stage.sent) == 1


# ---------------------------------------------------------------------- a topic that was recreated
FOREIGN = encode_set([(None, b"foreign", 0)], magic=1)


def two_foreign_records(*, keeps_batch_markers: bool = True) -> Stage:
    """The second one lies below the bound of what comes next."""
    stage = Stage(keeps_batch_markers=keeps_batch_markers)
    foreign_record(stage)
    foreign_record(stage)
    return stage


def foreign_record(stage: Stage) -> None:
    """One more, equal to the others."""
    stage.log.append(FOREIGN, stage.now)
    stage.log.advance(stage.log.end_offset)


def test_a_bound_that_did_not_hold_is_none_of_what_is_forwarded_again() -> None:
    """After its duplicate's place the same record comes to lie at the same offset as before."""
    stage = two_foreign_records()

    def recreated(_effect: Append) -> Outcome:
        stage.log.begin_again()
        return InDoubt("it is not known whether it has left", 1)

    def with_one_behind_it(effect: Append) -> Outcome:
        lost = stage.loses_answer(effect)
        foreign_record(stage)
        return lost

    stage.outcomes.extend([recreated, with_one_behind_it])
    request = stage.send(Client(), 0)
    stage.run(10)
    assert (request.code, request.offset) == (0, 0)
    assert len(stage.sent) == 2
    assert stage.stored_values() == [b"value 0", b"foreign"]
    intents = [entry.intent for entry in stage.swapped if entry.intent is not None]
    assert [(one.lower_bound, one.anchor != NO_ANCHOR) for one in intents] == [(2, True), (0, False)]


def test_nor_does_the_process_take_it_for_one_of_the_next_batch() -> None:
    stage = two_foreign_records()
    client = Client()

    def recreated(_effect: Append) -> Outcome:
        stage.log.begin_again()
        client.is_closed = True
        return InDoubt("it is not known whether it has left", 1)

    stage.outcomes.append(recreated)
    stage.send(client, 0)
    stage.run(10)
    assert (TOPIC, PARTITION) not in stage.context.bounds.known
    assert len(stage.sent) == 1


def test_a_search_that_saw_a_bound_fail_distrusts_it_after_log_growth() -> None:
    """Without batch markers it cannot be decided whether the record at the start is the batch."""
    stage = two_foreign_records(keeps_batch_markers=False)
    was_read: list[object] = []

    def recreated(effect: Append) -> Outcome:
        stage.log.begin_again()
        return stage.loses_answer(effect)

    def grows(_effect: Wait) -> None:
        if was_read and stage.log.end_offset == 1:
            foreign_record(stage)

    def note(effect: Ask[Any]) -> None:
        if isinstance(effect.question, ReadLog):
            was_read.append(effect)

    stage.outcomes.append(recreated)
    stage.before.update({Wait: grows, Ask: note})
    request = stage.send(Client(), 0)
    stage.run(60)
    assert request.code == 87
    assert len(stage.sent) == 1


def test_who_hands_an_unknown_outcome_over_says_that_the_bound_does_not_hold() -> None:
    stage = two_foreign_records()
    stage.outcomes.append(stage.never_answers)
    stage.send(Client(), 0)
    stage.die()
    stage.log.begin_again()
    foreign_record(stage)
    stage.reply = lambda _broker_id, question: Unanswered("away") if isinstance(question, FetchRecords) else None
    client = Client()
    stage.send(client, 0)
    stage.run(2)
    client.is_closed = True
    stage.run(120)
    left = stage.entry().intent
    assert left is not None
    assert (left.owner, left.lower_bound, left.anchor) == (NOBODY, 0, NO_ANCHOR)
