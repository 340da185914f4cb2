"""What an audit could not read is told: it never says of it that nothing is wrong there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs.marker import Identity
from idemproxy.codecs.message_set import encode_message
from idemproxy.pipeline.audit.fingerprints import RangeTaker
from idemproxy.pipeline.audit.plan import Plan, of_files
from idemproxy.pipeline.audit.read import read_range
from idemproxy.pipeline.audit.rows import Kind
from idemproxy.pipeline.reading.broker import Access
from idemproxy.pipeline.reading.places import Place, Range
from idemproxy.pipeline.source.options import Rows as SourceRows
from idemproxy.pipeline.source.planning import Range as SourceRange
from idemproxy.pipeline.source.planning import ReadTask
from idemproxy.pipeline.source.problems import DamagedLog
from idemproxy.pipeline.source.tasks import read
from testkit.stage.logs import modern, numbered, plain, wrapper
from testkit.stage.reading_server import ReadingServer

FIRST = wrapper(numbered(0, 3), 0, Identity(7, 0, 0, 3))
BEHIND = [wrapper(numbered(0, 3), 3, Identity(7, 0, 0, 3)), wrapper(numbered(3, 3), 6, Identity(7, 0, 3, 3))]
"""The first one is a certain duplicate of FIRST."""


def rows_of(folder: Path) -> list[dict[str, Any]]:
    plan = of_files([folder], [], [])
    return [row for one in plan.ranges for batch in read_range(plan, one) for row in batch.to_pylist()]


def of_kind(rows: list[dict[str, Any]], kind: Kind) -> list[int]:
    return [row["offset"] for row in rows if row["kind"] == kind]


@pytest.mark.parametrize("bit", [23, 25, 30])
def test_a_damaged_size_in_the_middle_of_a_file_is_told(tmp_path: Path, bit: int) -> None:
    """One bit of a size is another one: the entry seems to go on behind the end of the file."""
    damaged = bytearray(BEHIND[0])
    damaged[8:12] = (int.from_bytes(damaged[8:12], "big") ^ 1 << bit).to_bytes(4, "big")
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(FIRST + bytes(damaged) + BEHIND[1] + plain(numbered(0, 90), 9))
    (tmp_path / "t-0" / f"{99:020}.log").write_bytes(plain(numbered(0, 2), 99))
    rows = rows_of(tmp_path)
    assert of_kind(rows, Kind.RECORD) == [0, 1, 2, 99, 100]
    assert of_kind(rows, Kind.UNREADABLE), "96 records were not read, and nobody is told"


def test_a_hole_of_zeros_in_the_middle_of_a_file_is_told(tmp_path: Path) -> None:
    """After a loss of power: one page was not written, those behind it were."""
    (tmp_path / "t-0").mkdir()
    log = bytearray(b"".join([FIRST, *BEHIND]) + plain(numbered(0, 500), 9))
    begin, page = len(FIRST), 4096
    log[begin : begin + page] = bytes(page)
    assert len(log) > 3 * page
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(log)
    rows = rows_of(tmp_path)
    assert of_kind(rows, Kind.RECORD)[:3] == [0, 1, 2]
    assert of_kind(rows, Kind.UNREADABLE), "most of the file was not read, and nobody is told"


class Elected(ReadingServer):
    """A new leader: for its first fetches it shows consumers less than the old one did, until its followers have told
    it where they are."""

    lags_for = 2
    shown = 3

    def _answer(self, wanted: Any, error_code: int) -> bytes:
        if self.fetches > self.lags_for:
            return super()._answer(wanted, error_code)
        log, self._log = self._log, self._log[: self.shown]
        try:
            return super()._answer(wanted, error_code)
        finally:
            self._log = log


LOG = [encode_message(b"k", b"v%d" % (offset % 4), magic=1, offset=offset, timestamp=7) for offset in range(12)]


def test_an_audit_waits_for_a_new_leader_that_lags() -> None:
    """As the source does."""
    with Elected(LOG) as server:
        plan = Plan((Place("t", 0, 0, 12),), (Range(0, 0, 12),), (server.address,))
        rows = [row for batch in read_range(plan, plan.ranges[0]) for row in batch.to_pylist()]
    assert of_kind(rows, Kind.RECORD) == list(range(12))
    assert not of_kind(rows, Kind.DELETED)


def damaged(entry: bytes, at: int, bit: int) -> bytes:
    made = bytearray(entry)
    made[at] ^= 1 << bit
    return bytes(made)


BATCHES = [modern(numbered(0, 3), 3 * number, Identity(7, 0, 3 * (number - 2), 3)) for number in range(2, 9)]
"""From offset 6 on."""


@pytest.mark.parametrize("at", [23, 24], ids=["far behind", "behind"])
def test_a_batch_that_is_damaged_and_seems_to_end_behind_the_range_is_told(at: int) -> None:
    """The bit is one of the batch's last offset; its checksum says that it is damaged."""
    taker = RangeTaker(0, 6, 24)
    while_reading = BATCHES[0] + damaged(BATCHES[1], at, 5) + b"".join(BATCHES[2:])
    rows = [row for batch in (taker.take(while_reading), taker.finished(0)) for row in batch.to_pylist()]
    assert taker.is_over
    assert of_kind(rows, Kind.RECORD)[:3] == [6, 7, 8]
    assert of_kind(rows, Kind.UNREADABLE), "15 records were not read, and nobody is told"


def test_a_wrapper_whose_own_offset_is_damaged_is_told() -> None:
    """No checksum covers it."""
    log = [wrapper(numbered(0, 3), 3 * number, Identity(7, 0, 3 * number, 3)) for number in range(8)]
    taker = RangeTaker(0, 0, 24)
    rows = [
        row
        for batch in (taker.take(log[0] + damaged(log[1], 2, 1) + b"".join(log[2:])), taker.finished(0))
        for row in batch.to_pylist()
    ]
    assert of_kind(rows, Kind.RECORD)[:3] == [0, 1, 2]
    assert of_kind(rows, Kind.UNREADABLE)


def test_the_source_tells_of_a_wrapper_whose_own_offset_is_damaged() -> None:
    log = [wrapper(numbered(0, 1), number, Identity(7, 0, number, 1)) for number in range(8)]
    log[3] = damaged(log[3], 2, 1)
    with ReadingServer(log) as server:
        wanted = SourceRange("t", 0, 0, len(log))
        task = ReadTask((server.address,), Access("test"), wanted, SourceRows.RECORDS, False, True, 4 << 20)
        with pytest.raises(DamagedLog, match="the offsets 3 to 7 cannot be read"):
            list(read(task))
