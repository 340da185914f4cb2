"""How proxies follow the stored list of hidden ranges: two of them on one store and one log, step by step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.steps import at_once
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import EarliestOffset, FetchAnswer, LatestOffset, OffsetAnswer
from idemproxy.proxy.flow.effects import Ask, Leader, Now, Read, Replicas, Swap, Unanswered, Wait
from idemproxy.proxy.flow.runner import FlowRunner, Resume
from idemproxy.proxy.hidden_ranges import upkeep
from idemproxy.proxy.hidden_ranges.known import KnownHiddenRanges
from idemproxy.proxy.hidden_ranges.upkeep import HiddenRangesUpkeep
from idemproxy.proxy.partition_log.log_chunk import ReadLog, taking_apart
from idemproxy.state.hidden_ranges import (
    HiddenRange,
    HiddenRanges,
    OffsetRange,
    State,
    pack_hidden_ranges,
    unpack_hidden_ranges,
)
from idemproxy.state.store import Conflict, StoreAway, Swapped
from testkit.virtual.log import PartitionLog

ONE, OTHER, DARK = OffsetRange("t", 0, 1, 3), OffsetRange("t", 0, 3, 4), OffsetRange("dark", 0, 0, 1)
ASKED = HiddenRange(State.ASKED, 10, "why")


class Shared:
    """The store and the log. ``at_ask``: done before a question to a leader is answered, once."""

    def __init__(self) -> None:
        self.stored: bytes | None = None
        self.is_away = False
        self.log = PartitionLog()
        self.log.append(encode_set([(None, b"v%d" % at, 0) for at in range(5)], magic=1), 0.0)
        self.log.advance(5)
        self.at_ask: Any = None
        self.now = 0.0
        self.asked_of: list[int] = []

    def leader_of(self, topic: str) -> int | None:
        return None if topic in ("nowhere", "no-leader") else 9 if topic == "dark" else 1

    def write(self, hidden_ranges: HiddenRanges) -> None:
        version = 0 if self.stored is None else unpack_hidden_ranges(self.stored)[0]
        self.stored = pack_hidden_ranges(version + 1, hidden_ranges)

    def read(self) -> HiddenRanges:
        assert self.stored is not None
        return unpack_hidden_ranges(self.stored)[1]


def left_out_by(known: KnownHiddenRanges) -> set[OffsetRange]:
    return {place for place, one in known.listed.items() if one.state is State.ACTIVE}


class Proxy:
    """The shipped flow of one process; ``look`` lets it look once."""

    def __init__(self, shared: Shared, known: KnownHiddenRanges | None = None) -> None:
        self.shared = shared
        self.known = known or KnownHiddenRanges(lambda: 0.0)
        self.firsts = 0
        self.said: list[str] = []
        self.waits: list[float] = []
        self._turns: list[Resume] = []
        self.knows_cluster = True
        flow = HiddenRangesUpkeep(self.known, "c", self._report, lambda: 1_000, self._first, lambda: self.knows_cluster)
        handlers = {
            Read: lambda _, resume: resume(StoreAway("away") if shared.is_away else shared.stored),
            Swap: lambda effect, resume: resume(self._swap(effect)),
            Leader: lambda effect, resume: resume(shared.leader_of(effect.topic)),
            Replicas: lambda effect, resume: resume(() if effect.topic == "nowhere" else (1,)),
            Ask: lambda effect, resume: resume(self._answer(effect)),
            Wait: self._wait,
            Now: lambda _, resume: resume(shared.now),
        }
        FlowRunner(handlers).start(flow.run(), failed=self._failed)

    def look(self) -> None:
        self._turns.pop()(None)

    @property
    def left_out(self) -> set[OffsetRange]:
        return left_out_by(self.known)

    def _failed(self, error: Exception) -> None:
        raise error

    def _first(self) -> None:
        self.firsts += 1

    def _report(self, event: Any) -> None:
        self.said.append(event.what)

    def _wait(self, effect: Wait, resume: Resume) -> None:
        if effect.seconds:
            self.waits.append(effect.seconds)
            self._turns.append(resume)
        else:
            resume(None)

    def _swap(self, effect: Swap) -> Any:
        stored = self.shared.stored
        version = 0 if stored is None else unpack_hidden_ranges(stored)[0]
        if version != effect.expected_version:
            return Conflict(stored)
        self.shared.stored = effect.value
        return Swapped()

    def _answer(self, effect: Ask[Any]) -> Any:
        shared = self.shared
        shared.asked_of.append(effect.broker_id)
        act, shared.at_ask = shared.at_ask, None
        if act is not None:
            act()
        if effect.broker_id == 9:
            return Unanswered("stands still")
        question, log = effect.question, shared.log
        if isinstance(question, EarliestOffset):
            return OffsetAnswer(0, log.start_offset)
        if isinstance(question, LatestOffset):
            return OffsetAnswer(0, log.high_watermark)
        assert isinstance(question, ReadLog)
        data = log.read(question.offset, question.bytes_max, whole_first=True, up_to=log.high_watermark)
        return at_once(taking_apart(question.offset, FetchAnswer(0, log.high_watermark, memoryview(data))))


def test_a_range_that_one_proxy_finds_is_left_out_at_every_proxy() -> None:
    shared = Shared()
    shared.write({ONE: ASKED})
    first = Proxy(shared)
    assert (first.left_out, shared.read()[ONE].state) == ({ONE}, State.ACTIVE)
    asked = len(shared.asked_of)
    second = Proxy(shared)
    assert (second.left_out, len(shared.asked_of)) == ({ONE}, asked), "the log is looked into once"


def test_what_redis_loses_is_given_back() -> None:
    shared = Shared()
    shared.write({ONE: ASKED})
    first = Proxy(shared)
    shared.stored = None
    first.look()
    assert shared.read()[ONE].state is State.ACTIVE


def test_who_removes_a_range_while_a_proxy_looks_into_the_log_is_heard() -> None:
    shared = Shared()
    shared.write({ONE: ASKED})
    shared.at_ask = lambda: shared.write({ONE: replace(ASKED, state=State.REMOVED, at_ms=11)})
    proxy = Proxy(shared)
    for _ in range(3):
        proxy.look()
    assert (proxy.left_out, shared.read()[ONE].state) == (set(), State.REMOVED)


def test_a_leader_that_stands_still_holds_up_no_other_range_and_is_asked_once() -> None:
    shared = Shared()
    found = replace(ASKED, state=State.ACTIVE, messages=((3, 99, 3),))
    shared.write({DARK: ASKED, replace(DARK, first=1, end=2): ASKED, ONE: ASKED, OTHER: found})
    looking: list[set[OffsetRange]] = []
    known = KnownHiddenRanges(lambda: 0.0)
    shared.at_ask = lambda: looking.append(left_out_by(known))
    proxy = Proxy(shared, known)
    assert looking == [{OTHER}], "what others have found counts while a log is looked into"
    assert proxy.left_out == {ONE, OTHER}
    assert shared.asked_of.count(9) == 2, "both questions of one look, for one of its ranges"


def test_until_the_list_was_read_no_client_is_served() -> None:
    shared = Shared()
    shared.is_away = True
    proxy = Proxy(shared)
    assert (proxy.known.is_read, proxy.firsts, proxy.waits) == (False, 0, [limits.HIDDEN_RANGES_FIRST_LOOK_SECONDS])
    shared.is_away = False
    proxy.look()
    proxy.look()
    assert (proxy.known.is_read, proxy.firsts) == (True, 1)
    assert proxy.waits[1:] == [limits.HIDDEN_RANGES_LOOK_SECONDS] * 2


def test_a_list_that_cannot_be_read_changes_nothing_and_is_reported() -> None:
    shared = Shared()
    shared.write({ONE: ASKED})
    proxy = Proxy(shared)
    shared.stored = b"\x02" + bytes(8) + b"[]"
    proxy.look()
    assert (proxy.left_out, shared.stored[0]) == ({ONE}, 2), "and a newer version's list is not written over"
    assert "format 2, this version reads 1" in proxy.said[-1]
    late = Proxy(shared)
    assert (late.known.is_read, late.firsts, late.left_out) == (True, 1, set())


def test_what_the_log_does_not_have_as_a_whole_is_refused() -> None:
    shared = Shared()
    beyond = replace(ONE, first=3, end=6)
    shared.write({beyond: ASKED})
    proxy = Proxy(shared)
    found = shared.read()[beyond]
    assert (proxy.left_out, found.state, found.refusal) == (set(), State.REFUSED, "the log has offsets 0 to 4")


# ---------------------------------------------------------------------- how long one look takes
def test_a_slow_lookup_takes_several_looks_and_found_ranges_count_at_once() -> None:
    shared = Shared()
    shared.write({ONE: ASKED, OTHER: ASKED})
    slow = partial(setattr, shared, "now", limits.HIDDEN_RANGES_LOOK_SECONDS)
    shared.at_ask = slow
    proxy = Proxy(shared)
    assert (proxy.left_out, shared.read()[OTHER].state) == ({ONE}, State.ASKED)
    shared.write({**shared.read(), ONE: replace(shared.read()[ONE], state=State.REMOVED, at_ms=2_000)})
    proxy.look()
    assert proxy.left_out == {OTHER}, "and who takes one back meanwhile is heard"


def test_a_leader_that_takes_a_whole_look_to_answer_nothing_is_asked_last() -> None:
    shared = Shared()
    shared.write({DARK: ASKED, ONE: ASKED})

    def slow() -> None:
        shared.now += limits.HIDDEN_RANGES_LOOK_SECONDS
        shared.at_ask = slow

    shared.at_ask = slow
    proxy = Proxy(shared)
    assert shared.asked_of == [9, 9]
    proxy.look()
    assert proxy.left_out == {ONE}


def test_a_list_that_is_the_same_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have a mebibyte, and is there every two seconds."""
    shared = Shared()
    shared.write({ONE: ASKED})
    proxy = Proxy(shared)
    proxy.look()
    packed, shared.stored = shared.stored, b"\x02" + bytes(8)
    proxy.look()
    assert "format 2" in proxy.said[-1]
    shared.stored = packed
    read: list[bytes] = []

    def counted(stored: bytes) -> tuple[int, dict[OffsetRange, HiddenRange]]:
        read.append(stored)
        return unpack_hidden_ranges(stored)

    monkeypatch.setattr(upkeep, "unpack_hidden_ranges", counted)
    for _ in range(3):
        proxy.look()
    assert read == []
    shared.write({})
    proxy.look()
    assert (len(read), proxy.left_out, set(shared.read())) == (1, {ONE}, {ONE})


