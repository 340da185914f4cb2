"""The part of docs/COMPATIBILITY.md about the clients' own suites, made of benchmarks/results/suites.jsonl."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]
_WIDTH = 120
_HEAD = """\
## Clients' own suites

The tests that the clients' authors wrote, run at a real 0.10.2.2 itself and through the proxy in front of one
(`make suites`). At the broker they are told its release and leave out what it cannot do; through the proxy they are
told 0.11, so that they use what came with it: idempotent producers above all.
"""


def suites_section(lines: Sequence[Line]) -> Iterator[str]:
    """The section, line by line."""
    yield _HEAD
    yield "| suite | run | passed | failed | left out by the suite |"
    yield "| --- | --- | --- | --- | --- |"
    for line in lines:
        suite = f"{line['suite']} {line['suite_release']}"
        yield f"| {suite} | {line['way']} | {line['passed']} | {len(line['failed'])} | {len(line['skipped'])} |"
    direct = {line["suite"]: line for line in lines if not line["through_proxy"]}
    yield ""
    yield "What fails through the proxy, and why:"
    yield ""
    for suite, failing in _failing(lines).items():
        for why, tests in _by_reason(failing).items():
            yield from _item(suite, why, tests, direct.get(suite))
    gained = dict(_gained(lines, direct))
    if gained:
        yield ""
        yield "What fails at the broker itself, and passes through the proxy:"
        yield ""
        for suite, names in gained.items():
            yield from _wrapped(f"- {suite}: {_names(names)}")
    yield ""
    dates, commits = (", ".join(dict.fromkeys(str(line[name]) for line in lines)) for name in ("date", "commit"))
    yield from textwrap.wrap(f"Run on {dates} at commit {commits}.", _WIDTH)


def _failing(lines: Sequence[Line]) -> Mapping[str, Mapping[str, str]]:
    """By suite: the tests that fail in one of its runs through the proxy, and why."""
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        if line["through_proxy"] and line["failed"]:
            found.setdefault(line["suite"], {}).update(line["failed"])
    return found


def _by_reason(failing: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for test, why in failing.items():
        found.setdefault(why or "not known", []).append(test)
    return found


def _item(suite: str, why: str, tests: Sequence[str], direct: Line | None) -> Iterator[str]:
    passing: Sequence[str] = []
    if direct is not None:
        passing = [test for test in tests if test not in direct["failed"] and test not in direct["skipped"]]
    and_yet = f" At the broker itself {_names(passing)} passes." if passing and len(passing) < len(tests) else ""
    if passing and not and_yet:
        and_yet = " At the broker itself it passes." if len(passing) == 1 else " At the broker itself they pass."
    yield from _wrapped(f"- {suite}, {_names(tests)}: {why}.{and_yet}")


def _gained(lines: Sequence[Line], direct: Mapping[str, Line]) -> Iterator[tuple[str, Sequence[str]]]:
    for suite, at_broker in direct.items():
        through = [line for line in lines if line["suite"] == suite and line["through_proxy"]]
        missing = {test for line in through for test in (*line["failed"], *line["skipped"])}
        if names := [test for test in at_broker["failed"] if through and test not in missing]:
            yield suite, names


def _names(tests: Sequence[str]) -> str:
    return ", ".join(f"`{test}`" for test in tests)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
