"""docs/DIFFERENCES_SEEN.md, made of benchmarks/results/differences.jsonl; only the reasons are by hand.

``PYTHONPATH=tests python -m runs.differences_page`` writes it; so does the run. A test holds the page to the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from .compatibility_page import Line, lines, table
from .results import RESULTS

RESULT = "differences"
PAGE = RESULTS.parents[1] / "docs" / "DIFFERENCES_SEEN.md"
_REFUSED_FOR = "refused on both sides; in Produce before version 8 the proxy says 87 only where no earlier code fits"
_WHOLE_LOG = "follows from the answers above"
_NEWER = (
    "a batch of the older epoch failed for good on this connection, so the first one of the new epoch may still come: "
    "19 once, 45 when the batch comes again"
)
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "the sixth last batch again": "the log is searched for it, and it is there",
        "the first of ten batches again": "the log is searched for it, and it is there",
        "the numbers of the last batch with other records": (
            "a broker compares numbers alone and tells success for records that it does not store; the proxy knows the "
            "checksum, and the records in the log are others"
        ),
        "a fresh producer id that does not begin at 0": (
            "a broker takes any sequence of a producer it does not know; the proxy knows that it has just handed out "
            "the id, so what comes before is missing"
        ),
        "a producer id that nobody handed out, not at 0": (
            "a broker takes it; the proxy finds nothing of it in the log, so what comes before is missing"
        ),
        "the log of: beginnings": _WHOLE_LOG,
        "a batch that is cut off": _REFUSED_FOR,
        "a batch that tells a wrong count of records": _REFUSED_FOR,
        "no records": _REFUSED_FOR,
        "no records at all (null)": "the broker fails inside and says nothing; the proxy refuses it",
        "two batches of a producer for one partition": _REFUSED_FOR,
        "a control batch": _REFUSED_FOR,
        "a transactional batch outside of a transaction": "old brokers have no transactions; refused on both sides",
        "a record above max.message.bytes that compression makes smaller": (
            "the old format needs compression anyway, and so it fits"
        ),
        "the log of: sizes": _WHOLE_LOG,
        "a topic name that is not allowed": (
            "a broker has no such topic, and its client asks until its time is up; the proxy says that none can be"
        ),
        "the same partition twice in a request": "a broker takes the last one; the proxy refuses both",
        "the log of: places": _WHOLE_LOG,
        "a record with a header": "the old format has no place for headers (43 names header, topic and setting)",
        "the log of: headers": _WHOLE_LOG,
        "a produce with a transactional id": "old brokers have no transactions",
        "the log of: transactional produce": _WHOLE_LOG,
        "a higher epoch that does not begin at 0": _NEWER,
        "a batch behind one that is missing": _NEWER,
    }
)
"""By step. One for each that is answered differently, and none for others."""
_HEAD = """\
# Differences, as they were seen

Made of a run (`make differences`), never written by hand but for the reasons. The same produce requests, byte for
byte, went to a real Kafka 3.9.1 and through the proxy to a real 0.10.2.2: sequences and epochs of every kind, batches
that are not right, codecs, and random ones; then programs whose answers and connections were lost by the same seeds on
both sides, which send again what was not answered; then the five real clients. Answers, offsets and logs were
compared. What a step means is in [the programs](../tests/testkit/real/clients/compared_programs.py); all that differs
by design, with other APIs, is in [DIFFERENCES](DIFFERENCES.md).
"""


def page(results: Sequence[Line]) -> str:
    """Return the page."""
    newest = [line for line in results if "rows" in line][-1]
    return "\n".join([_HEAD, *_differences(newest), "", *_agreements(newest), "", *_of_clients(results), ""])


def write() -> None:
    """Write the page as the results are now."""
    PAGE.write_text(page(lines(RESULT)))


def without_a_reason(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows that differ and are not explained."""
    return [row for row in rows if row["broker"] != row["proxy"] and row["step"] not in REASONS]


def _differences(line: Line) -> Iterator[str]:
    yield "## What differs"
    yield ""
    yield from table(
        ["what is sent", "Kafka 3.9.1", "the proxy", "reason"],
        [
            [row["step"], row["broker"], row["proxy"], REASONS.get(row["step"], "not known")]
            for row in line["rows"]
            if row["broker"] != row["proxy"]
        ],
    )


def _agreements(line: Line) -> Iterator[str]:
    same = [row for row in line["rows"] if row["broker"] == row["proxy"]]
    yield "## What is the same"
    yield ""
    yield f"{line['programs']} programs, run on {line['date']} at commit {line['commit']}; how often each step came:"
    yield ""
    yield from (f"- {row['step']}: {row['count']:,}" for row in same)


def _of_clients(results: Sequence[Line]) -> Iterator[str]:
    yield "## Real clients"
    yield ""
    yield (
        "Every sixth produce lost its answer, its connection or half of itself, by the same seed; before the proxy's\n"
        "broker as well. Both logs have the same records in the same order, or it is said."
    )
    yield ""
    newest = {line["client"]: line for line in results if "client" in line}
    yield from table(
        ["client", "records", "logs", "errors at Kafka 3.9.1", "errors at the proxy", "run"],
        [
            [
                line["client"],
                f"{line['records']:,}",
                "the same" if line["same_log"] else "not the same",
                *(_errors(line[f"{side}_errors"], line[f"{side}_complaints"]) for side in ("broker", "proxy")),
                f"{line['date']}, {line['commit']}",
            ]
            for line in newest.values()
        ],
    )


def _errors(errors: Any, complaints: Sequence[str]) -> str:
    return "none" if not errors and not complaints else " ".join(f"{errors} {'; '.join(complaints)}".split())[:200]


if __name__ == "__main__":
    write()
