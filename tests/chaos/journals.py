"""The proxies' journals of a run, in memory: what each sent, what a broker acknowledged, what was found in the log."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.header_marker import header_marker_of

from .oracle import Place

Producer = tuple[int, int]
"""Producer id and epoch."""


class Sent(NamedTuple):
    """An append that was about to leave a proxy: the line is written in the step of the send, before the bytes."""

    time_ms: int
    proxy: str
    broker_id: int
    base_sequence: int
    record_count: int


class Acknowledged(NamedTuple):
    """Offsets that a broker said are stored, or that were found in the log when that was in doubt (broker_id -1)."""

    base_offset: int
    record_count: int
    producer_id: int
    time_ms: int
    broker_id: int


class Resolved(NamedTuple):
    """The end of an unknown outcome."""

    time_ms: int
    proxy: str
    base_sequence: int
    result: str


class Journals:
    """``counts``: events by name, outcomes by name, unknown outcomes by result, answers by verdict."""

    def __init__(self, files: Mapping[str, Sequence[Path]]) -> None:
        """``files``: those of each proxy; of one with workers, each worker's."""
        self.counts: Counter[str] = Counter()
        self.said: list[str] = []
        """Warnings and errors, in the order of each file."""
        self._sent: dict[tuple[Place, Producer], list[Sent]] = defaultdict(list)
        self._acknowledged: dict[Place, list[Acknowledged]] = defaultdict(list)
        self._resolved: dict[tuple[Place, int], list[Resolved]] = defaultdict(list)
        self._batches: dict[tuple[Place, Producer, int], tuple[int, int]] = {}
        """Of each batch that was sent: the first sequence of its group, and its size."""
        self._answers: list[tuple[int, Place, Producer, int, int]] = []
        for proxy, paths in files.items():
            for path in paths:
                with path.open("rb") as lines:
                    self._take(proxy, lines)
        self._add_what_was_found()

    def sends(self, place: Place, producer: Producer, sequence: int) -> list[Sent]:
        """Every append that a record was part of and that was not refused, oldest first."""
        found = [
            one
            for one in self._sent.get((place, producer), ())
            if one.base_sequence <= sequence < one.base_sequence + one.record_count
        ]
        return sorted(found)

    def by_marker(self) -> dict[int, Identity]:
        """Every batch that was sent, by the marker that it has in message format v2."""
        sent = ((producer, one) for (_, producer), found in self._sent.items() for one in found)
        names = {Identity(*producer, one.base_sequence, one.record_count) for producer, one in sent}
        return {header_marker_of(name): name for name in names}

    def appended_before(self, place: Place, offset: int) -> int | None:
        """A time when a record was in the log for certain: a broker had acknowledged it, or one after it."""
        known = self._acknowledged.get(place, ())
        return min((one.time_ms for one in known if one.base_offset + one.record_count > offset), default=None)

    def acknowledgement(self, place: Place, offset: int, producer_ids: set[int]) -> Acknowledged | None:
        """Proof that one of these producers' records was stored at an offset; None: there is none."""
        for one in self._acknowledged.get(place, ()):
            if one.producer_id in producer_ids and one.base_offset <= offset < one.base_offset + one.record_count:
                return one
        return None

    def resolutions(self, place: Place, producer_id: int, base_sequence: int) -> list[Resolved]:
        """Every unknown outcome about a batch that came to an end, oldest first."""
        found = self._resolved.get((place, producer_id), ())
        return sorted(one for one in found if one.base_sequence == base_sequence)

    def _take(self, proxy: str, lines: Iterable[bytes]) -> None:
        for line in lines:
            if not line.endswith(b"\n"):
                continue  # cut off by a SIGKILL
            event = json.loads(line)
            self.counts[event["event"]] += 1
            handler = _HANDLERS.get(event["event"])
            if handler is not None:
                handler(self, proxy, event)

    def _take_sent(self, proxy: str, event: dict[str, Any]) -> None:
        place = event["topic"], event["partition"]
        firsts: dict[int, int] = {}
        for producer_id, epoch, base_sequence, count in event["identities"]:
            first = firsts.setdefault(producer_id, base_sequence)
            one = Sent(event["time_ms"], proxy, event["broker_id"], base_sequence, count)
            self._sent[place, (producer_id, epoch)].append(one)
            self._batches[place, (producer_id, epoch), base_sequence] = first, count

    def _take_outcome(self, proxy: str, event: dict[str, Any]) -> None:
        self.counts["outcome " + event["outcome"]] += 1
        if event["outcome"] in ("refused", "not_sent"):
            self._forget_sends(proxy, event)
        if event["outcome"] != "appended":
            return
        offset = event["base_offset"]
        for producer_id, _epoch, _sequence, count in event["identities"]:
            self._acknowledged[event["topic"], event["partition"]].append(
                Acknowledged(offset, count, producer_id, event["time_ms"], event["broker_id"])
            )
            offset += count

    def _forget_sends(self, proxy: str, event: dict[str, Any]) -> None:
        """What a broker refused is no copy."""
        for producer_id, epoch, base_sequence, count in event["identities"]:
            known = self._sent[(event["topic"], event["partition"]), (producer_id, epoch)]
            for at in reversed(range(len(known))):
                if known[at][1:] == (proxy, known[at].broker_id, base_sequence, count):
                    del known[at]
                    break

    def _take_answer(self, proxy: str, event: dict[str, Any]) -> None:
        verdict = event["verdict"]
        self.counts["answer " + verdict] += 1
        if verdict in ("appended", "duplicate") and event["base_offset"] >= 0:
            place, producer = (event["topic"], event["partition"]), (event["producer_id"], event["producer_epoch"])
            self._answers.append((event["time_ms"], place, producer, event["base_sequence"], event["base_offset"]))

    def _add_what_was_found(self) -> None:
        """Where the broker's own answer was lost: a batch whose group was found in the log before it was answered."""
        for time_ms, place, producer, base_sequence, base_offset in self._answers:
            first, count = self._batches.get((place, producer, base_sequence), (base_sequence, 1))
            if any(
                one.result in ("found", "prefix") and one.time_ms <= time_ms
                for one in self.resolutions(place, producer[0], first)
            ):
                self._acknowledged[place].append(Acknowledged(base_offset, count, producer[0], time_ms, -1))
        self._answers.clear()

    def _take_resolved(self, proxy: str, event: dict[str, Any]) -> None:
        self.counts["resolved " + event["result"]] += 1
        self._resolved[(event["topic"], event["partition"]), event["producer_id"]].append(
            Resolved(event["time_ms"], proxy, event["base_sequence"], event["result"])
        )

    def _take_said(self, proxy: str, event: dict[str, Any]) -> None:
        if event["level"] != "info":
            self.said.append(f"{proxy}: {event['what']}")


_HANDLERS = {
    "sent": Journals._take_sent,
    "outcome": Journals._take_outcome,
    "answered": Journals._take_answer,
    "resolved": Journals._take_resolved,
    "message": Journals._take_said,
}
