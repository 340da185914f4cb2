"""What counts of a probe's batches: found in bytes of logs that real encoders have written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import LOG_APPEND_TIME_FLAG, encode_batch
from idemproxy.proxy.probe.batches import HEADERS, MARKERS, RECORDS_EACH, Maker, ProbeBatch
from idemproxy.proxy.probe.seen import Offsets, RequestOrder, Times, seen_of
from idemproxy.proxy.probe.stored import LogBatch, UnreadableAnswer, batches_of
from idemproxy.proxy.probe.trials import OUT_OF_ORDER, IdTrials, NoResponse, Outcome, Returned, Sent, Trials

MAKER = Maker("run", 1_700_000_000_000)
START = 5
REFUSED = Returned(45)
Write = Callable[[ProbeBatch, int], bytes]


def as_sent(batch: ProbeBatch, offset: int) -> bytes:
    """A broker writes the offset, which no checksum covers."""
    last = RECORDS_EACH - 1 if batch.marker is not None else 0
    return (offset + last).to_bytes(8, "big") + batch.data[8:]


def log_of(batches: Iterable[ProbeBatch], write: Write = as_sent) -> list[LogBatch]:
    data = b"".join(write(one, START + RECORDS_EACH * index) for index, one in enumerate(batches))
    found, _ = batches_of(data, START)
    return found


def sent(batches: Sequence[ProbeBatch], first: int = 0) -> tuple[Sent, ...]:
    """All of them acknowledged at their true offsets. ``first``: how many are before them."""
    return tuple(Sent(one, Returned(0, START + RECORDS_EACH * (first + index))) for index, one in enumerate(batches))


FIRST = MAKER.batch("first")
AT_ONCE = [MAKER.batch(f"at-once-{number}") for number in range(3)]
MARKED = [MAKER.batch(f"marked-{number}", (-1, *marker)) for number, marker in enumerate(MARKERS)]
HEADED = MAKER.batch("headers", headers=HEADERS)
PACKED = MAKER.batch("gzip", codec=Codec.GZIP)
ALL = [FIRST, *AT_ONCE, *MARKED, HEADED, PACKED]
_SENT = sent(ALL)
TRIALS = Trials(_SENT[0], _SENT[1:4], _SENT[4:8], _SENT[8], _SENT[9:])


def test_all_that_is_kept_is_seen() -> None:
    seen = seen_of(TRIALS, log_of(ALL))
    assert (seen.stored_format, seen.offsets, seen.order, seen.times) == (
        2,
        Offsets.TRUE,
        RequestOrder.KEPT,
        Times.KEPT,
    )
    assert (seen.sent, seen.missing, seen.changed) == (RECORDS_EACH * len(ALL), 0, 0)
    assert (seen.are_borders_kept, seen.are_markers_kept, seen.are_headers_kept) == (True, True, True)
    (packed,) = seen.compressed
    assert (packed.codec, packed.stored, packed.is_same) == (Codec.GZIP, Codec.GZIP, True)


def test_nothing_in_the_log_is_seen() -> None:
    seen = seen_of(TRIALS, [], "no answer")
    assert (seen.stored_format, seen.unread, seen.offsets) == (None, "no answer", Offsets.UNKNOWN)
    assert seen.missing == seen.sent
    assert (seen.are_borders_kept, seen.are_markers_kept, seen.are_headers_kept) == (None, False, False)


def test_batches_that_were_refused_do_not_count() -> None:
    refused = Sent(HEADED, Returned(87))
    trials = replace(TRIALS, with_headers=refused, marked=(*TRIALS.marked[:3], Sent(MARKED[3], Returned(87))))
    seen = seen_of(trials, log_of(ALL[:7]))
    assert (seen.are_headers_kept, seen.headers_refused) == (None, "INVALID_RECORD")
    assert (seen.are_markers_kept, seen.markers_refused) == (True, "INVALID_RECORD")


@pytest.mark.parametrize(("returned", "seen_as"), [(-1, Offsets.NONE), (START + 1, Offsets.FALSE)])
def test_one_wrong_offset_is_enough(returned: int, seen_as: Offsets) -> None:
    trials = replace(TRIALS, first=Sent(FIRST, Returned(0, returned)))
    assert seen_of(trials, log_of(ALL)).offsets is seen_as


def test_requests_in_another_order_are_seen() -> None:
    assert seen_of(TRIALS, log_of([FIRST, *reversed(AT_ONCE)])).order is RequestOrder.STORED_OTHERWISE
    lost = tuple(Sent(one, NoResponse(OUT_OF_ORDER)) for one in AT_ONCE)
    assert seen_of(replace(TRIALS, pipelined=lost), log_of(ALL)).order is RequestOrder.ANSWERED_OTHERWISE
    closed = tuple(Sent(one, NoResponse("closed")) for one in AT_ONCE)
    seen = seen_of(replace(TRIALS, pipelined=closed), log_of(ALL))
    assert (seen.order, seen.order_refused) == (RequestOrder.REFUSED, "no response (closed)")


def rebuilt(batch: ProbeBatch, offset: int) -> bytes:
    """As a service writes it that stores records."""
    records = [one._replace(headers=()) for one in batch.records]
    return encode_batch(records, base_offset=offset)


def split(batch: ProbeBatch, offset: int) -> bytes:
    """Every record alone."""
    alone = [one._replace(offset_delta=0) for one in batch.records]
    return b"".join(encode_batch([one], base_offset=offset + index) for index, one in enumerate(alone))


def test_header_fields_and_record_headers_that_are_lost_are_seen() -> None:
    seen = seen_of(TRIALS, log_of(ALL, rebuilt))
    assert (seen.are_borders_kept, seen.are_markers_kept, seen.are_headers_kept) == (True, False, False)
    assert (seen.offsets, seen.missing, seen.changed) == (Offsets.TRUE, 0, 0)
    assert (seen.compressed[0].stored, seen.compressed[0].is_same) == (0, False)


def test_borders_that_are_lost_are_seen() -> None:
    seen = seen_of(TRIALS, log_of(ALL, split))
    assert (seen.are_borders_kept, seen.offsets, seen.order, seen.missing) == (
        False,
        Offsets.TRUE,
        RequestOrder.KEPT,
        0,
    )


def test_a_changed_key_is_seen() -> None:
    def write(batch: ProbeBatch, offset: int) -> bytes:
        return encode_batch([one._replace(key=None) for one in batch.records], base_offset=offset)

    assert seen_of(TRIALS, log_of(ALL, write)).changed == RECORDS_EACH * len(ALL)


@pytest.mark.parametrize(("attributes", "seen_as"), [(0, Times.CHANGED), (LOG_APPEND_TIME_FLAG, Times.LOG_APPEND_TIME)])
def test_other_times_are_seen(attributes: int, seen_as: Times) -> None:
    def write(batch: ProbeBatch, offset: int) -> bytes:
        records = [one._replace(timestamp=7) for one in batch.records]
        return encode_batch(records, base_offset=offset, attributes=attributes)

    assert seen_of(TRIALS, log_of(ALL, write)).times is seen_as


# ---------------------------------------------------------------------- message format v1
def test_wrappers_are_seen_with_their_keys() -> None:
    wrappers = [MAKER.wrapper(f"wrapper-{number}") for number in range(4)]
    known = sent([FIRST, *wrappers])
    trials = Trials(known[0], known[1:3], wrappers=known[3:])

    def write(batch: ProbeBatch, offset: int) -> bytes:
        """What was sent as v2 is converted to messages of their own."""
        if batch.marker is not None:
            return as_sent(batch, offset)
        return encode_set([(one.key, one.value, one.timestamp) for one in batch.records], magic=1, first_offset=offset)

    log = log_of([FIRST, *wrappers], write)
    seen = seen_of(trials, log)
    assert (seen.stored_format, seen.offsets, seen.order, seen.missing) == (1, Offsets.TRUE, RequestOrder.KEPT, 0)
    assert (seen.are_borders_kept, seen.are_markers_kept, seen.times) == (True, True, Times.KEPT)
    assert seen_of(trials, [one._replace(key=None) for one in log]).are_markers_kept is False


# ---------------------------------------------------------------------- producer ids
def id_trials(**outcomes: Outcome) -> tuple[IdTrials, list[ProbeBatch]]:
    """Six batches at the start of the log, and others as ``outcomes`` say; those that were taken follow in the log."""
    batches = [MAKER.batch(f"id-{number}", (1000, 0, RECORDS_EACH * number)) for number in range(6)]
    others = {name: MAKER.batch(name, (1000, 0, 100)) for name in ("other", "gap", "newer", "older", "unknown")}
    named = {name: Sent(batch, outcomes.get(name, REFUSED)) for name, batch in others.items()}
    first = Returned(0, START + RECORDS_EACH * 5)
    fifth = Returned(0, START + RECORDS_EACH)
    trials = IdTrials(
        sent(batches),
        outcomes.get("last", first),
        outcomes.get("fifth", fifth),
        REFUSED,
        named["other"],
        named["gap"],
        named["newer"],
        named["older"],
        named["unknown"],
    )
    return trials, batches


def test_a_batch_that_comes_back_with_its_offset_is_stored_once() -> None:
    trials, batches = id_trials(other=Returned(0, START + RECORDS_EACH * 5))
    seen = seen_of(Trials(None, ids=trials, producer_ids=(1000, 1001)), log_of(batches))
    ids = seen.ids
    assert ids is not None
    assert ids.are_fields_kept
    assert [(one.is_first_offset, one.times) for one in (ids.last_again, ids.fifth_last_again)] == [(True, 1)] * 2
    assert (ids.other_content.is_first_offset, ids.other_content.times) == (True, 0)
    assert (ids.sixth_last_again.is_first_offset, ids.sixth_last_again.outcome) == (False, REFUSED)
    assert (seen.missing, seen.offsets) == (0, Offsets.TRUE), "a batch that was taken for another one is not missing"


def test_a_batch_that_is_stored_again_is_counted() -> None:
    trials, batches = id_trials(last=Returned(0, START + RECORDS_EACH * 6))
    seen = seen_of(Trials(None, ids=trials), log_of([*batches, batches[-1]]))
    assert seen.ids is not None
    assert (seen.ids.last_again.is_first_offset, seen.ids.last_again.times) == (False, 2)
    assert seen.offsets is Offsets.TRUE


def test_what_is_stored_twice_or_though_it_was_refused_is_seen() -> None:
    trials, batches = id_trials()
    twice = [*batches, batches[2], trials.gap.batch, trials.other_content.batch]
    seen = seen_of(Trials(None, ids=trials), log_of(twice))
    assert (seen.doubled, seen.stored_though_refused) == (RECORDS_EACH, ("gap", "other"))
    seen = seen_of(Trials(None, ids=trials), log_of([*batches, batches[-1]]))
    assert (seen.doubled, seen.stored_though_refused) == (0, ()), "that one was sent again"


@pytest.mark.parametrize(
    ("end", "is_true", "refused"),
    [(START + RECORDS_EACH * len(ALL), True, ""), (START, False, ""), ("closed", False, "closed")],
)
def test_the_end_is_compared_with_what_was_read(end: int | str, is_true: bool, refused: str) -> None:
    seen = seen_of(TRIALS, log_of(ALL), "", end)
    assert (seen.is_end_true, seen.end_refused) == (is_true, refused)


def test_an_offset_of_minus_one_is_no_first_offset() -> None:
    trials, batches = id_trials(last=Returned(0, -1))
    known = tuple(Sent(one.batch, Returned(0, -1)) for one in trials.in_order)
    seen = seen_of(Trials(None, ids=replace(trials, in_order=known)), log_of(batches))
    assert seen.ids is not None
    assert not seen.ids.last_again.is_first_offset


# ---------------------------------------------------------------------- bytes
def test_records_below_the_offset_that_was_asked_for_are_left_out() -> None:
    found, end = batches_of(as_sent(FIRST, 10), 11)
    assert ([one.offset for one in found[0].records], end) == ([11, 12], 13)
    assert batches_of(as_sent(FIRST, 10), 13) == ([], 13)


def test_a_part_of_a_batch_at_the_end_is_left_out() -> None:
    data = as_sent(FIRST, 10) + as_sent(HEADED, 13)[:-1]
    found, end = batches_of(data, 10)
    assert (len(found), end) == (1, 13)
    assert batches_of(b"", 4) == ([], 4)


@pytest.mark.parametrize("position", [17, 61, 8])
def test_bytes_that_are_no_batch_are_said_so(position: int) -> None:
    data = bytearray(as_sent(FIRST, 10))
    data[position] ^= 0xFF
    with pytest.raises(UnreadableAnswer, match="what is stored at offset 10 cannot be read"):
        batches_of(data, 10)
