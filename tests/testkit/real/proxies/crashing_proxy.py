"""The shipped proxy that kills itself: SIGKILL at one chosen point of its n-th produce. A program, and its arguments.

``crashing_proxy.py POINT N HOST:PORT HOST:PORT DIR``: upstream, listen, data directory, as of ``idemproxy run``. The
crash is put between a flow and the effect it awaits; the product has no switch for it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn, cast

import trio

from idemproxy.proxy.broker.queued_append import QueuedAppend
from idemproxy.proxy.flow.effects import Effect, Read, Swap
from idemproxy.proxy.flow.outcome import NotSent, Outcome
from idemproxy.proxy.flow.runner import FlowRunner, Resume
from idemproxy.proxy.process.server import Server
from idemproxy.proxy.producer.outside import AppendOutside
from idemproxy.proxy.settings.load import load
from idemproxy.proxy.telemetry.reports import Telemetry
from idemproxy.reactor import Reactor
from idemproxy.state.entry import Intent, unpack
from idemproxy.state.store import Conflict, NameCheck, Swapped

SAYS = "killed by itself: "


class CrashPoint(StrEnum):
    """At which point of a produce the proxy dies."""

    BEFORE_RESERVE = "before_reserve"
    """The intent has not left for Redis."""
    AFTER_RESERVE = "after_reserve"
    """Redis has the intent; nothing has left for the broker."""
    AFTER_WRITE = "after_write"
    """The kernel has the produce request; no answer was read."""
    AFTER_ANSWER = "after_answer"
    """The broker has answered; nothing of it is written, and the client has no answer."""


@dataclass(frozen=True, slots=True)
class Crash:
    """What the proxy says when it dies: the batches that it was working on, by sequence."""

    point: CrashPoint
    nth: int
    base_sequence: int
    record_count: int


def crash_in(log: str) -> Crash:
    """Return the crash that the log of one process ends with."""
    (line,) = (line for line in log.splitlines() if line.startswith(SAYS))
    said = json.loads(line.removeprefix(SAYS))
    return Crash(CrashPoint(said["point"]), said["nth"], said["base_sequence"], said["record_count"])


def is_entry(key: bytes) -> bool:
    """Is it the key of a producer's state on a partition, rather than of a block of ids or of a name?"""
    return b":{" in key and b":name:" not in key


class CrashingRunner(FlowRunner):
    """Hands every effect on to the shipped runner, and ends the process at the chosen point of the n-th produce.

    A produce is a reserve for the first two points and an append for the others; a renewed intent is neither. A reserve
    names batches, or takes an append reservation.
    """

    def __init__(self, shipped: FlowRunner, reactor: Reactor, point: CrashPoint, nth: int) -> None:
        super().__init__({})
        self._shipped = shipped
        self._reactor = reactor
        self._point = point
        self._nth = nth
        self._seen = 0
        self._intents: dict[bytes, Intent | None] = {}

    def perform(self, effect: Effect[Any], resume: Resume) -> None:
        if isinstance(effect, Read):
            self._shipped.perform(effect, lambda value: resume(self._note(effect.key, value)))
        elif isinstance(effect, Swap):
            self.swap(effect, resume, self._shipped.perform)
        else:
            self._shipped.perform(effect, resume)

    # ------------------------------------------------------------------ the reserve
    def _note(self, key: bytes, value: object) -> object:
        """Remember the stored intent: one that is written again with the same batches is no reserve."""
        if is_entry(key) and (value is None or isinstance(value, bytes)):
            self._intents[key] = unpack(value).intent if value else None
        return value

    def swap(self, effect: Swap, resume: Resume, perform: Callable[[Swap, Resume], None]) -> None:
        if not is_entry(effect.key):
            perform(effect, resume)
            return
        entry = unpack(effect.value)
        intent, before = entry.intent, self._intents.get(effect.key)
        is_reserve = intent is not None and (bool(intent.batches) or intent.is_append_reservation)
        if is_reserve and before is not None and intent is not None:
            is_reserve = (before.producer_epoch, before.batches) != (intent.producer_epoch, intent.batches)
        chosen = is_reserve and self.is_chosen(CrashPoint.BEFORE_RESERVE, CrashPoint.AFTER_RESERVE)
        # An append reservation names no batch: what is due next is about to leave under it.
        sequence = intent.batches[0].base_sequence if intent is not None and intent.batches else entry.next_sequence
        records = sum(batch.record_count for batch in intent.batches) if intent is not None else 0
        if chosen and self._point is CrashPoint.BEFORE_RESERVE:
            self.die(sequence, records)

        def swapped(result: object) -> None:
            if isinstance(result, Swapped):
                if chosen:
                    self.die(sequence, records)
                self._intents[effect.key] = intent
            elif isinstance(result, Conflict):
                self._note(effect.key, result.value)
            resume(result)

        perform(effect, swapped)

    # ------------------------------------------------------------------ the append
    def dies_after_write(self, base_sequence: int, record_count: int) -> None:
        """Called in the step of the send; the bytes leave at the end of this pass, before any timer."""
        self._reactor.later(0, lambda: self.die(base_sequence, record_count))

    def was_not_sent(self) -> None:
        """The chosen append did not leave: the next one is chosen."""
        self._seen -= 1

    # ------------------------------------------------------------------ the end
    def is_chosen(self, *points: CrashPoint) -> bool:
        """Is this the produce of which one of these points is the last?"""
        if self._point not in points:
            return False
        self._seen += 1
        return self._seen == self._nth

    def die(self, base_sequence: int, record_count: int) -> NoReturn:
        """Say what it was working on, and end."""
        said = json.dumps(
            {"point": self._point, "nth": self._nth, "base_sequence": base_sequence, "record_count": record_count}
        )
        os.write(sys.stderr.fileno(), f"{SAYS}{said}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL was survived")


