"""The fast path is no second truth: of whatever happens, it leaves the same in the store, in the log and with the
clients as the flows alone do. And what is not usual does not go that way."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from textwrap import dedent
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.proxy.events import AppendSent
from idemproxy.proxy.flow.effects import Append, Read, Swap, Way
from idemproxy.proxy.flow.outcome import NotSent, Outcome
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.producer import fast_path
from idemproxy.proxy.producer.batch import Batch
from idemproxy.proxy.producer.fast_path import FastPath
from idemproxy.proxy.telemetry.journal import JOURNALED
from idemproxy.proxy.telemetry.metrics import Metrics
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import NO_ANCHOR, NOBODY, Intent
from testkit.real.machine.kernel_build import current
from testkit.stage.both_ways import (
    CODECS,
    HOUR_SECONDS,
    MEANWHILE,
    OUTCOMES,
    PAUSES_SECONDS,
    Burst,
    Left,
    Play,
    compare,
    played,
)
from testkit.stage.kernel_cases import with_kernel
from testkit.stage.sequencer import NEXT_GENERATION, PARTITION, TOPIC, Client, Request, Stage, batch_of


# ---------------------------------------------------------------------- the usual
def test_usual_batches_go_the_fast_path() -> None:
    """But for the first, which begins the state, and the second, before which no append was read back."""
    _, groups = played([Burst(), Burst((1, 2, 1)), Burst(codec=Codec.GZIP), Burst((5,) * 9)], is_fast=True)
    assert groups == 1 + 1 + 2 + 1 + 3


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "python"])
@pytest.mark.parametrize("codec", list(Codec)[:4])
def test_with_each_codec_both_leave_the_same(codec: Codec, kernel: bool) -> None:
    with with_kernel(current() if kernel else None):
        assert compare([Burst((1,), codec), Burst((3, 1, 1, 1, 1, 1, 1), codec)]) == 1 + 1 + 3


EXTRA: tuple[dict[str, Any], ...] = ({}, {"comes_again": True}, {"newer_epoch": True}, {"records": (1, 1, 2)})


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("at", ["Swap", "Append"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_whatever_becomes_of_it_both_leave_the_same(outcome: str, at: str, meanwhile: str) -> None:
    for extra in EXTRA:
        assert compare([Burst(outcomes=(outcome,), meanwhile=(at, meanwhile), **extra), Burst()]) > 0


def test_a_batch_that_comes_while_a_commit_is_written_waits_for_that() -> None:
    """Two swaps of one entry at once: one of them would fail."""
    stage = Stage(has_fast_path=True, answers_later=True)
    assert stage.fast_path is not None
    play = Play(stage)
    for _ in range(3):
        play.burst(Burst(pause_seconds=0.01))
    seen: list[int] = []

    def next_batch(_swap: object) -> None:
        del stage.before[Swap]
        before = stage.fast_path.groups if stage.fast_path is not None else 0
        play.burst(Burst(pause_seconds=0.0))
        seen.append(0 if stage.fast_path is None else stage.fast_path.groups - before)

    stage.before[Swap] = next_batch
    stage.run(1.0)
    assert seen == [0]
    assert stage.stored_values() == [b"value %d of 0" % number for number in range(4)]


BURSTS = st.builds(
    Burst,
    records=st.lists(st.integers(1, 3), min_size=1, max_size=7).map(tuple),
    codec=st.sampled_from(CODECS),
    outcomes=st.lists(st.sampled_from(("appended", "appended", *OUTCOMES)), max_size=3).map(tuple),
    meanwhile=st.tuples(st.sampled_from(("Swap", "Append")), st.sampled_from(("nothing", "nothing", *MEANWHILE))),
    comes_again=st.booleans(),
    newer_epoch=st.integers(0, 3).map(lambda number: number == 0),
    pause_seconds=st.sampled_from(PAUSES_SECONDS),
    is_traced=st.sampled_from((None, None, False, True)),
)


@settings(max_examples=150)
@given(st.lists(BURSTS, min_size=1, max_size=6))
def test_of_any_bursts_both_leave_the_same(bursts: list[Burst]) -> None:
    compare(bursts)


# ---------------------------------------------------------------------- the unusual
def given_up(stage: Stage) -> None:
    """The store has the intent of another batch, of which nobody can tell whether it is in the log."""
    entry = stage.entry()
    intent = Intent(NOBODY, entry.producer_epoch, (), 0, bytes(8), bytes(8), 1, attempts=255)
    stage.stream.held.hold(replace(entry, version=entry.version + 1, intent=intent))


def is_not_ready(stage: Stage) -> None:
    if stage.fast_path is not None:
        stage.fast_path.leader.takes_batches = False
    stage.context.is_reachable = lambda _broker_id: False
    stage.later(0.3, lambda: setattr(stage.context, "is_reachable", lambda _broker_id: True))


UNUSUAL: dict[str, Callable[[Stage], Any]] = {
    "the process ends": lambda stage: setattr(stage.context.life, "is_draining", True),
    "its span is wanted": lambda _stage: None,
    "the bound has no anchor": lambda stage: stage.context.bounds.known.update(
        {(TOPIC, PARTITION): (stage.now, Position(1, NO_ANCHOR))}
    ),
    "the last commit has no anchor": lambda stage: stage.stream.held.hold(
        replace(stage.entry(), version=99, anchor=NO_ANCHOR)
    ),
    "it goes over a connection of its own": lambda _stage: None,
    "the topic keeps no markers": lambda stage: stage.context.topics.note_marker_lost(TOPIC, PARTITION),
    "the topic refuses a size": lambda stage: stage.context.topics.note_too_large(TOPIC, 10_000),
    "the broker compresses": lambda stage: stage.context.topics.wrapper_codecs.update({TOPIC: Codec.GZIP}),
    "the partition is to be probed": lambda stage: stage.context.marker_probe.probed.clear(),
    "the memory is full": lambda stage: stage.context.memory.hold_bytes(1 << 40),
    "the pass is long": lambda stage: setattr(stage.context, "is_pass_long", lambda: True),
    "no leader is known": lambda stage: setattr(stage, "leader", None),
    "the leader is away": is_not_ready,
    "no bound is known": lambda stage: stage.context.bounds.drop(TOPIC, PARTITION),
    "the bound is old": lambda stage: stage.run(10.5),
    "another generation": lambda stage: setattr(stage.context.life, "generation", NEXT_GENERATION),
    "an intent was given up": given_up,
    "state was rebuilt": lambda stage: stage.stream.held.hold(replace(stage.entry(), version=99, is_rebuilt=True)),
    "state may have expired": lambda stage: stage.run(25 * HOUR_SECONDS),
    "another principal": lambda _stage: None,
    "a sequence that is not due": lambda _stage: None,
    "a newer epoch": lambda _stage: None,
    "a newer epoch in its middle": lambda _stage: None,
}


def unusual(name: str, *, is_fast: bool) -> tuple[Left, int]:
    """Also returned: how many groups went the fast path since it is unusual."""
    stage = Stage(has_fast_path=is_fast, answers_later=True)
    play = Play(stage)
    for _ in range(3):
        play.burst(Burst())
    before = 0 if stage.fast_path is None else stage.fast_path.groups
    UNUSUAL[name](stage)
    if name == "another principal":
        play.clients = [Client("somebody"), Client()]
    elif name == "a sequence that is not due":
        play.sequence += 1
    elif name == "it goes over a connection of its own":
        play.clients[0].way = cast(Way, object())
    elif name == "a newer epoch in its middle":
        play.epoch = 1
    elif name == "a newer epoch":
        play.epoch, play.sequence = 1, 0
    play.burst(Burst(pause_seconds=0.0, is_traced=True if name == "its span is wanted" else None))
    stage.run(0.0)
    after = 0 if stage.fast_path is None else stage.fast_path.groups
    stage.run(5.0)
    left = play.left()
    if name == "the memory is full":
        left.bytes_held -= 1 << 40
    return left, after - before


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_not_usual_goes_through_a_flow(name: str) -> None:
    slow, _ = unusual(name, is_fast=False)
    fast, groups = unusual(name, is_fast=True)
    assert groups == 0
    assert fast == slow
    assert not fast.failures


def test_what_is_left_of_a_batch_goes_through_a_flow() -> None:
    assert not goes_fast_in_part()


def goes_fast_in_part() -> bool:
    """Does a batch whose first record is in the log already?"""
    stage = Stage(has_fast_path=True, answers_later=True)
    play = Play(stage)
    for _ in range(3):
        play.burst(Burst())
    records = batch_of([b"stored", b"left"], play.sequence)
    identity = BatchIdentity(0, play.sequence, 2)
    request = Request(play.clients[0], identity)
    batch = Batch(identity, records, parse_single_batch(records), 30_000, stage.now, [request])
    batch.note_stored(1, 3)
    return stage.sequencer.goes_fast(batch)


def conditions() -> list[ast.expr]:
    """What the fast path wants not to be, as it stands in its source."""
    return _function()[1].values


def _function() -> tuple[ast.FunctionDef, ast.BoolOp]:
    (function,) = ast.parse(dedent(inspect.getsource(FastPath._is_usual))).body
    assert isinstance(function, ast.FunctionDef)
    (returned,) = (one for one in ast.walk(function) if isinstance(one, ast.Return))
    assert isinstance(returned.value, ast.UnaryOp)
    assert isinstance(returned.value.operand, ast.BoolOp)
    return function, returned.value.operand


def without(number: int) -> Callable[..., bool]:
    """The same question without one of the conditions."""
    function, any_of = _function()
    del any_of.values[number]
    names = dict(vars(fast_path))
    exec(compile(ast.Module([function], []), fast_path.__file__, "exec"), names)
    return cast(Callable[..., bool], names[function.name])


def is_noticed() -> bool:
    """Does something go the fast path that should not, or does it end in an error?"""
    try:
        return (
            goes_fast_in_part() or leaves_an_intent_watched() or any(unusual(name, is_fast=True)[1] for name in UNUSUAL)
        )
    except (AssertionError, KeyError):
        return True


@pytest.mark.parametrize("number", range(len(conditions())), ids=[ast.unparse(one) for one in conditions()])
def test_without_any_of_its_conditions_something_unusual_goes_the_fast_path(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastPath, "_is_usual", without(number))
    assert is_noticed()


def test_in_a_new_era_a_flow_reads_first_what_is_stored() -> None:
    stage = Stage(has_fast_path=True, answers_later=True)
    play = Play(stage)
    for _ in range(3):
        play.burst(Burst())
    reads: list[object] = []
    stage.before[Read] = reads.append
    stage.context.life.era += 1
    play.burst(Burst())
    assert len(reads) == 1


def test_an_intent_that_is_watched_is_looked_at_by_a_flow_first() -> None:
    assert not leaves_an_intent_watched()


def leaves_an_intent_watched() -> bool:
    """Is the next batch reserved before an intent that may be open was looked at?"""
    stage = Stage(has_fast_path=True, answers_later=True)
    play = Play(stage)
    for _ in range(3):
        play.burst(Burst())
    stage.stream.watch_intent(stage.now + HOUR_SECONDS)
    seen: list[bool] = []
    stage.before[Swap] = lambda _swap: seen.append(stage.stream.watches_intent)
    stage.send(play.clients[0], play.sequence)
    return seen != [False]


@pytest.mark.parametrize("offset", [1, 9])
def test_the_later_of_two_bounds_is_taken(offset: int) -> None:
    found = []
    for is_fast in (False, True):
        stage = Stage(has_fast_path=is_fast, answers_later=True)
        play = Play(stage)
        for _ in range(3):
            play.burst(Burst())
        known = Position(offset, b"recorded")
        stage.context.bounds.known[TOPIC, PARTITION] = (stage.now, known)
        play.burst(Burst())
        found.append([entry.intent for entry in stage.swapped if entry.intent is not None][-1])
    assert found[0] == found[1]
    assert found[0].lower_bound == max(offset, 3)


# ---------------------------------------------------------------------- many at once
class Line:
    """The turns of a pass that has done enough: what waits, in its order."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[None], None]] = []

    def go_on(self) -> None:
        waiting, self.waiting = self.waiting, []
        for go_on in waiting:
            go_on(None)


