"""The fast path is no second truth: of whatever happens, it leaves the same in the store, in the log and with the
clients as the flows alone do. And what is not usual does not go that way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs.compression import Codec
from idemproxy.proxy.events import AppendSent, BatchAnswered
from idemproxy.proxy.flow.effects import Append, Read, Swap
from idemproxy.proxy.flow.outcome import Appended, Outcome
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.telemetry.journal import JOURNALED
from idemproxy.proxy.telemetry.metrics import Metrics
from idemproxy.state.entry import NOBODY, Intent, pack
from testkit.real.kernel_build import current
from testkit.stage.kernel_cases import with_kernel
from testkit.stage.sequencer import KEY, NEXT_GENERATION, PARTITION, TOPIC, Client, Request, Stage

CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
LATER_MS = 1_700_000_009_000
HOUR_SECONDS = 3_600


# ---------------------------------------------------------------------- what may become of an append
def appended_with(stage: Stage, code: int, time_ms: int = -1) -> Callable[[Append], Outcome]:
    return lambda effect: Appended(stage.take(effect), code, time_ms, stage.lane)


OUTCOMES: dict[str, Callable[[Stage], Callable[[Append], Outcome]]] = {
    "appended": lambda stage: stage.succeeds,
    "appended at a time of the broker": lambda stage: appended_with(stage, 0, LATER_MS),
    "appended, code 7": lambda stage: appended_with(stage, 7),
    "appended, code 6": lambda stage: appended_with(stage, 6),
    "answer lost": lambda stage: stage.loses_answer,
    "request lost": lambda stage: stage.loses_request,
    "refused, code 2": lambda stage: stage.refuses(2),
    "refused, code 3": lambda stage: stage.refuses(3),
    "refused, code 6": lambda stage: stage.refuses(6),
    "refused, code 10": lambda stage: stage.refuses(10),
    "refused, code 29": lambda stage: stage.refuses(29),
}


# ---------------------------------------------------------------------- what may happen meanwhile
def new_era(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.begin_era()
    stage.context.life.grace_until = stage.now


def new_incarnation(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.begin_era(stage.context.life.generation)
    stage.context.life.grace_until = stage.now


def client_leaves(_stage: Stage, clients: Sequence[Client]) -> None:
    clients[0].is_closed = True


def store_goes(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.store_away = True
    stage.later(0.35, lambda: setattr(stage, "store_away", False))


def another_proxy_writes(stage: Stage, _clients: Sequence[Client]) -> None:
    if KEY in stage.values:
        entry = stage.entry()
        stage.put(replace(entry, version=entry.version + 1))


def topic_keeps_no_markers(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.topics.note_marker_lost(TOPIC, PARTITION)


def topic_takes_less(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.topics.note_too_large(TOPIC, 150)


def is_probed_again(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.marker_probe.probed.discard((TOPIC, PARTITION))


def process_ends(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.life.is_draining = True


MEANWHILE: dict[str, Callable[[Stage, Sequence[Client]], None]] = {
    "nothing": lambda _stage, _clients: None,
    "a new generation": new_era,
    "a new incarnation": new_incarnation,
    "the client leaves": client_leaves,
    "the store is away": store_goes,
    "another proxy writes": another_proxy_writes,
    "the topic keeps no markers": topic_keeps_no_markers,
    "the topic takes less": topic_takes_less,
    "the partition is probed again": is_probed_again,
    "the process ends": process_ends,
}


@dataclass(frozen=True)
class Burst:
    """Batches that are sent at once: so many records in each. ``outcomes``: of the appends. ``meanwhile``: what happens
    in the step of the next effect of that kind. ``comes_again``: the client sends the first one once more, over another
    connection. ``newer_epoch``: so does it, under a newer epoch."""

    records: tuple[int, ...] = (1,)
    codec: Codec = Codec.NONE
    outcomes: tuple[str, ...] = ()
    meanwhile: tuple[str, str] = ("Append", "nothing")
    comes_again: bool = False
    newer_epoch: bool = False
    pause_seconds: float = 1.0


@dataclass
class Left:
    """What is left in the end."""

    answers: list[list[Any]]
    stored: bytes | None
    sent: list[bytes]
    swapped: list[bytes]
    log: list[bytes | None]
    known: object
    acknowledged: list[tuple[int, int]]
    verdicts: list[tuple[str, int, int]]
    failures: list[Exception]
    bytes_held: int


@dataclass
class Play:
    """One producer's bursts, one after the other, on a stage."""

    stage: Stage
    clients: list[Client] = field(default_factory=lambda: [Client(), Client()])
    requests: list[Request] = field(default_factory=list)
    sequence: int = 0
    epoch: int = 0

    def burst(self, burst: Burst) -> None:
        stage = self.stage
        kind = {"Append": Append, "Swap": Swap}[burst.meanwhile[0]]
        stage.outcomes.extend(OUTCOMES[name](stage) for name in burst.outcomes)
        first = self.sequence, burst.records[0]

        def meanwhile(_effect: object) -> None:
            del stage.before[kind]
            MEANWHILE[burst.meanwhile[1]](stage, self.clients)
            if burst.comes_again:
                self._send(*first, burst.codec, self.clients[1])
            if burst.newer_epoch:
                self.epoch, self.sequence = self.epoch + 1, 0
                self._send(0, burst.records[0], burst.codec, self.clients[1])
                self.sequence = burst.records[0]

        stage.before[kind] = meanwhile
        for count in burst.records:
            self._send(self.sequence, count, burst.codec, self.clients[0])
            self.sequence += count
        stage.run(burst.pause_seconds)
        stage.before.pop(kind, None)
        stage.outcomes.clear()
        if self.clients[0].is_closed:
            self.clients = [Client(), Client()]

    def _send(self, sequence: int, count: int, codec: Codec, client: Client) -> None:
        values = [b"value %d of %d" % (sequence + index, self.epoch) * (index + 1) for index in range(count)]
        self.requests.append(self.stage.send(client, sequence, *values, epoch=self.epoch, codec=codec))

    def left(self) -> Left:
        stage, stream = self.stage, self.stage.stream
        stage.run(HOUR_SECONDS)
        sent = [bytes(effect.message_set) for effect in stage.sent]
        stage.sent.clear()  # each of them keeps what sent it
        return Left(
            [request.answers for request in self.requests],
            stage.values.get(KEY),
            sent,
            [pack(entry) for entry in stage.swapped],
            stage.stored_values(),
            {place: position for place, (_, position) in stage.context.bounds.known.items()},
            list(stream.acknowledged_by),
            [
                (one.verdict, one.producer_epoch, one.base_sequence)
                for one in stage.events
                if isinstance(one, BatchAnswered)
            ],
            stage.failures(),
            stage.context.memory.bytes_held,
        )


