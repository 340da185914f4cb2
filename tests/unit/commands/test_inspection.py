"""What is read back from stored keys and values, and what is written in the place of an entry that is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.proxy.commands.inspection.table import ROWS_MEASURED, printable, table_lines
from idemproxy.state.entry import (
    NO_DATA_GENERATION,
    NOBODY,
    Entry,
    Intent,
    IntentBatch,
    IntentKind,
    WindowBatch,
    pack,
)
from idemproxy.state.inspection import (
    BlockPlace,
    ClusterPlace,
    Damaged,
    EntryPlace,
    MemberPlace,
    cluster_of,
    forgotten,
    owner_of,
    parse_key,
    read_block,
    read_entry,
    state_of,
)
from idemproxy.state.producer_ids import Block, pack_block
from idemproxy.state.store import block_key, cluster_key, entry_key, member_key

LIFE, EARLIER_DATA_GENERATION = b"L" * 16, b"E" * 16
OWNER = b"incarnat"
QUIET = Entry(9, LIFE, b"somebody", 2, 14, (WindowBatch(4, 10, 100),), 90, 110, b"anchored")
INTENT = Intent(OWNER, 2, (IntentBatch(14, 3, b"digest-5"),), 110, b"anchored", bytes(8), 1)
OPEN = replace(QUIET, intent=INTENT)
CLUSTER_NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)


@given(CLUSTER_NAMES, st.integers(0, 2**63 - 1), st.text(), st.integers(0, 2**31 - 1))
def test_every_key_of_an_entry_is_read_back_whatever_the_topic_is_called(
    cluster: str, producer_id: int, topic: str, partition: int
) -> None:
    key = entry_key(cluster, producer_id, topic, partition)
    place = parse_key(cluster, key)
    assert place == EntryPlace(topic, partition, producer_id)
    assert place.key(cluster) == key
    assert cluster_of(key) == cluster


@given(CLUSTER_NAMES, st.integers(0, 2**62), st.binary(min_size=8, max_size=16))
def test_the_other_keys_are_read_back(cluster: str, start: int, instance_id: bytes) -> None:
    assert parse_key(cluster, block_key(cluster, start)) == BlockPlace(start)
    assert parse_key(cluster, member_key(cluster, instance_id)) == MemberPlace(instance_id)
    assert parse_key(cluster, cluster_key(cluster)) == ClusterPlace()


@given(CLUSTER_NAMES, st.binary())
def test_any_key_is_one_that_would_be_written_so_or_none_of_ours(cluster: str, rest: bytes) -> None:
    key = b"idem:%b:%b" % (cluster.encode(), rest)
    match parse_key(cluster, key):
        case EntryPlace() as place:
            assert place.key(cluster) == key
        case BlockPlace(start):
            assert block_key(cluster, start) == key
        case MemberPlace(instance_id):
            assert member_key(cluster, instance_id) == key
        case ClusterPlace():
            assert cluster_key(cluster) == key


@pytest.mark.parametrize("key", [b"", b"idem:", b"idem:c", b"other:c:{t/0}:0000000000000001", b"idem:d:cluster"])
def test_a_key_of_another_cluster_or_program_is_none_of_ours(key: bytes) -> None:
    assert parse_key("c", key) is None


@given(st.binary(max_size=300))
def test_any_value_is_an_entry_or_damaged(value: bytes) -> None:
    entry = read_entry(value)
    assert isinstance(entry, Damaged) or pack(entry) == value
    assert isinstance(read_block(value), Block | Damaged)


def test_a_claimed_block_is_read_back() -> None:
    assert read_block(pack_block(LIFE, 5, b"somebody")) == Block(LIFE, 5, b"somebody")


@pytest.mark.parametrize(
    ("entry", "is_owner_alive", "state"),
    [
        (QUIET, False, "quiet"),
        (replace(QUIET, data_generation=EARLIER_DATA_GENERATION), False, "unverified"),
        (OPEN, True, "open"),
        (OPEN, False, "abandoned"),
        (replace(OPEN, data_generation=EARLIER_DATA_GENERATION), True, "open"),
        (replace(QUIET, intent=replace(INTENT, batches=())), True, "rebuilding"),
        (replace(QUIET, intent=replace(INTENT, batches=())), False, "abandoned"),
        (
            replace(QUIET, intent=replace(INTENT, batches=(), kind=IntentKind.APPEND_RESERVATION)),
            True,
            "append_reservation",
        ),
        (replace(QUIET, intent=replace(INTENT, batches=(), kind=IntentKind.APPEND_RESERVATION)), False, "abandoned"),
        (replace(QUIET, intent=replace(INTENT, kind=IntentKind.UNRECOVERABLE)), True, "unrecoverable"),
        (
            replace(
                QUIET, data_generation=EARLIER_DATA_GENERATION, intent=replace(INTENT, kind=IntentKind.UNRECOVERABLE)
            ),
            True,
            "unverified",
        ),
        (Damaged("cut"), False, "damaged"),
    ],
)
def test_the_state_of_an_entry_is_one_word(entry: Entry | Damaged, is_owner_alive: bool, state: str) -> None:
    assert state_of(entry, LIFE, is_owner_alive) == state


def test_without_a_known_data_generation_nothing_is_called_unverified() -> None:
    assert state_of(QUIET, None, False) == "quiet"


def test_an_intent_that_was_left_or_unrecoverable_has_no_owner_to_be_asked_for() -> None:
    assert owner_of(OPEN) == OWNER
    assert owner_of(replace(QUIET, intent=replace(INTENT, owner=NOBODY))) is None
    assert owner_of(replace(QUIET, intent=replace(INTENT, kind=IntentKind.UNRECOVERABLE))) is None
    assert owner_of(QUIET) is owner_of(Damaged("cut")) is None


def test_what_is_forgotten_is_unverified_and_blank_and_keeps_its_owner() -> None:
    entry = forgotten(pack(OPEN), now_us=10**15)
    assert entry == Entry(QUIET.version + 1, NO_DATA_GENERATION, b"somebody", 0, 0)
    assert state_of(entry, LIFE, False) == "unverified"


def test_what_cannot_be_read_is_forgotten_under_a_version_that_no_proxy_can_hold() -> None:
    entry = forgotten(b"damage", now_us=10**15, issued_to=b"somebody")
    assert entry == Entry(10**15, NO_DATA_GENERATION, b"somebody", 0, 0)


# ---------------------------------------------------------------------- tables
def test_a_table_lines_up_and_numbers_stand_to_the_right() -> None:
    assert list(table_lines(("NAME", "N"), [("a", 5), ("longer", 100), ("b", "-")])) == [
        "NAME      N",
        "a         5",
        "longer  100",
        "b         -",
    ]


def test_a_table_begins_before_its_last_row_is_known() -> None:
    taken = 0

    def rows() -> Iterator[tuple[str, int]]:
        nonlocal taken
        while True:
            taken += 1
            yield ("x", taken)

    lines = table_lines(("A", "B"), rows())
    assert [next(lines) for _ in range(3)][2].split() == ["x", "2"]
    assert taken <= ROWS_MEASURED
    for _ in range(ROWS_MEASURED * 2):
        assert next(lines).startswith("x")


@given(st.text())
def test_whatever_is_stored_is_shown_in_visible_characters(text: str) -> None:
    assert printable(text).isprintable()
