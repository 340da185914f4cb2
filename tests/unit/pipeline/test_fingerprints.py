"""One range becomes rows: each record once, whichever task reads the ranges next to it; and what is missing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.header_marker import header_marker_of
from idemproxy.codecs.message_set import encode_message
from idemproxy.pipeline.audit.fingerprints import RangeTaker
from idemproxy.pipeline.audit.rows import IS_MARKED, Kind
from idemproxy.pipeline.reading.container import entries
from idemproxy.pipeline.reading.decode import containers
from testkit.stage.logs import marked, modern, numbered, plain, wrapper

Row = dict[str, int]
LOG = (
    wrapper(numbered(0, 4), 0, Identity(7, 0, 0, 4))
    + wrapper(numbered(4, 4), 4, Identity(7, 0, 4, 2), Identity(8, 0, 0, 2))
    + plain(numbered(8, 3), 8)
    + modern(numbered(11, 4), 11, Identity(7, 0, 6, 4))
)
END = 15


def of(kind: Kind, *batches: pa.RecordBatch) -> list[Row]:
    """The rows of one kind."""
    return [row for batch in batches for row in batch.to_pylist() if row["kind"] == kind]


def spans(rows: list[Row]) -> list[tuple[int, int]]:
    """From which offset to which."""
    return [(row["offset"], row["last_offset"]) for row in rows]


def test_each_record_has_its_offset_its_producer_and_two_hashes() -> None:
    taker = RangeTaker(3, 0, END)
    rows = of(Kind.RECORD, taker.take(LOG))
    assert taker.is_over
    assert {row["place"] for row in rows} == {3}
    assert [row["offset"] for row in rows] == list(range(END))
    who = [(row["producer_id"], row["sequence"]) for row in rows]
    assert who == [(7, n) for n in range(6)] + [(8, 0), (8, 1)] + [(-1, -1)] * 3 + [(7, n) for n in range(6, 10)]
    assert len({(row["hash1"], row["hash2"]) for row in rows}) == END
    assert len({row["hash1"] for row in rows} | {row["hash2"] for row in rows}) == 2 * END
    assert {row["size"] for row in rows} == {len(b"keyvalue 0"), len(b"keyvalue 10")}


def test_runs_continue_over_the_borders_of_batches_but_not_of_producers() -> None:
    runs = of(Kind.RUN, RangeTaker(0, 0, END).take(LOG))
    assert [(*spans([run])[0], run["producer_id"], run["sequence"], run["size"]) for run in runs] == [
        (0, 5, 7, 0, 6),
        (6, 7, 8, 0, 2),
        (8, 10, -1, -1, 3),
        (11, 14, 7, 6, 4),
    ]


@pytest.mark.parametrize("border", range(END + 1))
def test_wherever_two_ranges_meet_each_record_is_in_one_of_them(border: int) -> None:
    batches = []
    for start, end in ((0, border), (border, END)):
        taker = RangeTaker(0, start, end)
        batches.append(taker.take(LOG))
        assert taker.is_over or taker.position >= end
    assert sorted(row["offset"] for row in of(Kind.RECORD, *batches)) == list(range(END))


def fetched(offset: int) -> bytes:
    """What a broker hands out: from the entry on that has this offset or, if none has it, the next one."""
    starts, end = entries(LOG)
    for start, behind in zip(starts.tolist(), [*starts.tolist()[1:], end], strict=True):
        if next(containers(LOG[start:behind])).last >= offset:
            return LOG[start:]
    return b""


@pytest.mark.parametrize("border", range(END + 1))
def test_so_it_is_where_each_range_is_fetched_for_itself(border: int) -> None:
    rows = []
    for start, end in ((0, border), (border, END)):
        taker = RangeTaker(0, start, end)
        while not taker.is_over:
            rows += of(Kind.RECORD, taker.take(fetched(taker.position)))
    assert sorted(row["offset"] for row in rows) == list(range(END))


@pytest.mark.parametrize("size", [1, 7, 100, len(LOG)])
def test_however_a_range_comes_in_pieces_its_rows_are_the_same(size: int) -> None:
    whole = of(Kind.RECORD, RangeTaker(0, 0, END).take(LOG))
    taker = RangeTaker(0, 0, END)
    rows = []
    read = 0
    while not taker.is_over:
        read += size
        rows += of(Kind.RECORD, taker.take(LOG[:read]))
    assert rows == whole


def test_offsets_that_are_missing_within_a_wrapper_are_reported() -> None:
    inner = plain(numbered(0, 1), 0) + plain(numbered(1, 1), 3)
    packed_again = encode_message(None, compress(Codec.GZIP, inner), magic=1, offset=13, codec=Codec.GZIP)
    taken = RangeTaker(0, 10, 14).take(packed_again)
    assert spans(of(Kind.HOLE, taken)) == [(11, 12)]
    assert spans(of(Kind.RUN, taken)) == [(10, 13)]


def test_a_message_that_cannot_be_read_is_reported_and_passed_over() -> None:
    damaged = bytearray(LOG)
    damaged[40] ^= 1
    taken = RangeTaker(0, 0, END).take(bytes(damaged))
    (bad,) = of(Kind.UNREADABLE, taken)
    assert (bad["offset"], bad["last_offset"]) == (3, 3)
    assert "CRC" in str(bad["note"])
    assert [row["offset"] for row in of(Kind.RECORD, taken)] == list(range(4, END))


def test_a_range_is_over_where_bytes_have_no_message_format() -> None:
    taker = RangeTaker(0, 0, 100)
    taken = taker.take(plain(numbered(0, 2)) + bytes(40))
    assert taker.is_over
    assert spans(of(Kind.UNREADABLE, taken)) == [(2, 99)]
    assert spans(of(Kind.RANGE, taker.finished(99))) == [(0, 2)]


def test_what_retention_deletes_meanwhile_is_reported() -> None:
    taker = RangeTaker(0, 0, 10)
    assert spans(of(Kind.DELETED, taker.deleted(6))) == [(0, 6)]
    assert (taker.position, taker.is_over) == (7, False)


def test_batches_with_a_marker_in_their_header_stay_apart_and_show_no_producer() -> None:
    names = [Identity(7, 0, 0, 3), Identity(7, 0, 3, 3), Identity(8, 0, 0, 3)]
    log = b"".join(marked(numbered(3 * at, 3), 3 * at, name) for at, name in enumerate(names))
    taker = RangeTaker(0, 0, 9)
    batch = taker.take(log)
    runs, records = of(Kind.RUN, batch), of(Kind.RECORD, batch)
    assert spans(runs) == [(0, 2), (3, 5), (6, 8)]
    assert [run["hash1"] for run in runs] == [header_marker_of(name) for name in names]
    assert {(row["producer_id"], row["epoch"], row["sequence"]) for row in (*runs, *records)} == {(-1, -1, -1)}
    assert [row["last_offset"] for row in records] == [2, 2, 2, 5, 5, 5, 8, 8, 8]
    assert {row["flags"] for row in records} == {IS_MARKED}
