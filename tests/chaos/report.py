"""The result of a chaos run: figures for machines, a table for people. Decides by one rule only: a run is clean when
nothing is unexplained and nothing happened that must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from .attribution import Attribution, Tally, producers_in
from .faults import OF_A_WORKER
from .journals import Journals
from .oracle import whole_lines
from .run import Story
from .takeovers import longest_silence, times_of, waits_by_kind

_WIDTH = 34
_LAST_WORDS = ("undecidable", "vanished", "lost")
"""Verdicts by which a proxy tells a producer that the log as it is cannot keep the promise."""
_PROCESS_KINDS = ("kill", "stop", "roll", "leader_move", "failover", "switch_over")


def result_of(
    story: Story, attribution: Attribution, journals: Journals, *, minutes: float, with_proxies: bool
) -> dict[str, Any]:
    """Return all figures of a run, ready for JSON."""
    findings = story.findings
    places = _acknowledgement_times(story)
    where, silence_ms = longest_silence(places)
    violations = [*story.problems, *_errors_in(story)]
    if findings.failed and with_proxies and not any(journals.counts[f"answer {name}"] for name in _LAST_WORDS):
        violations.append(f"{findings.failed} records failed at the client, and no proxy has given up any")
    violations += [f"foreign record: {text}" for text in findings.foreign[:5]]
    violations += [f"told another offset: {text}" for text in findings.examples_of_misplaced] if with_proxies else []
    return {
        "seed": story.seed,
        "broker": story.version,
        "settings": story.settings,
        "minutes": minutes,
        "proxies": len(story.journals),
        "workers": story.workers,
        "clients": {name: _shown(outcome) for name, outcome in story.outcomes.items()},
        "seconds": round(story.seconds, 1),
        "faults": sum(_faults_by_kind(story).values()),
        "faults_by_kind": _faults_by_kind(story),
        "stored": findings.stored,
        "acknowledged": findings.acknowledged,
        "records_per_second": round(findings.acknowledged / story.seconds),
        "failed": findings.failed,
        "failed_but_stored": findings.failed_but_stored,
        "duplicates": _by_cause(attribution.duplicates),
        "losses": _by_cause(attribution.losses),
        "reorders": _by_cause(attribution.reorders),
        "misplaced": findings.misplaced,
        "unexplained": attribution.unexplained,
        "producers_in_log": len(producers_in(story.logs.values())),
        "wrappers": sum(len(log.wrappers) for log in story.logs.values()),
        "takeover_ms": {
            name: asdict(one) for name, one in waits_by_kind(story.faults, places.values(), _PROCESS_KINDS).items()
        },
        "longest_silence_ms": silence_ms,
        "longest_silence_of": where,
        "proxy_counts": {
            name: count for name, count in sorted(journals.counts.items()) if " " in name or count < 10_000
        },
        "violations": violations,
        "notes": story.notes,
        "examples": {
            f"{kind}: {cause}": lines
            for kind, tally in _tallies(attribution).items()
            for cause, lines in tally.examples.items()
        },
    }


def is_clean(result: Mapping[str, Any]) -> bool:
    """Nothing that is not explained, and nothing that must not be."""
    return not result["unexplained"] and not result["violations"]


def has_anomalies(result: Mapping[str, Any]) -> bool:
    """Is there a duplicate, a loss or a reorder, explained or not?"""
    return any(result[kind] for kind in ("duplicates", "losses", "reorders"))


def table_of(result: Mapping[str, Any]) -> str:
    """Return the result for people."""
    lines = [f"chaos, seed {result['seed']}, {result['seconds']:.0f} s, {result['proxies']} proxies", ""]

    def row(name: str, value: object) -> None:
        lines.append(f"  {name:<{_WIDTH}} {value}")

    row("records acknowledged", f"{result['acknowledged']:,} ({result['records_per_second']:,} per second)")
    row("records stored", f"{result['stored']:,}")
    row("records that failed at the client", f"{result['failed']:,}, {result['failed_but_stored']:,} of them stored")
    for kind in ("duplicates", "losses", "reorders"):
        causes = result[kind]
        row(kind, "0" if not causes else "; ".join(f"{count:,}: {cause}" for cause, count in causes.items()))
    row("told another offset", result["misplaced"])
    row("producer ids and epochs in the log", result["producers_in_log"])
    row("wrappers", f"{result['wrappers']:,}")
    row("unknown_outcomes", ", ".join(f"{count} {name}" for name, count in _unknown_outcomes(result).items()) or "0")
    row("faults", result["faults"])
    for name, count in result["faults_by_kind"].items():
        row("  " + name, count)
    if result["takeover_ms"]:
        heads = " ".join(f"{head:>7}" for head in ("places", "p50", "p99", "max", "alone", "p50", "max"))
        lines += ["", f"  {'waits after a fault, in seconds':<{_WIDTH}} {heads}"]
    for name, waits in result["takeover_ms"].items():
        figures = " ".join(f"{waits[key] / 1000:7.1f}" for key in ("p50", "p99", "longest")) + f" {waits['alone']:>7}"
        if waits["alone"]:
            figures += " ".join(["", *(f"{waits[key] / 1000:7.1f}" for key in ("alone_p50", "alone_longest"))])
        lines.append(f"  {'  ' + name:<{_WIDTH}} {waits['affected']:>7} {figures}")
    row("longest silence", f"{result['longest_silence_ms'] / 1000:.1f} s, {result['longest_silence_of']}")
    lines.append("")
    for name, outcome in result["clients"].items():
        row(name, outcome)
    for title in ("violations", "notes"):
        lines += [f"  {title}: {text}" for text in result[title]]
    for title, examples in result["examples"].items():
        lines += [f"  {title}: {text}" for text in examples]
    words = "clean" if result["proxies"] else "a control: this is what brokers and clients do by themselves"
    lines += ["", words if is_clean(result) else "NOT CLEAN"]
    return "\n".join(lines)


def _unknown_outcomes(result: Mapping[str, Any]) -> dict[str, int]:
    counts: Mapping[str, int] = result["proxy_counts"]
    return {name.removeprefix("resolved "): count for name, count in counts.items() if name.startswith("resolved ")}


def _errors_in(story: Story) -> list[str]:
    """Return what the proxies' logs say of their own mistakes, a few of each."""
    found = []
    for name, path in story.proxy_logs.items():
        with path.open(errors="replace") as lines:
            own = [line.strip() for line in lines if "internal error" in line or "Traceback" in line]
        found += [f"{name}, {len(own)} in all: {text}" for text in own[:3]]
    return found


def _faults_by_kind(story: Story) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for fault in story.faults:
        target = fault.target
        if target.startswith("proxy-") and fault.kind in (*_PROCESS_KINDS, "steer"):
            target = "worker" if fault.detail.startswith(OF_A_WORKER) else "proxy"
        counts[f"{fault.kind} {'broker' if target.startswith('broker ') else target}"] += 1
    return dict(sorted(counts.items()))


def _acknowledgement_times(story: Story) -> dict[str, list[int]]:
    places = {}
    for _, name, topic, path in story.told_files:
        with path.open() as lines:
            for partition, times in times_of(whole_lines(lines)).items():
                places[f"{name} on {topic}-{partition}"] = times
    return places


def _tallies(attribution: Attribution) -> dict[str, Tally]:
    return {"duplicate": attribution.duplicates, "loss": attribution.losses, "reorder": attribution.reorders}


def _by_cause(tally: Tally) -> dict[str, int]:
    return {str(cause): count for cause, count in tally.records.items() if count}


def _shown(outcome: Mapping[str, object]) -> dict[str, object]:
    return {key: outcome.get(key) for key in ("sent", "acked", "failed", "errors")}
