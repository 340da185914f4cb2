"""The part of docs/COMPATIBILITY.md about the clients' own suites, made of benchmarks/results/suites.jsonl."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Line = Mapping[str, Any]
_WIDTH = 120
_FILE_END = ": "
_NAMES_MAX = 12
"""Of tests that pass; more are counted."""
_HEAD = """\
## Clients' own suites

The tests that the clients' authors wrote, run at a real 0.10.2.2 itself and through the proxy in front of one
(`make suites`). At the broker they are told its release and leave out what it cannot do; through the proxy they are
told 0.11, so that they use what came with it: idempotent producers above all. `make suites` fetches and runs those of
kafka-python, franz-go and librdkafka. Those of aiokafka (20 s for each test at the broker, where its producer cannot
write), sarama (five brokers behind toxiproxy) and kafka-go (what needs no port of the suite's own brokers) were run by
hand, their sources changed where they name Docker or an address. So were those of kafkajs that need a broker (three
brokers with SASL and TLS; through the proxy with a listener of each kind) and rskafka's, with the Java client and
librdkafka as its partners; since each of its records has a header, once more without. Most of these tests do not ask
what the broker has, so they were run at a real 0.11.0.3, too: what fails there as well is not the proxy's doing.
"""
_DIRECT = "at the broker"


def suites_section(lines: Sequence[Line]) -> Iterator[str]:
    """The section, line by line."""
    lines = sorted(lines, key=lambda line: (line["suite"], line["through_proxy"], line["way"]))
    yield _HEAD
    yield "| suite | run | passed | failed | left out by the suite |"
    yield "| --- | --- | --- | --- | --- |"
    for line in lines:
        suite = f"{line['suite']} {line['suite_release']}"
        yield f"| {suite} | {line['way']} | {line['passed']} | {len(line['failed'])} | {len(line['skipped'])} |"
    direct = {line["suite"]: line for line in lines if line["way"] == _DIRECT}
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
            yield from _wrapped(f"- {suite}: {_names(names) if len(names) <= _NAMES_MAX else f'{len(names)} tests'}")
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
    and_yet = ""
    if passing:
        who = _names(passing) if len(passing) < len(tests) else "it" if len(passing) == 1 else "they"
        and_yet = f" At the broker, told its release, {who} {'pass' if len(passing) > 1 else 'passes'}."
    yield from _wrapped(f"- {suite}, {_names(tests)}: {why}.{and_yet}")


def _gained(lines: Sequence[Line], direct: Mapping[str, Line]) -> Iterator[tuple[str, Sequence[str]]]:
    for suite, at_broker in direct.items():
        through = [line for line in lines if line["suite"] == suite and line["through_proxy"]]
        missing = {test for line in through for test in (*line["failed"], *line["skipped"])}
        if names := [test for test in at_broker["failed"] if through and test not in missing]:
            yield suite, names


def _names(tests: Sequence[str]) -> str:
    """By name; those of a suite that names a file and a sentence by their files, with how many there are."""
    files = Counter(test.partition(_FILE_END)[0] for test in tests)
    if len(files) == len(tests):
        return ", ".join(f"`{test}`" for test in tests)
    return ", ".join(f"`{file}`" + (f" ({count})" if count > 1 else "") for file, count in files.items())


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
