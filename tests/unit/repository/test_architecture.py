"""docs/ARCHITECTURE.md names files and packages that are there, and all packages; a produce takes the way it says."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/ARCHITECTURE.md").read_text()
ONE_PRODUCE = ("session", "produce", "sequencer", "forward", "lane_pool", "lane")


def named() -> set[str]:
    """Every path on the page."""
    return set(re.findall(r"`((?:proxy|state|codecs|producing|client|src|tests)/[\w/.]*)`", PAGE))


def section(title: str) -> str:
    """The text below one heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_what_the_page_names_is_there() -> None:
    assert len(named()) > 40
    assert [path for path in sorted(named()) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize(("picture", "title"), [("one_produce", "One produce"), ("one_lost_answer", "One lost answer")])
def test_a_picture_names_files_that_are_there_in_the_order_of_the_page(picture: str, title: str) -> None:
    drawn = (ROOT / f"docs/pictures/{picture}.svg").read_text()
    stations = list(dict.fromkeys(re.findall(r'<text class="file"[^>]*>([^<]*)</text>', drawn)))
    assert len(stations) > 8
    assert [path for path in stations if not (ROOT / path).is_file()] == []
    steps = section(title)
    assert f"(pictures/{picture}.svg)" in steps
    assert stations == sorted(stations, key=lambda path: steps.index(f"`{path}`"))


@pytest.mark.parametrize("picture", ["one_produce", "one_lost_answer"])
def test_each_name_in_a_picture_fits_its_box(picture: str) -> None:
    drawn = (ROOT / f"docs/pictures/{picture}.svg").read_text()
    boxes = re.findall(
        r'<rect class="box" x="\d+" y="\d+" width="(\d+)"[^>]*>\s*<text class="file"[^>]*>([^<]*)<', drawn
    )
    assert len(boxes) > 8
    assert [name for width, name in boxes if 24 + 7.3 * len(name) > int(width)] == [], "7.3 units for each character"


def test_every_package_is_on_the_page_in_the_order_of_its_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["name"] == "imports point downwards")
    packages = [package for layer in layers for package in layer.split(" | ")]
    rows = re.findall(r"^\| (`proxy/.*?`) \|", section("Packages"), re.MULTILINE)
    said = [re.sub(r"^proxy/|/$|\.py$", "", path) for row in rows for path in re.findall(r"`(.*?)`", row)]
    assert said == packages


def test_the_stations_of_a_produce_come_in_order_and_each_uses_the_next() -> None:
    steps = section("One produce")
    places = [re.search(rf"^\d+\. `(proxy/\w+/{name}\.py)`", steps, re.MULTILINE) for name in ONE_PRODUCE]
    found = [place for place in places if place is not None]
    assert len(found) == len(ONE_PRODUCE)
    assert [place.start() for place in found] == sorted(place.start() for place in found)
    for one, following in pairwise(place[1] for place in found):
        text = (ROOT / one).read_text()
        assert Path(following).stem in text or "Append(" in text, f"{one} does not lead to {following}"
