"""The status page as a person meets it: a real Chromium in front of a real proxy, with mouse, keyboard and axe."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, produce
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.browser import open_browser
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.proxies.two_proxies_relays import Keeping, KeepingRelay
from testkit.real.store.inspecting import idemproxy

PATIENCE_MS = 45_000
UNKNOWN_OUTCOME_MS = 120_000
"""For so long the answer is waited for while the page is looked at, also on a busy machine."""
pytestmark = pytest.mark.timeout(900)
"""The first test on a machine installs the browser."""


@dataclass(slots=True)
class Watched:
    """A proxy, its page, and what the browser complained about."""

    cluster: LegacyCluster
    proxy: ProxyProcess
    port: int
    page: Page
    complaints: list[str] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def produce(self, topic: str, records: int, address: str = "") -> None:
        host, port = self.proxy.address
        settings: dict[str, Any] = librdkafka_settings(address or f"{host}:{port}", enable_idempotence=True)
        produce(settings | {"client.id": "orders-service", "linger.ms": 0}, topic, 1, records)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as one:
        yield one


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("cluster"), auto_create_topics=False, session_timeout_ms=8000) as one:
        yield one


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where screenshots go: PICTURES names the folder of those in the documentation (make pictures)."""
    folder = Path(os.environ.get("PICTURES") or tmp_path)
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def proxy_and_port(
    cluster: LegacyCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ProxyProcess, int]]:
    """One proxy for all; every test takes topics of its own and leaves it as it was."""
    (port,) = free_ports(1)
    directory = tmp_path_factory.mktemp("proxy")
    with ProxyProcess(directory, cluster.address(0), options=("--admin-bind", f"{HOST}:{port}")) as proxy:
        yield proxy, port


@pytest.fixture
def watched(cluster: LegacyCluster, browser: Browser, proxy_and_port: tuple[ProxyProcess, int]) -> Iterator[Watched]:
    with watching(cluster, browser, *proxy_and_port) as one:
        yield one


@contextmanager
def watching(cluster: LegacyCluster, browser: Browser, proxy: ProxyProcess, port: int) -> Iterator[Watched]:
    """Open the page of a proxy that serves; in the end nothing was complained about."""
    expect.set_options(timeout=PATIENCE_MS)
    page = browser.new_page(viewport={"width": 1200, "height": 900}, reduced_motion="reduce")
    one = Watched(cluster, proxy, port, page)
    page.on("pageerror", lambda error: one.complaints.append(str(error)))
    page.on("request", lambda request: one.asked.add(request.url))
    page.goto(one.address)
    expect(page.get_by_role("status")).to_have_text("Ready: clients are served")
    yield one
    page.close()
    assert one.complaints == []
    assert {url for url in one.asked if not url.startswith((one.address, "data:"))} == set(), "nothing from elsewhere"


AGE_ABOVE = "least => parseFloat(document.querySelector('#unknown_outcomes td:nth-child(4)').textContent) > least"


def seconds(shown: str) -> float:
    """An age as the page shows it."""
    number, unit = shown.split(" ")
    return float(number) / {"s": 1, "ms": 1000}[unit]


def cells(page: Page, table: str) -> list[list[str]]:
    """The text of a table's body, read in one step: the page may write its rows again at any moment."""
    read = "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.innerText))"
    found: list[list[str]] = page.locator(f"#{table} tr").evaluate_all(read)
    return found