def test_a_part_of_a_wrapper_with_too_many_records_is_not_left_out() -> None:
    shared = Shared()
    count = limits.HIDDEN_RANGES_PART_RECORDS_MAX + 1
    inside = encode_set([(None, b"", 0)] * count, magic=1)
    packed = compress(Codec.GZIP, inside, magic=1)
    shared.log.append(encode_message(None, packed, magic=1, offset=count - 1, codec=Codec.GZIP), 0.0)
    shared.log.advance(5 + count)
    part, whole = replace(ONE, first=6, end=7), replace(ONE, first=5, end=5 + count)
    shared.write({part: ASKED})
    assert Proxy(shared).left_out == set()
    assert shared.read()[part].refusal == (
        "a part of the message or batch at offsets 5 to 10005 cannot be hidden:"
        " it has 10001 records, the limit is 10000"
    )
    shared.write({whole: ASKED})
    assert Proxy(shared).left_out == {whole}


def test_ranges_without_room_are_reported_and_not_looked_for_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared()
    shared.write({ONE: ASKED, OTHER: ASKED})
    assert shared.stored is not None
    monkeypatch.setattr(upkeep, "STORED_BYTES_MAX", len(shared.stored) + 1)
    proxy = Proxy(shared)
    asked = len(shared.asked_of)
    for _ in range(3):
        proxy.look()
    assert (proxy.left_out, len(shared.asked_of)) == (set(), asked)
    assert [said for said in proxy.said if "remove some" in said] == [proxy.said[-1]]
    shared.write({ONE: ASKED, OTHER: replace(ASKED, state=State.REMOVED, at_ms=11)})
    monkeypatch.undo()
    proxy.look()
    assert proxy.left_out == {ONE}


