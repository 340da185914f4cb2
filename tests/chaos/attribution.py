"""What each anomaly is due to: one of the causes that guarantees.md names, with the evidence for it, or nothing,
and then it is a violation. Pure. A cause is never taken from the time of a fault alone where the log can tell more."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from .faults import Fault
from .journals import Journals, Producer, Sent
from .oracle import Copy, Findings, Inversion, Loss, Place
from .stored import PartitionLog, Wrapper
from .truncations import Truncations

SETTLE_MS = 1_000
"""For so long a broker has passed the quiescence check before the log is searched: what it held for longer is beyond
the promise."""
PAUSE_TOLERANCE_MS = 100
"""A proxy was stopped so shortly after the line of a send that the bytes may not have left before it."""
_EXAMPLES_MAX = 5


class Cause(StrEnum):
    """The words of the report."""

    BROKER_LOST = "the broker lost what it had acknowledged"
    PROXY_PAUSED = "a proxy was stopped between its last look and the write"
    BROKER_STALLED = "a broker held a request for longer than the settle time"
    SILENT_CLIENT = "a client that was not known to be gone"
    NO_PROXY = "there is no proxy"
    UNEXPLAINED = "UNEXPLAINED"


@dataclass(slots=True)
class Tally:
    """Records by cause, with some examples of the evidence."""

    records: Counter[Cause] = field(default_factory=Counter)
    examples: dict[Cause, list[str]] = field(default_factory=lambda: defaultdict(list))

    def note(self, cause: Cause, evidence: str) -> None:
        """One record."""
        self.records[cause] += 1
        if len(self.examples[cause]) < _EXAMPLES_MAX:
            self.examples[cause].append(evidence)


@dataclass(slots=True)
class Attribution:
    """Every anomaly of a run, by kind and cause."""

    duplicates: Tally = field(default_factory=Tally)
    losses: Tally = field(default_factory=Tally)
    reorders: Tally = field(default_factory=Tally)

    @property
    def unexplained(self) -> int:
        """Records that are a violation."""
        return sum(one.records[Cause.UNEXPLAINED] for one in (self.duplicates, self.losses, self.reorders))


class Judge:
    """Knows the stored wrappers, the journals, the faults and the truncations of one run."""

    def __init__(
        self,
        logs: Mapping[Place, PartitionLog],
        journals: Journals,
        faults: Sequence[Fault],
        truncations: Truncations,
        *,
        with_proxies: bool,
    ) -> None:
        self._logs = logs
        self._journals = journals
        self._faults = faults
        self._truncations = truncations
        self._with_proxies = with_proxies

    def attribute(self, findings: Findings, producer_ids: Mapping[str, set[int]]) -> Attribution:
        """``producer_ids``: those that each producer had, by its name."""
        result = Attribution()
        for copy in findings.copies:
            result.duplicates.note(*self._copy(copy))
        for loss in findings.losses:
            result.losses.note(*self._loss(loss, producer_ids.get(loss.name, set())))
        for inversion in findings.inversions:
            result.reorders.note(*self._inversion(inversion))
        return result

    # ------------------------------------------------------------------ duplicates
    def _copy(self, copy: Copy) -> tuple[Cause, str]:
        what = f"{copy.name} {_shown(copy.place)} number {copy.number} at {list(copy.offsets)}"
        if not self._with_proxies:
            return Cause.NO_PROXY, what
        wrappers = [self._logs[copy.place].wrapper_at(offset) for offset in copy.offsets]
        whose = [identity_at(one, offset) for one, offset in zip(wrappers, copy.offsets, strict=True)]
        known = [one for one in whose if one is not None]
        if len(known) < len(whose):
            return Cause.UNEXPLAINED, f"{what}: a copy without a batch marker"
        if len(set(known)) > 1:
            return self._sent_again(copy, known, what)
        producer, sequence = known[0]
        sends = self._journals.sends(copy.place, producer, sequence)
        what += f", producer {producer[0]} epoch {producer[1]} sequence {sequence}"
        if len(sends) < 2:
            return Cause.UNEXPLAINED, f"{what}: sent {len(sends)} times"
        return self._sent_twice(copy, sends, wrappers, what)

    def _sent_twice(
        self, copy: Copy, sends: Sequence[Sent], wrappers: Sequence[Wrapper], what: str
    ) -> tuple[Cause, str]:
        """The same batch went to a broker more than once. Before the last time the log was searched, and not before the
        time of the quiescence check was over: what was there already, has been overlooked."""
        what += "; sent " + ", ".join(f"{one.time_ms} by {one.proxy} to broker {one.broker_id}" for one in sends)
        before, last = sends[-2:]
        looked_ms = before.time_ms + SETTLE_MS
        times = [one.append_ms for one in wrappers if one.append_ms is not None]
        by_broker = len(times) == len(wrappers)
        appended_ms = min(times) if by_broker else self._journals.appended_before(copy.place, copy.offsets[0])
        if appended_ms is not None:
            what += f"; the first copy was appended {'at' if by_broker else 'before'} {appended_ms}"
            if appended_ms <= looked_ms:
                return Cause.UNEXPLAINED, what
        for fault in self._faults:
            if fault.kind != "stop":
                continue
            told = f"{what}; {fault.target} was stopped from {fault.began_ms} to {fault.ended_ms}"
            if fault.target == before.proxy and -5 <= fault.began_ms - before.time_ms <= PAUSE_TOLERANCE_MS:
                return Cause.PROXY_PAUSED, told
            resumed_between = before.time_ms <= fault.ended_ms <= last.time_ms
            if fault.target == f"broker {before.broker_id}" and resumed_between and not by_broker:
                return Cause.BROKER_STALLED, told
        return Cause.BROKER_STALLED if by_broker else Cause.UNEXPLAINED, what

    def _sent_again(self, copy: Copy, known: Sequence[tuple[Producer, int]], what: str) -> tuple[Cause, str]:
        """The client sent the records again under another epoch or producer id."""
        what += "; under " + ", ".join(f"producer {one[0][0]} epoch {one[0][1]} sequence {one[1]}" for one in known)
        for producer, sequence in known[:-1]:
            for sent in self._journals.sends(copy.place, producer, sequence):
                for fault in self._faults:
                    silent = fault.kind in ("half_open", "hold") and fault.target == "client-proxy"
                    silent |= fault.kind == "steer" and fault.target == sent.proxy
                    stopped = fault.kind == "stop" and fault.target == sent.proxy
                    if (silent or stopped) and fault.began_ms <= sent.time_ms <= fault.ended_ms + SETTLE_MS:
                        return Cause.SILENT_CLIENT, f"{what}; {fault.kind} of {fault.target} from {fault.began_ms}"
        return Cause.UNEXPLAINED, what

    # ------------------------------------------------------------------ losses and reorders
    def _loss(self, loss: Loss, producer_ids: set[int]) -> tuple[Cause, str]:
        what = f"{loss.name} {_shown(loss.place)} number {loss.number} told at offset {loss.told_offset}"
        if not self._with_proxies:
            return Cause.NO_PROXY, what
        proof = self._journals.acknowledgement(loss.place, loss.told_offset, producer_ids)
        if proof is None or proof.time_ms > loss.told_ms + SETTLE_MS:
            return Cause.UNEXPLAINED, f"{what}: no broker has acknowledged it"
        how = "found in the log" if proof.broker_id < 0 else f"acknowledged by broker {proof.broker_id}"
        what += f": {how} at {proof.time_ms}"
        cut = self._truncations.below(loss.place, loss.told_offset, proof.time_ms - SETTLE_MS)
        if cut is None:
            return Cause.UNEXPLAINED, f"{what}, and no broker has cut it off"
        return Cause.BROKER_LOST, f"{what}; cut off by broker {cut.broker_id} at {cut.time_ms}, to offset {cut.offset}"

    def _inversion(self, inversion: Inversion) -> tuple[Cause, str]:
        what = f"{inversion.name} {_shown(inversion.place)} number {inversion.number} at {inversion.offset}"
        what += f" stands behind number {inversion.later_number}"
        return (Cause.UNEXPLAINED if self._with_proxies else Cause.NO_PROXY), what


def identity_at(wrapper: Wrapper, offset: int) -> tuple[Producer, int] | None:
    """Return whose record stands at an offset, and its sequence, by the batch marker; None where there is none."""
    ahead = offset - wrapper.first_offset
    for one in wrapper.identities:
        if ahead < one.record_count:
            return (one.producer_id, one.producer_epoch), one.base_sequence + ahead
        ahead -= one.record_count
    return None


def producers_in(logs: Iterable[PartitionLog]) -> set[Producer]:
    """Return every producer id with its epoch that is named in the log."""
    return {
        (one.producer_id, one.producer_epoch) for log in logs for wrapper in log.wrappers for one in wrapper.identities
    }


def _shown(place: Place) -> str:
    return f"{place[0]}-{place[1]}"
