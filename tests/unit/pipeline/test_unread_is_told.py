"""What an audit could not read is reported: it never says of it that nothing is wrong there."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message
from idemproxy.pipeline.audit import findings
from idemproxy.pipeline.audit.fingerprints import RangeTaker
from idemproxy.pipeline.audit.job import concluded
from idemproxy.pipeline.audit.kinds import Finding
from idemproxy.pipeline.audit.plan import Plan, of_files
from idemproxy.pipeline.audit.read import compared, read_range
from idemproxy.pipeline.audit.rows import Kind, columns_of, concatenated, taken
from idemproxy.pipeline.audit.sequences import Partition
from idemproxy.pipeline.reading import patience
from idemproxy.pipeline.reading.broker import Access
from idemproxy.pipeline.reading.places import NothingToRead, Place, Range
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
def test_a_damaged_size_in_the_middle_of_a_file_is_reported(tmp_path: Path, bit: int) -> None:
    """One bit of a size is another one: the entry seems to continue past the end of the file."""
    damaged = bytearray(BEHIND[0])
    damaged[8:12] = (int.from_bytes(damaged[8:12], "big") ^ 1 << bit).to_bytes(4, "big")
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(FIRST + bytes(damaged) + BEHIND[1] + plain(numbered(0, 90), 9))
    (tmp_path / "t-0" / f"{99:020}.log").write_bytes(plain(numbered(0, 2), 99))
    rows = rows_of(tmp_path)
    assert of_kind(rows, Kind.RECORD) == [0, 1, 2, 99, 100]
    assert of_kind(rows, Kind.UNREADABLE), "96 records were not read, and nobody is told"


def log_folder(tmp_path: Path, data: bytes) -> Path:
    """A partition of one file, its last one."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(data)
    return tmp_path


LAST_FILE = [modern(numbered(10 * n, 10), 10 * n, Identity(7, 0, 10 * n, 10)) for n in range(10)]
PLAIN_FILE = [plain(numbered(n, 1), n) for n in range(100)]
WRAPPERS = [wrapper(numbered(10 * n, 10), 10 * n, Identity(7, 0, 10 * n, 10)) for n in range(10)]


@pytest.mark.parametrize("entries", [LAST_FILE, PLAIN_FILE, WRAPPERS], ids=["batches", "messages", "wrappers"])
@pytest.mark.parametrize("size", [77, 1 << 20, (1 << 31) - 1])
@pytest.mark.parametrize("at", [3, -2, -1])
def test_bytes_after_a_damaged_length_in_the_last_file_are_reported(
    tmp_path: Path, entries: list[bytes], size: int, at: int
) -> None:
    damaged_log = list(entries)
    entry = bytearray(damaged_log[at])
    if size < len(entry) - 12 or size > 100:
        entry[8:12] = size.to_bytes(4, "big")
    else:
        entry[8:12] = (13).to_bytes(4, "big")
    damaged_log[at] = bytes(entry)
    rows = rows_of(log_folder(tmp_path, b"".join(damaged_log)))
    assert of_kind(rows, Kind.UNREADABLE), "the rest of the file was not read, and nobody is told"


@pytest.mark.parametrize("entries", [LAST_FILE, PLAIN_FILE, WRAPPERS], ids=["batches", "messages", "wrappers"])
@pytest.mark.parametrize("kept", [0, 5, 9, 11])
@pytest.mark.parametrize("left", [1, 11, 12, 30, -1])
def test_what_a_crash_has_cut_off_is_a_note(tmp_path: Path, entries: list[bytes], kept: int, left: int) -> None:
    cut = entries[min(kept, len(entries) - 1)][:left]
    rows = rows_of(log_folder(tmp_path, b"".join([*entries[: min(kept, len(entries) - 1)], cut])))
    assert not of_kind(rows, Kind.UNREADABLE)
    (note,) = [row["note"] for row in rows if row["kind"] == Kind.CUT]
    assert note == f"{len(cut)} bytes at the end of the file are no whole entry"


