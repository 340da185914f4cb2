"""docs/COMPATIBILITY.md, made of benchmarks/results/matrix.jsonl and kafka_tools.jsonl; nothing in it is by hand.

``PYTHONPATH=tests python -m runs.compatibility_page`` writes it; so do the runs. A test holds the page to the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from testkit.real.client_runs import IDEMPOTENT_CLIENTS
from testkit.real.kafka_tools import ROWS

from .matrix_brokers import BROKERS
from .results import RESULTS

PAGE = RESULTS.parents[1] / "docs" / "COMPATIBILITY.md"
Line = Mapping[str, Any]
_HEAD = """\
# What works through the proxy

Made of the results of runs (`make matrix`, `make tools`), never written by hand. How answers differ from those of a
broker is in [DIFFERENCES](DIFFERENCES.md).
"""
_MATRIX = """\
## Clients and brokers

Each cell is a real client that produces through the proxy to a real broker, idempotent, in small batches, while on both
sides of the proxy answers are lost, connections are cut, requests are cut in half and delivered late: every sixth
produce on each side. Then the segment files are compared with what the client was told: **duplicates / losses /
reorders**. Then the same client reads its records through the proxy as a member of a group, and commits. A cell has a
mark only if all of this was as it should be: each record stored and read once, in order, at the offset that the client
was told, and no error reached the user. In front of brokers with producer ids the proxy [leaves idempotence to
them](NATIVE.md); Kafka 0.11 remembers only the last batch of a producer, so there clients have one request in flight.
"""
_TOOLS = """\
## Kafka's own command line tools

Through the proxy to a real 0.10.2.2, one after the other. "Works": it ended with 0 and had shown what it is for.
Otherwise the last thing that it said of an error. What old brokers cannot do is refused with a sentence: by the proxy,
where the answer has a place for one, else by the tool's own client, which sees that the API is not offered.
"""


def page(matrix: Sequence[Line], tools: Sequence[Line]) -> str:
    """Return the page."""
    return "\n".join([_HEAD, _MATRIX, *_cells(matrix), "", _TOOLS, *_subcommands(tools), ""])


def write() -> None:
    """Write the page as the results are now."""
    PAGE.write_text(page(lines("matrix"), lines("kafka_tools")))


def lines(name: str) -> list[Line]:
    """Return the lines of a results file; none if it is not there."""
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _cells(matrix: Sequence[Line]) -> Iterator[str]:
    """The newest line of each pair counts."""
    newest = {(line["client"], line["broker"]): line for line in matrix}
    yield from _table(
        ["client", *(f"{broker.name} ({'native' if broker.is_native else 'proxy'})" for broker in BROKERS)],
        [[client, *(_cell(newest.get((client, broker.name))) for broker in BROKERS)] for client in IDEMPOTENT_CLIENTS],
    )
    shown = list(newest.values())
    yield ""
    yield (
        f"{len(shown)} cells, {_when(shown)}; records in each cell: {_each('records', shown)}; seed of the faults: "
        f"{_each('seed', shown)}; faults that were injected in all: {sum(map(_faults, shown)):,}."
    )
    for line in matrix:
        if line["complaints"]:
            again = "" if line is newest[line["client"], line["broker"]] else " (run again since)"
            yield ""
            yield f"- {line['client']} at {line['broker']}{again}: {_cut(' '.join(line['complaints'][0].split()))}"


def _when(shown: Sequence[Line]) -> str:
    return f"run on {_each('date', shown)} at commit {_each('commit', shown)}"


def _each(name: str, shown: Sequence[Line]) -> str:
    values = dict.fromkeys(line[name] for line in shown)
    return ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values)


def _cell(line: Line | None) -> str:
    if line is None:
        return "not run"
    counts = f"{line['duplicates']} / {line['losses']} / {line['reorders']}"
    return counts if line["complaints"] else f"✓ {counts}"


def _faults(line: Line) -> int:
    counts: list[int] = [*line["faults_client_side"].values(), *line["faults_broker_side"].values()]
    return sum(counts)


def _subcommands(tools: Sequence[Line]) -> Iterator[str]:
    versions = sorted({line["tools"] for line in tools})
    by_place = {(line["command"], line["tools"]): line for line in tools}
    yield from _table(
        ["subcommand", *(f"tools of {version}" for version in versions)],
        [[f"`{row.command}`", *(_said(by_place.get((row.command, version))) for version in versions)] for row in ROWS],
    )
    yield ""
    yield f"They were {_when(tools)}."


def _said(line: Line | None) -> str:
    if line is None:
        return "there is no such tool"
    return "works" if line["works"] else _cut(str(line["sentence"]).replace("|", "\\|").replace("<", "\\<"))


def _cut(text: str) -> str:
    return text if len(text) <= 400 else f"{text[:400]} …"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    write()