@pytest.mark.parametrize(
    ("end", "codes", "stored"),
    [
        (lambda _stage, _effect: NotSent("the broker is away"), [0, 0], [b"value 3", b"value 4"]),
        (lambda stage, effect: stage.refuses(6)(effect), [6, 19], []),
        (lambda stage, effect: stage.loses_answer(effect), [0, 0], [b"value 3", b"value 4"]),
    ],
    ids=["refused before it was sent", "answered with 6", "appended, the answer is lost"],
)
def test_of_many_that_end_at_once_each_goes_on_in_its_turn(
    end: Callable[[Stage, Append], Outcome], codes: list[int], stored: list[bytes]
) -> None:
    """A broker that goes away refuses thousands in one step. Until its turn a group is out: nothing of its producer
    goes beside it, nobody is told, and what comes meanwhile comes behind it."""
    stage = Stage(has_fast_path=True, answers_later=True)
    assert stage.fast_path is not None
    play = Play(stage)
    for _ in range(3):
        play.burst(Burst(pause_seconds=0.01))
    line = Line()
    stage.fast_path.in_turn = lambda go_on: line.waiting.append(go_on)  # type: ignore[method-assign]
    stage.outcomes.append(lambda effect: end(stage, effect))
    first = stage.send(play.clients[0], 3)
    stage.run(0.01)
    sent = len(stage.sent)
    second = stage.send(play.clients[0], 4)
    stage.run(0.1)
    assert len(line.waiting) == 1
    assert (first.code, second.code, len(stage.sent), stage.sequencer.is_idle) == (None, None, sent, False)
    line.go_on()
    stage.run(HOUR_SECONDS, until=lambda: first.is_done)
    line.go_on()
    stage.run(HOUR_SECONDS)
    line.go_on()
    stage.run(1.0)
    assert ([first.code, second.code], stage.failures()) == (codes, [])
    assert stage.stored_values()[3:] == stored


