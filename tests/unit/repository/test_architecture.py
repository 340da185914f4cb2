"""dev/architecture.md names files and packages that are there, and all packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "dev/architecture.md").read_text()


def named() -> set[str]:
    """Every path on the page."""
    return set(re.findall(r"`((?:proxy|state|codecs|producing|client|src|tests)/[\w/.]*)`", PAGE))


def section(title: str) -> str:
    """The text below one heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_what_the_page_names_is_there() -> None:
    assert len(named()) > 40
    assert [path for path in sorted(named()) if not (ROOT / path).exists()] == []


def test_what_the_pictures_name_is_there() -> None:
    pictures = [ROOT / "dev" / path for path in re.findall(r"\((pictures/\w+\.svg)\)", PAGE)]
    paths = {path for one in pictures for path in re.findall(r">([\w/]+\.py)<", one.read_text())}
    assert len(paths) > 15
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_every_package_is_on_the_page_in_the_order_of_its_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one["name"] == "imports point downwards")
    packages = [package for layer in layers for package in layer.split(" | ")]
    rows = re.findall(r"^\| (`proxy/.*?`) \|", section("Packages"), re.MULTILINE)
    said = [re.sub(r"^proxy/|/$|\.py$", "", path) for row in rows for path in re.findall(r"`(.*?)`", row)]
    assert said == packages
