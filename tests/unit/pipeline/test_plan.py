"""Which partitions are read, in which ranges; and the pieces of segment files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.pipeline.audit.plan import Plan, of_files
from idemproxy.pipeline.audit.read import compare, contents_at, read_range
from idemproxy.pipeline.audit.rows import Kind
from idemproxy.pipeline.reading import segments
from idemproxy.pipeline.reading.places import NothingToRead, Place, chosen, ranges_of
from testkit.stage.logs import numbered, plain, wrapper


def test_topics_are_chosen_by_name_and_by_pattern() -> None:
    there = ["a", "ab", "b", "__consumer_offsets"]
    assert chosen(there, [], []) == there[:3]
    assert chosen(there, ["__consumer_offsets"], []) == there[3:]
    assert chosen(there, ["b"], []) == ["b"]
    assert chosen(there, ["b"], [re.compile("a")]) == ["a", "b"]
    assert chosen(there, [], [re.compile("a.*")]) == ["a", "ab"]
    with pytest.raises(NothingToRead, match="there is no topic c, d"):
        chosen(there, ["c", "a", "d"], [])
    with pytest.raises(NothingToRead, match=r"no topic fits x\.\*"):
        chosen(there, [], [re.compile("x.*")])


def test_ranges_cover_each_partition_once_and_grow_with_the_log() -> None:
    places = [Place("t", 0, 10, 35), Place("t", 1, 7, 7), Place("t", 2, 0, 10)]
    ranges = [(one.place, one.start, one.end) for one in ranges_of(places, 10, 100)]
    assert ranges == [(0, 10, 20), (0, 20, 30), (0, 30, 35), (2, 0, 10)]
    assert len(ranges_of([Place("t", 0, 0, 1_000_000)], 10, ranges_max=4)) == 4


def segment(folder: Path, place: str, base: int, data: bytes) -> None:
    (folder / place).mkdir(exist_ok=True)
    (folder / place / f"{base:020}.log").write_bytes(data)
    (folder / place / f"{base:020}.index").write_bytes(b"index")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory with two partitions of one topic, the first in two segments."""
    segment(tmp_path, "orders-0", 5, wrapper(numbered(0, 3), 5, Identity(7, 0, 0, 3)) + plain(numbered(3, 2), 8))
    segment(tmp_path, "orders-0", 10, wrapper(numbered(0, 3), 10, Identity(7, 0, 0, 3)) + bytes(5000))
    segment(tmp_path, "orders-1", 0, b"")
    segment(tmp_path, "other-topic-0", 0, plain(numbered(0, 1)))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n")
    return tmp_path


def test_segment_files_are_read_as_they_are(folder: Path) -> None:
    plan = of_files([folder], ["orders"], [])
    assert [(place.name, place.start) for place in plan.places] == [("orders-0", 5), ("orders-1", 0)]
    rows = [row for one in plan.ranges for batch in read_range(plan, one) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows if row["kind"] == Kind.RECORD] == list(range(5, 13))
    assert not [row for row in rows if row["kind"] == Kind.UNREADABLE], "zeros behind the end of a file are its end"
    assert {place.topic for place in of_files([folder], [], []).places} == {"orders", "other-topic"}


def test_records_are_compared_by_their_bytes_also_between_files(folder: Path) -> None:
    plan = of_files([folder], ["orders"], [])
    import numpy as np

    pairs = np.array([[10, 5], [11, 5], [12, 7], [12, 99]])
    assert compare(plan, 0, pairs).tolist() == [1, 0, 1, -1]
    found = contents_at(plan, 0, np.array([5, 9, 10, 50]))
    assert sorted(found) == [5, 9, 10]
    assert found[5] == found[10] != found[9]


@pytest.mark.parametrize("size", [1, 300, 1 << 20])
def test_a_file_comes_in_pieces_of_whole_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(segments, "PIECE_BYTES", size)
    data = (
        b"".join(wrapper(numbered(number, 5), number) for number in range(0, 50, 5))
        + b"\0\0\0\0\0\0\0\x63\0\0\0\x99torn"
    )
    path = tmp_path / "file"
    path.write_bytes(data)
    pieces = [bytes(piece) for piece in segments.pieces(path)]
    assert b"".join(pieces) == data
    assert len(pieces) > 1 or size > len(data)


def test_a_folder_without_segments_is_said(tmp_path: Path) -> None:
    with pytest.raises(NothingToRead, match="no segment files"):
        of_files([tmp_path], [], [])
    assert Plan((), ()).bootstrap == ()