def test_the_numbers_move_without_a_reload(watched: Watched, pictures: Path) -> None:
    page, topic = watched.page, fresh_topic(watched.cluster, partitions=1)
    page.evaluate("window.notReloaded = true")
    expect(page.locator("#duplicates_prevented")).to_have_text("0")
    expect(page.locator("#duplicates")).to_contain_text("None so far")
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=5, faults_max=3)
    with FaultRelay(watched.proxy.address, rewrite_addresses=True, plan=plan) as relay:
        watched.produce(topic, 2_000, f"127.0.0.1:{relay.port}")
    expect(page.locator("#duplicates_prevented")).not_to_have_text("0")
    expect(page.locator("#duplicates")).to_contain_text("orders-service")
    expect(page.locator("#producers")).to_contain_text(f"{topic}-0")
    assert page.evaluate("window.notReloaded")
    row = page.locator("#producers tr").filter(has_text=f"{topic}-0")
    expect(row.locator("td").nth(4)).to_have_text("2000")
    expect(row).to_contain_text("idle")
    ((broker, address, version, state, _busy, _idle, own, waiting),) = cells(page, "brokers")
    assert (broker, version, state, own, waiting) == ("0", "0.10.2", "connected", "0 of 0", "0")
    assert address.endswith(f":{watched.cluster.address(0)[1]}")
    ((place, producer, client, epoch, following, window, work),) = (
        row for row in cells(page, "producers") if row[0].startswith(topic)
    )
    assert (place, client, epoch, following, work) == (f"{topic}-0", "orders-service", "0", "2000", "idle")
    ((_, _, batches, records, size, prevented, others, _),) = (row for row in cells(page, "clients") if row[1] == topic)
    assert records == "2,000"
    assert others == "–" or re.fullmatch(r"duplicate \d", others), "those that were joined have no answer of their own"
    assert int(batches) > 0
    assert size.endswith(("B", "KB"))
    prevented_in_all = sum(int(row[2]) for row in cells(page, "duplicates"))
    assert page.locator("#duplicates_prevented").inner_text() == str(prevented_in_all)
    assert int(prevented) <= prevented_in_all
    expect(page.locator("#chart_batches figcaption")).to_contain_text("Batches per second: ")
    assert len(window.split(", ")) == 5
    (stored,) = (key for key in watched.proxy.entries() if f"{topic}/".encode() in key)
    assert int(producer) == int(stored.rpartition(b":")[2], 16), "it has more digits than a browser's numbers"
    page.locator("#events tr").evaluate_all("rows => rows.slice(3).forEach(row => row.remove())")  # paths of a machine
    page.screenshot(path=pictures / "status-page.png", full_page=True)


def test_producer_names_and_hidden_ranges_are_there_as_soon_as_there_are_any(watched: Watched) -> None:
    page, topic = watched.page, fresh_topic(watched.cluster, partitions=1)
    expect(page.locator("#names_section")).to_be_hidden()
    expect(page.locator("#hidden_ranges_section")).to_be_hidden()
    with RawClient(watched.proxy.address) as client:
        for _ in range(2):
            error_code, producer_id, producer_epoch = client.init_producer_id(transactional_id="orders-1")
            assert error_code == 0
        written = batch([b"one", b"two"], producer_id=producer_id, epoch=producer_epoch, sequence=0)
        assert client.produce_one(topic, 0, written).error_code == 0
    watched.produce(topic, 3)
    url = f"unix://{(watched.proxy.data_directory / 'redis' / 'redis.socket').read_text()}"
    done = idemproxy("hide", "add", topic, 0, 0, 0, "--yes", "--redis", url, "--reason", "ticket 4711")
    assert done.returncode == 0, done.stdout + done.stderr
    expect(page.locator("#names_title")).to_be_visible()
    expect(page.locator("#names")).to_contain_text(f"{topic}-0: 1 (epoch 1)")
    (name, producer, epoch, began, instances, fenced, _) = cells(page, "names")[0]
    assert (name, epoch, instances, fenced) == ("orders-1", "1", "2", "1")
    assert int(producer) > 2**53
    assert began.endswith("ago")
    expect(page.locator("#hidden_ranges")).to_contain_text("active")
    ((place, first, last, state, since, reason),) = cells(page, "hidden_ranges")
    assert (place, first, last, state, reason) == (f"{topic}-0", "0", "0", "active", "ticket 4711")
    assert since.endswith("ago")
    undone = idemproxy("hide", "remove", topic, 0, 0, 0, "--redis", url)
    assert undone.returncode == 0, undone.stdout + undone.stderr
    expect(page.locator("#hidden_ranges_section")).to_be_hidden()


def test_old_clients_have_a_section_as_soon_as_there_is_one(watched: Watched) -> None:
    page = watched.page
    is_hidden = page.evaluate('(showOldClients([]), byId("old_clients_section").hidden)')
    assert is_hidden
    with RawClient(watched.proxy.address, client_id="a <b>museum</b>") as client:
        client.ask(ApiKey.OFFSET_COMMIT, 1, group_id="g", topics=[])
    row = page.locator("#old_clients tr", has_text="museum")
    expect(row).to_be_visible()
    name, address, software, principal, sent, refused, seen = row.locator("td").all_inner_texts()
    assert (name, address, software, principal) == ("a <b>museum</b>", HOST, "–", "–")
    assert (sent, refused) == ("OffsetCommit 1: 1", "0")
    assert seen.endswith("ago")


