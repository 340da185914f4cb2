"""How long each test file takes, for the order in which ``make test`` and ``make test-long`` run them
(``testkit.scheduling``).

``make test PYTEST_ARGS=--junitxml=report.xml``, then ``python -m runs.file_seconds report.xml``. What the report does
not have keeps its time.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from xml.etree.ElementTree import Element, parse

from testkit.scheduling import SECONDS

SECONDS_MIN = 5.0
"""Shorter ones need no order."""
ROOT = Path(__file__).resolve().parents[2]


def seconds_of(cases: Iterable[Element]) -> dict[str, int]:
    """Return file -> whole seconds, the longest first. ``cases``: elements ``testcase`` of a JUnit report."""
    found: Counter[str] = Counter()
    for case in cases:
        parts = case.get("classname", "").split(".")
        while parts and not (ROOT.joinpath(*parts).with_suffix(".py")).is_file():
            parts.pop()  # names of classes
        if parts:
            found["/".join(parts) + ".py"] += float(case.get("time", "0"))  # type: ignore[assignment]
    return {file: round(seconds) for file, seconds in found.most_common() if seconds >= SECONDS_MIN}


def main() -> None:
    """Write the file that the scheduler reads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="what pytest --junitxml has written")
    known: dict[str, int] = json.loads(SECONDS.read_text())
    measured = seconds_of(parse(parser.parse_args().report).iter("testcase"))
    kept = {file: seconds for file, seconds in known.items() if (ROOT / file).is_file()}
    seconds = dict(sorted({**kept, **measured}.items(), key=lambda item: -item[1]))
    SECONDS.write_text(json.dumps(seconds, indent=0) + "\n")
    print(f"{len(seconds)} files of at least {SECONDS_MIN:.0f} s, {sum(seconds.values())} s together")


if __name__ == "__main__":
    main()
