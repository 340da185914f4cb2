"""What may be written in bulk for one producer: never over an intent, never with less than is stored (rule R10)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.pipeline.rebuild.found import FoundProducer
from idemproxy.pipeline.rebuild.judge import Difference, Effect, Judged, judge, judge_unfound, may_be_recognised
from idemproxy.state.commit import Stored, fresh
from idemproxy.state.conditional import begun, ended_at
from idemproxy.state.entry import (
    NO_ANCHOR,
    NO_CONTENT,
    NO_DATA_GENERATION,
    NO_PRINCIPAL,
    Entry,
    Intent,
    IntentBatch,
    IntentKind,
    WindowBatch,
    pack,
    unpack,
)
from idemproxy.state.names import FIRST_NAMED_ID
from idemproxy.state.producer_ids import CONDITIONAL_ID, pack_block

LIFE, EARLIER, ANCHOR, PRINCIPAL = b"g" * 16, b"e" * 16, b"a" * 8, b"p" * 8
VERSION_FROM = 1_700_000_000_000_000
PIECES = (Stored(0, 0, 2, 10), Stored(0, 2, 3, 14))
FOUND = FoundProducer(7, PIECES, 17, ANCHOR, 1000)
IN_DOUBT = replace(FOUND, has_unmarked=True)
WINDOW = (WindowBatch(0, 2, 10), WindowBatch(2, 3, 14))
KNOWN = Entry(6, LIFE, PRINCIPAL, 0, 5, WINDOW, 10, 17, ANCHOR)
LESS = Entry(4, LIFE, PRINCIPAL, 0, 2, WINDOW[:1], 10, 12, ANCHOR)
INTENT = Intent(b"o" * 8, 0, (IntentBatch(5, 1, b"digest-9"),), 17, ANCHOR, NO_CONTENT, 0)


def judged(found: FoundProducer, entry: Entry | None, block: bytes | None = None) -> Judged:
    return judge(found, None if entry is None else pack(entry), block, LIFE, VERSION_FROM)


def written(said: Judged) -> Entry:
    assert said.value is not None
    return unpack(said.value)


def test_what_is_missing_is_written_with_a_version_above_all_that_a_proxy_remembers() -> None:
    said = judged(FOUND, None, pack_block(LIFE, 1, PRINCIPAL))
    assert (said.difference, said.effect, said.expected_version) == (Difference.MISSING, Effect.WHOLE, 0)
    entry = written(said)
    assert (entry.data_generation, entry.principal, entry.producer_epoch, entry.next_sequence) == (
        LIFE,
        PRINCIPAL,
        0,
        5,
    )
    assert (entry.window, entry.end_offset, entry.anchor, entry.is_rebuilt) == (WINDOW, 17, ANCHOR, False)
    assert entry.version > VERSION_FROM


def test_a_producer_with_possibly_hidden_batches_stays_unverified_with_a_later_bound() -> None:
    said = judged(IN_DOUBT, None)
    assert (said.effect, written(said).data_generation, written(said).end_offset) == (
        Effect.BOUND,
        NO_DATA_GENERATION,
        17,
    )
    unverified = replace(written(said), version=8)
    assert judged(IN_DOUBT, unverified) == Judged(Difference.UNVERIFIED)  # it says so already


@pytest.mark.parametrize("less", [LESS, replace(LESS, data_generation=EARLIER)])
def test_less_is_raised_by_a_swap_of_what_was_read(less: Entry) -> None:
    said = judged(FOUND, less)
    assert said.expected_version == less.version
    entry = written(said)
    assert (entry.next_sequence, entry.data_generation) == (5, LIFE)
    assert entry.version > VERSION_FROM, "above what a proxy remembers of what was lost"
    assert entry.principal == PRINCIPAL


def test_more_is_never_lowered() -> None:
    more = replace(KNOWN, next_sequence=9)
    assert judged(FOUND, more) == Judged(Difference.AHEAD)
    assert judged(FOUND, replace(more, data_generation=EARLIER)) == Judged(Difference.AHEAD)
    assert judged(FOUND, replace(KNOWN, producer_epoch=1, next_sequence=1)) == Judged(Difference.AHEAD)


def test_an_epoch_that_has_begun_and_has_nothing_in_the_log_is_no_difference() -> None:
    begun = replace(KNOWN, producer_epoch=1, next_sequence=0, window=())
    assert judged(FOUND, begun) == Judged(Difference.SAME)


@pytest.mark.parametrize(
    "intent", [INTENT, replace(INTENT, kind=IntentKind.UNRECOVERABLE), replace(INTENT, batches=())]
)
def test_an_intent_is_left_to_the_proxies(intent: Intent) -> None:
    for data_generation in (LIFE, EARLIER):
        assert judged(FOUND, replace(LESS, data_generation=data_generation, intent=intent)) == Judged(Difference.BUSY)


def test_what_others_look_after_is_left_alone() -> None:
    assert judged(FOUND, KNOWN) == Judged(Difference.SAME)
    assert judged(replace(FOUND, producer_id=FIRST_NAMED_ID), None) == Judged(Difference.NAMED)


def test_nothing_is_written_of_a_conditional_partition_so_that_a_fence_stays() -> None:
    found = replace(FOUND, producer_id=CONDITIONAL_ID)
    fenced = ended_at(begun(fresh(NO_DATA_GENERATION, NO_PRINCIPAL, 0, 0), EARLIER, 15), 17)
    for entry in (None, fenced, replace(fenced, data_generation=LIFE), KNOWN):
        assert judged(found, entry) == Judged(Difference.CONDITIONAL)
    assert judge(FOUND, b"damaged", None, LIFE, VERSION_FROM) == Judged(Difference.DAMAGED)


def test_a_newer_epoch_in_the_log_takes_the_place_of_the_older_one() -> None:
    newer = replace(FOUND, pieces=(*PIECES, Stored(1, 0, 1, 17)), end_offset=18)
    said = judged(newer, KNOWN)
    assert said.difference is Difference.BEHIND
    assert (written(said).producer_epoch, written(said).next_sequence) == (1, 1)


def test_nothing_known_of_the_producer_is_no_more_than_the_log_has() -> None:
    forgotten = replace(fresh(NO_DATA_GENERATION, PRINCIPAL, 0, 0), version=9)
    assert forgotten.anchor == NO_ANCHOR
    assert written(judged(FOUND, forgotten)).window == WINDOW


@pytest.mark.parametrize(
    ("entry", "difference"),
    [
        (KNOWN, Difference.UNRECOGNISED),
        (replace(KNOWN, end_offset=101), Difference.AHEAD),
        (replace(KNOWN, end_offset=10), None),
    ],
)
def test_an_entry_whose_batches_the_log_has_no_more_is_named_and_left(
    entry: Entry, difference: Difference | None
) -> None:
    """A log of format v2, read from offset 10 to 100; what ends below that was written longer ago."""
    said = judge_unfound(FOUND.producer_id, pack(entry), 10, 100)
    assert (None if said is None else said.difference) == difference
    assert said is None or said.value is None


def test_what_a_proxy_works_on_is_busy_also_where_nothing_is_found_of_it() -> None:
    busy = replace(KNOWN, intent=INTENT)
    assert judge_unfound(FOUND.producer_id, pack(busy), 10, 100) == Judged(Difference.BUSY)
    assert judge_unfound(FOUND.producer_id, b"?", 10, 100) == Judged(Difference.DAMAGED)
    assert not may_be_recognised(FOUND.producer_id, busy)
    assert may_be_recognised(FOUND.producer_id, KNOWN)
