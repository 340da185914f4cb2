"""The journal: what is written of every batch, and what happens when it cannot be written."""

from __future__ import annotations

import json
from typing import Any

from idemproxy.codecs.batch_marker import Identity
from idemproxy.pipeline.journal.files import FORMATS
from idemproxy.proxy import events
from idemproxy.proxy.telemetry.journal import FORMAT, JOURNALED, Journal
from testkit.stage.sequencer import PRODUCER_ID, TOPIC, Client, Stage


def journaled(*reported: object) -> list[dict[str, Any]]:
    """The lines that these events become."""
    lines: list[bytes] = []
    journal = Journal(lines.append, lambda: 5, lambda event: None)
    for event in reported:
        journal(event)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [json.loads(line) for line in lines]


def test_an_append_and_its_outcome_are_lines_with_all_that_names_the_batch() -> None:
    names = (Identity(7, 1, 30, 2), Identity(7, 1, 32, 3))
    sent, outcome = journaled(
        events.AppendSent(4, "orders", 2, names), events.AppendEnded(4, "orders", 2, names, "appended", 400, 0, "")
    )
    where = {"time_ms": 5, "broker_id": 4, "topic": "orders", "partition": 2}
    assert sent == {"event": "sent", "identities": [[7, 1, 30, 2], [7, 1, 32, 3]], **where}
    assert outcome == {
        "event": "outcome",
        "identities": [[7, 1, 30, 2], [7, 1, 32, 3]],
        "outcome": "appended",
        "base_offset": 400,
        "error_code": 0,
        "reason": "",
        **where,
    }


def test_bytes_are_hexadecimal_and_times_of_the_reactor_are_left_out() -> None:
    (taken,) = journaled(events.TakenOver(7, "orders", 2, bytes(range(8))))
    assert taken["owner"] == "0001020304050607"
    (answered,) = journaled(events.BatchAnswered("appended", 7, 1, 30, "orders", 2, 0, 400, None, 100.0, 101.0))
    assert "arrived_at" not in answered
    assert (answered["event"], answered["base_offset"], answered["error_code"]) == ("answered", 400, 0)


def test_an_answer_has_all_that_names_the_batch_and_how_long_it_took() -> None:
    lines: list[bytes] = []
    journal = Journal(lines.append, lambda: 5, lambda event: None, now=lambda: 100.25)
    records = memoryview(b"records")
    journal(
        events.BatchAnswered(
            *("appended", 7, 1, 30, "orders", 2, 0, 400, None, 100.0, 0.0, records, None, "client", 3, 0xCAFE)
        )
    )
    assert json.loads(lines[0]) == {
        "time_ms": 5,
        "event": "answered",
        "verdict": "appended",
        "producer_id": 7,
        "producer_epoch": 1,
        "base_sequence": 30,
        "topic": "orders",
        "partition": 2,
        "error_code": 0,
        "base_offset": 400,
        "message": None,
        "trace_id": None,
        "record_count": 3,
        "crc": 0xCAFE,
        "seconds": 0.25,
    }


def test_the_first_line_of_a_file_names_format_version_and_process() -> None:
    journal = Journal(lambda _: None, lambda: 5, lambda _: None, about={"proxy": "1.2", "cluster": "c", "pid": 9})
    start = {"journal": FORMAT, "time_ms": 5, "event": "journal", "proxy": "1.2", "cluster": "c", "pid": 9}
    assert json.loads(journal.header()) == start
    journal(events.ProxyInstanceBegun(bytes(range(4))))
    assert json.loads(journal.header()) == {**start, "instance_id": "00010203"}
    assert max(FORMATS) == FORMAT, "who reads knows what is written"


def test_every_line_has_a_name_of_its_own_and_other_events_are_not_written() -> None:
    assert len(set(JOURNALED.values())) == len(JOURNALED)
    assert journaled(events.ProduceConnectionLost(0, "reset", True), events.ProducerIdIssued(7)) == []


def test_the_journal_reports_a_full_disk_once_and_resumes_with_missing_count() -> None:
    reported: list[object] = []
    lines: list[bytes] = []
    tries = 0
    is_full, clock = True, [0]

    def write(line: bytes) -> None:
        nonlocal tries
        tries += 1
        if is_full:
            raise OSError(28, "No space left on device")
        lines.append(line)

    journal = Journal(write, lambda: clock[0], reported.append)
    event = events.TakenOver(7, "orders", 2, bytes(8))
    full = "the journal cannot be written: No space left on device"
    again = "tried again every 1 s, and what is missing is counted"

    def take_at(*times_ms: int) -> None:
        for clock[0] in times_ms:
            journal(event)

    take_at(0, 500, 999)
    assert tries == 1
    take_at(1000, 1500)
    assert tries == 2
    assert reported == [events.OperatorMessage("error", f"{full}; {again}"), *[event] * 5]
    is_full = False
    take_at(1999, 2000, 2001)
    assert [json.loads(line)["event"] for line in lines] == ["missing", "taken_over", "taken_over"]
    assert json.loads(lines[0]) == {"time_ms": 2000, "event": "missing", "events": 6}
    assert events.OperatorMessage("warning", "the journal is written again: 6 events are missing in it") in reported
    assert sum(one == event for one in reported) == 8, "what cannot be written down is told all the same"


