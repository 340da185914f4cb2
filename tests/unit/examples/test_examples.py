"""What the programs of examples/ decide without a server, and what their page says of them."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from changelog import BATCH_BYTES as CHANGELOG_BYTES
from changelog import BATCH_RECORDS as CHANGELOG_RECORDS
from changelog import State, in_batches
from exclusive_producer import BATCH_LINES, batches_of
from hypothesis import given
from hypothesis import strategies as st
from kv_store import checked, entry_of
from mirror import copied
from partition_copy import BATCH_BYTES, BATCH_RECORDS, WINDOW_BATCHES, in_windows
from pristine import without_copies
from repartition import carrying

from idemproxy.client import CommittedOffset, PlannedBatch, ProducerId, Progress, Record, StoredRecord
from idemproxy.client.coordinates import Coordinates, from_value

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/how-to/exactly-once-patterns.md").read_text()
PATTERNS = (
    "changelog", "exclusive_producer", "merge_log", "mirror", "partition_copy", "pristine", "repartition"
)  # fmt: skip
LINES_MAX = 175


def stored(count: int, *, size: int = 3, key: bytes | None = b"key") -> list[StoredRecord]:
    return [StoredRecord(offset, 1000 + offset, key, b"v" * size) for offset in range(count)]


# ---------------------------------------------------------------------- what is said of them
@pytest.mark.parametrize("name", PATTERNS)
def test_an_example_is_short_and_says_first_what_it_promises_and_what_not(name: str) -> None:
    text = (ROOT / f"examples/{name}.py").read_text()
    assert len(text.splitlines()) <= LINES_MAX
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None
    assert re.search(r"^Promises:.*^Does not promise", docstring, re.MULTILINE | re.DOTALL)
    assert f"`{name}.py`" in PAGE
    assert f"[{name}.py]({name}.py)" in (ROOT / "examples/README.md").read_text()


def test_the_page_shows_what_is_committed_and_the_first_line_of_a_value() -> None:
    blocks = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
    committed, line = blocks
    numbers = ProducerId(4611686018427388000, 0)
    planned = PlannedBatch(1700, 500, 3170123), PlannedBatch(1710)
    assert Progress.committed(CommittedOffset(1200, committed)) == Progress(1200, numbers, 700, planned)
    assert from_value(line.encode() + b"\nvalue") == (Coordinates("orders", 3, 17), b"value")


# ---------------------------------------------------------------------- mirror, partition_copy
@given(st.lists(st.sampled_from([0, 10, 1000, BATCH_BYTES + 1]), max_size=60), st.integers(0, 1700))
def test_windows_hold_all_records_in_order_and_no_more_than_servers_know_again(sizes: list[int], small: int) -> None:
    values = [b"v" * size for size in sizes] + [b""] * small
    records = [StoredRecord(offset, 0, None, value) for offset, value in enumerate(values)]
    windows = list(in_windows(records))
    batches = [batch for window in windows for batch in window]
    assert [record for batch in batches for record in batch] == records
    assert all(0 < len(window) <= WINDOW_BATCHES for window in windows)
    for batch in batches:
        assert 0 < len(batch) <= BATCH_RECORDS
        assert len(batch) == 1 or sum(len(one.value or b"") for one in batch) <= BATCH_BYTES


def test_a_mirrored_record_is_the_record() -> None:
    one = StoredRecord(7, 1_700_000_000_000, None, None, (("name", b"value"),))
    assert copied("note", [one]) == ("note", [Record(None, None, (("name", b"value"),), 1_700_000_000_000)])


# ---------------------------------------------------------------------- repartition, pristine
@st.composite
def logs_after_crashes(draw: st.DrawFn) -> list[int]:
    """Source offsets in the order of a log to which life after life has written without a gap, each from an offset on
    below which all were in the log when it began; what an older life had on its way may come among a newer one's."""
    total = draw(st.integers(1, 12))
    log: list[int] = []
    late: list[int] = []
    for is_last in (*([False] * draw(st.integers(0, 4))), True):
        have = next(offset for offset in range(total + 1) if offset not in log)
        start = draw(st.integers(0, have))
        end = total if is_last else draw(st.integers(start, total))
        cut = end if is_last else draw(st.integers(start, end))
        own, arrived = list(range(start, cut)), list(late)
        while own or arrived:  # each of the two in its order
            log.append((own if not arrived or (own and draw(st.booleans())) else arrived).pop(0))
        late = list(range(cut, end))
    return log


@given(logs_after_crashes(), st.data())
def test_whatever_crashes_bring_in_again_the_pristine_topic_has_each_once_and_in_order(
    log: list[int], data: st.DataObject
) -> None:
    records = [
        StoredRecord(at, 0, None, Coordinates("t", 0, offset).before(b"%d" % offset)) for at, offset in enumerate(log)
    ]
    note, found = "", []
    while records:
        count = data.draw(st.integers(1, len(records)))
        note, sent = without_copies(note, records[:count])
        found += [int(one.value or b"") for one in sent]
        records = records[count:]
    assert found == list(range(max(log) + 1))
    assert json.loads(note) == {"t/0": max(log)}


