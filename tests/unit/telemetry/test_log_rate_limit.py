"""What clients can cause at will fills no log: so many lines a minute of each kind, and one with the number of the
rest. Everything is counted all the same."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.proxy import events, limits
from idemproxy.proxy.telemetry.log_rate_limit import LogRateLimit
from idemproxy.proxy.telemetry.reports import Telemetry

MOST = limits.LINES_PER_MINUTE_MAX


class Scene:
    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.telemetry = Telemetry()
        self.telemetry._now = lambda: self.now
        self.telemetry.later = lambda seconds, callback: self.timers.append((self.now + seconds, callback))

    def tell(self, event: Any, count: int) -> None:
        for _ in range(count):
            self.telemetry(event)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for _, callback in due:
            callback()


REFUSALS = [
    (events.ClientRefused("c", "a null set"), "refused from clients", "invalid_requests_total"),
    (events.SlowClient("c", "nothing"), "disconnected clients", "slow_clients_disconnected_total"),
    (events.TlsRefused("192.0.2.1", "no certificate"), "TLS with clients", "tls_handshakes_failed_total"),
    (
        events.ConnectionRefused("192.0.2.1", "address", "500 connections are open from there"),
        "no connection (address)",
        "connections_refused_total{reason=address}",
    ),
    (
        events.BatchAnswered("out_of_order", 7, 1, 30, "orders", 2, 45, -1, "a gap"),
        "out_of_order",
        "out_of_order_refused_total",
    ),
]


@pytest.mark.parametrize(("event", "kind", "counter"), REFUSALS, ids=lambda one: one if isinstance(one, str) else "")
def test_lines_above_the_limit_become_one_summary_and_all_are_counted(
    event: Any, kind: str, counter: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, "idemproxy"):
        scene.tell(event, MOST + 1234)
        assert len(caplog.messages) == MOST
        scene.wait(59)
        assert len(caplog.messages) == MOST
        scene.wait(1)
    assert caplog.messages[MOST:] == [f"{kind}: 1234 more lines like these in a minute were left out"]
    assert caplog.records[-1].levelno == logging.WARNING
    assert scene.telemetry.counts[counter] == MOST + 1234
    with caplog.at_level(logging.INFO, "idemproxy"):
        scene.tell(event, 1)
    assert len(caplog.messages) == MOST + 2, "a new minute has begun"
    assert scene.timers == []


def test_kinds_do_not_take_each_others_lines(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with caplog.at_level(logging.INFO, "idemproxy"):
        for event, _, _ in REFUSALS:
            scene.tell(event, MOST)
    assert len(caplog.messages) == MOST * len(REFUSALS)


def test_what_was_left_out_is_said_at_the_end_too_and_without_a_clock(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    scene.telemetry.later = None
    with caplog.at_level(logging.INFO, "idemproxy"):
        scene.tell(events.SlowClient("c", "nothing"), MOST + 5)
        scene.now += 61
        scene.tell(events.ClientRefused("c", "a null set"), 1)
        assert caplog.messages[MOST] == "disconnected clients: 5 more lines like these in a minute were left out"
        scene.tell(events.ClientRefused("c", "a null set"), MOST + 6)
        scene.telemetry.close()
    assert "refused from clients: 7 more lines like these in a minute were left out" in caplog.messages


def test_duplicates_have_lines_enough_and_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    duplicate = events.BatchAnswered("duplicate", 7, 1, 30, "orders", 2, 0, 400)
    with caplog.at_level(logging.INFO, "idemproxy"):
        scene.tell(duplicate, limits.DUPLICATE_LINES_PER_MINUTE_MAX + 3)
        scene.wait(60)
    assert len(caplog.messages) == limits.DUPLICATE_LINES_PER_MINUTE_MAX + 1
    assert caplog.messages[-1] == "duplicate: 3 more lines like these in a minute were left out"


@pytest.mark.parametrize(("most", "lines"), [(0, 5000), (3, 4), (100, 101)])
def test_how_many_lines_there_are_is_a_setting_and_zero_is_all(
    most: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    scene.telemetry.lines_per_minute_max = most
    with caplog.at_level(logging.INFO, "idemproxy"):
        scene.tell(events.SlowClient("c", "nothing"), 5000)
        scene.wait(60)
    assert len(caplog.messages) == lines


def test_a_minute_begins_with_its_first_line() -> None:
    rate_limit = LogRateLimit()
    assert rate_limit.next_end is None
    assert [rate_limit.admits("a", 2, 10.0 + number) for number in range(4)] == [True, True, False, False]
    assert rate_limit.next_end == 70.0
    assert list(rate_limit.ended(69.9)) == []
    assert list(rate_limit.ended(70.0)) == [("a", 2)]
    assert list(rate_limit.ended(70.0)) == []
    assert rate_limit.admits("a", 2, 70.0)
    assert list(rate_limit.ended(70.1, is_the_end=True)) == [], "nothing was left out"
