"""What ``idemproxy inspect`` shows of each thing that is stored, as a table, as sentences and as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentTypeError
from dataclasses import replace
from typing import Any

import pytest

from idemproxy.proxy.commands.inspection import render, views
from idemproxy.proxy.commands.shared_arguments import partition_number, producer_id
from idemproxy.state.entry import NOBODY, Entry, Intent, IntentBatch, IntentKind, WindowBatch
from idemproxy.state.inspection import Damaged, EntryPlace
from idemproxy.state.names import FIRST_NAMED_ID, NameRecord
from idemproxy.state.redis_inspection import EntryRow, NameRow, ServerFacts

LIFE, EARLIER = b"L" * 16, b"E" * 16
OWNER = b"incarnat"
SERVER = ServerFacts("Redis 7.2.0", "master", LIFE, 0)
WINDOW = (WindowBatch(4, 10, 100), WindowBatch(14, 1, 110, 1_700_000_000_000))
QUIET = Entry(9, LIFE, b"somebody", 2, 15, WINDOW, 90, 111, b"anchored")
INTENT = Intent(
    OWNER, 2, (IntentBatch(15, 3, b"digest-5"), IntentBatch(18, 2, b"digest-6")), 111, b"anchored", bytes(8), 1, 2
)
BLANK = Entry(1, EARLIER, bytes(8), 0, 0)


def row(entry: Entry | Damaged = QUIET, **more: Any) -> EntryRow:
    values: dict[str, Any] = {
        "state": "quiet",
        "is_owner_alive": False,
        "expires_ms": 90_000,
        "untouched_seconds": 7,
        "stored": b"x" * 70,
    }
    return EntryRow(EntryPlace("orders", 2, 2**62), entry, **(values | more))


# ---------------------------------------------------------------------- tables
def test_an_entry_is_a_line_with_its_window_its_end_and_its_time() -> None:
    assert render.entry_cells(row()) == ("orders", 2, 2**62, 2, 15, "4..14 (2)", 111, "quiet", "7 s ago", "90 s")
    one = replace(QUIET, window=WINDOW[1:])
    assert render.entry_cells(row(one))[5] == "14 (1)"
    assert render.entry_cells(row(BLANK, expires_ms=None))[3:] == (0, 0, "-", "-", "quiet", "7 s ago", "never")
    damaged = render.entry_cells(row(Damaged("cut"), state="damaged"))
    assert damaged[3:] == ("-", "-", "-", "-", "damaged", "7 s ago", "90 s")
    assert render.entry_cells(row(untouched_seconds=None))[-2] == "-"


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (None, "never"),
        (999, "0 s"),
        (119_999, "119 s"),
        (120_000, "2 min"),
        (7_199_999, "119 min"),
        (7_200_000, "2 h 0 min"),
        (86_399_999, "23 h 59 min"),
    ],
)
def test_a_span_of_time_is_shown_in_units_that_fit(milliseconds: int | None, shown: str) -> None:
    assert render.entry_cells(row(expires_ms=milliseconds))[-1] == shown


def test_an_intent_is_a_line_with_its_owner_and_where_to_look_for_it() -> None:
    shown = render.intent_cells(row(replace(QUIET, intent=INTENT), state="open"))
    assert shown == ("orders", 2, 2**62, "open", OWNER.hex(), 2, "15..19", 111, "7 s")
    claim = replace(INTENT, owner=NOBODY, batches=())
    shown = render.intent_cells(row(replace(QUIET, intent=claim), untouched_seconds=None))
    assert (shown[4], shown[6], shown[8]) == ("nobody", "(all)", "-")


# ---------------------------------------------------------------------- JSON
def test_an_entrys_json_has_producer_id_as_text_and_times_in_seconds() -> None:
    shown = json.loads(json.dumps(render.entry_fields(row(replace(QUIET, intent=INTENT), is_owner_alive=True), LIFE)))
    intent = shown.pop("intent")
    assert shown == {
        "topic": "orders",
        "partition": 2,
        "producer_id": str(2**62),
        "state": "quiet",
        "expires_in_seconds": 90.0,
        "untouched_seconds": 7,
        "bytes": 70,
        "version": 9,
        "data_generation": LIFE.hex(),
        "is_present_data_generation": True,
        "principal": b"somebody".hex(),
        "producer_epoch": 2,
        "next_sequence": 15,
        "window": [
            {"base_sequence": 4, "record_count": 10, "base_offset": 100, "log_append_time_ms": None},
            {"base_sequence": 14, "record_count": 1, "base_offset": 110, "log_append_time_ms": 1_700_000_000_000},
        ],
        "first_base_offset": 90,
        "end_offset": 111,
        "anchor": b"anchored".hex(),
    }
    assert intent == {
        "owner": OWNER.hex(),
        "is_owner_alive": True,
        "producer_epoch": 2,
        "batches": [
            {"base_sequence": 15, "record_count": 3, "digest": b"digest-5".hex()},
            {"base_sequence": 18, "record_count": 2, "digest": b"digest-6".hex()},
        ],
        "lower_bound": 111,
        "anchor": b"anchored".hex(),
        "leader": 1,
        "attempts": 2,
        "is_unrecoverable": False,
        "is_append_reservation": False,
    }


def test_what_is_not_known_is_null_and_never_a_number_that_stands_for_it() -> None:
    shown = render.entry_fields(row(BLANK, expires_ms=None), LIFE)
    unknown = ("expires_in_seconds", "principal", "first_base_offset", "end_offset", "anchor", "intent")
    assert [shown[name] for name in unknown] == [None] * len(unknown)
    assert shown["is_present_data_generation"] is False
    unrecoverable = replace(INTENT, owner=NOBODY, anchor=bytes(8), kind=IntentKind.UNRECOVERABLE)
    intent = render.entry_fields(row(replace(QUIET, intent=unrecoverable)), LIFE)["intent"]
    assert [intent[name] for name in ("owner", "anchor", "attempts", "is_unrecoverable")] == [None, None, None, True]


def test_a_damaged_value_is_shown_as_far_as_64_bytes() -> None:
    shown = render.entry_fields(row(Damaged("cut"), state="damaged"), LIFE)
    assert (shown["bytes"], shown["reason"], shown["value_hex"]) == (70, "cut", "78" * 64)
    assert list(render.entry_lines(row(Damaged("cut"), state="damaged"), LIFE)) == [
        "orders/2: damaged, used 7 s ago, expires: 90 s",
        "  client id: -",
        "  cannot be read: cut",
        f"  value (70 bytes): {'78' * 64}",
    ]


# ---------------------------------------------------------------------- sentences
def test_a_producer_is_described_in_sentences() -> None:
    entry = replace(QUIET, intent=INTENT, data_generation=EARLIER)
    shown = views.producer([row(entry, state="open", is_owner_alive=True)], SERVER, False, {2**62: "shop\n"}.get)
    assert list(shown) == [
        "orders/2: open, used 7 s ago, expires: 90 s",
        "  client id: shop\\n",
        "  epoch 2, next sequence 15, end of its last append: offset 111, epoch begins at offset 90",
        "  in the log: sequences 4 to 13 at offset 100",
        "  in the log: sequences 14 to 14 at offset 110",
        f"  intent: sequences 15..19 of epoch 2, open, of proxy {OWNER.hex()}, alive",
        "    meant for broker 1, forwarded again 2 times",
        "    to be looked for from offset 111 on",
        "    nobody has read or written it for 7 s",
        f"  belongs to the principal {b'somebody'.hex()}",
        "  version 9, data generation 45454545 (earlier), 70 bytes",
    ]
    unrecoverable = replace(QUIET, intent=replace(INTENT, kind=IntentKind.UNRECOVERABLE))
    lines = list(views.producer([row(unrecoverable, untouched_seconds=None)], SERVER, False))
    assert lines[5:7] == [
        "  intent: sequences 15..19 of epoch 2, unrecoverable",
        "    meant for broker 1, forwarded again an unknown number of times",
    ]
    assert not any("nobody has read" in line for line in lines)


def test_no_sentence_moves_the_cursor() -> None:
    place = EntryPlace("a\x1b[2Jb", 0, 1)
    lines = list(views.producer([replace(row(), place=place)], SERVER, False))
    assert lines[0].startswith("a\\x1b[2Jb/0: ")


# ---------------------------------------------------------------------- what may be asked for
def test_a_producer_id_may_be_hexadecimal_and_numbers_have_their_range() -> None:
    assert (producer_id("0x10"), producer_id(str(2**63 - 1)), partition_number(str(2**31 - 1))) == (
        16,
        2**63 - 1,
        2**31 - 1,
    )
    for text in (str(2**63), "-1", "x", ""):
        with pytest.raises(ArgumentTypeError, match="is no producer id"):
            producer_id(text)
    for text in (str(2**31), "-1", "٣", "0x1"):
        with pytest.raises(ArgumentTypeError, match="is no partition number"):
            partition_number(text)


def test_a_name_shows_its_newest_instance() -> None:
    record = NameRecord(3, FIRST_NAMED_ID, 4, LIFE, b"a person", issued_at_ms=17)
    row = NameRow("orders", record, b"", partitions=2)
    assert render.name_cells(row, EARLIER) == (
        *("orders", FIRST_NAMED_ID, 4, "1970-01-01 00:00:00Z", 2),
        *("4c4c4c4c (earlier)", b"a person".hex()),
    )
    assert render.time_text(2**62) == f"{2**62} ms"
    assert render.name_fields(row, LIFE) == {
        "name": "orders",
        "state": "in use",
        "producer_id": str(FIRST_NAMED_ID),
        "producer_epoch": 4,
        "began_at_ms": 17,
        "partitions": 2,
        "data_generation": LIFE.hex(),
        "is_present_data_generation": True,
        "principal": b"a person".hex(),
        "version": 3,
    }


def test_a_name_that_cannot_be_read_says_so() -> None:
    damaged = NameRow("orders", Damaged("it has 3 bytes"), b"abc")
    assert render.name_fields(damaged, LIFE)["reason"] == render.name_cells(damaged, LIFE)[5] == "it has 3 bytes"
