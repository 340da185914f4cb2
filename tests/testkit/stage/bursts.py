"""Scenes of one producer, burst by burst, with what may become of each append and what may happen meanwhile: each
record has to be stored once, in order. Played with a swap for each group and under append reservations, what is left
has to be the same.

Plays and judges; what the scenes are is up to the tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from idemproxy.codecs.compression import Codec
from idemproxy.proxy.events import BatchAnswered
from idemproxy.proxy.flow.effects import Append, Swap
from idemproxy.proxy.flow.observers import Trace
from idemproxy.proxy.flow.outcome import Appended, Outcome
from idemproxy.proxy.producer.batch import Answer
from idemproxy.state.entry import NO_ANCHOR, NO_DIGEST, NO_TIME, Entry, pack, unpack

from .sequencer import KEY, PARTITION, TOPIC, Client, Request, Stage

CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
LATER_MS = 1_700_000_009_000
HOUR_SECONDS = 3_600
PAUSES_SECONDS = (0.0, 0.02, 1.0, 1.0, 12.0, 90.0)


# ---------------------------------------------------------------------- what may become of an append
def appended_with(stage: Stage, code: int, time_ms: int = -1) -> Callable[[Append], Outcome]:
    return lambda effect: Appended(stage.take(effect), code, time_ms, stage.produce_connection)


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
def new_lease_epoch(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.begin_lease_epoch()
    stage.context.instance.grace_until = stage.now


def new_instance(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.begin_lease_epoch(stage.context.instance.data_generation)
    stage.context.instance.grace_until = stage.now


def client_leaves(_stage: Stage, clients: Sequence[Client]) -> None:
    clients[0].is_closed = True


def store_goes(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.store_away = True
    stage.later(0.35, lambda: setattr(stage, "store_away", False))


def another_proxy_writes(stage: Stage, _clients: Sequence[Client]) -> None:
    if KEY in stage.values:
        entry = stage.entry()
        stage.put(replace(entry, version=entry.version + 1))


def topic_keeps_no_batch_markers(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.topics.note_batch_marker_lost(TOPIC, PARTITION)


def topic_takes_less(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.topics.note_too_large(TOPIC, 150)


def is_probed_again(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.batch_marker_probe.probed.discard((TOPIC, PARTITION))


def process_ends(stage: Stage, _clients: Sequence[Client]) -> None:
    stage.context.instance.is_draining = True


MEANWHILE: dict[str, Callable[[Stage, Sequence[Client]], None]] = {
    "nothing": lambda _stage, _clients: None,
    "a new data generation": new_lease_epoch,
    "a new proxy instance": new_instance,
    "the client leaves": client_leaves,
    "the store is away": store_goes,
    "another proxy writes": another_proxy_writes,
    "the topic keeps no batch markers": topic_keeps_no_batch_markers,
    "the topic takes less": topic_takes_less,
    "the partition is probed again": is_probed_again,
    "the process ends": process_ends,
}


_BEGIN_LEASE_EPOCHS = "a new data generation", "a new proxy instance"
_ASKS = "another proxy writes"
"""It changes nothing but the version: an owner is asked so. With a swap for each group it is an unknown writer's, and
the log is read."""


@dataclass(frozen=True)
class Burst:
    """Batches that are sent at once: so many records in each. ``outcomes``: of the appends. ``meanwhile``: what happens
    in the step of the next effect of that kind. ``comes_again``: the client sends the first one once more, over another
    connection. ``newer_epoch``: so does it, under a newer epoch. ``is_traced``: are spans of them wanted? None: of
    none, and nobody asks."""

    records: tuple[int, ...] = (1,)
    codec: Codec = Codec.NONE
    outcomes: tuple[str, ...] = ()
    meanwhile: tuple[str, str] = ("Append", "nothing")
    comes_again: bool = False
    newer_epoch: bool = False
    pause_seconds: float = 1.0
    is_traced: bool | None = None


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
    values: list[list[bytes]] = field(default_factory=list)
    """Of the records in each of these requests."""
    sequence: int = 0
    epoch: int = 0

    def burst(self, burst: Burst) -> None:
        stage = self.stage
        kind = {"Append": Append, "Swap": Swap}[burst.meanwhile[0]]
        stage.outcomes.extend(OUTCOMES[name](stage) for name in burst.outcomes)
        is_traced = burst.is_traced
        traces = None if is_traced is None else lambda _topic: Trace(1, is_traced)
        stage.context.observers.begin_trace = traces
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
        request = self.stage.send(client, sequence, *values, epoch=self.epoch, codec=codec)
        self.requests.append(request)
        self.values.append(values)

    def told(self) -> list[tuple[Answer, list[bytes]]]:
        """The answers that there were, each with the records that it is about."""
        sent = zip(self.requests, self.values, strict=True)
        return [(request.answers[0], values) for request, values in sent if request.answers]

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
            [name for name, _ in stream.acknowledged_by],
            [
                (one.verdict, one.producer_epoch, one.base_sequence)
                for one in stage.events
                if isinstance(one, BatchAnswered)
            ],
            stage.failures(),
            stage.context.memory.bytes_held,
        )


def played(bursts: Sequence[Burst], *, owns: bool = False) -> Left:
    """Play them, after two that make the producer usual."""
    play = Play(Stage(answers_later=True, owns=owns))
    play.burst(Burst())
    play.burst(Burst())
    for burst in bursts:
        play.burst(burst)
    return play.left()


def judge(bursts: Sequence[Burst]) -> None:
    """Play them, and demand what a client may demand: an acknowledged record lies at the acknowledged offset, no record
    is there twice, and those of an epoch are in order."""
    play = Play(Stage(answers_later=True))
    for burst in (Burst(), Burst(), *bursts):
        play.burst(burst)
    left = play.left()
    told = [(one.base_offset, values) for one, values in play.told() if not one.error_code]
    for offset, values in told:
        assert left.log[offset : offset + len(values)] == values
    stored = [value for value in left.log if value is not None]
    assert len(set(stored)) == len(stored), "a record is stored twice"
    names = [re.match(rb"value (\d+) of (\d+)", value) for value in stored]
    order = [(int(name[2]), int(name[1])) for name in names if name is not None]
    assert order == sorted(order), "records are stored in another order than they were sent in"
    assert not left.failures
    assert left.bytes_held == 0


def compare_owned(bursts: Sequence[Burst]) -> int:
    """Play them with a swap for each group and under append reservations: the log and the answers are the same, and so
    is the store once nothing is in flight, but for what counts its writes. Returns how many groups left without a
    swap."""
    each, reservation = played(bursts), played(bursts, owns=True)
    is_rebuilt = any(burst.meanwhile[1] in _BEGIN_LEASE_EPOCHS for burst in bursts)
    assert reservation.answers == each.answers
    assert reservation.log == each.log
    if not any(burst.meanwhile[1] == _ASKS for burst in bursts):
        same_groups = reservation.sent == each.sent  # what waits for the store waits with others
        if _is_still_owned(
            reservation.stored
        ):  # its owner's lease epoch ended before it was given back: the next batch resolves it
            assert is_rebuilt
            return compare_owned([*bursts, Burst()])
        settled = [_settled(one.stored, same_groups, is_rebuilt) for one in (reservation, each)]
        assert settled[0] == settled[1]
    assert sorted(reservation.verdicts) == sorted(each.verdicts)
    assert not reservation.failures
    assert reservation.bytes_held == 0
    return owned_groups(bursts)


def _is_still_owned(stored: bytes | None) -> bool:
    intent = None if stored is None else unpack(stored).intent
    return intent is not None and intent.is_append_reservation


def _settled(stored: bytes | None, same_groups: bool, is_rebuilt: bool) -> Entry | None:
    """What is stored, whatever number its version has; of other groups the last one is another message."""
    if stored is None:
        return None
    entry = replace(unpack(stored), version=0, is_rebuilt=False)
    if is_rebuilt:
        window = tuple(replace(batch, log_append_time_ms=NO_TIME, digest=NO_DIGEST) for batch in entry.window)
        entry = replace(entry, window=window)
    return entry if same_groups else replace(entry, anchor=NO_ANCHOR)


def owned_groups(bursts: Sequence[Burst]) -> int:
    """How many groups left without a swap, when these are played under append reservations."""
    play = Play(Stage(answers_later=True, owns=True))
    groups = 0

    def count(_effect: object) -> None:
        nonlocal groups
        append_reservation = play.stage.stream.held.append_reservation
        groups += append_reservation is not None and append_reservation.is_confirmed

    for burst in (Burst(), Burst(), *bursts):
        play.stage.on_append = count
        play.burst(burst)
    return groups