def test_a_wrapper_cut_off_by_a_crash_hides_nothing_despite_whole_messages(tmp_path: Path) -> None:
    """The proxy's wrappers are not compressed: the messages inside lie in the file as they are."""
    packed = gzip.compress(plain(numbered(0, 40)), compresslevel=0)
    stored = encode_message(None, packed, magic=1, offset=39, timestamp=7, codec=Codec.GZIP)
    assert b"value 39" in stored
    rows = rows_of(log_folder(tmp_path, stored[:-20]))
    assert not of_kind(rows, Kind.UNREADABLE)


def test_a_broken_file_in_the_middle_hides_no_hole_of_a_later_one(tmp_path: Path) -> None:
    folder = log_folder(tmp_path, FIRST + bytes([1]) * 50)
    (folder / "t-0" / f"{9:020}.log").write_bytes(plain(numbered(0, 2), 9))
    (span,) = [(row["offset"], row["last_offset"]) for row in rows_of(folder) if row["kind"] == Kind.UNREADABLE]
    assert span == (3, 8)


def test_what_was_found_is_reported_though_retention_has_deleted_it_since(tmp_path: Path) -> None:
    """Records 0 to 3 are there again from 4 on, and as other ones from 8 on; then the first segment is deleted."""
    log = plain(numbered(0, 4)) + plain(numbered(0, 4), 4) + plain(numbered(50, 4), 8)
    folder = log_folder(tmp_path, log)
    plan = of_files([folder], [], [])
    kinds = np.array([str(kind) for kind in (Finding.DUPLICATE, Finding.SUSPECTED_DUPLICATE)] * 2)
    given = {"place": 0, "offset": [4, 5, 8, 9], "other_offset": [0, 1, 0, 1]}
    pairs = findings.finding_rows(kinds, 4, **given, producer_id=7)

    def listed() -> list[tuple[str, int, int]]:
        table = concluded(pa.Table.from_batches(compared(plan, [pairs])))
        return [(row["kind"], row["offset"], row["compared"]) for row in table.to_pylist()]

    assert listed() == [("duplicate", 4, 1), ("suspected_duplicate", 5, 1), ("sequence_reused", 8, 1)]
    (folder / "t-0" / f"{0:020}.log").write_bytes(log[len(plain(numbered(0, 4))) :])
    assert listed() == [(kind, offset, 0) for kind, offset in zip(kinds.tolist(), (4, 5, 8, 9), strict=True)]


def test_records_that_differ_behind_equal_batch_markers_are_nothing(tmp_path: Path) -> None:
    log = plain(numbered(0, 4)) + plain(numbered(0, 2), 4) + plain(numbered(9, 2), 6)
    plan = of_files([log_folder(tmp_path, log)], [], [])
    pairs = findings.finding_rows(Finding.DUPLICATE, 4, place=0, offset=[4, 5, 6, 7], other_offset=[0, 1, 2, 3])
    table = concluded(pa.Table.from_batches(compared(plan, [pairs])))
    assert [(row["kind"], row["offset"]) for row in table.to_pylist()] == [("duplicate", 4), ("duplicate", 5)]


def judged(folder: Path) -> dict[str, int]:
    """What is found by offsets in the files, and how much of it."""
    plan = of_files([folder], [], [])
    blocks = [columns_of(batch) for one in plan.ranges for batch in read_range(plan, one)]
    rows = concatenated(blocks)
    (place,) = plan.places
    order = np.argsort(rows["offset"], kind="stable")
    partition = Partition(0, place.start, place.end, taken(rows, order), place.has_holes)
    return {row["kind"]: row["count"] for batch in partition.findings() for row in batch.to_pylist()}