def test_an_unknown_outcome_is_a_row_that_ages_and_ends_as_event(
    cluster: LegacyCluster, browser: Browser, tmp_path: Path
) -> None:
    """The second append is answered, the answer is lost, and from then on the broker seems to stand still."""
    topic, (port,) = fresh_topic(cluster, partitions=1), free_ports(1)
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=2, faults_max=1)
    with (
        KeepingRelay(cluster.address(0), plan) as relay,
        ProxyProcess(tmp_path, (HOST, relay.port), options=("--admin-bind", f"{HOST}:{port}")) as proxy,
        watching(cluster, browser, proxy, port) as watched,
        RawClient(proxy.address) as client,
    ):
        page = watched.page
        expect(page.locator("#unknown_outcomes")).to_have_text("Nothing is in doubt.")
        producer_id = client.new_producer_id()
        first, second = (batch([b"v"], producer_id=producer_id, sequence=sequence) for sequence in (0, 1))
        assert client.produce_one(topic, 0, first).error_code == 0
        relay.keep(Keeping.ALL_ANSWERS)
        client.send_produce([(topic, 0, second)], timeout_ms=UNKNOWN_OUTCOME_MS)
        expect(page.locator("#unknown_outcomes")).to_contain_text(f"{topic}-0")
        ((place, producer, sequence, age, reason),) = cells(page, "unknown_outcomes")
        assert (place, producer, sequence) == (f"{topic}-0", str(producer_id), "1")
        assert "Connection reset by peer" in reason
        expect(page.locator("#in_doubt")).to_contain_text("1, oldest ")
        then = seconds(age)
        page.wait_for_function(AGE_ABOVE, arg=then + 3, timeout=PATIENCE_MS)
        ((_, _, _, age, _),) = cells(page, "unknown_outcomes")
        assert then + 3 < seconds(age) < then + PATIENCE_MS / 1000
        expect(page.locator("#producers")).to_contain_text("1 under way, 0 waiting")
        (opened,) = (row for row in cells(page, "events") if row[2].startswith("in doubt: "))
        assert re.fullmatch(r"\d\d:\d\d:\d\d", opened[0])
        where = rf"producer {producer_id} sequence 1 on {topic}-0, led by broker \d+ at \S+"
        assert opened[1] == "info"
        assert re.fullmatch(rf"in doubt: {where}: {re.escape(reason)}", opened[2])
        relay.let_go()
        (answer,) = client.produce_answer()
        assert (answer.error_code, answer.base_offset) == (0, 1)
        expect(page.locator("#unknown_outcomes")).to_have_text("Nothing is in doubt.")
        expect(page.locator("#in_doubt")).to_have_text("0")
        newest = [row[2] for row in cells(page, "events")]
        resolved, begun = (
            next(index for index, text in enumerate(newest) if text.startswith(start))
            for start in ("resolved as found: ", "in doubt: ")
        )
        assert resolved < begun, "the newest one is at the top"


def test_what_is_wrong_is_said_in_words_and_gone_when_it_is_fixed(watched: Watched) -> None:
    page = watched.page
    expect(page.locator("#reasons")).to_be_hidden()
    watched.proxy.kill_redis()
    expect(page.get_by_role("status")).to_have_text("Not ready")
    expect(page.get_by_role("list", name="What is wrong")).to_contain_text("Redis is away")
    assert page.title() == "Not ready – idemproxy"
    expect(page.get_by_role("status")).to_have_text("Ready: clients are served", timeout=90_000)
    expect(page.locator("#reasons")).to_be_hidden()


def test_a_proxy_that_has_ended_leaves_a_page_that_says_so(watched: Watched) -> None:
    page = watched.page
    assert watched.proxy.stop() == 0
    expect(page.get_by_role("status")).to_contain_text("No answer from the proxy since")
    watched.proxy.start()
    expect(page.get_by_role("status")).to_have_text("Ready: clients are served")


