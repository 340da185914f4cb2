"""What a journal says was acknowledged; the proxy's own journal writes it, so that the two cannot drift apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.pipeline.audit.acknowledged import acknowledged, read_journals
from idemproxy.pipeline.journal.files import JournalProblem
from idemproxy.proxy import events
from idemproxy.proxy.telemetry.journal import Journal

PLACES = {("orders", 0): 4, ("orders", 1): 5}


def journal(*happened: object) -> list[bytes]:
    """Return the lines that the proxy writes of these events."""
    lines: list[bytes] = []
    write = Journal(lines.append, lambda: 77, lambda event: None)
    for event in happened:
        write(event)
    return lines


def sent(*identities: Identity, partition: int = 0) -> events.AppendSent:
    return events.AppendSent(1, "orders", partition, identities)


def answered(identity: Identity, code: int = 0, offset: int = 10, topic: str = "orders") -> events.BatchAnswered:
    return events.BatchAnswered("message", *identity[:3], topic, 0, code, offset, record_count=identity[3])


def of_format_1(lines: list[bytes]) -> list[bytes]:
    """Return the lines without what they did not have then."""
    dicts = [json.loads(line) for line in lines]
    without = [{key: value for key, value in one.items() if key not in ("record_count", "crc")} for one in dicts]
    return [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in without]


NAMES = ("place", "producer_id", "epoch", "sequence", "offset", "last_offset", "size", "timestamp")


def rows(lines: list[bytes], note: Callable[[str], None] = lambda _: None) -> list[tuple[int, ...]]:
    found = [row for batch in acknowledged(map(json.loads, lines), PLACES, note) for row in batch.to_pylist()]
    return [tuple(row[name] for name in NAMES) for row in found]


def test_batch_length_comes_from_the_answer_or_in_format_1_the_request() -> None:
    one, other = Identity(7, 0, 0, 5), Identity(7, 0, 5, 3)
    lines = journal(sent(one, other), answered(one, offset=10), answered(other, offset=15))
    expected = [(4, 7, 0, 0, 10, 14, 5, 77), (4, 7, 0, 5, 15, 17, 3, 77)]
    assert rows(lines) == rows(of_format_1(lines)) == rows(lines[1:]) == expected


def test_events_that_the_journal_lacks_are_reported() -> None:
    said: list[str] = []
    lines = [b'{"time_ms":7,"event":"missing","events":%d}\n' % count for count in (1200, 34)]
    assert rows([*lines, *journal(answered(Identity(7, 0, 20, 5)))], said.append)
    assert said == [
        "the journal lacks 1,234 events that could not be written: what they acknowledged is not looked for"
    ]


def test_in_format_1_another_proxys_batch_counts_its_first_record() -> None:
    lines = journal(answered(Identity(7, 0, 20, 5)))
    assert rows(of_format_1(lines)) == [(4, 7, 0, 20, 10, 10, 1, 77)]
    assert rows(lines) == [(4, 7, 0, 20, 10, 14, 5, 77)]


def test_a_duplicate_is_acknowledged_too_and_failures_are_not() -> None:
    one = Identity(7, 0, 0, 5)
    lines = journal(answered(one, 46, -1), answered(one, 7), answered(one, 45), answered(one, 87))
    assert rows(lines) == [(4, 7, 0, 0, -1, -1, 5, 77)]


def test_other_topics_and_batches_without_a_producer_are_left_out() -> None:
    lines = journal(answered(Identity(7, 0, 0, 1), topic="else"), answered(Identity(-1, -1, -1, 1)))
    assert rows(lines) == []


def test_a_cut_off_last_line_is_noted_and_other_invalid_lines_refused(tmp_path: Path) -> None:
    lines, notes = journal(answered(Identity(7, 0, 0, 1)), answered(Identity(7, 0, 1, 1))), list[str]()
    path = tmp_path / "journal"

    def read(text: bytes) -> int:
        path.write_bytes(text)
        return sum(batch.num_rows for batch in read_journals([path], PLACES, notes.append))

    assert read(lines[0] + lines[1][:-9]) == 1
    assert notes == [f"{path}: the last line is cut off, and left out"]
    for broken, number in ((lines[0][:-9] + b"\n" + lines[1], 1), (lines[0] + lines[1][:-9] + b"\n" + lines[1], 2)):
        with pytest.raises(JournalProblem, match=f"line {number} is not one of a journal"):
            read(broken)


def test_all_files_of_a_journal_are_read_and_those_of_workers(tmp_path: Path) -> None:
    names = ("j.20261126T050000.000Z", "j.20261126T060000.000Z-001", "j", "j.1.20261126T050000.000Z", "j.2")
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(b"".join(journal(answered(Identity(7, 0, number, 1)))))
    (tmp_path / "j.other").write_text("nothing of it\n")
    batches = read_journals([tmp_path / "j"], PLACES, lambda _: None)
    found = [row["sequence"] for batch in batches for row in batch.to_pylist()]
    assert sorted(found) == [0, 1, 2, 3, 4]
