"""What the demo found out, as plain data, and the judgement over it. Pure: starts nothing, prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .scene import Step
from .verdict import Verdict


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """What the proxy did in its run, as its log has it, and what crossed the wire."""

    kills: int
    unknown_outcomes_found: int
    unknown_outcomes_in_part: int
    unknown_outcomes_not_found: int
    unknown_outcomes_unrecoverable: int
    duplicates_answered: int
    producer_ids: int
    """Different producer ids in record batches between clients and proxy: without them nothing was idempotent."""
    errors: tuple[str, ...] = ()
    """Lines of the proxy's log at level ERROR."""


@dataclass(frozen=True, slots=True)
class Run:
    """One load on one topic, read back. ``faults``: by place (``client`` side, ``broker`` side), then by kind."""

    name: str
    sent: int
    acknowledged: int
    failed: int
    """Records that the producer did not deliver, with an error that its user sees."""
    verdict: Verdict
    readers_agree: bool
    """Did the consumer and the segment files show the same records at the same offsets?"""
    faults: Mapping[str, Mapping[str, int]]
    produce_requests: Mapping[str, int]
    """By place too."""
    seconds: float
    problems: tuple[str, ...] = ()
    """What went wrong, but for the records: fatal errors of producers, records without any answer."""
    proxy: ProxyFacts | None = None

    @property
    def faults_in_all(self) -> int:
        """Of all places and kinds."""
        return sum(sum(kinds.values()) for kinds in self.faults.values())

    @property
    def is_clean(self) -> bool:
        """0 duplicates, 0 losses, 0 reorders, nothing else wrong, and both readers saw it."""
        all_answered = not self.problems and not self.failed and self.acknowledged == self.sent
        return self.verdict.is_exactly_once and self.readers_agree and all_answered


@dataclass(frozen=True, slots=True)
class Result:
    """The whole demo."""

    version: str
    direct: Run
    proxied: Run
    scene: tuple[Step, ...]
    faults_wanted: int
    seconds: float

    @property
    def unproven(self) -> tuple[str, ...]:
        """What did not happen and should have: without it a clean row says nothing."""
        facts = self.proxied.proxy
        assert facts is not None
        happened = {
            "no record was acknowledged through the proxy": self.proxied.acknowledged,
            "no unknown outcome was resolved as found": facts.unknown_outcomes_found,
            "no unknown outcome was resolved as not found": facts.unknown_outcomes_not_found,
            "no duplicate was answered": facts.duplicates_answered,
            "no producer id crossed the wire": facts.producer_ids,
            "the proxy was never killed": facts.kills,
        }
        for run in (self.direct, self.proxied):
            few = f"only {run.faults_in_all} of {self.faults_wanted} faults {run.name}"
            happened[few] = run.faults_in_all >= self.faults_wanted
        for place, kinds in self.proxied.faults.items():
            happened[f"no fault on the {place} side of the proxy"] = sum(kinds.values())
        return tuple(what for what, count in happened.items() if not count)

    @property
    def scene_is_right(self) -> bool:
        """Was every batch of the second scene answered as it should be?"""
        return bool(self.scene) and all(step.is_right for step in self.scene)

    @property
    def exit_status(self) -> int:
        """0: the proxied row is 0/0/0, something was proved by it, and the second scene was as it should be. Else 1."""
        return 0 if self.proxied.is_clean and not self.unproven and self.scene_is_right else 1

    def as_json(self) -> dict[str, Any]:
        """Return everything, with the judgement, for ``json.dumps``."""
        return {
            "version": self.version,
            "exit_status": self.exit_status,
            "proxied_is_clean": self.proxied.is_clean,
            "proved": not self.unproven,
            "unproven": list(self.unproven),
            "faults_wanted": self.faults_wanted,
            "seconds": round(self.seconds, 1),
            "runs": [_run_as_json(self.direct), _run_as_json(self.proxied)],
            "scene": [{**asdict(step), "right": step.is_right} for step in self.scene],
        }


def _run_as_json(run: Run) -> dict[str, Any]:
    verdict = run.verdict
    return {
        "name": run.name,
        "sent": run.sent,
        "acknowledged": run.acknowledged,
        "failed": run.failed,
        "stored": verdict.stored,
        "duplicates": verdict.duplicates,
        "losses": verdict.lost,
        "reorders": verdict.reordered,
        "misplaced": verdict.misplaced,
        "foreign": verdict.foreign,
        "examples": list(verdict.examples),
        "readers_agree": run.readers_agree,
        "faults": {place: dict(kinds) for place, kinds in run.faults.items()},
        "produce_requests": dict(run.produce_requests),
        "faults_in_all": run.faults_in_all,
        "problems": list(run.problems),
        "seconds": round(run.seconds, 1),
        "proxy": None if run.proxy is None else {**asdict(run.proxy), "errors": list(run.proxy.errors)},
    }
