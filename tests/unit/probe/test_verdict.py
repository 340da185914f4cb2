"""What follows from what a probe saw: each row of its table, and the form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.probe.seen import Again, Compressed, Ids, Offsets, RequestOrder, Seen, Times
from idemproxy.proxy.probe.trials import NoResponse, Returned
from idemproxy.proxy.probe.verdict import Row, rows_of, verdict_of

STORED = Returned(0, 30)
GAP, OLDER = (Returned(code) for code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH))
AS_KAFKA = Ids(
    are_fields_kept=True,
    taken=STORED,
    last_again=Again(STORED, is_first_offset=True, times=1),
    fifth_last_again=Again(STORED, is_first_offset=True, times=1),
    sixth_last_again=Again(GAP, is_first_offset=False, times=1),
    other_content=Again(STORED, is_first_offset=True, times=0),
    gap=GAP,
    newer_epoch=STORED,
    older_epoch=OLDER,
    unknown_id=STORED,
)
KAFKA = Seen(
    stored_format=2,
    unread="",
    offsets=Offsets.TRUE,
    order=RequestOrder.KEPT,
    order_refused="",
    sent=60,
    missing=0,
    changed=0,
    doubled=0,
    stored_though_refused=(),
    is_end_true=True,
    end_refused="",
    are_borders_kept=True,
    are_markers_kept=True,
    markers_refused="",
    are_headers_kept=True,
    headers_refused="",
    times=Times.KEPT,
    compressed=(Compressed(Codec.GZIP, STORED, Codec.GZIP, is_same=True),),
    producer_ids=(1000, 1001),
    ids=AS_KAFKA,
)
STORED_AGAIN = replace(
    AS_KAFKA, last_again=Again(STORED, is_first_offset=False, times=2), gap=STORED, older_epoch=STORED
)
V1 = replace(KAFKA, stored_format=1, producer_ids=None, ids=None, compressed=(), are_headers_kept=None)


def row(seen: Seen, trial: str) -> Row:
    (found,) = (one for one in rows_of(seen) if one.trial == trial)
    return found


def form(seen: Seen) -> Form | None:
    return verdict_of(rows_of(seen), seen).form


def ids(**changes: Any) -> Seen:
    return replace(KAFKA, ids=replace(AS_KAFKA, **changes))


def test_kafka_from_2_5_on_is_served_with_its_own_ids() -> None:
    assert form(KAFKA) is Form.OWN_IDS
    assert {row.seen for row in rows_of(KAFKA)} >= {"v2", "where the batch is", "kept", "1000, 1001"}


@pytest.mark.parametrize(
    ("seen", "trial", "shown"),
    [
        (replace(KAFKA, producer_ids=None, ids=None), "new producer ids", "InitProducerId is not listed"),
        (
            replace(KAFKA, producer_ids=Returned(ErrorCode.INVALID_REQUEST), ids=None),
            "new producer ids",
            "InitProducerId is refused: INVALID_REQUEST",
        ),
        (replace(KAFKA, producer_ids=(0, 0)), "new producer ids", "not new: 0, 0"),
        (replace(KAFKA, producer_ids=(-1, -2), ids=None), "new producer ids", "not new: -1, -2"),
        (ids(taken=Returned(ErrorCode.INVALID_RECORD)), "six batches with a producer id", "refused: INVALID_RECORD"),
        (ids(last_again=Again(STORED, False, 2)), "last batch again", "another offset, stored twice"),
        (ids(last_again=Again(Returned(0), False, 1)), "last batch again", "no offset, stored once"),
        (ids(last_again=Again(STORED, True, 2)), "last batch again", "its first offset, stored twice"),
        (ids(last_again=Again(GAP, False, 1)), "last batch again", "refused: OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (ids(fifth_last_again=Again(GAP, False, 1)), "fifth last batch again", "refused: OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (ids(gap=STORED), "gap in the sequence", "taken"),
        (ids(gap=OLDER), "gap in the sequence", "refused: INVALID_PRODUCER_EPOCH"),
        (ids(gap=NoResponse("closed")), "gap in the sequence", "no response (closed)"),
        (ids(newer_epoch=OLDER), "newer epoch from sequence 0", "refused: INVALID_PRODUCER_EPOCH"),
        (ids(older_epoch=STORED), "older epoch", "taken"),
        (
            ids(unknown_id=Returned(ErrorCode.UNKNOWN_PRODUCER_ID)),
            "unknown producer id from sequence 17",
            "refused: UNKNOWN_PRODUCER_ID",
        ),
    ],
)
def test_without_one_part_of_idempotence_batches_are_marked(seen: Seen, trial: str, shown: str) -> None:
    assert row(seen, trial).seen == shown
    assert row(seen, trial).meets == {Form.OWN_IDS: False}
    assert form(seen) is Form.MARKED_V2


@pytest.mark.parametrize(
    ("changes", "trial", "shown"),
    [
        ({"are_borders_kept": False}, "batch borders", "lost: batches are merged or split"),
        ({"are_markers_kept": False}, "epoch and sequence without producer id", "lost"),
        (
            {"are_markers_kept": True, "markers_refused": "INVALID_RECORD"},
            "epoch and sequence without producer id",
            "refused: INVALID_RECORD",
        ),
        ({"are_headers_kept": False}, "record headers", "lost"),
        ({"are_headers_kept": None, "headers_refused": "INVALID_RECORD"}, "record headers", "refused: INVALID_RECORD"),
        ({"times": Times.CHANGED}, "timestamps of records", "changed"),
        ({"compressed": (Compressed(Codec.GZIP, STORED, None, False),)}, "compression: gzip", "missing in the log"),
    ],
)
def test_what_markers_need_counts_only_without_idempotence(changes: dict[str, Any], trial: str, shown: str) -> None:
    seen = replace(KAFKA, **changes)
    assert row(seen, trial).seen == shown
    assert row(seen, trial).meets == {Form.MARKED_V2: False}
    assert form(seen) is Form.OWN_IDS
    ignoring = replace(seen, ids=STORED_AGAIN)
    verdict = verdict_of(rows_of(ignoring), ignoring)
    assert verdict.form is None
    assert verdict.because[0] == f"{trial}: {shown}"
    assert "last batch again: another offset, stored twice" in verdict.because


@pytest.mark.parametrize(
    ("changes", "trial", "shown"),
    [
        ({"offsets": Offsets.NONE}, "base offset in responses", "-1"),
        ({"offsets": Offsets.FALSE}, "base offset in responses", "where the batch is not"),
        ({"order": RequestOrder.STORED_OTHERWISE}, "five requests sent at once", "stored in another order"),
        ({"order": RequestOrder.ANSWERED_OTHERWISE}, "five requests sent at once", "returned in another order"),
        (
            {"order": RequestOrder.REFUSED, "order_refused": "no response (closed)"},
            "five requests sent at once",
            "refused: no response (closed)",
        ),
        ({"missing": 2, "changed": 1}, "records in fetches", "2 missing, 1 changed of 60"),
        ({"doubled": 4}, "records in fetches", "4 doubled of 60"),
        ({"stored_though_refused": ("gap", "older")}, "batches that are refused", "stored: gap, older"),
        ({"sent": 0}, "records in fetches", "all 0, with key and value"),
    ],
)
@pytest.mark.parametrize("stored", [KAFKA, replace(KAFKA, ids=STORED_AGAIN), V1])
def test_what_all_forms_need_makes_that_none_can_be_served(
    stored: Seen, changes: dict[str, Any], trial: str, shown: str
) -> None:
    seen = replace(stored, **changes)
    assert row(seen, trial).seen == shown
    verdict = verdict_of(rows_of(seen), seen)
    assert (verdict.form, str(verdict)) == (None, "cannot be served")
    assert f"{trial}: {shown}" in verdict.because


@pytest.mark.parametrize(
    "changes",
    [
        {"times": Times.LOG_APPEND_TIME},
        {"compressed": (Compressed(Codec.GZIP, STORED, Codec.ZSTD, False),)},
        {"compressed": (Compressed(Codec.GZIP, STORED, 0, False),)},
        {"compressed": (Compressed(Codec.ZSTD, Returned(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), None, False),)},
        {"ids": replace(AS_KAFKA, are_fields_kept=False)},
        {"ids": replace(AS_KAFKA, other_content=Again(GAP, False, 0))},
        {"ids": replace(AS_KAFKA, other_content=Again(STORED, False, 1))},
        {"ids": replace(AS_KAFKA, sixth_last_again=Again(STORED, True, 1))},
    ],
)
def test_what_is_only_shown_changes_nothing(changes: dict[str, Any]) -> None:
    seen = replace(KAFKA, **changes)
    assert rows_of(seen) != rows_of(KAFKA)
    assert form(seen) is Form.OWN_IDS
    assert form(replace(seen, producer_ids=None, ids=None)) is Form.MARKED_V2


@pytest.mark.parametrize(
    ("changes", "shown"),
    [({"is_end_true": False}, "not true"), ({"is_end_true": False, "end_refused": "closed"}, "refused: closed")],
)
def test_a_log_that_is_searched_needs_a_true_end(changes: dict[str, Any], shown: str) -> None:
    for stored, expected in ((KAFKA, Form.OWN_IDS), (replace(KAFKA, ids=STORED_AGAIN), None), (V1, None)):
        seen = replace(stored, **changes)
        assert row(seen, "log end in ListOffsets").seen == shown
        assert form(seen) is expected


def test_message_format_v1_is_served_by_wrappers_with_or_without_their_key() -> None:
    assert form(V1) is Form.WRAPPER_V1
    for kept in (False, None):
        assert form(replace(V1, are_markers_kept=kept, are_borders_kept=kept)) is Form.WRAPPER_V1


@pytest.mark.parametrize(("stored", "shown"), [(0, "v0"), (None, "not known: Fetch: ...")])
def test_message_format_v0_or_none_cannot_be_served(stored: int | None, shown: str) -> None:
    seen = replace(V1, stored_format=stored, unread="Fetch: ...")
    assert row(seen, "message format that is stored").seen == shown
    assert verdict_of(rows_of(seen), seen).because == (f"message format that is stored: {shown}",)


def test_a_missing_right_is_a_hint_and_not_a_reason() -> None:
    seen = replace(KAFKA, producer_ids=Returned(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), ids=None)
    verdict = verdict_of(rows_of(seen), seen)
    assert verdict.form is Form.MARKED_V2
    assert "grant IdempotentWrite on Cluster" in verdict.hints[0]
    assert verdict_of(rows_of(KAFKA), KAFKA).hints == ()