def test_of_many_changes_the_log_has_the_first_and_a_number() -> None:
    shared = Shared()
    count = limits.HIDDEN_RANGES_CHANGES_TOLD_MAX + 5
    found = replace(ASKED, state=State.ACTIVE, messages=((3, 99, 3),))
    refused = replace(ASKED, state=State.REFUSED, refusal="it is gone")
    shared.write({**{OffsetRange("many", at, 3, 4): found for at in range(count)}, OTHER: refused})
    said = Proxy(shared).said
    assert len(said) == limits.HIDDEN_RANGES_CHANGES_TOLD_MAX + 1
    assert (said[0], said[-1]) == (
        "offsets 3 to 3 of t/0 are not hidden from fetches: it is gone",
        "6 more hidden ranges have changed: see `idemproxy hide list`",
    )


def test_a_long_list_is_taken_in_steps() -> None:
    known = KnownHiddenRanges(lambda: 0.0)
    many = tuple((at, 7, at) for at in range(2_000))
    hidden_ranges = {
        OffsetRange("t", 0, at * 2_000, (at + 1) * 2_000): HiddenRange(
            State.ACTIVE, 1, messages=tuple((at * 2_000 + one, crc, at * 2_000 + one) for one, crc, _ in many)
        )
        for at in range(10)
    }
    steps = known.taking(hidden_ranges)
    assert len(list(steps)) == 4
    assert (known.is_any, known.records_left_out) == (True, 20_000)
    later = known.taking({})
    assert (known.is_any, list(later), known.is_any) == (True, [], False)