class CrashingAppend:
    """The chosen append."""

    def __init__(self, shipped: QueuedAppend, runner: CrashingRunner, point: CrashPoint) -> None:
        self._shipped = shipped
        self._runner = runner
        self._point = point
        self._named = shipped.identities[0].base_sequence, sum(one.record_count for one in shipped.identities)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shipped, name)

    def may_send(self) -> str | None:
        refusal = self._shipped.may_send()
        if refusal is None and self._point is CrashPoint.AFTER_WRITE:
            self._runner.dies_after_write(*self._named)
        return refusal

    def answered(self, *_answer: object) -> None:
        """It may be faster than the timer: the proxy does not learn of it."""
        self._runner.die(*self._named)

    def done(self, outcome: Outcome) -> None:
        if not isinstance(outcome, NotSent):
            self._runner.die(*self._named)
        self._runner.was_not_sent()
        self._shipped.done(outcome)


class CrashingOutside:
    """The same for appends: hands every call on to the shipped engine."""

    def __init__(self, shipped: AppendOutside, runner: CrashingRunner, point: CrashPoint) -> None:
        self._shipped = shipped
        self._runner = runner
        self._point = point

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shipped, name)

    def swap(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        done: Resume,
        name: NameCheck | None = None,
    ) -> None:
        def perform(effect: Swap, resume: Resume) -> None:
            self._shipped.swap(effect.key, effect.expected_version, effect.value, effect.ttl_ms, resume, effect.name)

        self._runner.swap(Swap(key, expected_version, value, ttl_ms, name), done, perform)

    def queue_append(self, broker: Any, append: QueuedAppend) -> None:
        if self._runner.is_chosen(CrashPoint.AFTER_WRITE, CrashPoint.AFTER_ANSWER):
            append = cast(QueuedAppend, CrashingAppend(append, self._runner, self._point))
        self._shipped.queue_append(broker, append)


def main(arguments: Sequence[str]) -> None:
    """Run the shipped server until the crash; SIGTERM drains as ever."""
    point, nth, upstream, listen, data_directory = arguments
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    settings = load(None, {"upstream": upstream, "listen": listen, "data_directory": data_directory})
    server = Server(settings, Telemetry())
    engine = server.engine
    runner = CrashingRunner(engine.runner, engine.reactor, CrashPoint(point), int(nth))
    engine.runner = runner
    engine.context.outside = CrashingOutside(engine.context.outside, runner, CrashPoint(point))
    trio.run(server.run)


if __name__ == "__main__":
    main(sys.argv[1:])
