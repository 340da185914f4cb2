"""The tutorial that counts and cleans duplicates, followed by a newcomer: each command as it is printed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.jars import CACHE_VARIABLE, cache_directory
from idemproxy.demo.ports import free_ports, neighbouring_ports
from testkit.real.scenes.followed_page import follow

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 3000


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    with ChildProcesses() as started:
        yield started


def newcomers_machine(folder: Path) -> dict[str, str]:
    """An empty home, and no Java that somebody has set; downloads are kept."""
    home = folder / "home"
    home.mkdir()
    return {
        "HOME": os.fspath(home),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or os.fspath(Path.home() / ".cache" / "pip"),
        CACHE_VARIABLE: os.fspath(cache_directory()),
        "CHECKOUT": os.fspath(ROOT),
    }


@pytest.mark.timeout(SECONDS_MAX + 60)
def test_duplicates_are_counted_and_cleaned_while_the_driver_is_killed(
    tmp_path: Path, children: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    proxy, (admin,) = neighbouring_ports(2), free_ports(1)
    folder = tmp_path / "empty"
    follow(
        ROOT / "docs/tutorials/count-duplicates.md",
        folder,
        children,
        {"9092": str(proxy), "9644": str(admin)},
        newcomers_machine(tmp_path),
        seconds_max=SECONDS_MAX,
    )
    found = json.loads((folder / "audit-orders/summary.json").read_text())["findings"]
    assert found["suspected_duplicate"] > 0, "the broker has answered before the producer's patience ended"
    once = json.loads((folder / "audit-once/summary.json").read_text())
    assert once["records"] == 5000
    assert not any(once["findings"].values())
    assert "records of 5000 orders" not in (folder / "first.log").read_text(), "it was killed too late"
    assert (folder / "proxy.log").read_text().count("ERROR") == 0