NOWHERE, LEADERLESS = OffsetRange("nowhere", 0, 0, 1), OffsetRange("no-leader", 0, 0, 1)


def test_a_topic_that_is_not_there_is_refused_with_the_second_look() -> None:
    shared = Shared()
    shared.write({NOWHERE: ASKED, LEADERLESS: ASKED, ONE: ASKED})
    proxy = Proxy(shared)
    assert shared.read()[NOWHERE].state is State.ASKED, "a broker may know too little yet"
    proxy.look()
    found = shared.read()
    assert (found[NOWHERE].state, found[NOWHERE].refusal) == (
        State.REFUSED,
        "the cluster has no such topic, or no such partition of it",
    )
    assert (found[LEADERLESS].state, found[ONE].state) == (State.ASKED, State.ACTIVE)


def test_before_the_cluster_is_known_no_topic_is_missing() -> None:
    shared = Shared()
    proxy = Proxy(shared)
    proxy.knows_cluster = False
    shared.write({NOWHERE: ASKED})
    for _ in range(3):
        proxy.look()
    assert shared.read()[NOWHERE].state is State.ASKED
    proxy.knows_cluster = True
    proxy.look()
    proxy.look()
    assert shared.read()[NOWHERE].state is State.REFUSED


def test_a_refused_request_removed_from_the_list_is_not_written_back() -> None:
    shared = Shared()
    shared.write({NOWHERE: ASKED, ONE: ASKED})
    one, other = Proxy(shared), Proxy(shared)
    one.look()
    assert other.known.listed[NOWHERE].state is State.ASKED, "it has not read that it is refused"
    shared.write({ONE: shared.read()[ONE]})
    for proxy in (other, one, other, one):
        proxy.look()
    assert list(shared.read()) == [ONE]
    assert [set(proxy.known.listed) for proxy in (one, other)] == [{ONE}] * 2
