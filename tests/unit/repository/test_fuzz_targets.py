"""The targets of ``make fuzz`` on their seeds and on damaged ones, and that each of them can fail."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from random import Random

import pytest
from fuzz import targets
from fuzz.seeds import recorded, seeds_of
from fuzz.targets import TARGETS

from idemproxy.codecs.errors import WireError
from idemproxy.codecs.headers import parse_request_header
from idemproxy.codecs.marker import Identity, parse_marker
from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.state.entry import Entry
from idemproxy.state.inspection import read_entry

DAMAGED = 200
ROOT = Path(__file__).resolve().parents[3]
WITHIN = {
    "decompressed",
    "decompressing",
    "parse_answer",
    "read_answer",
    "read_rows",
    "read_unsigned_varint",
    "read_varlong",
    "reading_payload",
    "unpacking",
}
"""Decoders that those in a target call."""
ELSEWHERE = ("proxy/settings/", "proxy/inspection/", "state/inspection.py")
"""Of the operator's tools: property/test_config.py and unit/commands/test_inspection.py throw anything at them."""
NO_DECODERS = {"read_certificates"}


def damaged(seed: bytes, random: Random) -> bytes:
    """The bytes with some changed, cut out or doubled."""
    data = bytearray(seed)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(3):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 8)]
            case _:
                data[at:at] = data[at : at + random.randint(1, 8)]
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_its_seeds_and_damaged_ones(name: str) -> None:
    target = TARGETS[name]
    seeds = seeds_of(target.seeds)
    assert seeds
    random = Random(1)
    for seed in [b"", *seeds, *(damaged(random.choice(seeds), random) for _ in range(DAMAGED))]:
        target.run(seed)


def test_the_seeds_are_whole_and_come_from_real_clients_and_a_real_broker() -> None:
    for seed in seeds_of("request"):
        parse_request_header(seed)
    assert sum(isinstance(read_entry(seed), Entry) for seed in seeds_of("stored")) == 4
    for seed in seeds_of("batch"):
        parse_single_batch(memoryview(seed))
    assert all(parse_marker(seed) for seed in seeds_of("marker"))
    assert {one["who"] for one in recorded()} == {"kafka_python", "librdkafka", "broker 0.10.2.2"}


def test_every_decoder_is_in_a_target() -> None:
    nodes = list(ast.walk(ast.parse(Path(targets.__file__).read_text())))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    decoders: set[str] = set()
    for file in (file for folder in ("codecs", "state", "proxy") for file in (ROOT / folder).rglob("*.py")):
        if not str(file.relative_to(ROOT)).startswith(ELSEWHERE):
            decoders |= set(re.findall(r"(?m)^def ((?:parse|decode|unpack|read|decompress)\w*)\(", file.read_text()))
    assert len(decoders) > 15
    assert decoders - used - WITHIN == NO_DECODERS


def test_a_decoder_that_raises_another_error_breaks_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(*arguments: object, **options: object) -> None:
        raise IndexError("past the end")

    monkeypatch.setattr(targets, "parse_single_batch", careless)
    with pytest.raises(IndexError):
        TARGETS["record_batch"].run(seeds_of("batch")[0])
    monkeypatch.setattr(targets, "parse_request_header", careless)
    with pytest.raises(IndexError):
        TARGETS["request_frame"].run(b"")


def test_what_is_read_as_something_else_breaks_its_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "parse_marker", lambda data: (Identity(1, 1, 1, 1),))
    with pytest.raises(targets.Broken):
        TARGETS["marker"].run(seeds_of("marker")[0])


def test_a_refusal_that_is_expected_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*arguments: object, **options: object) -> None:
        raise WireError("no")

    monkeypatch.setattr(targets, "parse_single_batch", refusing)
    TARGETS["record_batch"].run(seeds_of("batch")[0])
