"""docs/COMPATIBILITY.md, made of benchmarks/results/matrix.jsonl, kafka_tools.jsonl and suites.jsonl; nothing in it is
by hand. And the list of tools that fail in docs/DIFFERENCES.md, of which only the reasons are.

``PYTHONPATH=tests python -m runs.compatibility_page`` writes it; so do the runs. A test holds the page to the files.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from testkit.real.clients.client_runs import ALL_IDEMPOTENT_CLIENTS, KCAT
from testkit.real.clients.kafka_tools import ROWS

from .matrix_brokers import BROKERS
from .results import RESULTS
from .suites_page import suites_section

_ROOT = RESULTS.parents[1]
PAGE = RESULTS.parents[1] / "docs" / "COMPATIBILITY.md"
DIFFERENCES = PAGE.with_name("DIFFERENCES.md")
Line = Mapping[str, Any]
_WORDS_MAX = 38
"""Of what a tool said, as a cell has it."""
_WIDTH = 120
_MARKS = "<!-- tools that fail: made of the results -->", "<!-- end of the tools that fail -->"
_HEAD = """\
# What works through the proxy

Made of the results of runs (`make matrix`, `make tools`, `make suites`), never written by hand. How answers differ from
those of a broker is in [DIFFERENCES](DIFFERENCES.md).
"""
_MATRIX = """\
## Clients and brokers

Each cell is a real client that produces through the proxy to a real broker, idempotent, in small batches, while on both
sides of the proxy answers are lost, connections are cut, requests are cut in half and delivered late: every sixth
produce on each side. Then the segment files are compared with what the client was told: **duplicates / losses /
reorders**. Then the same client reads its records through the proxy as a member of a group, and commits. A cell has a
mark only if all of this was as it should be: each record stored and read once, in order, at the offset that the client
was told, with a producer id, and no error reached the user. In front of brokers with producer ids the proxy [leaves
idempotence to them](NATIVE.md); Kafka 0.11 remembers only the last batch of a producer, so there clients have one
request in flight.
"""
_CHANGES = """\
## Changes of the cluster

Real clients produce through the proxy to four brokers 0.10.2.2 and read what they produce in a group, while a broker
ends and returns, one dies and returns, one is added, partitions are reassigned to it, another one is removed,
preferred leaders are elected, the controller moves, the controller dies, and partitions are added (`make
cluster-changes`). A mark means: each record stored once, in order, where the client was told, each read at least
once, in order, and no error to the user. Readers commit each second, so what was read and not yet committed is read
again after a change. A topic that is deleted and made anew under a producer and a reader is tried apart, and beside
the brokers alone, without idempotence. A reader that does not notice goes on at its old position, behind the first
records of the new log.
"""
_TOOLS = """\
## Kafka's own command line tools