@pytest.mark.parametrize(
    ("checkpoint", "key", "kind"),
    [
        ("0\n0\n", b"key", "missing_offsets"),
        ("0\n1\nother 0 5\n", b"key", "missing_offsets"),
        ("0\n1\nt 0 15\n", None, "offset_hole"),
        (None, b"key", "offset_hole"),
        (None, None, "missing_offsets"),
    ],
)
def test_a_missing_segment_in_between_is_a_loss_unless_compaction_is_possible(
    tmp_path: Path, checkpoint: str | None, key: bytes | None, kind: str
) -> None:
    """The broker's directory says which partitions it has compacted; without that, records without a key do."""
    (tmp_path / "t-0").mkdir()
    for base in (0, 20):
        data = plain([(key, b"value %d" % number, 7 + number) for number in range(10)], base)
        (tmp_path / "t-0" / f"{base:020}.log").write_bytes(data)
    if checkpoint is not None:
        (tmp_path / "cleaner-offset-checkpoint").write_text(checkpoint)
    assert judged(tmp_path) == {kind: 10}


def test_a_partition_folder_without_a_segment_is_planned_without_a_range(tmp_path: Path) -> None:
    folder = log_folder(tmp_path, plain(numbered(0, 3)))
    (folder / "t-1").mkdir()
    (folder / "gone-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    plan = of_files([folder], [], [])
    assert [place.name for place in plan.places] == ["t-0", "t-1"]
    assert [one.place for one in plan.ranges] == [0]


def test_two_replicas_of_one_partition_are_not_audited_as_one_log(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        log_folder(tmp_path / name, plain(numbered(0, 3)))
    with pytest.raises(NothingToRead, match=r"t-0 is in .*one and in .*other: these are replicas"):
        of_files([tmp_path / "one", tmp_path / "other"], [], [])


def test_a_hole_of_zeros_in_the_middle_of_a_file_is_reported(tmp_path: Path) -> None:
    """After a loss of power: one page was not written, those after it were."""
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
    """A new leader: for its first fetches it shows consumers less than the old one did, until it knows where its
    followers are."""

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


def test_what_a_new_leader_does_not_have_is_reported_as_unreadable() -> None:
    """It is no retention: the log ends earlier than it did."""

    class Truncated(Elected):
        lags_for = 1 << 30

    with Truncated(LOG) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "LAG_SECONDS_MAX", 0.6)
        plan = Plan((Place("t", 0, 0, 12),), (Range(0, 0, 12),), (server.address,))
        rows = [row for batch in read_range(plan, plan.ranges[0]) for row in batch.to_pylist()]
    assert of_kind(rows, Kind.RECORD) == [0, 1, 2]
    assert [row["note"] for row in rows if row["kind"] == Kind.UNREADABLE] == [
        "the log ends at 3 now: its leader has lost what it had shown"
    ]
    assert not of_kind(rows, Kind.DELETED)


def damaged(entry: bytes, at: int, bit: int) -> bytes:
    made = bytearray(entry)
    made[at] ^= 1 << bit
    return bytes(made)


BATCHES = [modern(numbered(0, 3), 3 * number, Identity(7, 0, 3 * (number - 2), 3)) for number in range(2, 9)]
"""From offset 6 on."""


@pytest.mark.parametrize("at", [23, 24], ids=["far behind", "behind"])
def test_a_damaged_batch_that_seems_to_end_after_the_range_is_reported(at: int) -> None:
    """The bit is one of the batch's last offset; its checksum says that it is damaged."""
    taker = RangeTaker(0, 6, 24)
    while_reading = BATCHES[0] + damaged(BATCHES[1], at, 5) + b"".join(BATCHES[2:])
    rows = [row for batch in (taker.take(while_reading), taker.finished(0)) for row in batch.to_pylist()]
    assert taker.is_over
    assert of_kind(rows, Kind.RECORD)[:3] == [6, 7, 8]
    assert of_kind(rows, Kind.UNREADABLE), "15 records were not read, and nobody is told"


def test_a_wrapper_whose_own_offset_is_damaged_is_reported() -> None:
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
