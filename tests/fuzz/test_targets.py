"""The targets of ``make fuzz`` on their seeds and on damaged ones; each decoder is in one."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from random import Random

import pytest
from fuzz import targets
from fuzz.seeds import seeds_of
from fuzz.targets import TARGETS

DAMAGED = 200
ROOT = Path(__file__).resolve().parents[2]
WITHIN = {
    "decompressed",
    "decompressing",
    "parse_answer",
    "parse_request",
    "read_answer",
    "read_message",
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


def test_every_decoder_is_in_a_target() -> None:
    nodes = list(ast.walk(ast.parse(Path(targets.__file__).read_text())))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    decoders: set[str] = set()
    for file in (file for folder in ("codecs", "state", "proxy") for file in (ROOT / folder).rglob("*.py")):
        if not str(file.relative_to(ROOT)).startswith(ELSEWHERE):
            names = r"(?m)^def ((?:parse|decode|unpack|read(?!y)|decompress)\w*)\("
            decoders |= set(re.findall(names, file.read_text()))
    assert len(decoders) > 15
    assert decoders - used - WITHIN == NO_DECODERS