@pytest.mark.parametrize("in_headers", [False, True])
def test_source_partitions_are_distinguished_wherever_their_coordinates_are(in_headers: bool) -> None:
    one = StoredRecord(5, 9, b"key", b"value", (("own", b"1"),))
    sources = [Coordinates("t", 0, 5), Coordinates("t", 1, 5), Coordinates("u", 0, 5), Coordinates("t", 0, 5)]
    sent = [carrying(one, source, in_headers=in_headers) for source in sources]
    written = [StoredRecord(at, 9, made.key, made.value, made.headers) for at, made in enumerate(sent)]
    note, kept = without_copies("", written)
    assert kept == [Record(b"value", b"key", (("own", b"1"),), 9)] * 3
    assert json.loads(note) == {"t/0": 5, "t/1": 5, "u/0": 5}


# ---------------------------------------------------------------------- changelog, exclusive producer
def test_a_state_is_what_its_changelog_says() -> None:
    writing, reading = State(), State()
    records = [StoredRecord(offset, 0, key, b"") for offset, key in enumerate((b"a", b"\xff", None, b"a", b"a"))]
    offset = 0
    for part in (records[:3], records[3:]):
        for row in writing.count(part):
            reading.apply(StoredRecord(offset, 0, row.key, row.value))
            offset += 1
    assert reading.counts == writing.counts == {"a": 3, "\xff": 1, "": 1}
    assert (reading.position, writing.position, reading.changelog_offset) == (5, 5, offset)


def test_batches_of_a_changelog_are_bounded() -> None:
    many, large = stored(CHANGELOG_RECORDS + 1), stored(40, key=b"k" * 10_000)
    assert [len(batch) for batch in in_batches(many)] == [CHANGELOG_RECORDS, 1]
    assert max(len(batch) for batch in in_batches(large)) * 10_000 <= CHANGELOG_BYTES
    assert [one for batch in in_batches(large) for one in batch] == large


def test_a_line_without_an_end_is_not_there_yet(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(BATCH_LINES + 3)) + b"half")
    assert [(first, len(records)) for first, records in batches_of(file, 0)] == [(0, BATCH_LINES), (BATCH_LINES, 3)]
    ((first, records),) = batches_of(file, BATCH_LINES + 1)
    assert (first, [one.value for one in records]) == (
        BATCH_LINES + 1,
        [b"%d" % (BATCH_LINES + 1), b"%d" % (BATCH_LINES + 2)],
    )
    assert list(batches_of(file, BATCH_LINES + 3)) == []


def test_the_other_half_of_a_line_is_no_line(tmp_path: Path) -> None:
    """It is written while the lines before it are sent."""
    path = tmp_path / "lines.txt"
    path.write_bytes(b"line\n" * (BATCH_LINES - 1) + b"half of a")
    batches = batches_of(path, 0)
    assert len(next(batches)[1]) == BATCH_LINES - 1
    with path.open("ab") as file:
        file.write(b" line\nnext\n")
    assert list(batches) == []
    assert [one.value for _, records in batches_of(path, BATCH_LINES - 1) for one in records] == [
        b"half of a line",
        b"next",
    ]


# ---------------------------------------------------------------------- kv_store
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"op": "put", "key": "a"}, "no text: value"),
        ({"op": "nonsense", "key": "a", "value": "1"}, "op is one of get, put, cas"),
        ({"op": "get", "key": 7}, "no text: key"),
        ({"op": "cas", "key": "a", "value": "1", "expected": 0}, "expected is a text or null, not 0"),
        ([], "op is one of get, put, cas"),
    ],
)
def test_what_is_no_operation_comes_into_no_log(asked: Any, said: str) -> None:
    """It would be read by every node, for ever."""
    with pytest.raises(ValueError, match=f"^{said}$"):
        checked(asked)
    assert entry_of(json.dumps({**asked, "at": 3} if asked else asked).encode()) == {}


@pytest.mark.parametrize("value", [None, b"", b"no JSON", b"[1]", b"\xff", b"7"])
def test_a_record_of_somebody_else_is_no_part_of_the_store(value: bytes | None) -> None:
    assert entry_of(value) == {}


def test_an_operation_is_read_as_it_was_written() -> None:
    asked = checked({"op": "cas", "key": "a", "value": "1", "expected": None, "lead": True, "more": 1})
    assert asked == {"op": "cas", "key": "a", "value": "1", "expected": None, "lead": True}
    entry = {"op": "get", "key": "a", "at": 3, "node": "one"}
    assert entry_of(json.dumps(entry).encode()) == {**entry, "value": None, "expected": None, "lead": None}
