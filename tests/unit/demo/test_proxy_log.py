"""What the demo reads out of the proxy's log is what the proxy writes: its own telemetry makes the lines."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.proxy_log import ProxyLog, kind_of
from idemproxy.proxy.events import BatchAnswered, OperatorMessage, UnknownOutcomeOpened, UnknownOutcomeResolved
from idemproxy.proxy.telemetry.reports import Telemetry


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A file that gets the lines of a proxy, as ``idemproxy run`` formats them."""
    path = tmp_path / "proxy.log"
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("idemproxy")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield path
    logger.removeHandler(handler)
    logger.setLevel(level)
    handler.close()


def resolved(result: str) -> UnknownOutcomeResolved:
    return UnknownOutcomeResolved(7, "orders", 0, 12, result, 4096, 1.1)


def answered(verdict: str, error_code: int = 0, base_offset: int = 12) -> BatchAnswered:
    return BatchAnswered(verdict, 7, 0, 12, "orders", 0, error_code, base_offset, None)


def test_unknown_outcomes_and_duplicates_are_counted_by_kind_and_nothing_else_is(log: Path) -> None:
    telemetry = Telemetry()
    for event in (
        *map(resolved, ("found", "found", "not_found", "prefix", "unrecoverable")),
        *(answered("duplicate") for _ in range(3)),
        answered("appended"),
        answered("duplicate_below_window", 46, -1),
        answered("duplicate_unverified", 7, -1),
        UnknownOutcomeOpened(7, "orders", 0, 12, "resolved as found: it only looks like it"),
        OperatorMessage("warning", "duplicate: it only looks like it"),
        OperatorMessage("error", "something is wrong"),
    ):
        telemetry(event)
    read = ProxyLog(log)
    counts = read.read()
    assert {kind: counts[kind] for kind in ("found", "not_found", "prefix", "unrecoverable")} == {
        "found": 2,
        "not_found": 1,
        "prefix": 1,
        "unrecoverable": 1,
    }
    assert counts["duplicate"] == 3
    assert [line.partition(" ERROR ")[2] for line in read.errors][1:] == ["something is wrong"]
    assert len(read.errors) == 2, "an unknown outcome that cannot be decided is an error too"


def test_every_line_is_counted_once_however_the_file_grows(tmp_path: Path) -> None:
    path = tmp_path / "proxy.log"
    log = ProxyLog(path)
    assert not log.read(), "there is no file yet"
    line = "2026-01-01 00:00:00,000 INFO resolved as found: producer 7 sequence 12 on orders-0\n"
    for piece in (line[:20], line[20:] + line[:50], line[50:], ""):
        with path.open("a") as file:
            file.write(piece)
        log.read()
    assert log.counts == {"found": 2}


@pytest.mark.parametrize("line", ["", "Traceback (most recent call last):", "  File x, line 1", "a b INFO resolved as"])
def test_a_line_of_another_form_counts_as_nothing(line: str) -> None:
    assert kind_of(line) is None
