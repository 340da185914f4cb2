"""Duplicates that an audit or a proxy has found, as ``idemproxy hide add`` reads them from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.proxy.commands.inspection.found_duplicates import Duplicate, found_by_audit, found_by_proxy
from idemproxy.proxy.events import AppendEnded, AppendSent, DuplicateFound
from idemproxy.proxy.settings.config import ConfigError
from idemproxy.proxy.telemetry.journal import Journal
from idemproxy.state.hidden_ranges import RANGE_MESSAGES_MAX, OffsetRange

ROW = {"topic": "orders", "partition": 3, "first": 30, "last": 49, "first_copy": 10, "producer_id": 5}


def audited(folder: Path, *rows: Any, **more: Any) -> Path:
    data = {"format": 1, "is_whole": True, "duplicates": [*rows], **more}
    (folder / "duplicates.json").write_text(json.dumps(data))
    return folder


def test_what_an_audit_has_written_is_read(tmp_path: Path) -> None:
    other = ROW | {"topic": "more", "partition": 0}
    found = found_by_audit(audited(tmp_path, ROW, other))
    copy = Duplicate(OffsetRange("orders", 3, 30, 50), 10)
    assert found.copies == [copy, Duplicate(OffsetRange("more", 0, 30, 50), 10)]
    assert (found.by, found.notes) == ("the audit", [])
    assert found_by_audit(tmp_path / "duplicates.json").copies == found.copies
    assert found.only("orders", None).copies == [copy]
    assert found.only("orders", 2).copies == []


def test_a_copy_with_more_records_than_a_hidden_range_takes_messages_is_divided(tmp_path: Path) -> None:
    last = ROW["first"] + RANGE_MESSAGES_MAX  # type: ignore[operator]
    found = found_by_audit(audited(tmp_path, ROW | {"last": last}))
    assert [(one.place.first, one.place.end, one.first_copy) for one in found.copies] == [
        (30, 30 + RANGE_MESSAGES_MAX, 10),
        (30 + RANGE_MESSAGES_MAX, last + 1, 10 + RANGE_MESSAGES_MAX),
    ]


def test_an_audit_that_lists_less_than_it_found_is_reported(tmp_path: Path) -> None:
    (note,) = found_by_audit(audited(tmp_path, ROW, is_whole=False)).notes
    assert "more duplicates than it lists" in note


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 50},
        {"first_copy": 30},
        {"partition": -1},
        {"topic": 7},
        {"last": "49"},
        {"first": None},
        {"last": 2**63},
    ],
)
def test_a_damaged_range_is_refused_with_the_file(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"duplicates\.json is damaged"):
        found_by_audit(audited(tmp_path, ROW, ROW | wrong))


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 2}', '{"findings": {}}', "\x00"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "summary.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"summary\.json is no duplicates\.json of an audit"):
        found_by_audit(file)


def test_an_older_audit_is_to_be_run_again(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run the audit again"):
        found_by_audit(tmp_path)


def journal(path: Path, *events: Any) -> Path:
    """Have the shipped journal write these."""
    with path.open("ab") as file:
        written = Journal(file.write, lambda: 1_700_000_000_000, lambda event: None)
        for event in events:
            written(event)
    return path


def test_the_duplicates_in_a_journal_are_read_with_their_sizes(tmp_path: Path) -> None:
    name = Identity(7, 1, 30, 4)
    beside = Identity(7, 1, 34, 9)
    file = journal(
        tmp_path / "journal.jsonl",
        AppendSent(0, "orders", 2, (beside, name)),
        AppendEnded(0, "orders", 2, (beside, name), "in_doubt", -1, 0, "lost"),
        AppendSent(0, "orders", 3, (Identity(7, 1, 30, 5),)),
        DuplicateFound(7, 1, 30, "orders", 2, (400, 404)),
        DuplicateFound(7, 1, 30, "orders", 2, (400, 404, 420)),
    )
    found = found_by_proxy(file)
    assert (found.by, found.notes) == ("the proxy", [])
    assert found.copies == [
        Duplicate(OffsetRange("orders", 2, 404, 408), 400),
        Duplicate(OffsetRange("orders", 2, 420, 424), 400),
    ]


def test_a_copy_whose_size_is_not_in_the_journal_is_reported(tmp_path: Path) -> None:
    file = journal(tmp_path / "journal.jsonl", DuplicateFound(7, 1, 30, "orders", 2, (400, 404)))
    found = found_by_proxy(file)
    assert found.copies == []
    (note,) = found.notes
    assert "orders/2: a duplicate begins at offset 404" in note
    assert "sequence 30" in note


def test_lines_that_are_cut_off_or_strange_are_passed_over(tmp_path: Path) -> None:
    file = journal(
        tmp_path / "journal.jsonl",
        AppendSent(0, "orders", 2, (Identity(7, 1, 30, 4),)),
        DuplicateFound(7, 1, 30, "orders", 2, (400, 404)),
    )
    with file.open("ab") as more:
        more.write(b'{"event":"duplicate_found","producer_id":7}\n[1,2,3,4]\n')
        more.write(b'{"event":"duplicate_found","producer_id":9,"producer_epoch":0,"base_sequence":0,"topic":"orders",')
    assert len(found_by_proxy(file).copies) == 1
    with pytest.raises(ConfigError, match="cannot be read"):
        found_by_proxy(tmp_path / "absent.jsonl")