def played(bursts: Sequence[Burst], *, is_fast: bool) -> tuple[Left, int]:
    """Play them. Also returned: how many groups went the fast path."""
    play = Play(Stage(has_fast_path=is_fast, answers_later=True))
    play.burst(Burst())
    play.burst(Burst())
    for burst in bursts:
        play.burst(burst)
    fast = play.stage.fast_path
    return play.left(), 0 if fast is None else fast.groups


def compare(bursts: Sequence[Burst]) -> int:
    """Play them both ways. Returns how many groups went the fast path."""
    slow, _ = played(bursts, is_fast=False)
    fast, groups = played(bursts, is_fast=True)
    assert fast == slow
    assert not fast.failures
    assert fast.bytes_held == 0
    return groups


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
    pause_seconds=st.sampled_from((0.0, 0.02, 1.0, 1.0, 12.0, 90.0)),
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
        stage.fast_path.leader.is_ready = False
    stage.context.is_reachable = lambda _broker_id: False
    stage.later(0.3, lambda: setattr(stage.context, "is_reachable", lambda _broker_id: True))


UNUSUAL: dict[str, Callable[[Stage], Any]] = {
    "the process ends": lambda stage: setattr(stage.context.life, "is_draining", True),
    "producers are merged": lambda stage: setattr(stage.context.options, "merges_producers", True),
    "spans are wanted": lambda stage: setattr(stage.context.observers, "step_begins", lambda: stage.now),
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
    elif name == "a newer epoch":
        play.epoch, play.sequence = 1, 0
    play.burst(Burst(pause_seconds=0.0))
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
    stage = Stage(has_fast_path=True, answers_later=True)
    play = Play(stage)
    for _ in range(3):
        play.burst(Burst())
    stage.stream.watch_intent(stage.now + HOUR_SECONDS)
    seen: list[bool] = []
    stage.before[Swap] = lambda _swap: seen.append(stage.stream.watches_intent)
    stage.send(play.clients[0], play.sequence)
    assert seen == [False]


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
