"""What is usual is appended at once, what is not is prepared by a flow, which says why; and whatever becomes of a group
that was appended at once, each record is stored once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.proxy.broker.queued_append import Route
from idemproxy.proxy.events import AppendEnded, AppendSent, BatchAnswered, GroupPrepared, StepDone
from idemproxy.proxy.flow.effects import Append, Read, Swap
from idemproxy.proxy.flow.outcome import NotSent, Outcome
from idemproxy.proxy.limits import APPEND_RESERVATION_BYTES_MAX, BOUND_AGE_SECONDS
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.producer.append_reservation import AppendReservation
from idemproxy.proxy.producer.batch import Batch
from idemproxy.proxy.producer.name_guard import NameGuard
from idemproxy.proxy.producer.usual import Unusual
from idemproxy.proxy.telemetry.metrics import Metrics
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import NO_ANCHOR, NOBODY, Intent, IntentKind
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.real.machine.kernel_build import current
from testkit.stage.bursts import (
    CODECS,
    HOUR_SECONDS,
    MEANWHILE,
    OUTCOMES,
    PAUSES_SECONDS,
    Burst,
    Play,
    judge,
)
from testkit.stage.kernel_cases import with_kernel
from testkit.stage.sequencer import (
    NEXT_DATA_GENERATION,
    PARTITION,
    PRODUCER_ID,
    TOPIC,
    Client,
    Request,
    Stage,
    batch_of,
)


def usual_play(stage: Stage | None = None, bursts: int = 3) -> Play:
    """A producer of which all is known."""
    play = Play(stage or Stage(answers_later=True))
    for _ in range(bursts):
        play.burst(Burst(pause_seconds=0.02))
    play.stage.events.clear()
    return play


def reasons(stage: Stage) -> list[str]:
    """Why groups were prepared by flows."""
    return [event.reason for event in stage.events if isinstance(event, GroupPrepared)]


# ---------------------------------------------------------------------- the usual
def test_usual_batches_are_appended_without_a_flow() -> None:
    """But for the first, which begins the state."""
    play = Play(Stage(answers_later=True))
    for burst in [*[Burst()] * 3, Burst((1, 2, 1)), Burst(codec=Codec.GZIP), Burst((5,) * 9)]:
        play.burst(burst)
    assert len(play.stage.sent) == 3 + 2 + 1 + 3
    assert reasons(play.stage) == ["not_known"]


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "python"])
@pytest.mark.parametrize("codec", list(Codec)[:4])
def test_with_each_codec_they_are(codec: Codec, kernel: bool) -> None:
    with with_kernel(current() if kernel else None):
        play = usual_play()
        play.burst(Burst((3, 1, 1, 1, 1, 1, 1), codec))
        assert reasons(play.stage) == []
        assert {request.code for request in play.requests} == {0}
        judge([Burst((1,), codec), Burst((3, 1, 1, 1, 1, 1, 1), codec)])


EXTRA: tuple[dict[str, Any], ...] = ({}, {"comes_again": True}, {"newer_epoch": True}, {"records": (1, 1, 2)})


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("at", ["Swap", "Append"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_whatever_becomes_of_it_each_record_is_stored_once(outcome: str, at: str, meanwhile: str) -> None:
    for extra in EXTRA:
        judge([Burst(outcomes=(outcome,), meanwhile=(at, meanwhile), **extra), Burst()])


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
def test_of_any_bursts_each_record_is_stored_once(bursts: list[Burst]) -> None:
    judge(bursts)


def test_a_batch_that_comes_while_a_commit_is_written_waits_for_that() -> None:
    """Two swaps of one entry at once: one of them would fail."""
    play = usual_play()
    stage = play.stage
    sent = len(stage.sent)
    swaps: list[int] = []

    def next_batch(_swap: object) -> None:
        stage.before[Swap] = lambda _swap: swaps.append(len(stage.sent))
        play.burst(Burst(pause_seconds=0.0))
        swaps.append(-1)

    stage.before[Swap] = next_batch
    stage.run(1.0)
    assert swaps[0] == -1, "two swaps of one entry at once"
    assert len(stage.sent) == sent + 1
    assert stage.stored_values() == [b"value %d of 0" % number for number in range(4)]


@pytest.mark.parametrize("offset", [1, 9])
def test_the_later_of_two_bounds_is_taken(offset: int) -> None:
    play = usual_play()
    known = Position(offset, b"recorded")
    play.stage.context.bounds.known[TOPIC, PARTITION] = (play.stage.now, known)
    play.burst(Burst())
    intent = [entry.intent for entry in play.stage.swapped if entry.intent is not None][-1]
    assert intent.lower_bound == max(offset, 3)


# ---------------------------------------------------------------------- the unusual
def unrecoverable(play: Play) -> None:
    """The store has the intent of another batch, of which nobody can tell whether it is in the log."""
    entry = play.stage.stream.held.entry
    assert entry is not None
    intent = Intent(NOBODY, entry.producer_epoch, (), 0, bytes(8), bytes(8), 1, kind=IntentKind.UNRECOVERABLE)
    play.stage.stream.held.hold(replace(entry, version=entry.version + 1, intent=intent))


def held(**changes: Any) -> Callable[[Play], None]:
    """The entry is another one."""

    def change(play: Play) -> None:
        entry = play.stage.stream.held.entry
        assert entry is not None
        play.stage.stream.held.hold(replace(entry, version=99, **changes))

    return change


def leader_goes(play: Play) -> None:
    stage = play.stage
    stage.outside.leader.takes_batches = False
    stage.later(0.01, lambda: setattr(stage.outside.leader, "takes_batches", True))
    stage.context.is_reachable = lambda _broker_id: stage.outside.leader.takes_batches


def starts_elsewhere(play: Play) -> None:
    play.clients = [Client("somebody"), Client()]


def next_epoch(play: Play) -> None:
    play.epoch, play.sequence = 1, 0


def epoch_in_its_middle(play: Play) -> None:
    play.epoch = 1


def skips_one(play: Play) -> None:
    play.sequence += 1


def goes_by_itself(play: Play) -> None:
    play.clients[0].route = cast(Route, object())


def another_lease_epoch(play: Play) -> None:
    play.stage.context.instance.lease_epoch += 1


def owned(play: Play) -> AppendReservation:
    """It appends under a reservation from here on."""
    stage = play.stage
    stage.context.takes_append_reservations = True
    for _ in range(3):
        play.burst(Burst(pause_seconds=0.01))
    stage.events.clear()
    assert stage.stream.held.append_reservation is not None
    return stage.stream.held.append_reservation


def owned_too_much(play: Play) -> None:
    owned(play).unwritten_bytes = APPEND_RESERVATION_BYTES_MAX


def loses_writes(play: Play) -> None:
    stage = play.stage
    stage.run(1.0)
    stage.stream.held.lost = stage.stream.held.entry


SCENES: dict[Unusual, Callable[[Play], Any]] = {
    Unusual.LEASE_EPOCH: another_lease_epoch,
    Unusual.OPEN_OR_UNRECOVERABLE: unrecoverable,
    Unusual.REBUILT: held(is_rebuilt=True),
    Unusual.NO_WINDOW: held(window=()),
    Unusual.DATA_GENERATION: lambda play: setattr(play.stage.context.instance, "data_generation", NEXT_DATA_GENERATION),
    Unusual.WRITES_LOST: loses_writes,
    Unusual.PRINCIPAL: starts_elsewhere,
    Unusual.EXPIRED: lambda play: play.stage.run(25 * HOUR_SECONDS),
    Unusual.SEQUENCE: skips_one,
    Unusual.EPOCH: epoch_in_its_middle,
    Unusual.BOUND: lambda play: play.stage.context.bounds.drop(TOPIC, PARTITION),
    Unusual.NO_ANCHOR: lambda play: play.stage.context.bounds.known.update(
        {(TOPIC, PARTITION): (play.stage.now, Position(1, NO_ANCHOR))}
    ),
    Unusual.INTENT_WATCHED: lambda play: play.stage.stream.watch_intent(play.stage.now + HOUR_SECONDS),
    Unusual.OWN_CONNECTION: goes_by_itself,
    Unusual.DRAINING: lambda play: setattr(play.stage.context.instance, "is_draining", True),
    Unusual.NO_BATCH_MARKERS: lambda play: play.stage.context.topics.note_batch_marker_lost(TOPIC, PARTITION),
    Unusual.SIZE_REFUSED: lambda play: play.stage.context.topics.note_too_large(TOPIC, 10_000),
    Unusual.BROKER_CODEC: lambda play: play.stage.context.topics.wrapper_codecs.update({TOPIC: Codec.GZIP}),
    Unusual.NOT_PROBED: lambda play: play.stage.context.batch_marker_probe.probed.clear(),
    Unusual.MEMORY: lambda play: play.stage.context.memory.hold_bytes(1 << 40),
    Unusual.PASS_LONG: lambda play: setattr(play.stage.context, "is_pass_long", lambda: True),
    Unusual.LEADER: leader_goes,
    Unusual.APPEND_RESERVATION: owned_too_much,
}
"""How each of them comes about."""
REFUSED = {
    Unusual.LEASE_EPOCH,
    Unusual.OPEN_OR_UNRECOVERABLE,
    Unusual.DATA_GENERATION,
    Unusual.WRITES_LOST,
    Unusual.PRINCIPAL,
    Unusual.SEQUENCE,
    Unusual.EPOCH,
}
"""The flow has something else to do first, or refuses the batch."""


def why_not(play: Play, batch: Batch) -> Unusual | None:
    """What the table says of a batch."""
    usual = play.stage.sequencer._usual
    return usual._why_not(batch, play.stage.stream.held.packed, usual._leader())


def asked(unusual: Unusual) -> object:
    """What the table says of the next batch in this scene."""
    play = usual_play()
    SCENES[unusual](play)
    return why_not(play, next_of(play))


def next_of(play: Play, values: tuple[bytes, ...] = (b"next",)) -> Batch:
    """The next batch, which is not sent."""
    records = batch_of(values, play.sequence, play.epoch)
    identity = BatchIdentity(play.epoch, play.sequence, len(values))
    request = Request(play.clients[0], identity)
    header, principal = parse_single_batch(records), play.clients[0].principal
    return Batch(identity, records, header, 30_000, play.stage.now, [request], principal)


@pytest.mark.parametrize("unusual", SCENES, ids=lambda one: one.label)
def test_what_is_not_usual_is_prepared_by_a_flow_which_says_why(unusual: Unusual) -> None:
    assert asked(unusual) is unusual
    play = usual_play()
    SCENES[unusual](play)
    play.burst(Burst(pause_seconds=5.0))
    if unusual not in REFUSED:
        assert reasons(play.stage)[:1] == [unusual.label]
    assert not play.stage.failures()


def test_what_does_not_name_its_producer_is_not_appended_under_an_append_reservation() -> None:
    """It was taken for wrappers, and the topic is stored in another format since. The entry could not be rebuilt."""
    play = usual_play()
    stage = play.stage
    owned(play)
    stage.store_v2()
    intents: list[Intent | None] = []

    def looks(effect: Append) -> Outcome:
        intents.append(stage.entry().intent)
        return stage.succeeds(effect)

    stage.outcomes.append(looks)
    play.burst(Burst(pause_seconds=0.01))
    (intent,) = intents
    assert intent is not None
    assert [batch.base_sequence for batch in intent.batches] == [play.sequence - 1]
    assert reasons(stage) == ["append_reservation"]
    assert {request.code for request in play.requests} == {0}


def test_nothing_else_is_unusual() -> None:
    play = usual_play()
    assert why_not(play, next_of(play)) is None
    others = {
        Unusual.FLOW_AT_WORK,
        Unusual.CONDITIONAL,
        Unusual.NAMED,
        Unusual.NOT_KNOWN,
        Unusual.PART,
        Unusual.WITHOUT_ID,
        Unusual.TRACED,
        Unusual.LARGE,
    }
    assert others | SCENES.keys() == set(Unusual), "these have tests of their own"


def test_before_a_batch_goes_without_its_id_redis_has_that() -> None:
    play = usual_play()
    play.stage.context.left_out_ids.begin(600)
    usual = play.stage.sequencer._usual
    assert usual.prepare(next_of(play)) is None
    assert usual.why is Unusual.WITHOUT_ID
    play.stage.context.left_out_ids.end()
    assert usual.prepare(next_of(play)) is not None


def test_an_old_bound_is_as_good_as_none() -> None:
    play = usual_play()
    play.stage.run(BOUND_AGE_SECONDS + 0.5)
    assert why_not(play, next_of(play)) is Unusual.BOUND


def test_nor_is_the_end_of_the_last_commit_a_bound_without_its_anchor() -> None:
    play = usual_play()
    held(anchor=NO_ANCHOR)(play)
    assert why_not(play, next_of(play)) is Unusual.NO_ANCHOR


def test_a_batch_without_the_principal_of_its_id_is_not_usual() -> None:
    play = usual_play()
    play.stage.stream.held.issued_to = b"somebody"
    assert why_not(play, next_of(play)) is Unusual.PRINCIPAL


def test_what_is_left_of_a_batch_is_prepared_by_a_flow() -> None:
    play = usual_play()
    batch = next_of(play, (b"stored", b"left"))
    batch.note_stored(1, 3)
    assert why_not(play, batch) is Unusual.PART


def test_a_batch_whose_span_is_wanted_is_prepared_by_a_flow() -> None:
    play = usual_play()
    play.burst(Burst(is_traced=False))
    play.burst(Burst(is_traced=True))
    assert reasons(play.stage) == ["traced"]


def test_a_batch_that_takes_several_steps_is_prepared_by_a_flow() -> None:
    play = usual_play()
    large = play.stage.send(play.clients[0], play.sequence, b"x" * 3_000_000, codec=Codec.GZIP)
    play.stage.run(1.0)
    assert (large.code, reasons(play.stage)) == (0, ["large"])


def test_a_batch_that_comes_while_a_flow_works_is_taken_with_it() -> None:
    play = usual_play()
    stage = play.stage
    later: list[Request] = []

    def comes(_swap: object) -> None:
        del stage.before[Swap]
        later.append(stage.send(play.clients[0], play.sequence))

    stage.before[Swap] = comes  # of the commit that is written alone
    stage.run(1.0)
    assert ([one.code for one in later], reasons(stage)) == ([0], ["flow_at_work"])


def test_a_producer_of_which_nothing_is_known_is_not_usual() -> None:
    play = Play(Stage())
    assert why_not(play, next_of(play)) is Unusual.NOT_KNOWN


def test_a_producer_with_a_name_is_not_usual() -> None:
    play = usual_play()
    held = play.stage.stream.held
    held.name = NameGuard(play.stage.context.instance, PRODUCER_ID)
    assert why_not(play, next_of(play)) is Unusual.NAMED


def test_a_conditional_batch_is_prepared_by_a_flow() -> None:
    stage = Stage(producer_id=CONDITIONAL_ID)
    client = Client()
    for offset in range(3):
        stage.send(client, offset)
        stage.run(20.0)
    assert (set(reasons(stage)), len(stage.sent)) == ({"conditional"}, 3)


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
def test_appends_that_end_at_once_continue_one_after_the_other(
    end: Callable[[Stage, Append], Outcome], codes: list[int], stored: list[bytes]
) -> None:
    """A broker that goes away refuses thousands in one step. Until its turn a group is out: nothing else of its
    producer is sent, nobody is answered, and what comes meanwhile comes after it."""
    play = usual_play()
    stage = play.stage
    line = Line()
    stage.outside.in_turn = lambda go_on: line.waiting.append(go_on)  # type: ignore[method-assign]
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


def test_what_waits_for_its_turn_is_not_idle_though_its_append_reservation_is_lost() -> None:
    """It would be dropped, and in the turn that comes then it would work in parallel to its successor."""
    stage, line = Stage(answers_later=True, owns=True), Line()
    play = Play(stage)
    for _ in range(5):
        play.burst(Burst(pause_seconds=0.01))
    held = stage.stream.held
    assert held.append_reservation
    stage.outside.in_turn = lambda go_on: line.waiting.append(go_on)  # type: ignore[method-assign]
    requests = [stage.send(play.clients[0], play.sequence + number) for number in range(2)]
    stored = stage.entry()
    stage.put(replace(stored, version=stored.version + 50, intent=None))  # by somebody else
    stage.run(0.2)
    assert (held.append_reservation is None, len(stage.stream.queue), len(line.waiting)) == (True, 1, 1)
    assert not stage.sequencer.is_idle
    line.go_on()
    del stage.outside.in_turn
    stage.run(HOUR_SECONDS)
    assert (all(one.is_done for one in requests), stage.sequencer.is_idle) == (True, True)


def test_in_a_new_lease_epoch_a_flow_reads_first_what_is_stored() -> None:
    play = usual_play()
    reads: list[object] = []
    play.stage.before[Read] = reads.append
    play.stage.context.instance.lease_epoch += 1
    play.burst(Burst())
    assert len(reads) == 1


def test_an_intent_that_is_watched_is_looked_at_by_a_flow_first() -> None:
    play = usual_play()
    play.stage.stream.watch_intent(play.stage.now + HOUR_SECONDS)
    seen: list[bool] = []
    play.stage.before[Swap] = lambda _swap: seen.append(play.stage.stream.watches_intent)
    play.stage.send(play.clients[0], play.sequence)
    assert seen[0] is False


# ---------------------------------------------------------------------- those who watch
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_journal_gets_the_outcome_of_each_append(outcome: str) -> None:
    stage = Stage(answers_later=True)
    stage.context.observers.wants_outcomes = True
    play = Play(stage)
    for burst in (Burst(), Burst(), Burst((1, 2), outcomes=(outcome,)), Burst()):
        play.burst(burst)
    stage.run(HOUR_SECONDS)
    sent = [event.identities for event in stage.events if isinstance(event, AppendSent)]
    ended = [
        event.identities for event in stage.events if isinstance(event, AppendEnded) and event.outcome != "not_sent"
    ]
    assert sent == ended


def test_what_is_counted_without_events_is_the_same_as_with_them() -> None:
    counted = []
    for has_counts in (False, True):
        stage, metrics = Stage(answers_later=True), Metrics()
        takers = metrics.takers()
        if has_counts:
            stage.context.observers.counts = metrics
        measured: list[float] = []
        stage.context.observers.measure = lambda arrived_at, _produce_connection, measured=measured: measured.append(
            arrived_at
        )
        play = Play(stage)
        for burst in (Burst(), Burst(), Burst((1, 2, 1)), Burst((1, 1), outcomes=("answer lost",)), Burst()):
            play.burst(burst)
        stage.run(HOUR_SECONDS)
        for event in stage.events:
            if type(event) in takers:
                takers[type(event)](event)
        counted.append((dict(metrics.verdicts), metrics.appends_sent, metrics.unknown_outcomes_resolved, measured))
    assert counted[0] == counted[1]


def test_a_span_learns_where_its_batch_was_sent_though_sends_are_counted_without_events() -> None:
    play = usual_play()
    observers, metrics = play.stage.context.observers, Metrics()
    observers.counts, observers.step_begins = metrics, lambda: play.stage.now
    play.burst(Burst(is_traced=False))
    play.burst(Burst(is_traced=True))
    sent = [event for event in play.stage.events if isinstance(event, AppendSent)]
    assert (metrics.appends_sent, len(sent)) == (1, 1)


# ---------------------------------------------------------------------- errors of the proxy's own
@pytest.mark.parametrize("outcome", ["appended", "answer lost", "refused, code 6"])
@pytest.mark.parametrize("is_traced", [None, True])
@pytest.mark.parametrize("at", [AppendEnded, BatchAnswered, "reserve", "append"])
def test_internal_errors_in_appends_leave_clients_answered_and_the_producer_working(
    at: object, is_traced: bool | None, outcome: str
) -> None:
    """It must not reach the connection to the broker either, on which the groups of others are answered."""
    play = usual_play()
    stage = play.stage
    observers, broken = stage.context.observers, ValueError("an error of the proxy's own")
    observers.wants_outcomes, observers.step_begins = True, lambda: stage.now
    failed: list[object] = []

    def report(event: object) -> None:
        if not failed and (type(event) is at or (isinstance(event, StepDone) and event.step == at)):
            failed.append(event)
            raise broken
        stage.events.append(event)

    observers.report = report
    play.burst(Burst(is_traced=is_traced, outcomes=(outcome,)))
    stage.run(HOUR_SECONDS)
    broken.with_traceback(None)  # it holds what was out
    observers.report, values = stage.events.append, len(play.requests)
    assert all(request.is_done for request in play.requests)
    again = stage.send(Client(), values - 1, play.values[-1][0])
    stage.run(HOUR_SECONDS)
    assert (again.code, stage.sequencer.is_idle, stage.context.memory.bytes_held) == (0, True, 0)
    assert stage.stored_values() == [b"value %d of 0" % number for number in range(values)]
    assert stage.failures() == [broken] * len(failed)