Through the proxy to a real 0.10.2.2, one after the other. "Works": it ended with 0 and had shown what it is for.
Otherwise the last thing that it said of an error. What old brokers cannot do is refused with a sentence: by the proxy,
where the answer has a place for one, else by the tool's own client, which sees that the API is not offered.
"""


WHY: Mapping[str, str] = {
    "kafka-topics --alter": "CreatePartitions came with Kafka 1.0. `kafka-topics.sh --zookeeper --alter` of the "
    "broker's own release does it.",
    "kafka-configs --alter": "AlterConfigs came with 0.11, IncrementalAlterConfigs with 2.3; older brokers have their "
    "topics' settings in ZooKeeper. `kafka-configs.sh --zookeeper --alter` of the broker's own release does it.",
    "kafka-console-consumer --topic orders --group new-kind": "the consumer groups of KIP-848 came with Kafka 4.0. "
    "Leave `group.protocol` at `classic`.",
    "kafka-console-consumer --topic orders --group static": "static members came with Kafka 2.3 (JoinGroup 5). Leave "
    "`group.instance.id` out.",
    "kafka-consumer-groups --delete-offsets": "OffsetDelete came with Kafka 2.4. Offsets that nobody commits any more "
    "expire (`offsets.retention.minutes`).",
    "kafka-consumer-groups --delete ": "DeleteGroups came with Kafka 1.1. A group without members goes when its "
    "offsets have expired.",
    "kafka-get-offsets --topic orders --time max-timestamp": "the offset of the highest time stamp came with Kafka 3.0 "
    "(ListOffsets 7). `--time latest` and a time in milliseconds are served.",
    "kafka-transactions list": "ListTransactions came with Kafka 3.0; brokers before 0.11 have no transactions at all.",
    "kafka-log-dirs": "DescribeLogDirs came with Kafka 1.0. What a partition takes is to be seen on the brokers' disks "
    "only.",
    "kafka-delete-records": "DeleteRecords came with Kafka 0.11. Retention deletes, or a topic made anew.",
    "kafka-acls": "DescribeAcls came with Kafka 0.11. `kafka-acls.sh --authorizer-properties zookeeper.connect=...` of "
    "the broker's own release does it.",
    "kafka-reassign-partitions": "reassignments over Kafka's protocol came with 2.4. `kafka-reassign-partitions.sh "
    "--zookeeper` of the broker's own release does it.",
    "kafka-leader-election": "ElectLeaders came with Kafka 2.2. `kafka-preferred-replica-election.sh --zookeeper` of "
    "the broker's own release does it.",
}
"""Why a subcommand does not work, and what to do instead, by the begin of what is typed."""


_READS_V2_ONLY = (
    "its producer did all right; its consumer reads record batches of format v2 only. It takes three bits of the time "
    "in those of older formats for a codec, at any broker that has them, so that it ends with an unsupported one, or, "
    "at other times of the day, asks for them again and again without a word. It reads with another client."
)
CAUSES = (
    (
        "confluent-kafka-2.3",
        "Unable to reconstruct MessageSet",
        'a fatal error of librdkafka 2.2 to 2.4 ("Unable to reconstruct MessageSet"): messages of one batch get '
        "different waiting times before a retry. Mended in 2.5.0 (confluentinc/librdkafka 4736); it happens at any "
        "broker.",
    ),
    (
        "java-1.1.1",
        "ms has passed since last append",
        "this client does not always notice that its connection was reset behind an answer: it waits for "
        "`request.timeout.ms` (30 s), and gives up what has waited for as long to be sent, none of which is stored "
        "(seen between it and the injected fault; later clients have `delivery.timeout.ms`). With one request in "
        "flight and a small `buffer.memory`, as it is run since, nothing waits for so long.",
    ),
    ("platformatic", "Unsupported compression algorithm", _READS_V2_ONLY),
    ("platformatic", "proxy: reading in a group: platformatic platformatic-in-group still ran", _READS_V2_ONLY),
    (
        "kafka-python",
        "in-group still ran",
        "3.0.12 loses what its group has assigned to it, for ever and without a word, if the answer to SyncGroup comes "
        "just when the time of a `poll` is over (seen with `poll(timeout_ms=200)` on a busy machine, in 1 of 32 runs "
        "at the broker alone and in 1 of 64 through the proxy). A longer `timeout_ms` avoids it.",
    ),
)
"""Client, a part of the complaints behind who gives idempotence, and the cause: it would be the same without the
proxy."""


def page(
    matrix: Sequence[Line], tools: Sequence[Line], suites: Sequence[Line] = (), changes: Sequence[Line] = ()
) -> str:
    """Return the page."""
    followed = [_CHANGES, *_followed(changes), ""] if changes else []
    parts = [_HEAD, _MATRIX, *_cells(matrix), "", *followed, _TOOLS, *_subcommands(tools), ""]
    return "\n".join([*parts, *suites_section(suites), ""])


def _followed(changes: Sequence[Line]) -> Iterator[str]:
    """The newest line of each client, and what it was told of a topic that was deleted and made anew."""
    newest = {line["client"]: line for line in changes if "changes" in line and line["through"] == "the proxy"}
    remade = {(line["client"], line["through"]): line for line in changes if "change" in line}
    yield from table(
        [
            "client",
            "duplicates / losses / reorders",
            "records",
            "read again",
            "topic made anew",
            "at the brokers alone",
        ],
        [
            [
                client,
                _cell(line),
                f"{line['records']:,}",
                str(line["read_again"]),
                *(_remade(remade.get((client, through))) for through in ("the proxy", "the brokers alone")),
            ]
            for client, line in newest.items()
        ],
    )
    yield ""
    yield f"They were {_when(changes)}."


def _remade(line: Line | None) -> str:
    if line is None:
        return "not run"
    goes_on = "goes on" if line["goes_on"] else "stops"
    found = f"{goes_on}, {line['errors']} errors"
    if "not_read" in line:
        missing = f"misses {line['not_read']}" if line["not_read"] else "has all"
        found += f"; its reader {missing} of {line['stored_anew']}"
    return found


def write() -> None:
    """Write the page as the results are now, and the list."""
    PAGE.write_text(page(lines("matrix"), lines("kafka_tools"), lines("suites"), lines("cluster_changes")))
    DIFFERENCES.write_text(with_failing_tools(DIFFERENCES.read_text(), lines("kafka_tools")))


def with_failing_tools(text: str, tools: Sequence[Line]) -> str:
    """Return docs/DIFFERENCES.md with the list of today's results in its place. Raises KeyError for a subcommand of
    which it is not known why it fails."""
    found = "\n".join([_MARKS[0], "", *_failing(tools), "", _MARKS[1]])
    return re.sub(f"{re.escape(_MARKS[0])}.*?{re.escape(_MARKS[1])}", lambda _: found, text, flags=re.DOTALL)


def _failing(tools: Sequence[Line]) -> Iterator[str]:
    works = {line["command"]: False for line in tools}
    for line in tools:
        works[line["command"]] |= line["works"]
    for row in ROWS:
        if not works.get(row.command, True):
            item = f"- `{row.command}`: {reason_of(row.command)}"
            yield from textwrap.wrap(
                item, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
            )


def reason_of(command: str) -> str:
    """Return why a subcommand does not work. Raises KeyError."""
    for start, why in WHY.items():
        if command.startswith(start):
            return why
    raise KeyError(f"{command!r} fails: say in WHY what came when, and what to do instead")


def lines(name: str) -> list[Line]:
    """Return the lines of a results file; none if it is not there."""
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _cells(matrix: Sequence[Line]) -> Iterator[str]:
    """The newest line of each pair counts."""
    newest = {(line["client"], line["broker"]): line for line in matrix}
    yield from table(
        ["client", *(f"{broker.name} ({'native' if broker.is_native else 'proxy'})" for broker in BROKERS)],
        [
            [client, *(_cell(newest.get((client, broker.name))) for broker in BROKERS)]
            for client in ALL_IDEMPOTENT_CLIENTS
        ],
    )
    shown = [line for line in newest.values() if "not_run" not in line]
    yield ""
    yield from textwrap.wrap(_of_which_versions(newest.values()), _WIDTH, break_on_hyphens=False)
    yield ""
    yield from textwrap.wrap(f"{len(shown)} cells, {_when(shown)};", _WIDTH)
    yield (
        f"records in each cell: {_each('records', shown)}; seed of the faults: {_each('seed', shown)}; "
        f"faults that were injected in all: {sum(map(_faults, shown)):,}."
    )
    yield from _complaints(matrix, newest)


def _complaints(matrix: Sequence[Line], newest: Mapping[tuple[str, str], Line]) -> Iterator[str]:
    """What went wrong, and why: the same of a client at several brokers once."""
    places: dict[tuple[str, str], list[str]] = {}
    for line in matrix:
        if line["complaints"]:
            now = newest[line["client"], line["broker"]]
            again = "" if now["complaints"] and _reason(now) == _reason(line) else " (run again since)"
            places.setdefault((line["client"], _reason(line)), []).append(f"{line['broker']}{again}")
    for (client, said), brokers in places.items():
        yield ""
        item = f"- {client} at {'; '.join(dict.fromkeys(brokers))}: {said}"
        yield from textwrap.wrap(item, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _reason(line: Line) -> str:
    """The cause of what went wrong in a cell, or what was said first."""
    return _cause_of(line) or _cut(" ".join(line["complaints"][0].split()))


def _of_which_versions(cells: Iterable[Line]) -> str:
    """Of the clients whose name has none, from the files that pin them; what the system has, as it was run."""
    packages = tomllib.loads((_ROOT / "uv.lock").read_text())["package"]
    found = {one["name"]: one["version"] for one in packages if one["name"] in ALL_IDEMPOTENT_CLIENTS}
    clients = _ROOT / "tests" / "testkit" / "real" / "clients" / "programs"
    for folder in ("node", "node_compiled"):
        for name, version in json.loads((clients / folder / "package.json").read_text())["dependencies"].items():
            found[name.removeprefix("@").removesuffix("/kafka").replace("inc/", "-")] = version
    for name, version in re.findall(r"/([\w-]+) v([\d.]+)\n", (clients / "go" / "go.mod").read_text()):
        found[name] = version
    for line in cells:
        if line["client"] == KCAT and "client_version" in line:
            found[line["client"]] = line["client_version"]
    for one in tomllib.loads((clients / "rust" / "Cargo.lock").read_text())["package"]:
        found[one["name"]] = one["version"]
    named = [f"{client} {found[client]}" for client in ALL_IDEMPOTENT_CLIENTS if client in found]
    return f"Versions of those that are named without one: {', '.join(named)}."


def _cause_of(line: Line) -> str | None:
    """Why, where it is known and not the proxy."""
    complaints = " ".join([f"{line.get('serves')}:", *line["complaints"]])
    return next((why for start, part, why in CAUSES if line["client"].startswith(start) and part in complaints), None)


def _when(shown: Sequence[Line]) -> str:
    return f"run on {_each('date', shown)} at commit {_each('commit', shown)}"


def _each(name: str, shown: Sequence[Line]) -> str:
    values = dict.fromkeys(line[name] for line in shown)
    return ", ".join(f"{value:,}" if isinstance(value, int) else str(value) for value in values)


def _cell(line: Line | None) -> str:
    if line is None:
        return "not run"
    if "not_run" in line:
        return f"not run: {_cut(line['not_run'])}"
    if "cut_short" in line:
        return "ended too early"
    counts = f"{line['duplicates']} / {line['losses']} / {line['reorders']}"
    return counts if line["complaints"] else f"✓ {counts}"


def _faults(line: Line) -> int:
    sides = (line.get("faults_client_side", {}), line.get("faults_broker_side", {}))
    return sum(sum(side.values()) for side in sides)


def _subcommands(tools: Sequence[Line]) -> Iterator[str]:
    versions = sorted({line["tools"] for line in tools})
    by_place = {(line["command"], line["tools"]): line for line in tools}
    yield from table(
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
    words = text.split()
    return text if len(words) <= _WORDS_MAX else f"{' '.join(words[:_WORDS_MAX])} …"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    write()