def test_everything_is_reached_and_done_with_the_keyboard(watched: Watched) -> None:
    page, topic = watched.page, fresh_topic(watched.cluster, partitions=1)
    watched.produce(topic, 10)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the numbers")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to the numbers")).to_be_in_viewport()
    page.keyboard.press("Tab")
    pause = page.get_by_role("button", name="Pause")
    expect(pause).to_be_focused()
    page.keyboard.press("Space")
    expect(pause).to_have_attribute("aria-pressed", "true")
    updated = page.locator("#updated").inner_text()
    page.wait_for_timeout(3_000)
    assert page.locator("#updated").inner_text() == updated, "it pauses"
    page.keyboard.press("Enter")
    expect(pause).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#updated")).not_to_have_text(updated)
    field = page.get_by_role("search", name="Producers").get_by_label("Topic")
    for _ in range(60):
        page.keyboard.press("Tab")
        if field.evaluate("one => one === document.activeElement"):
            break
    expect(field).to_be_focused()
    page.keyboard.type("no-such-topic")
    expect(page.locator("#producers")).to_contain_text("No producer")
    expect(field).to_be_focused()
    field.press("Control+A")
    page.keyboard.type(topic)
    expect(page.locator("#producers")).to_contain_text(f"{topic}-0")
    page.wait_for_timeout(2_500)
    expect(field).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_that_a_screen_reader_or_a_weak_eye_stumbles_over(watched: Watched, scheme: Any) -> None:
    page, topic = watched.page, fresh_topic(watched.cluster, partitions=1)
    page.emulate_media(color_scheme=scheme)
    watched.produce(topic, 10)
    expect(page.locator("#producers")).to_contain_text(f"{topic}-0")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_a_narrow_window_needs_no_sideways_scrolling_of_the_page(watched: Watched) -> None:
    page, topic = watched.page, fresh_topic(watched.cluster, partitions=1)
    watched.produce(topic, 10)
    expect(page.locator("#producers")).to_contain_text(f"{topic}-0")
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    line = "one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)"
    state = page.locator("#brokers td:nth-child(4)")
    assert state.evaluate(line) < 2, "no word of the table is broken"
    assert state.evaluate("one => getComputedStyle(one, '::before').content") == '"State"', "a cell says what it is"
    assert page.evaluate("document.documentElement.scrollHeight") < 6_000
    shown = page.locator("#events tr:visible")
    assert shown.count() <= 5
    page.get_by_role("button", name=re.compile("^Show all")).last.click()
    assert shown.count() > 5


def are_in_order(page: Page, topics: list[str]) -> bool:
    """Do the clients of these topics stand in this order?"""
    return [row[1] for row in cells(page, "clients") if row[1] in topics] == topics


def test_clients_are_sorted_and_filtered(watched: Watched) -> None:
    page, topic = watched.page, fresh_topic(watched.cluster, partitions=1)
    other = fresh_topic(watched.cluster, partitions=1)
    watched.produce(topic, 50)
    watched.produce(other, 5)
    expect(page.locator("#clients")).to_contain_text(other)
    records = page.locator("#clients_title ~ .wide th:nth-child(4)")
    for direction, wanted in (("descending", [topic, other]), ("ascending", [other, topic])):
        records.get_by_role("button").click()
        expect(records).to_have_attribute("aria-sort", direction)
        expect(page.locator("#clients")).to_contain_text(topic)
        wait_until(partial(are_in_order, page, wanted), f"they are sorted: {direction}")
    page.get_by_role("search", name="Clients and topics").get_by_label("Client or topic").fill(topic)
    expect(page.locator("#clients")).not_to_contain_text(other)
    expect(page.locator("#clients")).to_contain_text(topic)


def test_names_that_clients_choose_are_text_and_never_markup(watched: Watched) -> None:
    page, topic = watched.page, fresh_topic(watched.cluster, partitions=1)
    host, port = watched.proxy.address
    name = "<img src=x onerror=alert(1)>"
    settings: dict[str, Any] = librdkafka_settings(f"{host}:{port}", enable_idempotence=True)
    plan = FaultPlan(kinds=[FaultKind.LOST_ANSWER], every_nth_produce=1, faults_max=1)
    with FaultRelay(watched.proxy.address, rewrite_addresses=True, plan=plan) as relay:
        more = {"client.id": name, "bootstrap.servers": f"127.0.0.1:{relay.port}"}
        produce(settings | more, topic, 1, 1)
    for table in ("duplicates", "clients", "producers"):
        expect(page.locator(f"#{table}").get_by_role("cell", name=name)).to_have_text(name)
    assert page.locator("main img").count() == 0
