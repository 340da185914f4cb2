"""The journal: what is written of every batch, and what happens when it cannot be written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from idemproxy.codecs.marker import Identity
from idemproxy.proxy import events
from idemproxy.proxy.telemetry.journal import JOURNALED, Journal
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


def test_every_line_has_a_name_of_its_own_and_other_events_are_not_written() -> None:
    assert len(set(JOURNALED.values())) == len(JOURNALED)
    assert journaled(events.ProduceConnectionLost(0, "reset", True), events.ProducerIdIssued(7)) == []


def test_a_full_disk_is_said_once_and_the_journal_goes_on_by_itself_and_tells_how_much_is_missing() -> None:
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


def test_of_a_line_that_the_disk_takes_only_in_part_nothing_stays(tmp_path: Path) -> None:
    program = f"""
import resource
from idemproxy.proxy.telemetry.journal import JournalFile
from pathlib import Path
file = JournalFile(Path({str(tmp_path / "journal")!r}))
file.write(b"a" * 50 + b"\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (80, 80))
try:
    file.write(b"b" * 50 + b"\\n")
except OSError as error:
    print(error.strerror)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert said.stdout == "No space left on device\n"
    assert (tmp_path / "journal").read_bytes() == b"a" * 50 + b"\n"


def test_the_outcome_of_every_append_is_told_where_a_journal_is_kept_and_only_there() -> None:
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