# ---------------------------------------------------------------------- those who watch
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_journal_is_told_the_same(outcome: str) -> None:
    told = []
    for is_fast in (False, True):
        stage = Stage(has_fast_path=is_fast, answers_later=True)
        stage.context.observers.wants_outcomes = True
        play = Play(stage)
        for burst in (Burst(), Burst(), Burst((1, 2), outcomes=(outcome,)), Burst()):
            play.burst(burst)
        stage.run(HOUR_SECONDS)
        journaled = [event for event in stage.events if type(event) in JOURNALED and not isinstance(event, AppendSent)]
        told.append([(type(event), replaced(event)) for event in journaled])
    assert told[0] == told[1]


def replaced(event: Any) -> dict[str, Any]:
    """Its fields, but for what a journal leaves out."""
    names = [one.name for one in fields(event) if one.name not in ("arrived_at", "answered_at", "records")]
    return {name: getattr(event, name) for name in names}


def test_what_is_counted_without_events_is_the_same() -> None:
    counted = []
    for is_fast in (False, True):
        stage = Stage(has_fast_path=is_fast, answers_later=True)
        metrics = Metrics()
        takers = metrics.takers()
        if is_fast:
            stage.context.observers.counts = metrics
        measured: list[float] = []
        stage.context.observers.measure = lambda arrived_at, _lane, measured=measured: measured.append(arrived_at)
        play = Play(stage)
        for burst in (Burst(), Burst(), Burst((1, 2, 1)), Burst((1, 1), outcomes=("answer lost",)), Burst()):
            play.burst(burst)
        stage.run(HOUR_SECONDS)
        for event in stage.events:
            if type(event) in takers and not (isinstance(event, AppendSent) and not is_fast):
                takers[type(event)](event)
        counted.append((dict(metrics.verdicts), metrics.doubts_resolved, measured))
        if is_fast:
            assert metrics.appends_sent == len(stage.sent) - 1, "but for the first, which a flow asks for on this stage"
    assert counted[0] == counted[1]
