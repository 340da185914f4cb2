"""What the pages of docs/ tell people to do is done, in the order of the page, in an empty folder.

How a page is followed: testkit.real.scenes.followed_page. ``console`` is for machines that are not here (Docker,
Kubernetes); those blocks are tried in tests/charts.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from idemproxy.codecs import batch_marker
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.ports import free_ports, neighbouring_ports
from idemproxy.proxy.partition_log.offset_checkpoints import OffsetCheckpoints
from idemproxy.proxy.settings.load import load
from idemproxy.proxy.telemetry.metric_names import METRICS, SUPERVISOR_METRICS
from idemproxy.state import entry
from idemproxy.state.producer_ids import pack_block
from testkit.real.machine.browser import open_browser
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.scenes.followed_page import blocks_of, follow
from testkit.real.store.two_proxies_redis import ExternalRedis

from .conftest import QuietPair

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MOVE, UPGRADE, RUN_BOOK = "how-to/move-producers.md", "how-to/upgrade.md", "how-to/run-book.md"
FOLLOWED = {"tutorials/quick-start.md", MOVE, UPGRADE, "tutorials/two-proxies.md", "tutorials/count-duplicates.md"}
"""The last two in files of their own: test_docs_walkthrough.py, tests/spark/quickstart.py."""
COMMAND = re.compile(r"\s*(?:\$ )?(?:\S*/)?idemproxy ((?:run|check|schema|inspect|forget|demo|--version)\b.*)")
PAGES = sorted(DOCS.rglob("*.md"))


@pytest.mark.timeout(900)
def test_the_quick_start_from_the_wheel_to_the_duplicate_that_does_not_happen(
    tmp_path: Path, children: ChildProcesses
) -> None:
    proxy, (admin,) = neighbouring_ports(2), free_ports(1)
    printed = follow(
        DOCS / "tutorials/quick-start.md",
        tmp_path / "empty",
        children,
        {"9092": str(proxy), "9644": str(admin)},
        {"CHECKOUT": str(ROOT)},
        seconds_max=800,
    )
    counts = {
        name: float(value) for name, value in re.findall(r"^idemproxy_(\w+?)_total(?:{.*})? (\S+)$", printed, re.M)
    }
    assert counts["duplicates_found"] == 0
    assert counts.get("duplicates_prevented", 0) >= 1, "no retry came through the proxy"
    assert (tmp_path / "empty/proxy.log").read_text().count("ERROR") == 0


@pytest.mark.timeout(500)
@pytest.mark.parametrize("page", [MOVE, UPGRADE])
def test_the_way_over_and_back_and_to_another_version_work_as_they_stand_there(
    page: str, quiet: QuietPair, tmp_path: Path, children: ChildProcesses
) -> None:
    if "orders" not in quiet.cluster.state().topics:
        quiet.cluster.create_topic("orders")
    folder = tmp_path / "machine"
    folder.mkdir()
    for name in ("old", "new"):  # two environments; there is one version so far
        (folder / name).symlink_to(sys.prefix)
    broker, (admin,) = "{}:{}".format(*quiet.cluster.address(0)), free_ports(1)
    with ExternalRedis() as redis:
        places = {
            "old-kafka-1.example:9092": broker,
            "redis.example:6379": "{}:{}".format(*redis.address),
            "0.0.0.0": "127.0.0.1",
            "proxy-test": "orders",  # so that inspect shows what the script sends
            "9292": str(neighbouring_ports(4)),
            "9644": str(admin),
        }
        path = f"{sys.prefix}/bin:{os.environ['PATH']}"
        printed = follow(DOCS / page, folder, children, places, {"PATH": path}, seconds_max=400)
    log_file = folder / "proxy.log"
    if page == UPGRADE:
        wait_until(lambda: log_file.read_text().count("draining") == 3, "each version ends by draining")
    log = log_file.read_text()
    assert [line for line in log.splitlines() if " ERROR " in line] == []
    if page == MOVE:
        assert re.findall(r"^(\d+) acknowledged, (\d+) failed", printed, re.MULTILINE) == [("1000", "0")] * 2
        assert re.search(r"^orders .* 0\.\.|^orders +0 ", printed, re.MULTILINE), "inspect shows the producer"
    else:
        assert log.count("point clients at") == 3


def test_the_formats_in_the_upgrade_page_are_those_of_the_code() -> None:
    rows = dict(re.findall(r"^\| ([^|]+?) \| [^|]+ \| ([^|]*?) \|", (DOCS / UPGRADE).read_text(), re.MULTILINE))
    assert rows["state of a producer on a partition"] == str(entry.FORMAT)
    assert rows["blocks of producer ids"] == "1, 2 (with the principal) and 3 (with a name)"
    unbound, bound = pack_block(bytes(16), 0), pack_block(bytes(16), 0, b"somebody")
    named = pack_block(bytes(16), 0, b"somebody", "a name")
    assert [unbound[0], bound[0], named[0]] == [1, 2, 3]
    batch_markers, checkpoints = (found for name, found in rows.items() if "markers" in name or "checkpoints" in name)
    assert batch_markers == str(batch_marker.VERSION)
    assert checkpoints == str(OffsetCheckpoints().pack(0, 0)[0])


def test_the_run_book_asks_for_the_file_that_the_chart_mounts() -> None:
    (place,) = set(re.findall(r"idemproxy inspect --config (\S+)", (DOCS / RUN_BOOK).read_text()))
    templates = "".join(path.read_text() for path in (ROOT / "charts/idemproxy/templates").iterdir() if path.is_file())
    assert place in templates


def test_the_configurations_of_tls_and_sasl_are_good_together(tmp_path: Path) -> None:
    pages = ("how-to/tls.md", "how-to/sasl.md")
    examples = [block.text for page in pages for block in blocks_of(DOCS / page) if block.language == "yaml"]
    assert len(examples) >= 2
    (tmp_path / "some-file").write_text("something")
    together: dict[str, Any] = {}
    for example in examples:
        together |= yaml.safe_load(re.sub(r"(?<=_file: )[^\s,}]+", str(tmp_path / "some-file"), example))
    (tmp_path / "idemproxy.yaml").write_text(yaml.safe_dump(together))
    settings = load(tmp_path / "idemproxy.yaml", {})
    assert settings.upstream_tls is not None
    assert settings.listeners[0].tls is not None


def test_the_pages_use_the_kinds_of_blocks_that_are_looked_at() -> None:
    for page in PAGES:
        kinds = {block.language for block in blocks_of(page)}
        assert kinds <= {"", "sh", "console", "text", "yaml", "python", "go", "properties"}, page.name
        assert "sh" not in kinds or page.relative_to(DOCS).as_posix() in FOLLOWED, page.name


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_every_make_target_in_the_docs_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
    named |= {name for block in blocks_of(page) for name in re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)}
    assert named <= targets


def test_the_run_book_has_an_entry_for_every_alert_and_for_nothing_else() -> None:
    alerts = yaml.safe_load((ROOT / "charts/idemproxy/files/alerts.yaml").read_text())
    text = (DOCS / RUN_BOOK).read_text()
    entries = dict(re.findall(r"^## (Idemproxy\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(entries) == [alert["alert"] for alert in alerts]
    for name, entry_text in entries.items():
        assert re.findall(r"^\*\*(.+?)\*\*", entry_text, re.MULTILINE) == ["Meaning.", "Check.", "Do."], name


def test_every_metric_that_a_page_names_is_one_of_the_products() -> None:
    known = {metric.prometheus_name for metric in (*METRICS, *SUPERVISOR_METRICS)}
    for page in PAGES:
        named = set(re.findall(r"\b(idemproxy_[a-z_]+[a-z])\b", page.read_text()))
        assert {name for name in named if name.removesuffix("_bucket") not in known} == set(), page.name


def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "docs/site/build.py", os.fspath(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert built.returncode == 0, built.stdout
    assert "Warning" not in built.stdout, built.stdout
    site = tmp_path / "site"
    assert {page.relative_to(DOCS).with_suffix(".html") for page in PAGES} <= {
        page.relative_to(site) for page in site.rglob("*.html")
    }
    outside = [
        link
        for page in site.rglob("*.html")
        for link in re.findall(r'(?:src|href)="(https?://[^"]*\.(?:js|css|woff2?)[^"]*)"', page.read_text())
    ]
    assert outside == [], "the site loads something from elsewhere"
    with open_browser() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "reference/settings.html").as_uri())
        page.keyboard.press("/")
        search = page.locator("input[placeholder=Search]")
        search.wait_for(timeout=30_000)
        search.fill("hide duplicates")
        found = page.locator("a[href*='how-to/hide-duplicates.html?h=']").first
        found.wait_for(state="attached", timeout=30_000)
    assert [url for url in asked if not url.startswith("file:")] == []
