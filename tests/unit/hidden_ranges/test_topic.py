"""The copy of the hidden ranges in a compacted topic, on the log of a virtual leader."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set, inner_messages, iterate_shallow
from idemproxy.codecs.steps import at_once
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import EarliestOffset, FetchAnswer, LatestOffset, OffsetAnswer
from idemproxy.proxy.flow.effects import Append, Ask, Leader, Unanswered, Wait
from idemproxy.proxy.flow.outcome import Appended, InDoubt, Outcome, Refused
from idemproxy.proxy.flow.runner import FlowRunner, Resume
from idemproxy.proxy.hidden_ranges.known import KnownHiddenRanges
from idemproxy.proxy.hidden_ranges.records import UnreadableHiddenRange, key_of, read_record, value_of
from idemproxy.proxy.hidden_ranges.topic import HiddenRangesTopic
from idemproxy.proxy.partition_log.log_chunk import ReadLog, taking_apart
from idemproxy.state.hidden_ranges import HiddenRange, HiddenRanges, OffsetRange, State
from testkit.virtual.log import PartitionLog

TOPIC = "copies"
ONE, TWO = OffsetRange("orders", 3, 5, 8), OffsetRange("orders", 4, 0, 1)
ACTIVE = HiddenRange(State.ACTIVE, 10, "why", ((7, 99, 5),))
REMOVED = HiddenRange(State.REMOVED, 20, "why")
TURN, PATIENCE = limits.HIDDEN_RANGES_TOPIC_TURN_LOOKS, limits.HIDDEN_RANGES_TOPIC_PATIENCE_LOOKS


class Stage:
    """The shipped flow; a look is made when the test says so."""

    def __init__(self, log: PartitionLog | None = None) -> None:
        self.log: PartitionLog | None = PartitionLog() if log is None else log
        self.is_compacted = True
        self.refuses: Outcome | None = None
        self.is_away = False
        self.said: list[str] = []
        self.appends = 0
        self.known = KnownHiddenRanges(lambda: 0.0)
        self._turns: list[Resume] = []
        copy = HiddenRangesTopic(TOPIC, self.known, self._report, lambda: 1_000, lambda: "proxy 0a")
        self.stored = copy.stored
        handlers = {
            Leader: lambda _, resume: resume(None if self.log is None else 0),
            Ask: lambda effect, resume: resume(Unanswered("away") if self.is_away else self._answer(effect.question)),
            Append: lambda effect, resume: resume(self._append(effect)),
            Wait: self._wait,
        }
        FlowRunner(handlers).start(copy.run(), failed=self._failed)

    def _failed(self, error: Exception) -> None:
        raise error

    def _report(self, event: Any) -> None:
        self.said.append(event.what)

    def _wait(self, effect: Wait, resume: Resume) -> None:
        if effect.seconds == 0:
            resume(None)
        else:
            self._turns.append(resume)

    def _answer(self, question: Any) -> Any:
        assert self.log is not None
        if isinstance(question, EarliestOffset):
            return OffsetAnswer(0, self.log.start_offset)
        if isinstance(question, LatestOffset):
            return OffsetAnswer(0, self.log.high_watermark)
        assert isinstance(question, ReadLog)
        end = self.log.high_watermark
        data = self.log.read(question.offset, question.bytes_max, whole_first=True, up_to=end)
        return at_once(taking_apart(question.offset, FetchAnswer(0, end, memoryview(data))))

    def _append(self, effect: Append) -> Outcome:
        assert self.log is not None
        assert (effect.topic, effect.partition, effect.may_send()) == (TOPIC, 0, None)
        self.appends += 1
        if self.refuses is not None:
            return self.refuses
        data = bytes(effect.message_set)
        if self.is_compacted and any(message.key is None for message in iterate_shallow(data)):
            return Refused(2)
        return Appended(self.put(data))

    def put(self, data: bytes) -> int:
        """Append this to the topic, as anybody may."""
        assert self.log is not None
        offset = self.log.append(data, 0.0)
        self.log.advance(self.log.end_offset)
        return offset

    def put_records(self, records: Sequence[tuple[OffsetRange, HiddenRange]]) -> None:
        self.put(encode_set([(key_of(place), value_of(place, one, "x"), 0) for place, one in records], magic=1))

    def look(self, known: HiddenRanges, own: Sequence[OffsetRange] = (), *, times: int = 1) -> None:
        """So many looks, each after a comparison with Redis."""
        for _ in range(times):
            self.known.take_list(known)
            self.stored(own)
            self.turn()

    def turn(self) -> None:
        (resume,) = self._turns
        self._turns.clear()
        resume(None)

    @property
    def records(self) -> list[tuple[OffsetRange, HiddenRange | None]]:
        """What the topic has of hidden ranges, in order."""
        assert self.log is not None
        found = []
        for stored in self.log.messages:
            (message,) = iterate_shallow(stored.message.data)
            for one in inner_messages(message, 1 << 20) if message.is_wrapper else [message]:
                with suppress(UnreadableHiddenRange):
                    found.append(read_record(one.key or b"", one.value))
        return found


def test_what_a_process_has_put_into_redis_is_in_the_topic_at_once() -> None:
    stage = Stage()
    stage.look({ONE: ACTIVE}, [ONE])
    assert stage.records == [(ONE, ACTIVE)]
    stage.look({ONE: ACTIVE}, times=10)
    assert (len(stage.records), stage.said) == (1, [])


def test_what_another_one_has_put_there_is_written_if_that_one_does_not() -> None:
    stage = Stage()
    stage.look({ONE: ACTIVE, TWO: REMOVED}, times=TURN)
    assert stage.records == []
    stage.put_records([(ONE, ACTIVE)])
    stage.look({ONE: ACTIVE, TWO: REMOVED})
    assert stage.records == [(ONE, ACTIVE), (TWO, REMOVED)]


def test_a_removed_range_keeps_a_value_and_an_unmet_request_has_none() -> None:
    stage = Stage()
    asked = HiddenRange(State.ASKED, 5)
    refused = HiddenRange(State.REFUSED, 6, refusal="no records are there")
    stage.look({ONE: asked, TWO: refused}, [ONE, TWO], times=9)
    assert stage.records == []
    stage.look({ONE: ACTIVE, TWO: refused}, [ONE])
    stage.look({ONE: REMOVED}, [ONE])
    assert stage.records == [(ONE, ACTIVE), (ONE, REMOVED)]
    gone = HiddenRange(State.REFUSED, 30, refusal="the log has offsets 9 to 9")
    stage.look({ONE: gone}, [ONE])
    assert stage.records[-1] == (ONE, gone), "who reads the topic is told that it is no longer so"


@pytest.mark.promise("hidden-ranges")
def test_an_older_word_that_comes_late_is_answered_with_the_newer_one() -> None:
    stage = Stage()
    stage.look({ONE: REMOVED}, [ONE])
    stage.put_records([(ONE, ACTIVE)])
    stage.look({ONE: REMOVED}, times=TURN + 1)
    assert [one for _, one in stage.records] == [REMOVED, ACTIVE, REMOVED]


def test_a_newer_state_in_the_topic_is_reported_and_not_taken() -> None:
    stage = Stage()
    stage.put_records([(ONE, REMOVED), (TWO, ACTIVE)])
    stage.look({ONE: ACTIVE}, [ONE], times=PATIENCE - 1)
    assert stage.said == []
    stage.look({ONE: ACTIVE}, times=9)
    (said,) = stage.said
    assert "topic copies (hidden_ranges.topic): it has 2 hidden ranges" in said
    assert "idemproxy hide restore" in said
    assert stage.known.listed == {ONE: ACTIVE}
    assert len(stage.records) == 2


def test_a_range_whose_record_was_deleted_with_a_null_value_is_written_again() -> None:
    stage = Stage()
    stage.put_records([(ONE, ACTIVE)])
    stage.put(encode_set([(key_of(ONE), None, 0)], magic=1))
    stage.look({ONE: ACTIVE}, times=TURN + 1)
    assert stage.records == [(ONE, ACTIVE), (ONE, None), (ONE, ACTIVE)]


def test_what_is_not_ours_in_the_topic_is_passed_over() -> None:
    stage = Stage()
    stage.put(encode_set([(b"other", b"x", 0), (None, b"y", 0), (key_of(ONE), b"{}", 0)], magic=1))
    inside = encode_set([(key_of(TWO), value_of(TWO, REMOVED, "x"), 0)], magic=1)
    stage.put(
        encode_message(None, compress(Codec.GZIP, inside, magic=1), magic=1, offset=0, timestamp=0, codec=Codec.GZIP)
    )
    stage.look({ONE: ACTIVE, TWO: REMOVED}, [ONE, TWO])
    assert stage.records[-1] == (ONE, ACTIVE)
    assert stage.appends == 2, "the question whether it is compacted, and one record: a compressed one was read"


def test_a_topic_without_compaction_is_reported_and_gets_no_hidden_range() -> None:
    stage = Stage()
    stage.is_compacted = False
    stage.look({ONE: ACTIVE}, [ONE], times=20)
    (said,) = stage.said
    assert "it is not compacted" in said
    assert "cleanup.policy=compact" in said
    assert (stage.records, stage.appends) == ([], 1)
    stage.is_compacted = True
    stage.look({ONE: ACTIVE}, times=limits.HIDDEN_RANGES_TOPIC_REREAD_LOOKS)
    assert stage.records == [(ONE, ACTIVE)]


def test_a_missing_topic_is_reported_when_it_stays_missing() -> None:
    stage = Stage()
    log, stage.log = stage.log, None
    stage.look({ONE: ACTIVE}, [ONE], times=PATIENCE - 1)
    assert stage.said == []
    stage.look({ONE: ACTIVE}, [ONE], times=5)
    (said,) = stage.said
    assert "it does not exist" in said
    stage.log = log
    stage.look({ONE: ACTIVE})
    assert stage.records == [(ONE, ACTIVE)]


@pytest.mark.parametrize(("outcome", "said"), [(Refused(29), 1), (InDoubt("lost", 0), 0)])
def test_what_a_broker_does_not_take_is_tried_again(outcome: Outcome, said: int) -> None:
    stage = Stage()
    stage.refuses = outcome
    stage.look({ONE: ACTIVE}, [ONE], times=600)
    assert len(stage.said) == said
    assert 600 / limits.HIDDEN_RANGES_TOPIC_SKIPS_MAX - 2 < stage.appends < 30, "less and less often"
    assert all("TOPIC_AUTHORIZATION_FAILED (29)" in one for one in stage.said)
    stage.refuses = None
    stage.look({ONE: ACTIVE}, times=limits.HIDDEN_RANGES_TOPIC_SKIPS_MAX + 1)
    assert stage.records == [(ONE, ACTIVE)]


def test_while_redis_or_the_broker_is_away_nothing_is_said_or_written() -> None:
    stage = Stage()
    stage.put_records([(ONE, ACTIVE)])
    for _ in range(20):
        stage.turn()
    assert (stage.said, stage.appends) == ([], 0)
    stage.is_away = True
    stage.look({TWO: ACTIVE}, [TWO], times=20)
    assert (stage.said, stage.appends) == ([], 0)


def test_a_topic_that_was_recreated_is_filled_again() -> None:
    stage = Stage()
    stage.look({ONE: ACTIVE, TWO: REMOVED}, [ONE, TWO], times=2)
    assert len(stage.records) == 2
    assert stage.log is not None
    stage.log.begin_again()
    stage.look({ONE: ACTIVE, TWO: REMOVED}, times=TURN + 1)
    assert dict(stage.records) == {ONE: ACTIVE, TWO: REMOVED}


def test_what_no_reader_could_read_is_not_written_again_and_again() -> None:
    stage = Stage()
    strange = {
        OffsetRange("\udcff", 0, 1, 2): REMOVED,
        OffsetRange("orders", -1, 1, 2): REMOVED,
        OffsetRange("orders", 5, 1, 2): HiddenRange(State.ACTIVE, 1),
    }
    stage.look(strange | {ONE: ACTIVE}, [*strange, ONE], times=50)
    assert stage.records == [(ONE, ACTIVE)]
    assert stage.appends == 2


def test_several_processes_agree_and_write_each_word_once() -> None:
    log = PartitionLog()
    stages = [Stage(log) for _ in range(3)]
    for known, own in (({ONE: ACTIVE}, True), ({ONE: REMOVED}, False), ({ONE: REMOVED, TWO: ACTIVE}, True)):
        for look in range(20):
            for stage in stages:
                stage.look(known, list(known) if own and look == 0 and stage is stages[1] else ())
    assert stages[0].records == [(ONE, ACTIVE), (ONE, REMOVED), (TWO, ACTIVE)]
    assert [stage.said for stage in stages] == [[], [], []]


def test_many_go_in_requests_that_old_brokers_take() -> None:
    stage = Stage()
    messages = tuple((number, 4_000_000_000, number) for number in range(2_000))
    known = {
        OffsetRange("orders", 0, 3_000 * n, 3_000 * n + 2_000): HiddenRange(State.ACTIVE, 1, "", messages)
        for n in range(20)
    }
    stage.look(known, list(known))
    assert dict(stage.records) == known
    assert 3 < stage.appends < 21
    stage.look(known, times=9)
    assert len(stage.records) == len(known)


def test_a_topic_with_other_things_in_it_takes_no_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HIDDEN_RANGES_TOPIC_RANGES_MAX", 10)
    stage = Stage()
    for n in range(0, 40, 4):
        stage.put_records([(OffsetRange("orders", 0, m, m + 1), REMOVED) for m in range(n, n + 4)])
    stage.look({ONE: ACTIVE}, [ONE], times=3)
    (said,) = stage.said
    assert "it has more than 10 ranges" in said
    assert stage.appends == 0