class Full:
    """A disk that is full, or is not."""

    def __init__(self) -> None:
        self.is_full = True
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        self.lines.append(line)


def required(disk: Full, clock: list[int]) -> tuple[Journal, list[object], list[str]]:
    """A required journal, what it reports, and the reasons for which clients were disconnected."""
    reported: list[object] = []
    lost: list[str] = []
    journal = Journal(disk.write, lambda: clock[0], reported.append)
    journal.is_required = True
    journal.lost = lost.append
    return journal, reported, lost


def test_a_missing_line_loses_a_required_journal_before_others_get_the_event() -> None:
    disk, clock = Full(), [0]
    journal, reported, lost = required(disk, clock)
    journal.lost = lambda reason: lost.append(f"{reason} after {len(reported)}")
    event = events.TakenOver(7, "orders", 2, bytes(8))
    journal(event)
    journal(event)
    assert lost == ["No space left on device after 1", "No space left on device after 2"]
    said = reported[0]
    assert isinstance(said, events.OperatorMessage)
    assert said.level == "error"
    assert said.what.startswith("the journal cannot be written: No space left on device; clients are disconnected")
    assert reported[1:] == [event, event]
    assert journal.why_refusing == "No space left on device"
    journal.is_required = False
    assert (journal.why_refusing, journal.why_lost) == ("", "No space left on device")


def test_a_lost_journal_is_tried_again_without_an_event() -> None:
    disk, clock = Full(), [0]
    journal, reported, _ = required(disk, clock)
    journal(events.TakenOver(7, "orders", 2, bytes(8)))
    disk.is_full = False
    clock[0] = 999
    journal.try_again()
    assert disk.lines == []
    clock[0] = 1000
    journal.try_again()
    journal.try_again()
    assert [json.loads(line) for line in disk.lines] == [{"time_ms": 1000, "event": "missing", "events": 1}]
    assert journal.why_refusing == ""
    text = "the journal is written again: 1 events are missing in it; clients are admitted again"
    assert reported[-1] == events.OperatorMessage("warning", text)
    assert journal.missing_events == 1, "a counter counts on"


def test_a_failed_sync_is_a_loss_until_success_with_its_start_recorded() -> None:
    disk, clock = Full(), [5]
    disk.is_full = False
    journal, reported, lost = required(disk, clock)
    journal.synced()
    assert (reported, disk.lines) == ([], [])
    journal.not_synced("Input/output error")
    clock[0] = 8
    journal.not_synced("Input/output error")
    why = "it does not get to the disk: Input/output error"
    assert (journal.why_refusing, lost, len(reported)) == (why, [why, why], 1)
    journal.synced()
    assert [json.loads(line) for line in disk.lines] == [
        {"time_ms": 8, "event": "not_synced", "since_ms": 5, "reason": why}
    ]
    text = "the journal gets to the disk again; clients are admitted again"
    assert (journal.why_refusing, reported[-1]) == ("", events.OperatorMessage("warning", text))


def test_an_unwritable_not_synced_line_keeps_the_journal_lost_until_counted_missing() -> None:
    disk, clock = Full(), [5]
    journal, reported, lost = required(disk, clock)
    journal.not_synced("Input/output error")
    del lost[:]
    journal.synced()
    assert (journal.why_refusing, lost) == ("No space left on device", ["No space left on device"])
    said = [one.what for one in reported if isinstance(one, events.OperatorMessage)]
    assert said[1].startswith("the journal cannot be written: No space left on device; clients are disconnected")
    assert len(said) == 2, "nobody is told that it is well"
    disk.is_full = False
    clock[0] += 1000
    journal.try_again()
    assert [json.loads(line) for line in disk.lines] == [{"time_ms": 1005, "event": "missing", "events": 1}]
    text = "the journal is written again: 1 events are missing in it; clients are admitted again"
    assert (journal.why_refusing, reported[-1]) == ("", events.OperatorMessage("warning", text))
    assert journal.missing_events == 1


def test_an_unwritable_not_synced_line_leaves_a_resumed_journal_up() -> None:
    disk, clock = Full(), [5]
    journal, _, _ = required(disk, clock)
    journal.is_required = False
    journal.not_synced("Input/output error")
    journal.synced()
    disk.is_full = False
    clock[0] += 1000
    journal(events.TakenOver(7, "orders", 2, bytes(8)))
    assert [json.loads(line)["event"] for line in disk.lines] == ["missing", "taken_over"]
    assert journal.why_lost == ""


def test_the_outcome_of_every_append_is_reported_only_with_a_journal() -> None:
    for wanted in (True, False):
        stage = Stage()
        stage.context.observers.wants_outcomes = wanted
        client = Client()
        stage.outcomes.append(stage.loses_answer)
        stage.send(client, 0)
        stage.run(5)
        stage.send(client, 1)
        stage.run(1)
        ended = [event for event in stage.events if isinstance(event, events.AppendEnded)]
        told = [(one.identities, one.outcome, one.base_offset) for one in ended]
        expected = [
            ((Identity(PRODUCER_ID, 0, 0, 1),), "in_doubt", -1),
            ((Identity(PRODUCER_ID, 0, 1, 1),), "appended", 1),
        ]
        assert told == (expected if wanted else [])
        assert all((one.topic, one.partition) == (TOPIC, 0) for one in ended)
